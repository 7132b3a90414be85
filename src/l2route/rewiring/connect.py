"""Edges to vertices that cannot be reached from the entries."""

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
"""Maximum number of vertices tried as the new in-neighbour of an unreachable one."""
ROOT, LOST = -1, -2
"""In place of a parent in the breadth-first tree: for an entry, and for an unreachable vertex."""
BLOCK = 10_000
"""Vertices searched at a time."""


def connect_graph(
    graph: Graph,
    base: BaseVectors,
    n_threads: int = 0,
    wanted: NDArray[np.bool_] | None = None,
) -> Graph:
    """Change a few edges of the bottom layer so that all vertices are reachable from the entries.

    If they are already, the graph itself is returned.

    Args:
        graph: a graph over the vectors.
        base: the vectors.
        n_threads: threads; 0 for all cores. The graph is the same for any number.
        wanted: vertices that must be reachable [n]; all by default.
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
    for at in np.argsort(nearness, kind="stable"):  # nearest vertex of a component first
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
    """Search for base vectors: ids found [n_ids, k] and distance to the nearest [n_ids]."""
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
    """Extend the breadth-first tree `parents` from a frontier to all vertices reachable from it."""
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
    """Make a vertex a neighbour of the first source that has room for it.

    A source has room if its list is not full, or if a neighbour has another parent in the
    breadth-first tree: the last such neighbour is replaced. If no source has room, all neighbours
    of the first one are its children in the tree. A random path down the tree then reaches a vertex
    with room, at the latest a leaf. It is random so that no path grows long.
    """
    for source in sources[sources >= 0]:
        if _replace_neighbor(neighbors, parents, vertex, source):
            return
    source = sources[0]
    while not _replace_neighbor(neighbors, parents, vertex, source):
        source = rng.choice(neighbors[source])


def _replace_neighbor(
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
