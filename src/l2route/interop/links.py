"""A check whether the links of a graph fit a given metric."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric
from l2route.graph.graph import Graph

N_VERTICES, N_LINKS, N_OTHERS = 256, 32, 32
"""Number of vertices sampled, and for each the maximum number of links, and of random vertices."""
NEARER, FEWER = 0.03, 0.6
"""Links contradict a metric if under the other one nearness is larger by more than NEARER, and
conflicts are fewer than FEWER times as many.

Measured on 768 hnswlib indexes (12 kinds of vectors, 2 to 256 dimensions, M from 2 to 32, a third
of them updated): no index contradicts its own metric, 38% contradict the other of l2 and ip, and
many fit both.
"""


@dataclass(frozen=True, slots=True)
class Fit:
    """How well links agree with a metric."""

    nearness: float
    """Share of random vertices that are farther than a link, mean over links."""
    conflicts: float
    """Share of pairs of links of a vertex in which the farther one is nearer to the other link than
    to the vertex: graph builders prune such links."""


def contradicts(graph: Graph, vectors: NDArray[np.float32], metric: Metric) -> bool:
    """Whether the links fit the other of l2 and ip clearly better than the given metric."""
    chosen = _sample(graph)
    if not len(chosen):
        return False
    given, other = (
        _fit(graph.neighbors[chosen, :N_LINKS], vectors, chosen, name)
        for name in (metric, "ip" if metric == "l2" else "l2")
    )
    is_nearer = other.nearness > given.nearness + NEARER
    return is_nearer and other.conflicts < FEWER * given.conflicts


def _sample(graph: Graph) -> NDArray[np.int64]:
    """Up to N_VERTICES vertices with two links or more, the same on every call."""
    linked = np.flatnonzero((graph.neighbors >= 0).sum(axis=1) > 1)
    return np.random.default_rng(0).permutation(linked)[:N_VERTICES]


def _fit(
    lists: NDArray[np.int32], vectors: NDArray[np.float32], vertices: NDArray[np.int64], metric: str
) -> Fit:
    drawn = np.random.default_rng(1).integers(len(vectors), size=(len(vertices), N_OTHERS))
    used = lists >= 0  # [m, n_links]
    here = vectors[vertices, None].astype(np.float64)  # [m, 1, dim]
    links = vectors[np.maximum(lists, 0)].astype(np.float64)  # [m, n_links, dim]
    own = _distances(here, links, metric)[:, 0]  # [m, n_links]
    others = _distances(here, vectors[drawn].astype(np.float64), metric)[:, 0]  # [m, n_others]
    nearness = (own[:, :, None] < others[:, None]).mean(axis=2)[used].mean()
    pairs = used[:, :, None] & used[:, None] & (own[:, :, None] < own[:, None])  # the nearer first
    in_conflict = pairs & (_distances(links, links, metric) < own[:, None])
    return Fit(float(nearness), float(in_conflict.sum() / max(1, pairs.sum())))


def _distances(a: NDArray[np.float64], b: NDArray[np.float64], metric: str) -> NDArray[Any]:
    """Distances of vectors [m, i, dim] to vectors [m, j, dim], up to a constant: [m, i, j]."""
    products = a @ b.transpose(0, 2, 1)
    if metric == "ip":
        return np.asarray(-products)
    squares = [np.einsum("mid,mid->mi", each, each) for each in (a, b)]
    return np.asarray(squares[0][:, :, None] + squares[1][:, None] - 2 * products)
