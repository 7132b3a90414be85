"""Edges for vertices that no walk from the entries would find."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.files.progress import Progress, ignore
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import original_space

MAX_SOURCES = 64
"""Vertices near a lost one that are asked for a place in their lists, at the most."""
ROOT, LOST = -1, -2
"""In place of the vertex that one is reached by: it is an entry, or not reached."""
BLOCK = 10_000
"""Vertices that are searched for at a time."""


def connect_graph(
    graph: Graph,
    base: BaseVectors,
    n_threads: int = 0,
    wanted: NDArray[np.bool_] | None = None,
) -> Graph:
    """Change a few edges of the bottom layer so that all vertices are reached from the entries.

    The same graph if they are.

    Args:
        graph: a graph over the vectors.
        base: the vectors.
        n_threads: threads to use; 0 for all cores. The graph is the same for any number.
        wanted: vertices that have to be reached [n]; all by default.
    """
    parents = np.full(graph.n_vertices, LOST, dtype=np.int32)
    parents[graph.entries] = ROOT
    _follow(graph.neighbors, parents, graph.entries)
    is_lost = parents == LOST
    lost = np.flatnonzero(is_lost if wanted is None else is_lost & wanted)
    if not len(lost):
        return graph
    searcher = Searcher(Graph(graph.neighbors, graph.entries), original_space(base), base)
    k = min(graph.n_vertices, MAX_SOURCES)
    sources, nearness = nearest_found(searcher, lost, k, n_threads)
    neighbors = graph.neighbors.copy()
    rng = np.random.default_rng(0)
    for at in np.argsort(nearness, kind="stable"):  # of each lost part, its nearest vertex
        vertex = lost[at]
        if parents[vertex] == LOST:
            _link(neighbors, parents, vertex, sources[at], rng)
            _follow(neighbors, parents, np.array([vertex]))
    return Graph(neighbors, graph.entries, graph.upper)


def nearest_found(
    searcher: Searcher,
    ids: NDArray[np.integer[Any]],
    k: int,
    n_threads: int,
    progress: Progress = ignore,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """What a search finds for these base vectors [n_ids, k], and how far the nearest is [n_ids]."""
    vectors = searcher.base.vectors()
    found = np.empty((len(ids), k), dtype=np.int32)
    nearness = np.empty(len(ids), dtype=np.float32)
    progress(0, len(ids))
    for begin in range(0, len(ids), BLOCK):
        part = slice(begin, begin + BLOCK)
        result = searcher.search(
            vectors[ids[part]], k, limits=Limits(ef=2 * k), n_threads=n_threads
        )
        found[part], nearness[part] = result.ids, result.distances[:, 0]
        progress(min(begin + BLOCK, len(ids)), len(ids))
    return found, nearness


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
    rng: np.random.Generator,
) -> None:
    """Make a vertex the neighbour of the first of these that has a place for it.

    A place is free, or is the last one whose vertex is reached by another way. If none of them has
    one, all neighbours of the first are reached through it; then a way down from there, chosen at
    random so that no way grows long, ends where there is a place, at a leaf at the latest.
    """
    for source in sources[sources >= 0]:
        if _give_place(neighbors, parents, vertex, source):
            return
    source = sources[0]
    while not _give_place(neighbors, parents, vertex, source):
        source = rng.choice(neighbors[source])


def _give_place(
    neighbors: NDArray[np.int32],
    parents: NDArray[np.int32],
    vertex: np.integer[Any],
    source: np.integer[Any],
) -> bool:
    row = neighbors[source]
    places = np.flatnonzero((row < 0) | (parents[row] != source))
    if not len(places):
        return False
    place = places[row[places] < 0][0] if row[-1] < 0 else places[-1]
    row[place] = vertex
    parents[vertex] = source
    return True
