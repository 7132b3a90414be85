"""What links say of the metric that they were made by."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric
from l2route.graph.graph import Graph

N_VERTICES, N_LINKS, N_OTHERS = 256, 32, 32
"""Vertices that are looked at, of each so many links and vertices drawn at random."""
NEARER, FEWER = 0.03, 0.6
"""By how much another metric must do better to be taken for the one that links were made by.

Of 768 indexes of hnswlib, of 12 kinds of vectors, 2 to 256 dimensions and M from 2 to 32, a third
of which had been updated, none spoke against its own metric, and 38% against the other of l2 and
ip; many are as good under both.
"""


@dataclass(frozen=True, slots=True)
class Fit:
    """How well links agree with a metric."""

    nearness: float
    """Share of vertices drawn at random that are farther than a linked one."""
    conflicts: float
    """Share of pairs of a vertex' links of which the farther is nearer to the other link than to
    the vertex: builders leave such links out."""


def contradicts(graph: Graph, vectors: NDArray[np.float32], metric: Metric) -> bool:
    """Whether the links of a graph were made by the other of l2 and ip, as far as they tell."""
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
    """Vertices with two links or more, the same ones each time."""
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
    """Of vectors [m, i, dim] to vectors [m, j, dim], in the same order [m, i, j]."""
    products = a @ b.transpose(0, 2, 1)
    if metric == "ip":
        return np.asarray(-products)
    squares = [np.einsum("mid,mid->mi", each, each) for each in (a, b)]
    return np.asarray(squares[0][:, :, None] + squares[1][:, None] - 2 * products)
