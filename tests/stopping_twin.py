"""The slow twin of walks that end by a learned rule."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher


def walks_by_level(
    searcher: Searcher, queries: NDArray[np.float32], slacks: Sequence[float], k: int, rerank: int
) -> list[SearchResult]:
    """A search of its own for the slack of each level, with traces."""
    return [
        searcher.search(
            queries, k, limits=Limits(slack=slack, rerank=rerank or None), trace=True, n_threads=1
        )
        for slack in slacks
    ]


def features_of(
    searcher: Searcher,
    query: NDArray[np.float32],
    found: SearchResult,
    row: int,
    level: int,
    k: int,
) -> list[float]:
    """The features of a walk that ended by slack, from the scores of all that it visited.

    Args:
        searcher: a searcher by squared l2 distances, whose graph has no upper layers.
        query: [dim].
        found: a search with a trace.
        row: number of the query in it.
        level: the level that the walk met.
        k: answers per query.
    """
    trace = found.trace
    assert trace is not None
    part = slice(trace.offsets[row], trace.offsets[row + 1])
    scores, hops = trace.scores[part].astype(np.float64), trace.hops[part]
    centre = searcher.space.centre
    routed = query.astype(np.float64) - (0.0 if centre is None else centre)
    squares = float(np.square(routed).sum())
    distances = scores + 0.5 * (searcher.space.origin or 0.0) * squares
    slack = SLACKS[level]
    n_hops = int(found.n_hops[row])
    kth_after = {
        hop: np.sort(scores[hops <= hop])[k - 1]
        for hop in range(n_hops + 1)
        if (hops <= hop).sum() >= k
    }
    first = min(kth_after)
    changed = [hop for hop in kth_after if hop == first or kth_after[hop] != kth_after[hop - 1]]
    n_when_better = int((hops <= changed[-1]).sum())
    ranked = np.sort(distances)
    last, n = ranked[k - 1], len(scores)
    return [
        (n - n_when_better) / n,
        np.log(last / ranked[0]),
        np.log(last / ranked[k // 2]),
        np.log((distances <= last * (1 + slack) ** 2).sum()),
        np.log((distances <= last * (1 + ((1 + slack) ** 2 - 1) / 4)).sum()),
        np.log(last / distances[hops <= first].min()),
        n / (n_hops + 1) / searcher.graph.neighbors.shape[1],
        np.log(last),
        float(level),
    ]


SLACKS = (0.01, 0.03, 0.06, 0.1, 0.15, 0.22, 0.3)
"""Slacks of the levels in tests."""
