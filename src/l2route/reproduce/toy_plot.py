"""A picture of greedy routes between points in the plane; it needs the extra ``plots``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from l2route.evaluation.plots import COLOURS, TEXT_COLOUR, new_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (10.0, 6.1)  # inches
ROUTE_COLOURS = (COLOURS[1], COLOURS[0])
"""Colours of the panels' routes from left to right."""
NEAREST_COLOUR = COLOURS[2]
ARRIVES_COLOUR, STUCK_COLOUR = "#E3EFF6", "#F8DDCB"
"""Tints of blue and vermilion, pale enough as a background."""
FRAME_COLOUR, EDGE_COLOUR, POINT_COLOUR = "#999999", "#B4B4B4", "#6B6B6B"
ROUTE_WIDTH = 2.6
RIM: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.9, "zorder": 7}
"""White rim around a mark."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One side of the picture."""

    name: str
    """Name of the scores."""
    path: Sequence[int]
    """Vertices of the route, from the entry to its end."""
    arrives: NDArray[np.bool_]
    """Whether queries arrive, for every place of the plane from its lower left [side, side]."""
    share: float
    """Share of test queries that arrive."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Content of the picture."""

    points: NDArray[np.float32]
    """[n, 2]."""
    is_edge: NDArray[np.bool_]
    """Symmetric [n, n]."""
    query: NDArray[np.float32]
    """[2]."""
    nearest: int
    """The query's true nearest neighbour."""
    outline: NDArray[np.float64]
    """Closed line around the area that queries are drawn from [n_corners, 2]."""
    extent: float
    """Both axes run from −extent to extent."""
    panels: Sequence[Panel]
    """From left to right, at most two."""


def plot_toy(drawing: Drawing, path: Path) -> None:
    """Write the picture to a file of a type that matplotlib knows (.png, .svg, .pdf)."""
    write_figure(draw_toy(drawing), path)


def draw_toy(drawing: Drawing) -> Figure:
    """Draw the panels side by side: graph, query and route, shaded where queries arrive."""
    figure = new_figure(SIZE)
    for number, panel in enumerate(drawing.panels):
        axes = figure.add_subplot(1, len(drawing.panels), number + 1)
        _frame(axes, drawing, panel)
        _shade(axes, drawing, panel)
        _draw_graph(axes, drawing)
        _draw_route(axes, drawing, panel, ROUTE_COLOURS[number])
        _mark(axes, drawing, panel, ROUTE_COLOURS[number])
    _add_legend(figure)
    return figure


def _frame(axes: Axes, drawing: Drawing, panel: Panel) -> None:
    axes.set_aspect("equal")
    axes.set_xlim(-drawing.extent, drawing.extent)
    axes.set_ylim(-drawing.extent, drawing.extent)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(FRAME_COLOUR)
    title = f"{panel.name}: {'arrives' if _is_there(drawing, panel) else 'stuck'}"
    axes.set_title(title, loc="left", color=TEXT_COLOUR, fontsize=13, weight="bold", pad=8)
    share = f"{panel.share:.1%} of test queries arrive"
    axes.set_title(share, loc="right", color=TEXT_COLOUR, fontsize=10, pad=8)


def _is_there(drawing: Drawing, panel: Panel) -> bool:
    return panel.path[-1] == drawing.nearest


def _shade(axes: Axes, drawing: Drawing, panel: Panel) -> None:
    from matplotlib.colors import ListedColormap

    low, high = -drawing.extent, drawing.extent
    axes.imshow(
        panel.arrives,
        cmap=ListedColormap([STUCK_COLOUR, ARRIVES_COLOUR]),
        vmin=0,
        vmax=1,
        extent=(low, high, low, high),
        origin="lower",
        interpolation="nearest",
        zorder=0,
    )
    axes.plot(
        *drawing.outline.T,
        color=FRAME_COLOUR,
        linewidth=1.0,
        linestyle=(0, (4, 3)),
        label="where queries come from",
        zorder=1,
    )


def _draw_graph(axes: Axes, drawing: Drawing) -> None:
    from matplotlib.collections import LineCollection

    ends = np.argwhere(np.triu(drawing.is_edge))  # [n_edges, 2]
    lines = list(drawing.points[ends])
    axes.add_collection(LineCollection(lines, colors=EDGE_COLOUR, linewidths=1.0, zorder=2))
    x, y = drawing.points.T
    axes.scatter(x, y, s=24, color=POINT_COLOUR, zorder=4)


def _draw_route(axes: Axes, drawing: Drawing, panel: Panel, colour: str) -> None:
    """Draw a line through the vertices of the route, with an arrow for each hop."""
    stops = drawing.points[list(panel.path)]  # [n_hops + 1, 2]
    line: dict[str, Any] = {"color": colour, "linewidth": ROUTE_WIDTH}
    axes.plot(*stops.T, label=f"{panel.name} route", marker="o", markersize=5, zorder=5, **line)
    arrow = {"arrowstyle": "-|>,head_length=0.6,head_width=0.3", "shrinkA": 0, "shrinkB": 2.5}
    for start, end in pairwise(stops.tolist()):
        axes.annotate("", end, start, arrowprops={**arrow, **line}, zorder=6)


def _mark(axes: Axes, drawing: Drawing, panel: Panel, colour: str) -> None:
    """Mark start, query, nearest neighbour, and the local minimum."""
    x, y = drawing.points.T
    start, end, nearest = panel.path[0], panel.path[-1], drawing.nearest
    axes.scatter(x[start], y[start], label="start", s=95, marker="s", color=POINT_COLOUR, **RIM)
    across, up = drawing.query
    axes.scatter(across, up, label="query q", s=190, marker="*", color="black", **RIM)
    ring: dict[str, Any] = {"facecolors": "none", "edgecolors": NEAREST_COLOUR, "linewidths": 2.4}
    axes.scatter(x[nearest], y[nearest], label="true nearest neighbour", s=150, zorder=7, **ring)
    if not _is_there(drawing, panel):
        axes.scatter(x[end], y[end], label="local minimum", s=120, marker="X", color=colour, **RIM)


def _add_legend(figure: Figure) -> None:
    """Explain marks, routes and shades below the panels, a column each."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    named = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    places = named.pop("where queries come from")
    routes = [named.pop(label) for label in list(named) if isinstance(named[label], Line2D)]
    shades = [
        Patch(facecolor=ARRIVES_COLOUR, edgecolor=FRAME_COLOUR, label="queries here arrive"),
        Patch(facecolor=STUCK_COLOUR, edgecolor=FRAME_COLOUR, label="queries here are stuck"),
    ]
    figure.legend(
        handles=[*named.values(), *routes, places, *shades],
        loc="outside lower center",
        ncols=3,
        columnspacing=4.0,
        labelspacing=0.6,
        frameon=False,
        fontsize=9.5,
        labelcolor=TEXT_COLOUR,
    )
