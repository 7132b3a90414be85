"""Operating points of an index: recall, distance computations and time of a search."""

import time
from collections.abc import Sequence

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

    Returns:
        Recall@1 and recall@10, both of the same search for 10 answers, and its cost.
    """

    def search(some: NDArray[np.float32]) -> SearchResult:
        return index.search(
            some,
            N_ANSWERS,
            budget=budget,
            ef=ef,
            slack=slack,
            rerank=rerank,
            space=space,
            n_threads=n_threads,
        )

    search(queries[:100])  # pages and caches are warm in production too
    begin = time.perf_counter()
    result = search(queries)
    seconds = time.perf_counter() - begin
    distances = index.base.exact_distances(queries, index.rows_of(result.ids))
    return Row(
        method=index.searcher(space).space.name,
        budget=budget,
        ef=ef,
        slack=slack,
        recall_at_1=recall_at(distances, truth.distances, 1),
        recall_at_10=recall_at(distances, truth.distances, N_ANSWERS),
        n_computed=float(result.n_computed.mean()),
        n_hops=float(result.n_hops.mean()),
        microseconds_per_query=seconds / len(queries) * 1e6,
    )


def measure_all(
    index: RoutingIndex,
    queries: NDArray[np.float32],
    truth: Truth,
    budgets: Sequence[int] = (),
    efs: Sequence[int] = (),
    *,
    rerank: int | None = None,
    space: str | None = None,
    n_threads: int = 1,
) -> list[Row]:
    """Measure every budget, every beam width, or every pair of them if both are given."""
    pairs = [(budget, ef) for budget in budgets or (None,) for ef in efs or (None,)]
    return [
        measure(
            index,
            queries,
            truth,
            budget=budget,
            ef=ef,
            rerank=rerank,
            space=space,
            n_threads=n_threads,
        )
        for budget, ef in pairs
    ]
