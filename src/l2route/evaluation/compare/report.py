"""Tables and pictures of a comparison, made of its raw results."""

from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from l2route.evaluation.compare.picture import draw_speed_against_recall
from l2route.evaluation.compare.run import TARGETS, Comparison, Line
from l2route.evaluation.plots import write_figure

OURS = "l2route"
"""Prefix of the names of our methods; the fastest of them is compared with the others."""


def header() -> list[str]:
    """Names of the columns of `table_rows`."""
    speeds = [f"q/s at {target:.2f}" for target in TARGETS]
    ratios = [f"× at {target:.2f}" for target in TARGETS]
    counts = [f"scored at {target:.2f}" for target in TARGETS]
    return ["method", *speeds, *ratios, *counts, "build s", "learn s", "bytes"]


def table_rows(result: Comparison) -> list[list[str]]:
    """One row per method, each speed that of its fastest parameters; a dash if not reached."""
    rows = []
    for method in result.methods:
        found = [result.best(method, target) for target in TARGETS]
        ours = [_fastest_of_ours(result, target) for target in TARGETS]
        speeds = ["–" if one is None else f"{one[0]:,.0f}" for one in found]
        ratios = [
            "–" if one is None or own is None or is_ours(method) else f"{own / one[0]:.2f}"
            for one, own in zip(found, ours, strict=True)
        ]
        line = _typical(result, method)
        size = "–" if line.bytes_per_vector is None else f"{line.bytes_per_vector:,.0f}"
        costs = [f"{line.build_seconds - line.learn_seconds:.0f}", f"{line.learn_seconds:.0f}"]
        name = f"{method} ({line.label})"
        counts = [_distances(line, target) for target in TARGETS]
        rows.append([name, *speeds, *ratios, *counts, *costs, size])
    return rows


def is_ours(method: str) -> bool:
    """Whether a method is one of l2route's."""
    return method.split("-")[0] == OURS


def _fastest_of_ours(result: Comparison, target: float) -> float | None:
    found = [result.best(method, target) for method in result.methods if is_ours(method)]
    return max((one[0] for one in found if one is not None), default=None)


def as_markdown(result: Comparison) -> str:
    """The table in Markdown, below its caption."""
    lines = [header(), ["---"] * len(header()), *table_rows(result)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{caption(result)}\n\n{table}\n{_missing(result)}"


def rich_tables(result: Comparison) -> list[Table]:
    """The table for a terminal in two parts of at most 80 columns: speeds and costs."""
    n_speeds = 1 + 2 * len(TARGETS)
    tables = []
    for columns in (slice(1, n_speeds), slice(n_speeds, None)):
        table = Table(box=SIMPLE_HEAD, padding=(0, 1))
        table.add_column("method", no_wrap=True)
        for name in header()[columns]:
            heading = name.replace(" at ", "\n").replace(" ", "\n")
            table.add_column(heading, justify="right", no_wrap=True)
        for row in table_rows(result):
            table.add_row(row[0], *row[columns])
        tables.append(table)
    return tables


def caption(result: Comparison) -> str:
    """Data, queries, rounds and machine, in a line."""
    return (
        f"{result.data}: {result.n_base:,} vectors of {result.dim} dimensions, "
        f"{result.n_queries:,} test queries, recall@10, one thread, "
        f"best of {_n_rounds(result)} rounds, seed {result.seed}, {_machine(result)}; "
        f"× is the speed of the fastest {OURS} over the method's, bytes are per vector"
    )


def plot(result: Comparison, path: Path) -> None:
    """Draw queries per second against recall@10: each method at its fastest parameters."""
    curves = {
        method: result.envelope(line for line in result.lines if line.method == method)
        for method in result.methods
    }
    arrays = {method: np.array(points).reshape(-1, 2) for method, points in curves.items()}
    title = f"{result.data}: {result.n_base:,} vectors of {result.dim} dimensions"
    subtitle = f"one thread, best of {_n_rounds(result)} rounds, {_machine(result)}"
    ours = [method for method in arrays if is_ours(method)]
    write_figure(draw_speed_against_recall(arrays, title, subtitle, ours), path)


def _n_rounds(result: Comparison) -> int:
    return max((len(p.seconds) for line in result.lines for p in line.points), default=0)


def _machine(result: Comparison) -> str:
    machine = result.context["machine"]
    return f"{machine['processor']} ({machine['simd']})"


def _typical(result: Comparison, method: str) -> Line:
    """The line that is fastest at the middle target, or the first."""
    best = result.best(method, TARGETS[len(TARGETS) // 2])
    if best is not None:
        return best[1]
    return next(line for line in result.lines if line.method == method)


def _distances(line: Line, recall: float) -> str:
    """Distances computed at a recall, interpolated; a dash if not counted or not reached."""
    points = [(p.recall, p.n_computed) for p in line.points if p.n_computed is not None]
    points.sort()
    if not points or not points[0][0] <= recall <= points[-1][0]:
        return "–"
    recalls, counts = zip(*points, strict=True)
    return f"{np.interp(recall, recalls, counts):,.0f}"


def _missing(result: Comparison) -> str:
    skipped = result.skipped.items()
    return "\n".join(f"\nNot measured: {name}: {reason}" for name, reason in skipped)
