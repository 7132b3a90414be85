"""Explanation: how one query was searched for, hop by hop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from l2route.explain.drawable import View
from l2route.explain.figure import draw
from l2route.explain.picture import html_of
from l2route.explain.walk import Walk, limits_text, plain_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SHOWN = 20
"""True neighbours that the text shows."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)  # arrays have no single truth value
class Explanation:
    """Walks of one query, the true neighbours, and a map of everything that was visited.

    Made by `RoutingIndex.explain`. In a notebook it is a picture with a slider; `print` shows a
    table, `plot` draws a figure, `to_dict` has all of it as plain values.
    """

    query: NDArray[np.float32]
    """[dim]"""
    k: int
    """Answers."""
    metric: str
    """l2, ip or cosine."""
    n_vectors: int
    """Vectors of the index."""
    ids: NDArray[np.int64]
    """Ids of the points, which are all vertices visited and the true neighbours; −1 for deleted
    vectors, which walks pass through [n_points]."""
    distances: NDArray[np.float32]
    """True distances of the points to the query [n_points]."""
    neighbors: NDArray[np.int64]
    """Points that are the true neighbours, nearest first [at most k]."""
    positions: NDArray[np.float64]
    """Coordinates of the points on the map, the plane of the first two principal axes of all
    points [n_points, 2]."""
    origin: NDArray[np.float64]
    """The query's position on the map [2]; under ip, that of the query scaled to the length of the
    nearest vector."""
    share: float
    """Share of the points' variance that the map keeps."""
    walks: tuple[Walk, ...]
    """The plain walk first; the walk of the other space second, if there is one."""
    names: tuple[str, ...] | None = None
    """Names of the points, shown in place of ids where they are not empty; None for no names."""

    def named(self, names_of: Callable[[NDArray[np.int64]], Sequence[str | None]]) -> Explanation:
        """The same with a name for every point, such as the word that a vector stands for.

        Args:
            names_of: names of ids [n], None for an id without a name; for example
                `l2route.data.labels.Labels.names`.
        """
        is_known = self.ids != -1
        given = names_of(self.ids[is_known])
        if len(given) != is_known.sum():
            raise ValueError(f"expected {is_known.sum()} names, one per id, got {len(given)}")
        names = iter(given)
        return replace(
            self, names=tuple(next(names) or "" if known else "" for known in is_known.tolist())
        )

    def name_of(self, point: int) -> str:
        """The name of a point, or its id if it has none."""
        name = "" if self.names is None else self.names[point]
        id_ = int(self.ids[point])
        return name or ("deleted" if id_ == -1 else str(id_))

    def to_dict(self) -> dict[str, Any]:
        """All values as plain ones, for JSON: numbers are rounded to seven digits."""
        return {
            "query": plain_numbers(self.query),
            "k": self.k,
            "metric": self.metric,
            "n_vectors": self.n_vectors,
            "ids": self.ids.tolist(),
            "names": None if self.names is None else list(self.names),
            "distances": plain_numbers(self.distances),
            "neighbors": self.neighbors.tolist(),
            "positions": [plain_numbers(position) for position in self.positions],
            "origin": plain_numbers(self.origin),
            "share": self.share,
            "walks": [walk.to_dict() for walk in self.walks],
        }

    def plot(self, view: View = "plane") -> Figure:
        """Draw the map of each walk, and recall against distance computations so far.

        Needs the extra ``plots``. Save the figure by its `savefig`.

        Args:
            view: plane for the first two principal axes; distance to place points as far from the
                query as they are, in the order of their directions on the plane.
        """
        if view not in get_args(View):
            raise ValueError(f"expected a view of {', '.join(get_args(View))}, got {view!r}")
        return draw(self, view)

    def _repr_html_(self) -> str:
        return html_of(self)

    def __repr__(self) -> str:
        walks = " and ".join(f"{walk.space} ({walk.n_hops} hops)" for walk in self.walks)
        return f"<Explanation: recall@{self.k} of {walks}, {len(self.ids):,} points>"

    def __str__(self) -> str:
        of = f"{self.n_vectors:,} vectors of {len(self.query)} dimensions ({self.metric})"
        n_shown = min(len(self.neighbors), MAX_SHOWN)
        heading = ["walk", "hops", "visited", "distances", f"recall@{self.k}", "ends by"]
        costs = [heading, *(_cost_cells(walk) for walk in self.walks)]
        found = [["true neighbour", "distance", *(walk.space for walk in self.walks)]]
        for rank, point in enumerate(self.neighbors[:n_shown].tolist()):
            hops = [_hop_text(walk, rank, point) for walk in self.walks]
            found.append([self.name_of(point), f"{self.distances[point]:.4g}", *hops])
        lines = [f"one query among {of}", "", *_aligned(costs, {0, 5}), "", *_aligned(found, {0})]
        n_more = len(self.neighbors) - n_shown
        return "\n".join([*lines, f"and {n_more} more"] if n_more else lines)


def _cost_cells(walk: Walk) -> list[str]:
    n_visited = f"{walk.n_visited[-1]:,}"
    numbers = [str(walk.n_hops), n_visited, f"{walk.cost:,.0f}", f"{walk.recall:.2f}"]
    return [walk.space, *numbers, limits_text(walk)]


def _hop_text(walk: Walk, rank: int, point: int) -> str:
    hop = int(walk.found_at[rank])
    if hop < 0:
        return "missed"
    return f"hop {hop}" if point in walk.answers else f"hop {hop}, not kept"


def _aligned(rows: list[list[str]], left: set[int]) -> list[str]:
    """Lines of a table; columns of `left` are aligned to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
