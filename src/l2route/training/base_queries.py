"""Base vectors as additional training queries, if queries are distributed like them."""

import numpy as np
from numpy.typing import NDArray

from l2route.data.truth import exact_neighbors
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import original_space
from l2route.training.clock import timed
from l2route.training.options import LearnOptions
from l2route.training.oracle import BLOCK_TARGETS

N_COMPARED = 50_000
"""Largest number of base vectors, and of queries, in the comparison of the distributions."""
N_SAMPLED = 500
"""Validation queries whose nearest neighbours are compared."""
LOOK_ALIKE = 0.4
"""Smallest fraction of queries nearer to a base vector than to another query, of as many of both,
at which queries are taken to be distributed like base vectors."""
OTHERS_EF = 64
"""Beam width of the search for the nearest neighbours of base vectors."""
N_PROBED = 1000
"""Vectors on which the time of that search is measured."""


def look_alike(
    base: BaseVectors, train: NDArray[np.float32], validation: NDArray[np.float32], seed: int
) -> bool:
    """Whether queries are distributed like base vectors.

    If they are, then a query's nearest neighbour among as many of both is a base vector half of the
    time. Always False by inner product, where a vector need not be its own nearest neighbour.
    """
    if base.metric == "ip":
        return False
    rng = np.random.default_rng(seed)
    vectors = base.vectors()
    n = min(len(vectors), len(train), N_COMPARED)
    sample = validation[:N_SAMPLED]
    sides = [rows[rng.permutation(len(rows))[:n]] for rows in (vectors, train)]
    near_base, near_train = (
        exact_neighbors(side, sample, 1, base.metric).distances[:, 0] for side in sides
    )
    share = (near_base < near_train).mean() + 0.5 * (near_base == near_train).mean()
    return bool(share >= LOOK_ALIKE)


def affordable_vectors(
    graph: Graph, base: BaseVectors, options: LearnOptions, seconds: float | None
) -> int:
    """Number of vectors whose nearest neighbours can be found in `seconds`; all if that is None."""
    n = graph.n_vertices
    if seconds is None or n <= N_PROBED:
        return n
    probed = np.arange(N_PROBED, dtype=np.int64)
    _, taken = timed(lambda: nearest_others(graph, base, options, probed))
    return max(N_PROBED, min(n, int(N_PROBED * seconds / max(taken, 1e-9))))


def nearest_others(
    graph: Graph,
    base: BaseVectors,
    options: LearnOptions,
    chosen: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """The k nearest other vectors of each base vector; −1 where fewer are found [n, k].

    For k = 1 this is the nearest of the vertex's neighbours in the graph, which is nearly always
    the nearest of all. For k > 1 the graph is searched.

    Args:
        graph: the graph.
        base: the vectors.
        options: how to learn.
        chosen: ids of base vectors, all by default; rows of the others are −1 [n_chosen].
    """
    vectors = base.vectors()
    ids = np.arange(len(vectors)) if chosen is None else chosen
    k = options.ks[-1]
    others = np.full((len(vectors), k), -1, dtype=np.int64)
    if k > 1:
        searcher = Searcher(graph, original_space(base), base)
        ef, n_threads = max(OTHERS_EF, 2 * k), options.n_threads
        found = searcher.search(vectors[ids], k + 1, limits=Limits(ef=ef), n_threads=n_threads).ids
        is_itself = found == ids[:, None]  # [n_chosen, k + 1]
        is_itself[~is_itself.any(axis=1), -1] = True  # an equal vector may have come first
        others[ids] = found[~is_itself].reshape(len(ids), k)
        return others
    apart = np.full(len(ids), np.inf, dtype=np.float32)  # [n_chosen]
    for neighbor in graph.neighbors[ids].T:  # [n_chosen]
        used = np.flatnonzero(neighbor >= 0)
        distances = ((vectors[ids[used]] - vectors[neighbor[used]]) ** 2).sum(axis=1)
        is_nearer = distances < apart[used]
        apart[used[is_nearer]] = distances[is_nearer]
        others[ids[used[is_nearer]], 0] = neighbor[used[is_nearer]]
    return others


def draw_targets(nearest: NDArray[np.int64], ks: tuple[int, ...], seed: int) -> NDArray[np.int64]:
    """Targets of walks: all of the k nearest, or for each of several k one of its nearest.

    Args:
        nearest: the nearest of each query, as many as the largest k [n, k].
        ks: numbers of neighbours to find, ascending.
        seed: seed of the choice.

    Returns:
        Targets [n, k], or [n, n_ks].
    """
    if len(ks) == 1:
        return nearest
    rng = np.random.default_rng(seed)
    ranks = np.stack([rng.integers(k, size=len(nearest)) for k in ks], axis=1)  # [n, n_ks]
    return np.take_along_axis(nearest, ranks, axis=1)


def base_as_queries(
    graph: Graph, nearest: NDArray[np.int64], targets: NDArray[np.int64], max_blocks: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Base vectors that can be training queries [m], and the nearest others of each [m, k].

    When a base vector is a query, its own vertex is hidden from the walk. Left out are entry
    points, vectors without neighbours, and vectors with a target for which the oracle has no room.

    Args:
        graph: the graph.
        nearest: nearest others of each vector, −1 for none [n, k].
        targets: targets of other training queries, which the oracle holds too.
        max_blocks: blocks of hops that the oracle may hold.
    """
    is_known = np.zeros(len(nearest), dtype=bool)
    is_known[targets] = True
    room = max(0, max_blocks * BLOCK_TARGETS - int(is_known.sum()))
    is_known[np.setdiff1d(nearest[nearest >= 0], np.flatnonzero(is_known))[:room]] = True
    usable: NDArray[np.bool_] = np.all((nearest >= 0) & is_known[nearest], axis=1)  # [n]
    usable[graph.entries] = False
    ids = np.flatnonzero(usable).astype(np.int32)
    return ids, nearest[ids]
