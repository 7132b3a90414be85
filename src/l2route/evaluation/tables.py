"""Tables of measured operating points, for terminals, pages and machines."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

MISSING = "–"
"""Shown for a value that does not apply or was not measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured operating point of one method."""

    method: str
    """Name of the method."""
    budget: int | None
    """Limit of distance computations per query; None without that limit."""
    ef: int | None
    """Beam width; None without that limit."""
    recall_at_1: float
    """Share of queries whose true nearest neighbour is the first answer."""
    recall_at_10: float
    """Share of the 10 true nearest neighbours among the first 10 answers."""
    n_computed: float
    """Distance computations, mean over the queries."""
    n_hops: float
    """Hops, mean over the queries."""
    microseconds_per_query: float
    """Time for one query, mean over the queries."""
    slack: float | None = None
    """Share by which a vertex may be farther than the k-th best; None without that limit."""
    worst_recall_at_10: float | None = None
    """Recall@10, mean over the 5% of queries whose recall is lowest; None if not measured."""


@dataclass(frozen=True, slots=True)
class _Column:
    """How one field of a row is shown."""

    field: str
    """Name of the field in Row."""
    heading: str
    """Heading of the column."""
    digits: int = 0
    """Digits after the point in text."""
    json_digits: int = 0
    """Digits after the point in JSON."""
    is_optional: bool = False
    """Omitted if no row has a value."""


_COLUMNS = (
    _Column("method", "method"),
    _Column("budget", "budget", is_optional=True),
    _Column("ef", "ef", is_optional=True),
    _Column("slack", "slack", digits=3, json_digits=4, is_optional=True),
    _Column("recall_at_1", "recall@1", digits=3, json_digits=4),
    _Column("recall_at_10", "recall@10", digits=3, json_digits=4),
    _Column("worst_recall_at_10", "worst 5%", digits=3, json_digits=4, is_optional=True),
    _Column("n_computed", "distances", digits=1, json_digits=2),
    _Column("n_hops", "hops", digits=1, json_digits=2),
    _Column("microseconds_per_query", "µs/query", digits=1, json_digits=2),
)

_METHOD_LETTERS = 8
"""Least width of the method's column in a terminal; all columns then fit 80 characters."""


def as_markdown(rows: Sequence[Row], caption: str | None = None) -> str:
    """Format rows as a table of GitHub's Markdown, below an optional caption."""
    lines = _pad(_cells(rows, lambda method: _one_line(method).replace("|", "\\|")))
    rules = ["-" * len(heading) for heading in lines[0]]
    rules[1:] = [rule[:-1] + ":" for rule in rules[1:]]
    body = [f"| {' | '.join(line)} |" for line in (lines[0], rules, *lines[1:])]
    return "\n".join([*([caption, ""] if caption else []), *body])


def as_json(rows: Sequence[Row], context: Mapping[str, object]) -> str:
    """Format rows and their context as one JSON object.

    Args:
        rows: Operating points, written under the key "rows" by the names of Row's fields, [n].
        context: What holds for all rows (dataset, seed, ...); its keys stand beside "rows".

    Returns:
        JSON with null in place of NaN and infinity.
    """
    if "rows" in context:
        raise ValueError('expected a context without the key "rows", got one with it')
    content = {**context, "rows": [_rounded(row) for row in rows]}
    return json.dumps(_plain(content), indent=2, ensure_ascii=False, allow_nan=False)


def rich_table(rows: Sequence[Row], caption: str | None = None) -> Table:
    """Format rows as a table for rich to print in a terminal, below an optional caption."""
    headings, *lines = _cells(rows, _one_line)
    # Text, not str: rich would take "[d=25]" in a method's name for a style and swallow it.
    table = Table(
        title=Text(caption) if caption else None, box=SIMPLE_HEAD, show_edge=False, padding=0
    )
    table.add_column(headings[0], overflow="fold", min_width=_METHOD_LETTERS)
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def _cells(rows: Sequence[Row], show_method: Callable[[str], str]) -> list[list[str]]:
    """Return the headings, then the values of each row as text; the method is first."""
    columns = [column for column in _COLUMNS if _is_shown(column, rows)]
    lines = [[column.heading for column in columns]]
    for row in rows:
        numbers = [_number(getattr(row, c.field), c.digits) for c in columns[1:]]
        lines.append([show_method(row.method), *numbers])
    return lines


def _is_shown(column: _Column, rows: Sequence[Row]) -> bool:
    if not column.is_optional:
        return True
    return any(getattr(row, column.field) is not None for row in rows)


def _number(value: float | None, digits: int) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:.{digits}f}"


def _one_line(method: str) -> str:
    return " ".join(method.split())


def _pad(lines: list[list[str]]) -> list[list[str]]:
    """Make all cells of a column equally wide: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        [line[0].ljust(widths[0])]
        + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        for line in lines
    ]


def _rounded(row: Row) -> dict[str, object]:
    digits = {column.field: column.json_digits for column in _COLUMNS}
    return {
        name: round(float(value), digits[name]) if isinstance(value, float | np.floating) else value
        for name, value in asdict(row).items()
    }


def _plain(value: object) -> object:
    """Return a value in JSON's types, null for numbers that JSON lacks."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
