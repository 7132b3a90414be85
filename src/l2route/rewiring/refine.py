"""Refining: new neighbours for every vertex of a graph."""

from dataclasses import replace
from operator import index as index_of

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.files.progress import Progress, ignore
from l2route.graph.duplicates import Duplicates
from l2route.graph.graph import Graph, UpperLayer, mapped_ids
from l2route.rewiring.connect import connect_graph, nearest_found
from l2route.search.base import BaseVectors
from l2route.search.layout import aligned_rows
from l2route.search.searcher import MAX_THREADS, Searcher
from l2route.search.space import original_space

N_CANDIDATES = 48
"""Default number of nearest vertices among the candidates."""
ALPHA = 1.15
"""Default alpha: drop candidate c of vertex v if a kept p has alpha·d²(p, c) < d²(v, c)."""
MIN_DEGREE = 2
"""Minimum degree: a graph with one neighbour per vertex is a chain."""


def refine_graph(
    graph: Graph,
    base: BaseVectors,
    *,
    degree: int | None = None,
    n_candidates: int = N_CANDIDATES,
    alpha: float = ALPHA,
    n_threads: int = 0,
    progress: Progress | None = None,
) -> Graph:
    """Choose new neighbours for every vertex: near it, and far from each other.

    Candidates of v are the vertices that a search finds nearest, and its present neighbours. They
    are taken nearest first: drop c if a kept p has alpha·d²(p, c) < d²(v, c). Edges are made mutual
    where the lists have room. Upper layers and entries stay. Only the first of equal vectors is
    refined; its copies are attached to it. Unreachable vertices are connected.

    Args:
        graph: a graph over the vectors.
        base: the vectors.
        degree: maximum number of neighbours, at least 2; by default as now.
        n_candidates: number of nearest vertices among the candidates.
        alpha: see above; at least 1, at which the fewest neighbours are kept.
        n_threads: threads; 0 for all cores. The graph is the same for any number.
        progress: called with vertices done and in total while candidates are searched.
    """
    check_refinement(degree, n_candidates, alpha, n_threads)
    n_threads = min(index_of(n_threads), MAX_THREADS)
    width = max(MIN_DEGREE, graph.neighbors.shape[1]) if degree is None else index_of(degree)
    width = min(width, max(1, graph.n_vertices - 1))
    duplicates = Duplicates.of(base.vectors())
    distinct, rows = graph, base
    if duplicates.n_copies:
        distinct = _without_copies(graph, duplicates)
        rows = replace(base, rows=aligned_rows(base.rows, duplicates.first))
    candidates = _candidates(distinct, rows, index_of(n_candidates), n_threads, progress or ignore)
    lists = _core.pruned_lists(
        rows=_core.Rows(rows.rows, "ip" if base.metric == "ip" else "l2"),
        candidates=candidates,
        degree=min(width, max(1, distinct.n_vertices - 1)),
        alpha=alpha,
        n_threads=n_threads,
    )
    if duplicates.n_copies:
        lists = duplicates.spread(lists, width)
    return connect_graph(replace(graph, neighbors=lists), base, n_threads)


def check_refinement(
    degree: int | None = None,
    n_candidates: int = N_CANDIDATES,
    alpha: float = ALPHA,
    n_threads: int = 0,
) -> None:
    """Refuse arguments of `refine_graph` that are out of range."""
    if degree is not None and index_of(degree) < MIN_DEGREE:
        raise ValueError(f"expected a degree of at least {MIN_DEGREE} to refine, got {degree}")
    if index_of(n_candidates) < 1:
        raise ValueError(f"expected at least 1 candidate, got {n_candidates}")
    if index_of(n_threads) < 0:
        raise ValueError(f"expected n_threads of at least 0, got {n_threads}")
    if not 1 <= alpha < np.inf:
        raise ValueError(f"expected alpha of at least 1, got {alpha}")


def _candidates(
    graph: Graph, base: BaseVectors, n_candidates: int, n_threads: int, progress: Progress
) -> NDArray[np.int32]:
    """Candidates of each vertex: the nearest found, and its present neighbours [n, *]."""
    n = graph.n_vertices
    k = min(n_candidates + 1, n)  # one more, because the search also finds the vertex itself
    searcher = Searcher(graph, original_space(base), base)
    nearest, _ = nearest_found(searcher, np.arange(n), k, n_threads, progress)
    return np.concatenate([nearest, graph.neighbors], axis=1)


def _without_copies(graph: Graph, duplicates: Duplicates) -> Graph:
    """The graph over the distinct vectors; edges to a copy lead to the first equal vector."""
    owners = duplicates.owners

    layers = []
    for layer in graph.upper:
        vertices, first = np.unique(owners[layer.vertices], return_index=True)
        layers.append(UpperLayer(vertices, mapped_ids(layer.neighbors[first], owners)))
    neighbors = mapped_ids(graph.neighbors[duplicates.first], owners)
    return Graph(neighbors, np.unique(owners[graph.entries]), tuple(layers))
