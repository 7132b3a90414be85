"""How the code blocks of README.md, CONTRIBUTING.md and docs/ are run.

The blocks of a document run from top to bottom in one namespace and one temporary directory.

- `python` blocks are executed. Their namespace has `vectors`, `query_log` and `queries`, a small
  synthetic data set (`small_data`).
- A `text` block right after a `python` block is the output expected of it. `...` matches any text.
- `sh` blocks are run by bash, which stops at the first command that fails. The directory has
  `vectors.npz` with the arrays `base`, `learn` and `query`, and links to examples/ and benchmarks/.
- `console` blocks are run the same way: commands follow `$ `, other lines are the expected output.
- `<!-- skip: next "reason" -->` skips a block that downloads or takes minutes. `skip: start` and
  `skip: end` skip all blocks between them.
- Learning is cut short: every `minutes=N` and `--minutes N` is run with MINUTES.
"""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser
from sybil.region import Lexeme

ROOT = Path(__file__).parent.parent
MINUTES = "0.02"
"""Minutes of learning in place of those that a document states."""
SECONDS = 120
"""Time limit of a shell block."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
RUN = re.compile(r"```python\n(?:(?!```).*\n)*```\s*\Z")
"""Matches text that ends with a `python` block."""

Vectors = NDArray[np.float32]
Evaluator = Callable[[Example], str | None]


def small_data(n: int = 2000, dim: int = 16, seed: int = 0) -> tuple[Vectors, Vectors, Vectors]:
    """Base vectors [n, dim], a query log [n / 2, dim] and queries [200, dim] near a surface."""
    rng = np.random.default_rng(seed)
    inner, outer = rng.normal(size=(6, 24)), rng.normal(size=(24, dim))
    points = [np.tanh(rng.normal(size=(size, 6)) @ inner) @ outer for size in (n, n // 2, 200)]
    base, log, queries = (each.astype(np.float32) for each in points)
    return base, log, queries


def cut_short(source: str) -> str:
    """Source code with all minutes of learning replaced by MINUTES."""
    return re.sub(r"(\bminutes=|--minutes(?:-per-run)? )[\d.]+", rf"\g<1>{MINUTES}", source)


def compared(expected: str, got: str) -> str | None:
    """None if an output is as expected, else the difference."""
    checker = doctest.OutputChecker()
    if checker.check_output(expected, got, FLAGS):
        return None
    return checker.output_difference(doctest.Example("", expected), got, FLAGS)


def run_python(example: Example) -> None:
    """Execute a block, and keep its output for the next block."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        PythonEvaluator()(example)
    example.namespace["_printed"] = printed.getvalue()


def check_printed(example: Example) -> str | None:
    """Compare a block with the output of the block before it."""
    return compared(example.parsed, example.namespace["_printed"])


def run_shell(example: Example) -> str | None:
    """Run a block of commands; an exit code other than 0 is a failure."""
    failure, _ = _bash(example.parsed)
    return failure


def run_console(example: Example) -> str | None:
    """Run the commands of a block, and compare their output with that in the block, if any."""
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", example.parsed, re.MULTILINE)
    for command, expected in commands:
        failure, printed = _bash(command)
        failure = failure or (compared(expected, printed) if expected else None)
        if failure is not None:
            return f"$ {command}\n{failure}"
    return None if commands else "expected commands after '$ ', got none"


def _bash(source: str) -> tuple[str | None, str]:
    """The failure, if any, and the output."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", source],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PATH": path, "COLUMNS": "200"},
    )
    failed = f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return (failed if done.returncode else None), done.stdout


class ShortBlockParser(CodeBlockParser):
    """A parser of code blocks that shortens learning."""

    def __call__(self, document: Document) -> Iterable[Region]:
        """Regions of the blocks."""
        for region in super().__call__(document):
            source = region.parsed
            region.parsed = Lexeme(cut_short(source), source.offset, source.line_offset)
            yield region


def printed_blocks(document: Document) -> Iterable[Region]:
    """Regions of `text` blocks that follow a `python` block."""
    for region in CodeBlockParser("text", check_printed)(document):
        if RUN.search(document.text[: region.start]):
            yield region


def enter_directory(namespace: dict[str, Any]) -> None:
    """Make the data set in a temporary directory, and change to it."""
    vectors, query_log, queries = small_data()
    namespace.update(vectors=vectors, query_log=query_log, queries=queries)
    directory = tempfile.TemporaryDirectory()
    namespace.update(_directory=directory, _before=Path.cwd())
    os.chdir(directory.name)
    np.savez("vectors.npz", base=vectors, learn=query_log, query=queries)
    for name in ("examples", "benchmarks"):
        Path(name).symlink_to(ROOT / name)


def leave_directory(namespace: dict[str, Any]) -> None:
    """Change back, and remove the temporary directory."""
    os.chdir(namespace["_before"])
    namespace["_directory"].cleanup()
    namespace.clear()


DOCUMENTS = Sybil(
    parsers=[
        ShortBlockParser("python", run_python),
        ShortBlockParser("sh", run_shell),
        ShortBlockParser("console", run_console),
        printed_blocks,
        SkipParser(),
    ],
    path=str(ROOT),
    patterns=["README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md"],
    setup=enter_directory,
    teardown=leave_directory,
)
