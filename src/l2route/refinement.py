"""Better neighbours for every vertex of a graph that is there."""

from operator import index as index_of
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data import Progress, ignore
from l2route.graph import Graph
from l2route.memory import pad_rows
from l2route.search import MAX_THREADS, Searcher
from l2route.spaces import BaseVectors, original_space

N_CANDIDATES = 48
"""Nearest vertices that a vertex's neighbours are chosen from, beside those it has."""
ALPHA = 1.15
"""How much nearer, in squared distances, another neighbour must be to make one superfluous."""
MAX_SOURCES = 64
"""Vertices that are asked to take in one that no walk finds, at the most."""
ROOT, LOST = -1, -2
"""In place of the vertex that one is reached by: it is an entry, or not reached."""
BLOCK = 10_000
"""Vertices that are searched for at a time."""


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
    has. Upper layers and entries stay. A vertex that no walk from the entries would find becomes a
    neighbour of one that is found, if that has a place to give.

    Args:
        graph: a graph over the vectors.
        base: the vectors, with a metric that is a distance.
        degree: largest number of neighbours; by default as it is.
        n_candidates: nearest vertices to choose from.
        alpha: a neighbour is left out if a nearer one is so many times nearer to it than the vertex
            is, in squared distances; at least 1.
        n_threads: threads to use; 0 for all cores. The graph is the same for any number.
        progress: called with vertices done and in all while the nearest are sought.
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
    n_threads = min(n_threads, MAX_THREADS)
    vectors, n = base.vectors(), graph.n_vertices
    searcher = Searcher(graph, original_space(base), base)
    k = min(n_candidates + 1, n)  # the vertex itself is found too
    nearest, _ = _found(searcher, vectors, np.arange(n), k, n_threads, progress or ignore)
    lists = _core.pruned_lists(
        rows=base.rows if base.rows.dtype == np.float32 else pad_rows(vectors),
        candidates=np.concatenate([nearest, graph.neighbors], axis=1),
        degree=min(degree, max(1, n - 1)),
        alpha=alpha,
        n_threads=n_threads,
    )
    reconnect(lists, graph.entries, base, vectors, n_threads)
    return Graph(lists, graph.entries, graph.upper)


def _found(
    searcher: Searcher,
    vectors: NDArray[np.float32],
    ids: NDArray[np.integer[Any]],
    k: int,
    n_threads: int,
    progress: Progress,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """What a search finds for these vectors [n_ids, k], and how far the nearest is [n_ids]."""
    found = np.empty((len(ids), k), dtype=np.int32)
    nearness = np.empty(len(ids), dtype=np.float32)
    for begin in range(0, len(ids), BLOCK):
        part = slice(begin, begin + BLOCK)
        result = searcher.search(vectors[ids[part]], k, ef=2 * k, n_threads=n_threads)
        found[part], nearness[part] = result.ids, result.distances[:, 0]
        progress(min(begin + BLOCK, len(ids)), len(ids))
    return found, nearness


def reconnect(
    neighbors: NDArray[np.int32],
    entries: NDArray[np.int32],
    base: BaseVectors,
    vectors: NDArray[np.float32],
    n_threads: int,
    wanted: NDArray[np.bool_] | None = None,
) -> None:
    """Change a few edges so that all vertices are found from the entries, if that can be.

    All, or those that are wanted [n]; the others are left as they are.
    """
    parents = np.full(len(neighbors), LOST, dtype=np.int32)
    wanted = np.ones(len(neighbors), dtype=bool) if wanted is None else wanted
    parents[entries] = ROOT
    _follow(neighbors, parents, entries)
    while len(lost := np.flatnonzero((parents == LOST) & wanted)):
        searcher = Searcher(Graph(neighbors, entries), original_space(base), base)
        if _take_in(neighbors, parents, lost, searcher, vectors, n_threads) == 0:
            return  # nobody has a place to give


def _take_in(
    neighbors: NDArray[np.int32],
    parents: NDArray[np.int32],
    lost: NDArray[np.int64],
    searcher: Searcher,
    vectors: NDArray[np.float32],
    n_threads: int,
) -> int:
    """Of each part that is lost, link the vertex nearest to the others to what a search finds.

    Returns how many were linked.
    """
    k = min(len(neighbors), MAX_SOURCES)
    sources, nearness = _found(searcher, vectors, lost, k, n_threads, ignore)
    n_linked = 0
    for at in np.argsort(nearness, kind="stable"):
        vertex = lost[at]
        if parents[vertex] == LOST and _link(neighbors, parents, vertex, sources[at]):
            _follow(neighbors, parents, np.array([vertex]))
            n_linked += 1
    return n_linked


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
    sources: NDArray[np.int32],
) -> bool:
    """Make a vertex the neighbour of the first of these that has a place for it.

    A place is free, or is the last one whose vertex is reached by another way.
    """
    for source in sources[sources >= 0]:
        row = neighbors[source]
        places = np.flatnonzero((row < 0) | (parents[row] != source))
        if len(places):
            place = places[row[places] < 0][0] if row[-1] < 0 else places[-1]
            row[place] = vertex
            parents[vertex] = source
            return True
    return False
