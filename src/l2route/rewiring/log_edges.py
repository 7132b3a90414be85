"""Edges from a query log: the true neighbours of every query reach each other.

Queries of another kind than the vectors, such as words among definitions, have neighbours that are
far from each other: no list of a graph over the vectors leads from one to the next, and walks end
among some of them. The log says which those are.
"""

from dataclasses import dataclass, replace
from operator import index as index_of

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.files.memory import aligned_zeros
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.searcher import MAX_THREADS

DEPTH = 10
"""Default number of nearest neighbours of a query that have to reach each other."""
MAX_DEPTH = 64
"""Largest such number: a set of them is a word of the core."""
CHUNK = 65_536
"""Edges whose lengths are computed at a time."""
N_EXTRA = 32
"""By how many neighbours the longest list may grow by default."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A graph with edges from a query log, and what was added."""

    graph: Graph
    n_added: int
    """Edges added."""
    n_refused: int
    """Edges that some query lacks still, because lists are full."""


def join_neighbors(
    graph: Graph,
    base: BaseVectors,
    nearest: NDArray[np.int32],
    *,
    degree: int | None = None,
    n_threads: int = 0,
) -> Joined:
    """Add edges by which the nearest neighbours of every query reach each other.

    A query lacks edges if some of its neighbours cannot reach others by edges among them. They are
    joined along the shortest pairs, in both directions where needed. Of the edges that a vertex
    would get, those that most queries lack are added first, then shorter ones, as far as its list
    has room. What one query lacks does not depend on the others, so the graph is the same for any
    number of threads and for any order of the queries.

    Args:
        graph: a graph over the vectors; its lists stay as they are at their beginning.
        base: the vectors.
        nearest: true neighbours of distinct queries, nearest first [n_queries, depth].
        degree: maximum number of neighbours; by default 32 more than now.
        n_threads: threads; 0 for all cores.
    """
    width = graph.neighbors.shape[1]
    check_log_edges(nearest, degree, n_threads, graph)
    edges = _core.lacking_edges(
        graph.core,
        rows=_core.Rows(base.rows, "l2"),
        nearest=np.ascontiguousarray(nearest, dtype=np.int32),
        n_threads=min(index_of(n_threads), MAX_THREADS),
    )
    sources, targets = _by_need(edges, base)
    most = width + N_EXTRA if degree is None else index_of(degree)
    places = _places(sources, (graph.neighbors >= 0).sum(axis=1))
    fits = places < most
    widest = max(width, int(places[fits].max(initial=-1)) + 1)
    lists = aligned_zeros((graph.n_vertices, widest), np.int32)
    lists[:, width:] = -1
    lists[:, :width] = graph.neighbors
    lists[sources[fits], places[fits]] = targets[fits]
    return Joined(replace(graph, neighbors=lists), int(fits.sum()), int((~fits).sum()))


def check_log_edges(
    nearest: NDArray[np.int32], degree: int | None, n_threads: int, graph: Graph
) -> None:
    """Refuse arguments of `join_neighbors` that are out of range."""
    n, width = graph.neighbors.shape
    if nearest.ndim != 2 or not 1 <= nearest.shape[1] <= MAX_DEPTH:
        expected = f"neighbours [n_queries, at most {MAX_DEPTH}]"
        raise ValueError(f"expected {expected}, got {list(nearest.shape)}")
    if nearest.size and not 0 <= nearest.min() <= nearest.max() < n:
        got = f"{nearest.min()} to {nearest.max()}"
        raise ValueError(f"expected neighbours in [0, {n}), got {got}")
    if degree is not None and index_of(degree) < width:
        raise ValueError(f"expected a degree of at least {width}, as now, got {degree}")
    if index_of(n_threads) < 0:
        raise ValueError(f"expected n_threads of at least 0, got {n_threads}")


def _by_need(
    edges: NDArray[np.int32], base: BaseVectors
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct edges by source; of one source those that most queries lack first, then shorter."""
    n = len(base.rows)
    keys = edges[:, 0].astype(np.int64) * n + edges[:, 1]  # numpy 1 would multiply in int32
    keys, counts = np.unique(keys, return_counts=True)
    sources, targets = keys // n, keys % n
    lengths = np.empty(len(keys), dtype=np.float32)
    for start in range(0, len(keys), CHUNK):  # bounds the copies of rows
        part = slice(start, start + CHUNK)
        ends = (base.rows[each[part], : base.dim] for each in (sources, targets))
        one, other = (each.astype(np.float32) for each in ends)
        lengths[part] = ((one - other) ** 2).sum(axis=1)
    order = np.lexsort((targets, lengths, -counts, sources))
    return sources[order], targets[order]


def _places(sources: NDArray[np.int64], degrees: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where in the lists of their sources edges go that are ordered by source [n_edges]."""
    first = np.searchsorted(sources, np.arange(len(degrees)))
    places: NDArray[np.int64] = degrees[sources] + np.arange(len(sources)) - first[sources]
    return places
