"""Better neighbours for every vertex of a graph that is there."""

from dataclasses import replace
from operator import index as index_of

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.files.progress import Progress, ignore
from l2route.graph.duplicates import Duplicates
from l2route.graph.graph import Graph, UpperLayer
from l2route.rewiring.connect import connect_graph, nearest_found
from l2route.search.base import BaseVectors
from l2route.search.layout import aligned_rows, pad_rows
from l2route.search.searcher import MAX_THREADS, Searcher
from l2route.search.space import original_space

N_CANDIDATES = 48
"""Nearest vertices that a vertex's neighbours are chosen from, beside those it has."""
ALPHA = 1.15
"""How much nearer, in squared distances, another neighbour must be to make one superfluous."""
MIN_DEGREE = 2
"""Neighbours of a vertex, at the least: with one, a graph is a chain."""


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
    """Give every vertex new neighbours: near, not near each other, and mutual where they fit.

    They are chosen from what the graph finds nearest to the vertex and from the neighbours that it
    has. Upper layers and entries stay. Of vectors that are equal, the first is chosen for; the
    others stand behind it. A vertex that no walk from the entries would find becomes a neighbour
    of one that is found.

    Args:
        graph: a graph over the vectors.
        base: the vectors.
        degree: largest number of neighbours, at least 2; by default as it is.
        n_candidates: nearest vertices to choose from.
        alpha: a neighbour is left out if a nearer one is so many times nearer to it than the vertex
            is, in squared distances; at least 1.
        n_threads: threads to use; 0 for all cores. The graph is the same for any number.
        progress: called with vertices done and in all while the nearest are sought.
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
        rows=_core.Rows(_rows_by_distance(rows), "l2"),
        candidates=candidates,
        degree=min(width, max(1, distinct.n_vertices - 1)),
        alpha=alpha,
        n_threads=n_threads,
    )
    if duplicates.n_copies:
        lists = duplicates.spread(lists, width)
    return connect_graph(Graph(lists, graph.entries, graph.upper), base, n_threads)


def check_refinement(
    degree: int | None = None,
    n_candidates: int = N_CANDIDATES,
    alpha: float = ALPHA,
    n_threads: int = 0,
) -> None:
    """Refuse numbers that no graph can be refined with."""
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
    """What each vertex's neighbours are chosen from: the nearest found, and those that it has."""
    n = graph.n_vertices
    k = min(n_candidates + 1, n)  # the vertex itself is found too
    searcher = Searcher(graph, original_space(base), base)
    nearest, _ = nearest_found(searcher, np.arange(n), k, n_threads, progress)
    return np.concatenate([nearest, graph.neighbors], axis=1)


def _rows_by_distance(base: BaseVectors) -> NDArray[np.float32]:
    """Padded vectors between which l2 tells how near they are.

    Inner products are no distances. With one dimension more, so that all vectors have the length of
    the longest, those nearest to a query by l2 are those with the largest inner products.
    """
    if base.metric != "ip":
        is_float = base.rows.dtype == np.float32
        return base.rows if is_float else pad_rows(base.vectors())
    vectors = base.vectors()
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    missing = np.sqrt(squares.max() - squares).astype(np.float32)
    return pad_rows(np.column_stack([vectors, missing]))


def _without_copies(graph: Graph, duplicates: Duplicates) -> Graph:
    """The graph of the first of all equal vectors; whoever led to a copy leads to it."""
    owners = duplicates.owners

    def renamed(ids: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.where(ids >= 0, owners[ids], np.int32(-1))

    layers = []
    for layer in graph.upper:
        vertices, first = np.unique(owners[layer.vertices], return_index=True)
        layers.append(UpperLayer(vertices, renamed(layer.neighbors[first])))
    neighbors = renamed(graph.neighbors[duplicates.first])
    return Graph(neighbors, np.unique(owners[graph.entries]), tuple(layers))
