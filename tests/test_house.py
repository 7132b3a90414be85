"""Laws of how the code is cut: rooms, files and functions that can be read at a glance."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = ("src", "tests", "benchmarks", "examples")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
"""Without the docstring; for commands, whose signatures are their help, without the signature."""
MAX_GROUND_FLOOR = 5
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> list[Path]:
    """All Python and C++ files of the project that people write."""
    python = [path for folder in PYTHON for path in (ROOT / folder).rglob("*.py")]
    core = [*(ROOT / "cpp").rglob("*.hpp"), *(ROOT / "cpp").rglob("*.cpp")]
    return sorted(python + core)


def functions(path: Path) -> list[Function]:
    """Functions and methods of a Python file, nested ones included."""
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def code_lines(function: Function, *, with_signature: bool) -> int:
    """Lines of a function without its docstring."""
    body = function.body
    docstring = body[0] if ast.get_docstring(function) is not None else None
    first = function.lineno if with_signature else body[0].lineno
    n_lines = (function.end_lineno or first) - first + 1
    return n_lines - (0 if docstring is None else _height(docstring))


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_code_lines_are_counted() -> None:
    """The signature counts if asked for, the docstring never."""
    tree = ast.parse('def f(\n    a,\n):\n    """Two\n    lines."""\n    b = a\n    return b\n')
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    assert code_lines(function, with_signature=True) == 5
    assert code_lines(function, with_signature=False) == 2


def test_files_are_short() -> None:
    """No file has more than 400 lines."""
    lengths = {path: len(path.read_text().splitlines()) for path in sources()}
    assert len(lengths) > 100  # or nothing was found
    long = {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_FILE_LINES}
    assert long == {}


def test_functions_are_short() -> None:
    """No Python function has more than 40 lines of code."""
    long = {}
    for path in (path for path in sources() if path.suffix == ".py"):
        is_command = path.parent.name == "cli"
        for function in functions(path):
            n_lines = code_lines(function, with_signature=not is_command)
            if n_lines > MAX_FUNCTION_LINES:
                long[f"{path.relative_to(ROOT)}:{function.name}"] = n_lines
    assert long == {}


def test_the_ground_floor_is_small() -> None:
    """Modules stand in rooms, at most five beside them."""
    assert len(list((ROOT / "src/l2route").glob("*.py"))) <= MAX_GROUND_FLOOR
