"""The picture of a comparison: queries per second against recall@10, one line per method."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from l2route.evaluation.plots import MARKERS, TEXT_COLOUR, name_axes, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (8.0, 4.5)  # inches
OUR_COLOURS = ("#0072B2", "#003A6B", "#56B4E9", "#2B8CBE")
"""Blues of the highlighted lines."""
PEER_COLOURS = ("#D55E00", "#009E73", "#CC79A7", "#8C6D00", "#6B6B6B", "#E69F00", "#000000")
"""Okabe and Ito's other colours; colour-blind readers can tell them apart."""
LOWEST_RECALL = 0.8
"""Lower recalls are not drawn: they are rarely of use."""
LABEL_SIZE = 10.0  # points
LABEL_GAP = 0.055
"""Least distance between two labels, as a share of the height of the axes."""


def draw_speed_against_recall(
    curves: Mapping[str, NDArray[np.floating[Any]]],
    title: str,
    subtitle: str = "",
    highlighted: Collection[str] = (),
) -> Figure:
    """Draw queries per second, on a log scale, against recall@10.

    Args:
        curves: For each method its recalls and speeds by ascending recall, [n_points, 2].
        title: First line above the picture, in bold.
        subtitle: Second line above it.
        highlighted: Methods drawn in strong lines, above the others.

    Returns:
        The figure; each line's label is its method. Methods without points are not drawn.
    """
    drawn = {method: curve for method, curve in curves.items() if len(curve)}
    if not drawn:
        raise ValueError("expected at least one curve with points, got none")
    figure, axes = new_axes(title, SIZE)
    _write_subtitle(axes, subtitle)
    looks = _looks(drawn, highlighted)
    for method, curve in drawn.items():
        axes.plot(curve[:, 0], curve[:, 1], label=method, **looks[method])
    _set_limits(axes, list(drawn.values()))
    name_axes(axes, "recall@10", "queries per second")
    _label_ends(axes, drawn, looks)
    return figure


def _write_subtitle(axes: Axes, subtitle: str) -> None:
    """Write a smaller line between the title, which becomes bold, and the axes."""
    title = axes.get_title(loc="left")
    axes.set_title(title, loc="left", color=TEXT_COLOUR, fontsize=13, weight="bold", pad=26)
    axes.text(
        0.0,
        1.03,
        subtitle,
        transform=axes.transAxes,
        fontsize=9.5,
        color="#666666",
    )


def _looks(methods: Collection[str], highlighted: Collection[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and width of each method's line."""
    looks: dict[str, dict[str, Any]] = {}
    counts = {True: 0, False: 0}
    for method in methods:
        is_ours = method in highlighted
        number, colours = counts[is_ours], OUR_COLOURS if is_ours else PEER_COLOURS
        counts[is_ours] += 1
        looks[method] = {
            "color": colours[number % len(colours)],
            "marker": "o" if is_ours else MARKERS[1 + number % (len(MARKERS) - 1)],
            "markersize": 6.5 if is_ours else 4.5,
            "markeredgecolor": "white",
            "markeredgewidth": 0.7,
            "linewidth": 3.0 if is_ours else 1.5,
            "zorder": 4 if is_ours else 3,
        }
    return looks


def _set_limits(axes: Axes, curves: Sequence[NDArray[np.floating[Any]]]) -> None:
    """Show the recalls from LOWEST_RECALL on, if any is so high, and the speeds there."""
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    points = np.concatenate(curves)
    lowest = LOWEST_RECALL if points[:, 0].max() > LOWEST_RECALL else 0.0
    left = max(lowest, float(points[:, 0].min()))
    axes.set_xlim(left - 0.02 * (1 - left), 1.0 + 0.01 * (1 - left))
    if lowest:
        axes.xaxis.set_major_locator(FixedLocator([0.8, 0.85, 0.9, 0.95, 0.99]))
    speeds = np.concatenate([_shown(curve, left)[:, 1] for curve in curves])
    axes.set_yscale("log")
    axes.set_ylim(speeds.min() / 1.2, speeds.max() * 1.2)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_minor_locator(NullLocator())


def _shown(curve: NDArray[np.floating[Any]], left: float) -> NDArray[np.floating[Any]]:
    """Points of a curve right of a recall, and the place where the curve enters there."""
    inside = curve[curve[:, 0] >= left]
    if len(inside) == len(curve) or not len(inside):
        return inside
    entry = np.exp(np.interp(left, curve[:, 0], np.log(curve[:, 1])))
    return np.vstack([[left, entry], inside])


def _label_ends(
    axes: Axes,
    curves: Mapping[str, NDArray[np.floating[Any]]],
    looks: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write each method's name to the right, level with the end of its line or near it."""
    low, high = np.log(axes.get_ylim())
    ends = {method: curve[-1] for method, curve in curves.items()}
    heights = np.array([(np.log(end[1]) - low) / (high - low) for end in ends.values()])
    for (method, end), height in zip(ends.items(), spread(heights, LABEL_GAP), strict=True):
        is_strong, colour = looks[method]["zorder"] > 3, looks[method]["color"]
        axes.annotate(
            method,
            end,
            xytext=(1.03, height),
            textcoords="axes fraction",
            va="center",
            fontsize=LABEL_SIZE,
            weight="bold" if is_strong else "normal",
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "alpha": 0.6},
        )


def spread(values: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """Move values apart as little as possible, so that any two differ by a gap at least.

    Least squares under the order of the values, by pooling adjacent violators.

    Args:
        values: Positions in any order, [n].
        gap: Least distance of any two.

    Returns:
        New positions in the same order, [n].
    """
    order = np.argsort(values, kind="stable")
    steps = gap * np.arange(len(values))
    pools: list[tuple[float, int]] = []  # mean and size; means ascend
    for value in values[order] - steps:
        mean, size = float(value), 1
        while pools and pools[-1][0] >= mean:
            before, n_before = pools.pop()
            mean = (mean * size + before * n_before) / (size + n_before)
            size += n_before
        pools.append((mean, size))
    moved = np.empty(len(values))
    moved[order] = np.repeat([mean for mean, _ in pools], [n for _, n in pools]) + steps
    return moved
