"""New edges to vertices that cannot be reached from the entries."""

from dataclasses import replace
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
"""Maximum number of vertices tried as the source of a new edge to an unreachable vertex."""
ROOT, UNREACHED = -1, -2
"""Parent in the breadth-first tree of an entry, and of a vertex not reached so far."""
BLOCK = 10_000
"""Number of vertices searched for at a time."""


def connect_graph(
    graph: Graph,
    base: BaseVectors,
    n_threads: int = 0,
    wanted: NDArray[np.bool_] | None = None,
) -> Graph:
    """Change a few edges of the bottom layer so that all vertices are reachable from the entries.

    If all are reachable already, the graph itself is returned.

    Args:
        graph: a graph over the vectors.
        base: the vectors.
        n_threads: threads; 0 for all cores. The graph is the same for any number.
        wanted: vertices that must be reachable [n]; all by default.
    """
    parents = np.full(graph.n_vertices, UNREACHED, dtype=np.int32)
    parents[graph.entries] = ROOT
    _extend_tree(graph.neighbors, parents, graph.entries)
    is_unreached = parents == UNREACHED
    unreached = np.flatnonzero(is_unreached if wanted is None else is_unreached & wanted)
    if not len(unreached):
        return graph
    searcher = Searcher(Graph(graph.neighbors, graph.entries), original_space(base), base)
    k = min(graph.n_vertices, MAX_SOURCES)
    sources, distances = nearest_found(searcher, unreached, k, n_threads)
    neighbors = graph.neighbors.copy()
    rng = np.random.default_rng(0)
    for at in np.argsort(distances, kind="stable"):  # nearest vertex of a component first
        vertex = unreached[at]
        if parents[vertex] == UNREACHED:
            _link(neighbors, parents, vertex, sources[at], rng)
            _extend_tree(neighbors, parents, np.array([vertex]))
    return replace(graph, neighbors=neighbors)


def nearest_found(
    searcher: Searcher,
    ids: NDArray[np.integer[Any]],
    k: int,
    n_threads: int,
    progress: Progress = ignore,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Search for base vectors as queries, with a beam of 2k.

    Args:
        searcher: the searcher.
        ids: rows of the base vectors to search for [n_ids].
        k: answers per vector.
        n_threads: threads; 0 for all cores.
        progress: called with vectors done and in total.

    Returns:
        Ids found [n_ids, k], and distances to the nearest of them [n_ids].
    """
    vectors = searcher.base.vectors()
    found = np.empty((len(ids), k), dtype=np.int32)
    distances = np.empty(len(ids), dtype=np.float32)
    progress(0, len(ids))
    for begin in range(0, len(ids), BLOCK):
        part = slice(begin, begin + BLOCK)
        result = searcher.search(
            vectors[ids[part]], k, limits=Limits(ef=2 * k), n_threads=n_threads
        )
        found[part], distances[part] = result.ids, result.distances[:, 0]
        progress(min(begin + BLOCK, len(ids)), len(ids))
    return found, distances


def _extend_tree(
    neighbors: NDArray[np.int32], parents: NDArray[np.int32], frontier: NDArray[np.integer[Any]]
) -> None:
    """Extend the breadth-first tree `parents` from a frontier to all vertices reachable from it."""
    while len(frontier):
        reached = neighbors[frontier]
        sources = np.broadcast_to(frontier[:, None], reached.shape)
        is_new = (reached >= 0) & (parents[reached] == UNREACHED)
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
    of the first one are its children in the tree. A random path down the tree then leads to a
    vertex with room, at the latest a leaf. It is random so that no path grows long.
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
    """Make a vertex a neighbour of a source if the source has room; return whether it had."""
    row = neighbors[source]
    places = np.flatnonzero((row < 0) | (parents[row] != source))
    if not len(places):
        return False
    place = places[row[places] < 0][0] if row[-1] < 0 else places[-1]
    row[place] = vertex
    parents[vertex] = source
    return True
