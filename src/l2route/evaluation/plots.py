"""Pictures of measured operating points and of walks; they need the extra ``plots``.

Figures are made without pyplot, so nothing global changes and no display is needed.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from l2route.evaluation.tables import Row
from l2route.extras import install
from l2route.files.atomic import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Depth = Literal[1, 10]
"""Answers of a recall that can be drawn."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's colours, which colour-blind readers can tell apart, but for pale yellow."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLES = ("-", "--", ":", "-.")

DPI = 200
SIZE = (8.0, 4.8)  # inches
TEXT_COLOUR = "#333333"
GRID_COLOUR = "#E3E3E3"
LEGEND_LETTERS = 26
"""Longer names are wrapped, so that the legend leaves room for the data."""
MAX_LABELLED_METHODS = 2
"""Values are written beside points up to this many lines; with more they would overlap."""
MAX_ACROSS = 12
"""Four-digit numbers that fit side by side along the x axis."""


def plot_recall_against_budget(rows: Sequence[Row], path: Path, title: str, k: Depth = 10) -> None:
    """Write a picture of recall@k against distance computations, one line per method.

    Args:
        rows: Operating points, [n >= 1]; those without a distance count are named, not drawn.
        path: File to write, of a type that matplotlib knows (.png, .svg, .pdf).
        title: Line above the picture.
        k: Which recall to draw, recall@1 or recall@10.
    """
    write_figure(draw_recall_against_budget(rows, title, k), path)


def draw_recall_against_budget(rows: Sequence[Row], title: str, k: Depth = 10) -> Figure:
    """Draw recall@k against distance computations, one line per method.

    Args:
        rows: Operating points, [n >= 1]; those without a distance count are named, not drawn.
        title: Line above the picture.
        k: Which recall to draw, recall@1 or recall@10.

    Returns:
        The figure; each line's label is its method.
    """
    drawn = [row for row in rows if _can_be_drawn(row, k)]
    if not drawn:
        raise ValueError(
            f"expected a row with recall@{k} and distances > 0, got none among {len(rows)}"
        )
    figure, axes = new_axes(title)
    lines = _lines_by_method(drawn, k)
    for index, (method, points) in enumerate(lines.items()):
        axes.plot(points[:, 0], points[:, 1], label=method, **_look(index))
    axes.set_xscale("log", base=2)
    _mark_budgets(axes, drawn)
    name_axes(axes, "distance computations per query" + _absent(rows, lines), f"recall@{k}")
    axes.margins(x=0.09, y=0.1)
    _limit_shares(axes)
    _label_points(axes, lines)
    _add_legend(axes)
    return figure


def draw_success_by_hops(curves: Mapping[str, NDArray[np.floating[Any]]], title: str) -> Figure:
    """Draw the share of queries that reached their target within h hops, one line per method.

    Args:
        curves: For each method the share for h = 0, 1, ..., [n_hops + 1].
        title: Line above the picture.

    Returns:
        The figure; each line's label is its method.
    """
    from_zero = {method: _checked_curve(method, curve) for method, curve in curves.items()}
    if not from_zero:
        raise ValueError("expected at least one curve, got none")
    figure, axes = new_axes(title)
    longest = max(map(len, from_zero.values()))
    for index, (method, curve) in enumerate(from_zero.items()):
        look = _look(index) | {"markevery": math.ceil(longest / MAX_ACROSS)}
        axes.plot(np.arange(len(curve)), curve, label=method, **look)
    axes.locator_params(axis="x", integer=True)
    name_axes(axes, "hops", "share of queries that reached their target")
    axes.set_ylim(-0.03, 1.04)
    axes.set_yticks(np.linspace(0.0, 1.0, 6))
    _add_legend(axes)
    return figure


