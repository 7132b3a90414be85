"""Base vectors that serve as training queries, where queries look like them."""

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
"""Base vectors and queries that are held against each other."""
N_ASKED = 500
"""Queries that are asked which of both they are nearer to."""
LOOK_ALIKE = 0.4
"""Share of nearest neighbours that are base vectors, of as many of both, from which on queries and
base vectors are taken to be of one kind."""
OTHERS_EF = 64
"""Beam width of the search for base vectors' nearest others."""
N_PROBED = 1000
"""Vectors that tell how long it takes to find a vector's nearest others."""


def look_alike(
    base: BaseVectors, train: NDArray[np.float32], validation: NDArray[np.float32], seed: int
) -> bool:
    """Whether a query is as near to base vectors as it is to other queries.

    Of as many of both, half the nearest are of either kind if both come from one distribution.
    Only under a distance: by inner product a vector need not be near to itself.
    """
    if base.metric == "ip":
        return False
    rng = np.random.default_rng(seed)
    vectors = base.vectors()
    n = min(len(vectors), len(train), N_COMPARED)
    asked = validation[:N_ASKED]
    sides = [rows[rng.permutation(len(rows))[:n]] for rows in (vectors, train)]
    near_base, near_train = (
        exact_neighbors(side, asked, 1, base.metric).distances[:, 0] for side in sides
    )
    share = (near_base < near_train).mean() + 0.5 * (near_base == near_train).mean()
    return bool(share >= LOOK_ALIKE)


def affordable_vectors(
    graph: Graph, base: BaseVectors, options: LearnOptions, seconds: float | None
) -> int:
    """How many vectors' nearest others can be found in so many seconds; None: no limit."""
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
    asked: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """The k nearest other vectors of every base vector, −1 where there are fewer [n, k].

    The nearest is taken to be the nearest of a vector's neighbours in the graph, which it nearly
    always is; of more than one, a search tells.

    Args:
        graph: the graph.
        base: the vectors.
        options: how to learn.
        asked: row numbers of the vectors that are asked for; the others have −1. All by default.
    """
    vectors = base.vectors()
    ids = np.arange(len(vectors)) if asked is None else asked
    others = np.full((len(vectors), options.k), -1, dtype=np.int64)
    if options.k > 1:
        searcher = Searcher(graph, original_space(base), base)
        ef, n_threads = max(OTHERS_EF, 2 * options.k), options.n_threads
        found = searcher.search(
            vectors[ids], options.k + 1, limits=Limits(ef=ef), n_threads=n_threads
        ).ids
        is_itself = found == ids[:, None]  # [n_asked, k + 1]
        is_itself[~is_itself.any(axis=1), -1] = True  # of equal ones another may have come first
        others[ids] = found[~is_itself].reshape(len(ids), options.k)
        return others
    apart = np.full(len(ids), np.inf, dtype=np.float32)  # [n_asked]
    for neighbor in graph.neighbors[ids].T:  # [n_asked]
        used = np.flatnonzero(neighbor >= 0)
        distances = ((vectors[ids[used]] - vectors[neighbor[used]]) ** 2).sum(axis=1)
        is_nearer = distances < apart[used]
        apart[used[is_nearer]] = distances[is_nearer]
        others[ids[used[is_nearer]], 0] = neighbor[used[is_nearer]]
    return others


def base_as_queries(
    graph: Graph, nearest: NDArray[np.int64], targets: NDArray[np.int64], max_blocks: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Base vectors that can be asked for, and the nearest other vectors of each.

    Hidden from its own walk, a base vector is one more query. Vectors are left out that are
    entries, that have no neighbour, or of whose targets one would make the oracle hold more than it
    may.

    Args:
        graph: the graph.
        nearest: nearest others of each vector, −1 for none [n, k].
        targets: targets that the oracle knows already.
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
