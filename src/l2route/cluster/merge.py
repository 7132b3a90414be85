"""Answers of shards merged into one: nearest first, ties by id, costs added up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.search.result import SearchResult

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(slots=True)
class ClusterResult(SearchResult):
    """Answers to a batch of queries from several shards, and how much of the index was asked."""

    coverage: float = 1.0
    """Share of the vectors that could be asked; less than 1 if a shard gave no answer."""
    missing: tuple[int, ...] = ()
    """Shards that some query should have asked, and that gave no answer."""
    n_asked: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    """Shards that each query asked and that answered [n_queries]."""
    n_missed: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    """Shards that each query should have asked and that gave no answer [n_queries]."""
    computed: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Distance computations of shards and router, in units of the original dimension."""

    @property
    def n_computed(self) -> NDArray[np.float64]:
        """Distance computations in units of the original dimension [n_queries].

        Those of all shards that were asked, and of the router.
        """
        return self.computed


class Answer(NamedTuple):
    """What a shard found for the queries that asked it."""

    shard: int
    queries: NDArray[np.int64]
    """Row numbers of those queries in the batch [n]."""
    ids: Ids
    """[n, k]; −1 where fewer than k were found."""
    distances: Floats
    """[n, k]; inf where fewer than k were found."""
    counts: NDArray[np.int32]
    """As in `SearchResult` [4, n]."""
    computed: NDArray[np.float64]
    """Distance computations [n]."""


def answer_of(shard: int, queries: NDArray[np.int64], found: SearchResult) -> Answer:
    """What a shard found, without its own record."""
    return Answer(shard, queries, found.ids, found.distances, found.counts, found.n_computed)


def merge(
    answers: Iterable[Answer],
    n_queries: int,
    k: int,
    dim: int,
    *,
    router_cost: float = 0.0,
    missed: NDArray[np.int32] | None = None,
    missing: tuple[int, ...] = (),
    coverage: float = 1.0,
) -> ClusterResult:
    """Merge the answers of shards; of several answers with one id the nearest counts.

    Args:
        answers: what the shards found.
        n_queries: queries of the batch.
        k: answers per query.
        dim: dimension of the queries.
        router_cost: distance computations of the router per query.
        missed: shards that gave no answer, of each query [n_queries].
        missing: those shards.
        coverage: share of the vectors that could be asked.
    """
    ids = np.full((n_queries, k), -1, dtype=np.int64)
    distances = np.full((n_queries, k), np.inf, dtype=np.float32)
    counts = np.zeros((4, n_queries), dtype=np.int32)
    computed = np.full(n_queries, router_cost)
    asked = np.zeros(n_queries, dtype=np.int32)
    for each in answers:
        rows = each.queries
        joined_ids = np.concatenate([ids[rows], each.ids], axis=1)
        joined = np.concatenate([distances[rows], each.distances], axis=1)
        ids[rows], distances[rows] = nearest(joined_ids, joined, k)
        counts[:, rows] += each.counts
        computed[rows] += each.computed
        asked[rows] += 1
    return ClusterResult(
        ids,
        distances,
        counts,
        0,
        dim,
        dim,
        None,
        coverage,
        missing,
        asked,
        np.zeros(n_queries, np.int32) if missed is None else missed,
        computed,
    )


def nearest(ids: Ids, distances: Floats, k: int) -> tuple[Ids, Floats]:
    """The k nearest of each row, ties by id, no id twice; −1 and inf where there are fewer.

    Args:
        ids: [n, m], m at least k; −1 for none.
        distances: [n, m]; inf for none.
        k: answers per row.
    """
    order = np.lexsort((ids, distances), axis=1)  # by distance, then by id
    ids = np.take_along_axis(ids, order, axis=1)
    distances = np.take_along_axis(distances, order, axis=1)
    if _repeats(ids):
        ids, distances = _without_repeats(ids, distances)
    return ids[:, :k], distances[:, :k]


def _repeats(ids: Ids) -> bool:
    """Whether some row has an id twice; −1 may be."""
    ordered = np.sort(ids, axis=1)
    return bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != -1)).any())


def _without_repeats(ids: Ids, distances: Floats) -> tuple[Ids, Floats]:
    """Rows without the second and later answers of an id.

    A vector is in two shards for a moment if it is moved.
    """
    ids, distances = ids.copy(), distances.copy()
    for row in range(len(ids)):
        _, first = np.unique(ids[row], return_index=True)
        again = np.ones(ids.shape[1], dtype=bool)
        again[first] = False
        distances[row, again & (ids[row] != -1)] = np.inf
        ids[row, again] = -1
        order = np.lexsort((ids[row], distances[row]))
        ids[row], distances[row] = ids[row, order], distances[row, order]
    return ids, distances
