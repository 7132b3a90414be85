"""Laws of size: packages, files and functions; and of functions that compilers drop."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from parsing import parsed

ROOT = Path(__file__).parents[1]
PYTHON = ("src", "tests", "benchmarks", "examples")
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 40
"""Below the signature and the docstring."""
MAX_TOP_MODULES = 5
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> list[Path]:
    """All Python and C++ sources of the project."""
    python = [path for folder in PYTHON for path in (ROOT / folder).rglob("*.py")]
    core = [*(ROOT / "cpp").rglob("*.hpp"), *(ROOT / "cpp").rglob("*.cpp")]
    return sorted(python + core)


def functions(path: Path) -> list[Function]:
    """Functions and methods of a Python file, nested ones included."""
    tree = parsed(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def code_lines(function: Function) -> int:
    """Lines of a function below its signature and its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_code_lines_are_counted() -> None:
    """Signature and docstring are not counted."""
    tree = ast.parse('def f(\n    a,\n):\n    """Two\n    lines."""\n    b = a\n    return b\n')
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    assert code_lines(function) == 2


def test_files_are_short() -> None:
    """No file has more than 700 lines."""
    lengths = {path: len(path.read_text().splitlines()) for path in sources()}
    assert len(lengths) > 100  # sources are found
    long = {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_FILE_LINES}
    assert long == {}


def test_functions_are_short() -> None:
    """No Python function has more than 40 lines of code."""
    long = {}
    for path in (path for path in sources() if path.suffix == ".py"):
        for function in functions(path):
            n_lines = code_lines(function)
            if n_lines > MAX_FUNCTION_LINES:
                long[f"{path.relative_to(ROOT)}:{function.name}"] = n_lines
    assert long == {}


def test_few_modules_are_outside_packages() -> None:
    """At most five modules are outside packages."""
    assert len(list((ROOT / "src/l2route").glob("*.py"))) <= MAX_TOP_MODULES


def test_functions_that_prefetch_are_always_inlined() -> None:
    """GCC drops calls of functions that only prefetch, unless they are always inlined."""
    found, dropped = 0, []
    for path in (ROOT / "cpp").rglob("*.hpp"):
        for line in re.findall(r"^.*\bvoid prefetch\w*\(.*$", path.read_text(), re.MULTILINE):
            does_nothing = line.endswith("{}")
            found += not does_nothing
            if not does_nothing and "[[gnu::always_inline]]" not in line:
                dropped.append(f"{path.name}: {line.strip()}")
    assert found >= 5
    assert dropped == []
