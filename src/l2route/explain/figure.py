"""The figure of an explanation, by matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from l2route.explain.drawable import Drawable, View
from l2route.explain.walk import Walk, limits_text
from l2route.extras import install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

COLOURS = ("#D55E00", "#0072B2")
"""The plain walk's and the other's: Okabe and Ito's, which colour-blind readers can tell apart."""
TRUTH, INK, MUTED, FAINT, GRID = "#009E73", "#1D1C1A", "#5F5B54", "#D5CFC3", "#E4DFD5"
SIZE = (10.0, 6.8)
"""Inches of a figure with two walks."""
INNERMOST = 0.1
"""Radius of the nearest point on the map, whose farthest has 1."""
GOLDEN = 2.399963
"""Golden angle, by which points at the query's own place are spread."""
EVEN = 0.75
"""How far angles are moved to even gaps, from 0 to 1."""
MAX_NAMED = 30
"""True neighbours whose names are written, where there is room."""


def draw(explanation: Drawable, view: View) -> Figure:
    """Draw the maps of walks side by side, and recall against distance computations below.

    Figures are made without pyplot, so nothing global changes and no display is needed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError(
            f'expected matplotlib for plots, got "{error}"; {install("plots")}'
        ) from error
    n_walks = len(explanation.walks)
    width = SIZE[0] if n_walks > 1 else SIZE[0] / 1.7
    engine = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(width, SIZE[1]), layout=engine, facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, n_walks, height_ratios=(2.6, 1.0))
    places, ring = _planar(explanation) if view == "plane" else _radial(explanation)
    for i, walk in enumerate(explanation.walks):
        axes = figure.add_subplot(grid[0, i])
        _draw_map(axes, explanation, walk, COLOURS[i], places, ring)
    _draw_recalls(figure.add_subplot(grid[1, :]), explanation)
    return figure


def _planar(explanation: Drawable) -> tuple[NDArray[np.float64], None]:
    """Places of points on the plane around the query [n, 2]; there is no radius to draw."""
    return explanation.positions - explanation.origin, None


def _radial(explanation: Drawable) -> tuple[NDArray[np.float64], float]:
    """Places of points around the query [n, 2], and the radius of the last true neighbour.

    Radii grow with the true distance, angles are in the order of those on the plane.
    """
    reach = explanation.distances.astype(np.float64)
    if explanation.metric == "l2":
        reach = np.sqrt(np.maximum(reach, 0.0))
    low, high = reach.min(), reach.max()
    radii = INNERMOST + (1 - INNERMOST) * (reach - low) / ((high - low) or 1.0)
    offsets = explanation.positions - explanation.origin
    is_there = np.hypot(*offsets.T) > 0
    turns = np.arange(len(radii)) * GOLDEN
    angles = _spread(np.where(is_there, np.arctan2(offsets[:, 1], offsets[:, 0]), turns))
    places = radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return places, float(radii[explanation.neighbors[-1]])


def _spread(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Angles moved most of the way to even gaps, in their order: points fill the map."""
    turned = angles % (2 * np.pi)
    order = np.argsort(turned, kind="stable")
    gaps = (np.roll(turned[order], -1) - turned[order]) % (2 * np.pi)
    order = np.roll(order, -(int(np.argmax(gaps)) + 1))
    own = (turned[order] - turned[order[0]]) % (2 * np.pi)
    even = np.linspace(0, 2 * np.pi, len(order), endpoint=False)
    spread = np.empty(len(order))
    spread[order] = turned[order[0]] + (1 - EVEN) * own + EVEN * even
    return spread


def _draw_map(
    axes: Axes,
    explanation: Drawable,
    walk: Walk,
    colour: str,
    places: NDArray[np.float64],
    ring: float | None,
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Circle

    axes.set_title(_heading(explanation, walk), loc="left", color=colour, fontsize=11)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.margins(0.08)
    if ring is not None:
        axes.add_patch(Circle((0, 0), ring, facecolor=TRUTH, alpha=0.07, linewidth=0))
        axes.add_patch(Circle((0, 0), ring, fill=False, edgecolor=TRUTH, linestyle=(0, (3, 3))))
    axes.scatter(places[:, 0], places[:, 1], s=4, color=FAINT, linewidths=0)
    is_reached = walk.hops > 0
    parents = walk.expanded[walk.hops[is_reached] - 1]
    edges = np.stack([places[parents], places[walk.visited[is_reached]]], axis=1)
    axes.add_collection(LineCollection(list(edges), colors=colour, alpha=0.13, linewidths=0.7))
    is_tree = np.isin(walk.visited[is_reached], walk.expanded)
    tree = list(edges[is_tree])
    axes.add_collection(LineCollection(tree, colors=colour, alpha=0.5, linewidths=1.1))
    seen = places[walk.visited]
    axes.scatter(seen[:, 0], seen[:, 1], s=7, color=colour, alpha=0.75, linewidths=0, zorder=3)
    truth = places[explanation.neighbors]
    faces = np.where(walk.found_at >= 0, TRUTH, "white")
    x, y = truth.T
    axes.scatter(x, y, s=38, marker="D", c=faces, edgecolors=TRUTH, linewidths=1.2, zorder=4)
    axes.scatter([0], [0], s=90, marker="+", color=INK, linewidths=1.8, zorder=5)
    _write_names(axes, explanation, truth)


def _heading(explanation: Drawable, walk: Walk) -> str:
    cost = f"{walk.cost:,.0f} distances, {walk.n_hops} hops"
    found = f"recall@{explanation.k} {walk.recall:.2f}"
    return f"{walk.space} space: {found}\n{cost} ({limits_text(walk)})"


def _write_names(axes: Axes, explanation: Drawable, places: NDArray[np.float64]) -> None:
    """Write the names of true neighbours, the nearest first, where there is room."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.5, foreground="white")]
    written: list[Annotation] = []
    for rank, point in enumerate(explanation.neighbors[:MAX_NAMED].tolist()):
        x, y = places[rank]
        text = axes.annotate(
            _short(explanation.name_of(point)),
            (x, y),
            xytext=(6 if x >= 0 else -6, 0),
            textcoords="offset points",
            ha="left" if x >= 0 else "right",
            va="center",
            fontsize=8,
            color=INK,
            path_effects=halo,
            zorder=6,
            parse_math=False,
        )
        box = text.get_window_extent().padded(1)
        if any(other.get_window_extent().overlaps(box) for other in written):
            text.remove()
        else:
            written.append(text)


def _short(name: str, most: int = 24) -> str:
    line = " ".join(name.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _draw_recalls(axes: Axes, explanation: Drawable) -> None:
    styles = ("--", "-")
    for i, walk in enumerate(explanation.walks):
        (line,) = axes.step(walk.n_computed, walk.recalls, where="post", color=COLOURS[i])
        line.set(linestyle=styles[i], linewidth=1.8, label=walk.space)
        axes.plot(walk.cost, walk.recall, "o", color=COLOURS[i], markersize=6)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.tick_params(color="#999999", labelcolor=MUTED, labelsize=9)
    axes.set_ylim(-0.04, 1.06)
    axes.set_xlabel("distance computations so far", color=MUTED, fontsize=9)
    axes.set_ylabel(f"recall@{explanation.k} so far", color=MUTED, fontsize=9)
    axes.legend(frameon=False, fontsize=9, labelcolor=MUTED, loc="upper left")
