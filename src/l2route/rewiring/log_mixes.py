"""More queries than a log has: those halfway between two queries that are near each other.

Which neighbours a query of the log has is known; which ones the next query will have is not. Those
of queries between two logged ones are likely, and an index finds them in microseconds.
"""

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric, normalize
from l2route.graph.build import GraphOptions
from l2route.rewiring.grow import grow_graph
from l2route.search.base import BaseVectors
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import original_space

N_NEAR = 32
"""Nearest queries of the log that a query is mixed with."""
MAX_QUERIES = 100_000
"""Most queries of the log that are mixed; of more, some are drawn."""
MAX_PAIRS = 400_000
"""Most pairs; of more, some are drawn."""
DEGREE, QUERY_EF = 16, 64
"""Degree of the graph over the queries, and beam width of the searches for near ones."""
MIXED_EF, RERANKED = 128, 3
"""Beam width of the searches for neighbours of mixed queries, and vectors reranked per answer."""
CHUNK = 16_384
"""Mixed queries that are made and searched for at a time."""


def near_pairs(
    queries: NDArray[np.float32], metric: Metric, seed: int = 0, n_threads: int = 0
) -> NDArray[np.int64]:
    """Pairs of queries that are near each other, found by a graph over the queries [n_pairs, 2].

    Args:
        queries: distinct queries [n_queries, dim].
        metric: by which the queries are searched; by ip they are near if their directions are.
        seed: seed of the graph and of what is drawn.
        n_threads: threads; 0 for all cores. Pairs are the same for any number.
    """
    rng = np.random.default_rng(seed)
    some = _drawn(np.arange(len(queries)), MAX_QUERIES, rng)
    k = min(N_NEAR + 1, len(some))  # a query finds itself
    base = BaseVectors.of(queries[some], "l2" if metric == "l2" else "cosine")
    graph = grow_graph(base, GraphOptions("l2route", DEGREE, seed=seed, n_threads=n_threads))
    searcher = Searcher(graph, original_space(base), base)
    found = searcher.search(queries[some], k, limits=Limits(ef=QUERY_EF), n_threads=n_threads).ids
    firsts, others = np.repeat(np.arange(len(some)), k), found.ravel()
    is_pair = (others >= 0) & (firsts != others)
    pairs = np.stack([some[firsts[is_pair]], some[others[is_pair]]], axis=1)
    return _drawn(pairs, MAX_PAIRS, rng)


def _drawn(rows: NDArray[np.int64], at_most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """At most so many of the rows, in their order."""
    if len(rows) <= at_most:
        return rows
    drawn: NDArray[np.int64] = rows[np.sort(rng.choice(len(rows), at_most, replace=False))]
    return drawn


def mixed(
    queries: NDArray[np.float32], pairs: NDArray[np.int64], metric: Metric
) -> NDArray[np.float32]:
    """The queries halfway between those of each pair, of length 1 for cosine [n_pairs, dim]."""
    half = np.float32(0.5)
    middle: NDArray[np.float32] = half * queries[pairs[:, 0]] + half * queries[pairs[:, 1]]
    return normalize(middle) if metric == "cosine" else middle


def mixed_neighbors(
    searcher: Searcher,
    queries: NDArray[np.float32],
    pairs: NDArray[np.int64],
    depth: int,
    n_threads: int = 0,
) -> NDArray[np.int32]:
    """Neighbours, as a search finds them, of the queries between those of each pair [*, depth].

    Mixed queries for which fewer than `depth` are found are left out.
    """
    rerank = None if searcher.space.is_exact else RERANKED * depth
    limits = Limits(ef=max(MIXED_EF, depth), rerank=rerank)
    parts = [np.empty((0, depth), dtype=np.int32)]
    for start in range(0, len(pairs), CHUNK):  # bounds the memory of mixed queries
        some = mixed(queries, pairs[start : start + CHUNK], searcher.base.metric)
        ids = searcher.search(some, depth, limits=limits, n_threads=n_threads).ids
        parts.append(ids[ids[:, -1] >= 0].astype(np.int32))
    return np.concatenate(parts)
