"""Laws of one process with faiss, torch and the core: threads of all three work side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("one_process.py")
LIBRARIES = {
    "numpy": ("numpy",),
    "faiss": ("numpy", "faiss"),
    "torch": ("torch", "numpy"),
    "l2route": ("numpy", "faiss", "l2route"),
}
"""What an import loads, in order."""
SECONDS = 120
"""Alone it takes three to ten seconds, so a longer run is a deadlock."""


def loaded(order: tuple[str, ...]) -> tuple[str, ...]:
    """Order in which libraries are loaded when they are imported in this order."""
    return tuple(dict.fromkeys(each for name in order for each in LIBRARIES[name]))


def orders() -> list[tuple[str, ...]]:
    """Orders of import: all in `make wheel-test`, otherwise one for each order of loading."""
    every = list(permutations(LIBRARIES))
    if "L2ROUTE_WHEELS" in os.environ:
        return every
    return list({loaded(order): order for order in every}.values())


def test_orders_of_loading_are_told_apart() -> None:
    """24 orders of import load the libraries in four orders."""
    assert len({loaded(order) for order in permutations(LIBRARIES)}) == 4
    assert loaded(("l2route", "torch", "numpy", "faiss")) == ("numpy", "faiss", "l2route", "torch")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
@pytest.mark.parametrize("order", orders(), ids=" ".join)
def test_threads_of_all_libraries_work_side_by_side(order: tuple[str, ...]) -> None:
    """Searches, gradients and products on all threads at once end, with the right answers.

    faiss and torch each bring a copy of GNU's OpenMP runtime under a name of its own, and the core
    brings none. Two copies of that runtime keep their threads apart. Another kind of runtime in the
    same process would be news, and has to be looked at.
    """
    command = [sys.executable, str(PROGRAM), *order]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    names = [Path(line).name for line in done.stdout.split()]
    assert [name for name in names if not name.startswith("libgomp")] == []
    assert len(names) <= 2
