"""Operating points of an index: recall, distance computations and time of a search."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import N_ANSWERS, recall_at
from l2route.data.truth import Truth
from l2route.evaluation.tables import Row
from l2route.index import RoutingIndex
from l2route.search.result import SearchResult


def measure(
    index: RoutingIndex,
    queries: NDArray[np.float32],
    truth: Truth,
    *,
    budget: int | None = None,
    ef: int | None = None,
    slack: float | None = None,
    rerank: int | None = None,
    space: str | None = None,
    n_threads: int = 1,
) -> Row:
    """Search all queries at one setting and compare the answers with the truth.

    Args:
        index: index to search.
        queries: [n_queries, dim].
        truth: exact neighbours of the queries, at least 10 of each.
        budget: distance computations per query.
        ef: beam width.
        slack: share by which a vertex may be farther than the k-th best and still be expanded.
        rerank: candidates whose true distance is computed at the end.
        space: name of the routing space; the index's own choice by default.
        n_threads: search threads; time per query is wall-clock time divided by the queries.
    """
    limits: dict[str, Any] = {"budget": budget, "ef": ef, "slack": slack, "rerank": rerank}
    index.search(queries[:100], N_ANSWERS, space=space, n_threads=n_threads, **limits)  # warms up
    begin = time.perf_counter()
    result = index.search(queries, N_ANSWERS, space=space, n_threads=n_threads, **limits)
    seconds = time.perf_counter() - begin
    return Row(
        index.searcher(space).space.name,
        budget,
        ef,
        slack=slack,
        **_recalls(index, queries, truth, result),
        n_computed=float(result.n_computed.mean()),
        n_hops=float(result.n_hops.mean()),
        microseconds_per_query=seconds / len(queries) * 1e6,
    )


def _recalls(
    index: RoutingIndex, queries: NDArray[np.float32], truth: Truth, result: SearchResult
) -> dict[str, float]:
    """Recall@1 and recall@10 of one search for 10 answers, by Row's field names."""
    distances = index.base.exact_distances(queries, index.rows_of(result.ids))
    return {f"recall_at_{k}": recall_at(distances, truth.distances, k) for k in (1, N_ANSWERS)}
