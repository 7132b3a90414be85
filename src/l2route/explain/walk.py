"""Walk: what a search of one query did, hop by hop."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.search.limits import Limits


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth value to compare by
class Walk:
    """A walk through the graph, by the points of its `Explanation`.

    Hop 0 visits the entry points; each further hop expands one vertex, that is, it visits the
    neighbours that were not visited before. Values "by hop" are those after hops 0, 1, …, n_hops.
    """

    space: str
    """Name of the space that guides the walk."""
    limits: Limits
    """When the walk ends."""
    visited: NDArray[np.int64]
    """Points visited, in order [n_visited]."""
    hops: NDArray[np.int32]
    """Hop in which each was visited [n_visited]."""
    scores: NDArray[np.float32]
    """Score of each in the space; the walk expands the smallest first [n_visited]."""
    expanded: NDArray[np.int64]
    """Point expanded in each hop from 1 on [n_hops]."""
    n_visited: NDArray[np.int64]
    """Points visited so far, by hop [n_hops + 1]."""
    n_computed: NDArray[np.float64]
    """Distance computations so far, by hop [n_hops + 1]: in units of the original dimension,
    with the projection of the query, and the rerank of what was visited so far."""
    recalls: NDArray[np.float64]
    """Recall@k of the answer that the search would give if the walk ended there, by hop."""
    found_at: NDArray[np.int64]
    """Hop in which each true neighbour was visited, −1 for never [n_neighbors]."""
    answers: NDArray[np.int64]
    """Points that the search answers with, nearest first [at most k]."""

    @property
    def n_hops(self) -> int:
        """Number of vertices expanded."""
        return len(self.expanded)

    @property
    def recall(self) -> float:
        """Recall@k of the answer."""
        return float(self.recalls[-1])

    @property
    def cost(self) -> float:
        """Distance computations of the search."""
        return float(self.n_computed[-1])

    def to_dict(self) -> dict[str, Any]:
        """All values as plain ones, for JSON."""
        limits = {name: value for name, value in self.limits._asdict().items() if value is not None}
        return {
            "space": self.space,
            "limits": limits,
            "visited": self.visited.tolist(),
            "hops": self.hops.tolist(),
            "scores": plain_numbers(self.scores),
            "expanded": self.expanded.tolist(),
            "n_visited": self.n_visited.tolist(),
            "n_computed": plain_numbers(self.n_computed),
            "recalls": plain_numbers(self.recalls),
            "found_at": self.found_at.tolist(),
            "answers": self.answers.tolist(),
        }


def limits_text(walk: Walk) -> str:
    """The limits of a walk in words."""
    words = {"budget": "budget", "ef": "beam", "slack": "slack", "rerank": "rerank"}
    given = walk.limits._asdict().items()
    return ", ".join(f"{words[name]} {value:g}" for name, value in given if value is not None)


def plain_numbers(values: NDArray[np.floating[Any]]) -> list[float | None]:
    """Numbers as they are in JSON, which has no infinity; seven digits, as float32 has."""
    return [float(f"{value:.7g}") if np.isfinite(value) else None for value in values.tolist()]