def plot_recall_against_distances(
    curves: Mapping[str, NDArray[np.floating[Any]]], path: Path, title: str, k: int = 10
) -> None:
    """Write a picture of recall@k against distance computations on a log scale.

    Args:
        curves: For each method its distances and recalls by ascending distances, [n_points, 2].
        path: File to write, of a type that matplotlib knows (.png, .svg, .pdf).
        title: Line above the picture.
        k: Answers per query.
    """
    write_figure(draw_recall_against_distances(curves, title, k), path)


def draw_recall_against_distances(
    curves: Mapping[str, NDArray[np.floating[Any]]], title: str, k: int = 10
) -> Figure:
    """Draw recall@k against distance computations on a log scale, one line per method.

    Args:
        curves: For each method its distances and recalls by ascending distances, [n_points, 2].
            The x axis has ticks at the first method's distances.
        title: Line above the picture.
        k: Answers per query.

    Returns:
        The figure; each line's label is its method.
    """
    from matplotlib.ticker import NullLocator

    figure, axes = new_axes(title)
    for index, (method, curve) in enumerate(curves.items()):
        axes.plot(curve[:, 0], curve[:, 1], label=method, **_look(index))
    ticks = _spread_out(next(iter(curves.values()))[:, 0].tolist())
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, labels=[f"{tick:,.0f}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    name_axes(axes, "distance computations per query", f"recall@{k}")
    axes.margins(x=0.09, y=0.1)
    _limit_shares(axes)
    _add_legend(axes)
    return figure


def new_figure(size: tuple[float, float]) -> Figure:
    """Return an empty figure of this size in inches that draws to memory."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError(
            f'expected matplotlib for plots, got "{error}"; {install("plots")}'
        ) from error
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    FigureCanvasAgg(figure)
    return figure


def new_axes(title: str, size: tuple[float, float] = SIZE) -> tuple[Figure, Axes]:
    """Return an empty figure with a light grid behind the data; the size is in inches."""
    figure = new_figure(size)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", color=TEXT_COLOUR, fontsize=12, pad=12, wrap=True)
    axes.grid(color=GRID_COLOUR, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.tick_params(which="both", color="#999999", labelcolor=TEXT_COLOUR, labelsize=9)
    return figure, axes


def _look(index: int) -> dict[str, Any]:
    """Return the colour, marker and dashes of a line by its number; 28 differ."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[(index + index // len(COLOURS)) % len(MARKERS)],
        "linestyle": STYLES[index // len(COLOURS) % len(STYLES)],
        "linewidth": 1.8,
        "markersize": 5.5,
    }


def name_axes(axes: Axes, x: str, y: str) -> None:
    """Write the names of both axes."""
    axes.set_xlabel(x, color=TEXT_COLOUR, fontsize=10)
    axes.set_ylabel(y, color=TEXT_COLOUR, fontsize=10)


def _recall(row: Row, k: Depth) -> float:
    return row.recall_at_1 if k == 1 else row.recall_at_10


def _can_be_drawn(row: Row, k: Depth) -> bool:
    return math.isfinite(_recall(row, k)) and math.isfinite(row.n_computed) and row.n_computed > 0


def _absent(rows: Sequence[Row], lines: Mapping[str, NDArray[np.float64]]) -> str:
    """Return a line that names the methods that are not drawn."""
    names = dict.fromkeys(row.method for row in rows if row.method not in lines)
    return f"\n(no counts to draw: {', '.join(names)})" if names else ""


def _lines_by_method(rows: Sequence[Row], k: Depth) -> dict[str, NDArray[np.float64]]:
    """Return each method's points (distances, recall@k) from left to right, [n_points, 2]."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        points.setdefault(row.method, []).append((row.n_computed, _recall(row, k)))
    return {method: np.array(sorted(line)) for method, line in points.items()}


def _mark_budgets(axes: Axes, rows: Sequence[Row]) -> None:
    """Put ticks at the budgets near the data, or at powers of two if there are none."""
    from matplotlib.ticker import NullLocator

    low, high = min(row.n_computed for row in rows), max(row.n_computed for row in rows)
    budgets = {float(row.budget) for row in rows if row.budget}
    near = {budget for budget in budgets if low / 1.5 <= budget <= high * 1.5}
    powers = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
    ticks = _spread_out(sorted(near or {2.0**power for power in powers}))
    axes.set_xticks(ticks, labels=[f"{tick:g}" if tick < 1 else f"{tick:.0f}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def _spread_out(ticks: Sequence[float]) -> list[float]:
    """Leave out ticks whose labels would touch the one kept before."""
    gap = math.log2(ticks[-1] / ticks[0]) / MAX_ACROSS
    kept = [ticks[0]]
    for tick in ticks[1:]:
        if math.log2(tick / kept[-1]) >= gap:
            kept.append(tick)
    return kept


def _limit_shares(axes: Axes) -> None:
    """Show no tick below 0 or above 1, and keep the ends of the data in view."""
    bottom, top = axes.get_ylim()
    ticks = np.round(axes.get_yticks(), 9)  # 1.0 may come as 1.0000000000000002
    axes.set_yticks(ticks[(ticks >= max(bottom, 0.0)) & (ticks <= min(top, 1.0))])
    axes.set_ylim(bottom, top)


def _label_points(axes: Axes, lines: Mapping[str, NDArray[np.float64]]) -> None:
    """Write each point's value beside it, if there is room."""
    if len(lines) > MAX_LABELLED_METHODS or not _has_room(lines):
        return
    for index, points in enumerate(lines.values()):
        others = [line for number, line in enumerate(lines.values()) if number != index]
        for x, y in points:
            heights = [np.interp(np.log2(x), np.log2(o[:, 0]), o[:, 1]) for o in others]
            # Of two equal points one value goes above and one below, or they would collide.
            is_above = all(y > height or (y == height and index == 0) for height in heights)
            _label_point(axes, (x, y), COLOURS[index], is_above)


def _label_point(axes: Axes, point: tuple[float, float], colour: str, is_above: bool) -> None:
    """Write a value above-left or below-right of its point: a line that rises leaves both free."""
    from matplotlib.patheffects import withStroke

    axes.annotate(
        f"{point[1]:.3f}",
        point,
        xytext=(-4, 5) if is_above else (4, -5),
        textcoords="offset points",
        ha="right" if is_above else "left",
        va="bottom" if is_above else "top",
        fontsize=8,
        color=colour,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
    )


def _has_room(lines: Mapping[str, NDArray[np.float64]]) -> bool:
    """Tell whether neighbouring points of each line are far enough apart for their values."""
    xs = [np.log2(points[:, 0]) for points in lines.values()]
    span = max(x.max() for x in xs) - min(x.min() for x in xs)
    gaps = [right - left for x in xs for left, right in pairwise(x)]
    return all(gap * MAX_ACROSS >= span and gap > 0 for gap in gaps)


def _checked_curve(method: str, curve: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    array = np.asarray(curve, dtype=np.float64)
    if array.ndim != 1 or len(array) < 1:
        raise ValueError(f"expected curve {method!r} [n >= 1], got {list(array.shape)}")
    return array


def _add_legend(axes: Axes) -> None:
    """Name the lines beside the data, the one that ends highest first."""
    lines = axes.get_lines()
    if len(lines) < 2:
        return
    ordered = sorted(lines, key=lambda line: -float(np.asarray(line.get_ydata())[-1]))
    axes.legend(
        ordered,
        [textwrap.fill(str(line.get_label()), LEGEND_LETTERS) for line in ordered],
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        borderaxespad=0.0,
        frameon=False,
        fontsize=9,
        labelcolor=TEXT_COLOUR,
    )


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure to a file; a crash leaves the old file.

    Args:
        figure: What to write.
        path: A file of a type that matplotlib knows (.png, .svg, .pdf); its directory is made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        figure.savefig(beside, format=path.suffix[1:] or "png", dpi=DPI)
