"""The report of a build, as an index keeps it: plain values, which only the recipe understands."""

import math
from collections.abc import Mapping
from typing import Any

DEEPEST = 8
"""Levels of objects and lists that a report may have."""


def checked_report(report: object) -> Mapping[str, Any]:
    """Refuse what JSON cannot say, what is not finite and what is nested too deeply."""
    if not isinstance(report, dict):
        raise ValueError(f"expected a report as an object, got {type(report).__name__}")
    _check(report, DEEPEST)
    return report


def _check(value: object, levels: int) -> None:
    if isinstance(value, dict | list):
        if levels == 0:
            raise ValueError(f"expected a report of at most {DEEPEST} levels, got more")
        if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
            raise ValueError("expected a report with keys of text, got others")
        for each in value.values() if isinstance(value, dict) else value:
            _check(each, levels - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected finite numbers in a report, got {value}")
    elif not isinstance(value, str | int | float | None):
        raise ValueError(f"expected plain values in a report, got {type(value).__name__}")
