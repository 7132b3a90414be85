"""Types and commands shared by the tests of the command line."""

from collections.abc import Callable

Run = Callable[[str], tuple[int, str, str]]
"""Calls the command line: exit code, output, errors."""
BUILD = "build data.npz:base -o words.l2r --degree 8 --ef-construction 40 --entry 0 --no-refine"
"""Builds an index over `workdir`'s vectors."""
