"""Sources of Python as syntax trees."""

from __future__ import annotations

import ast

MAX_PARSES = 20
"""Times that a source is parsed: Python 3.11 may fail with a SystemError while other threads parse
(python/cpython#106905)."""


def parsed(source: str) -> ast.Module:
    """The syntax tree of a source."""
    for _ in range(MAX_PARSES - 1):
        try:
            return ast.parse(source)
        except SystemError:
            continue
    return ast.parse(source)
