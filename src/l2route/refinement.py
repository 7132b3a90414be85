"""Better neighbours for every vertex of a graph that is there."""

from operator import index as index_of
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.graph import Graph, compact_rows
from l2route.memory import pad_rows
from l2route.search import Searcher
from l2route.spaces import BaseVectors, original_space

N_CANDIDATES = 48
"""Nearest vertices that a vertex's neighbours are chosen from, beside those it has."""
ALPHA = 1.15
"""How much nearer, in squared distances, another neighbour must be to make one superfluous."""
MAX_SOURCES = 64
"""Vertices that are asked to take in one that no walk finds, at the most."""
ROOT, LOST = -1, -2
"""In place of the vertex that one is reached by: it is an entry, or not reached."""
_BLOCK = 10_000  # vertices that are searched for at a time


def refine_graph(
    graph: Graph,
    base: BaseVectors,
    *,
    degree: int | None = None,
    n_candidates: int = N_CANDIDATES,
    alpha: float = ALPHA,
    n_threads: int = 0,
) -> Graph:
    """Give every vertex new neighbours: near, not near each other, and mutual where they fit.

    They are chosen from what the graph finds nearest to the vertex and from the neighbours that it
    has. Upper layers and entries stay. Vertices that no walk would find are given to one that does.

    Args:
        graph: a graph over the vectors.
        base: the vectors, with a metric that is a distance.
        degree: largest number of neighbours; by default as it is.
        n_candidates: nearest vertices to choose from.
        alpha: a neighbour is left out if a nearer one is so many times nearer to it than the vertex
            is, in squared distances; at least 1.
        n_threads: threads to use; 0 for all cores. The graph is the same for any number.
    """
    degree = graph.neighbors.shape[1] if degree is None else index_of(degree)
    n_candidates, n_threads = index_of(n_candidates), index_of(n_threads)
    if base.metric == "ip":
        raise ValueError("expected metric l2 or cosine to refine a graph, got ip")
    if degree < 1 or n_candidates < 1 or n_threads < 0:
        got = f"{degree}, {n_candidates} and {n_threads}"
        raise ValueError(f"expected a degree and candidates of at least 1 and threads, got {got}")
    if not 1 <= alpha < np.inf:
        raise ValueError(f"expected alpha of at least 1, got {alpha}")
    nearest = _found_near(graph, base, n_candidates + 1, n_threads)  # itself among them
    lists = _core.pruned_lists(
        rows=base.rows if base.rows.dtype == np.float32 else pad_rows(base.vectors()),
        candidates=np.concatenate([nearest, graph.neighbors], axis=1),
        degree=degree,
        alpha=alpha,
        n_threads=n_threads,
    )
    refined = Graph(compact_rows(lists), graph.entries, graph.upper)
    return _reconnected(refined, base, n_threads)


def _found_near(graph: Graph, base: BaseVectors, k: int, n_threads: int) -> NDArray[np.int32]:
    """What a search finds for every vector [n, at most k]."""
    k = min(k, graph.n_vertices)
    searcher, vectors = Searcher(graph, original_space(base), base), base.vectors()
    found = np.empty((len(vectors), k), dtype=np.int32)
    for begin in range(0, len(vectors), _BLOCK):
        part = slice(begin, begin + _BLOCK)
        found[part] = searcher.search(vectors[part], k, ef=2 * k, n_threads=n_threads).ids
    return found


def _reconnected(graph: Graph, base: BaseVectors, n_threads: int) -> Graph:
    """A graph whose vertices are all found from its entries, if a few changed edges can do it.

    Of each part that is not found, the vertex that is nearest to the others is made the neighbour
    of one that a search for it finds.
    """
    neighbors = graph.neighbors.copy()
    parents = np.full(graph.n_vertices, LOST, dtype=np.int32)
    parents[graph.entries] = ROOT
    _follow(neighbors, parents, graph.entries)
    lost = np.flatnonzero(parents == LOST)
    if not len(lost):
        return graph
    k = min(graph.n_vertices, MAX_SOURCES)
    searcher = Searcher(graph, original_space(base), base)
    found = searcher.search(base.vectors()[lost], k, ef=2 * k, n_threads=n_threads)
    for at in np.argsort(found.distances[:, 0], kind="stable"):
        vertex = lost[at]
        if parents[vertex] == LOST and _link(neighbors, parents, vertex, found.ids[at]):
            _follow(neighbors, parents, np.array([vertex]))
    return Graph(neighbors, graph.entries, graph.upper)


def _follow(
    neighbors: NDArray[np.int32], parents: NDArray[np.int32], frontier: NDArray[np.integer[Any]]
) -> None:
    """Write down by whom each lost vertex is reached first, breadth first from a frontier."""
    while len(frontier):
        reached = neighbors[frontier]
        sources = np.broadcast_to(frontier[:, None], reached.shape)
        is_new = (reached >= 0) & (parents[reached] == LOST)
        frontier, first = np.unique(reached[is_new], return_index=True)
        parents[frontier] = sources[is_new][first]


def _link(
    neighbors: NDArray[np.int32],
    parents: NDArray[np.int32],
    vertex: np.integer[Any],
    sources: NDArray[np.int64],
) -> bool:
    """Make a vertex the neighbour of the first of these that has a place for it.

    A place is free, or is the last one whose vertex is reached by another way.
    """
    for source in sources[sources >= 0]:
        row = neighbors[source]
        if parents[source] == LOST:
            continue
        places = np.flatnonzero((row < 0) | (parents[row] != source))
        if len(places):
            place = places[row[places] < 0][0] if row[-1] < 0 else places[-1]
            row[place] = vertex
            parents[vertex] = source
            return True
    return False
