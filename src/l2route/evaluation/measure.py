"""Operating points of an index: recall, distance computations and time of a search."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import N_ANSWERS, RecallSpread, recall_at, recall_per_query
from l2route.data.truth import Truth
from l2route.evaluation.tables import Row
from l2route.index import RoutingIndex
from l2route.search.guarantee import Guarantee
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
    recall: float | None = None,
    guarantee: Guarantee | None = None,
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
        recall: recall@10 to reach, in place of the limits.
        guarantee: what reaches it: mean or p95.
        space: name of the routing space; the index's own choice by default.
        n_threads: search threads; time per query is wall-clock time divided by the queries.
    """
    limits: dict[str, Any] = {"budget": budget, "ef": ef, "slack": slack, "rerank": rerank}
    if recall is not None:
        setting = index.setting(recall, N_ANSWERS, guarantee=guarantee or "mean", space=space)
        if setting.threshold is None:
            ef, slack = setting.ef, setting.slack
    asked = {**limits, "recall": recall, "guarantee": guarantee, "space": space}
    index.search(queries[:100], N_ANSWERS, n_threads=n_threads, **asked)  # warms up
    begin = time.perf_counter()
    result = index.search(queries, N_ANSWERS, n_threads=n_threads, **asked)
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
    """Recall@1, recall@10 and that of the worst queries, by Row's field names."""
    distances = index.base.exact_distances(queries, index.rows_of(result.ids))
    spread = RecallSpread.of(recall_per_query(distances, truth.distances, N_ANSWERS))
    return {
        "recall_at_1": recall_at(distances, truth.distances, 1),
        "recall_at_10": spread.mean,
        "worst_recall_at_10": spread.worst,
    }
