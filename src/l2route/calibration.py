"""Which setting reaches a recall, measured on queries that an index keeps for it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.data import check_vectors
from l2route.search import BaseVectors, Searcher, SearchResult
from l2route.truth import exact_neighbors

DEPTH = 100
"""True neighbours kept of each query, at the most."""
N_KEPT = 2000
"""Queries kept, at the most."""
RERANKS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""True distances that are tried, in answers asked for."""
WIDEST_BEAM = 4096
"""Beam beyond which a recall counts as out of reach."""
SATURATED = 0.02
"""Share of the missing recall that a beam of twice the width must bring for a wider one to be
tried."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Queries and their true neighbours, by row number. Of equal vectors only some may be kept."""

    queries: NDArray[np.float32]
    """[n_queries, dim]"""
    neighbors: NDArray[np.int32]
    """[n_queries, depth], nearest first."""

    def __post_init__(self) -> None:
        if self.queries.ndim != 2 or self.neighbors.ndim != 2 or not len(self.queries):
            raise ValueError("expected validation queries and neighbours with two axes")
        if len(self.queries) != len(self.neighbors) or self.neighbors.shape[1] < 1:
            got = f"{list(self.neighbors.shape)} of {len(self.queries)}"
            raise ValueError(f"expected the neighbours of every validation query, got {got}")

    @classmethod
    def of(cls, base: BaseVectors, queries: object) -> "Validation":
        """Find the true neighbours of the first N_KEPT queries."""
        kept = check_vectors("queries", queries, base.dim)[:N_KEPT]
        depth = min(DEPTH, len(base.rows))
        truth = exact_neighbors(base.vectors(), kept, depth, base.metric)
        return cls(kept, truth.ids.astype(np.int32))

    def recall(self, found: NDArray[np.int64]) -> float:
        """Share of the k true neighbours among the answers [n_queries, k]."""
        k = found.shape[1]
        true = self.neighbors[:, :k]
        hits = (found[:, :, None] == true[:, None, :]).any(axis=2)  # [n_queries, k]
        return float(hits.sum() / true.size)


@dataclass(frozen=True, slots=True)
class Setting:
    """Beam width and rerank that reach a recall, and what they reached when they were chosen."""

    space: str
    k: int
    target: float
    """Recall@k asked for."""
    ef: int
    rerank: int
    recall: float
    """Recall@k on the validation queries."""

    def __post_init__(self) -> None:
        if self.k < 1 or self.ef < 1 or self.rerank < 0:
            raise ValueError(f"expected a setting that can be searched with, got {self}")


@dataclass(frozen=True, slots=True)
class Loss:
    """What smaller routing vectors cost: recall@k on validation queries at one beam width."""

    space: str
    k: int
    ef: int
    before: float
    after: float


def calibrate(
    searcher: Searcher, validation: Validation, k: int, target: float, n_threads: int = 0
) -> Setting:
    """The setting that reads the fewest bytes of vectors among those that reach a recall@k.

    Args:
        searcher: what is to search.
        validation: queries that it did not learn from.
        k: answers per query.
        target: recall@k to reach, in (0, 1].
        n_threads: threads to use; 0 for all cores.
    """
    if not 0 < target <= 1:
        raise ValueError(f"expected a recall in (0, 1], got {target}")
    depth = validation.neighbors.shape[1]
    if not 1 <= k <= depth:
        raise ValueError(f"expected k in [1, {depth}], which the index keeps, got {k}")
    reranks = sorted({round(k * share) for share in RERANKS}) if searcher.reranks else [0]
    trials = [_Trial(searcher, validation, k, rerank, n_threads) for rerank in reranks]
    narrowest = [trial.narrowest(target) for trial in trials]
    reached = [(cost, ef, i) for i, (ef, cost) in enumerate(narrowest) if ef is not None]
    if not reached:
        best = max(trial.best for trial in trials)
        raise ValueError(f"expected a recall@{k} in reach, which is up to {best:.4f}, got {target}")
    _, ef, i = min(reached)
    return Setting(searcher.space.name, k, target, ef, reranks[i], trials[i].recalls[ef])


class _Trial:
    """Beams of several widths with as many true distances."""

    def __init__(
        self, searcher: Searcher, validation: Validation, k: int, rerank: int, n_threads: int
    ) -> None:
        self.searcher, self.validation, self.n_threads = searcher, validation, n_threads
        self.k, self.rerank = k, rerank
        self.recalls: dict[int, float] = {}
        self.costs: dict[int, float] = {}

    @property
    def best(self) -> float:
        return max(self.recalls.values())

    def narrowest(self, target: float) -> tuple[int | None, float]:
        """The narrowest beam that reaches a recall, and its cost; None if none does."""
        low = high = max(self.k, self.rerank)
        while self._recall(high) < target:
            missing, brought = target - self._recall(high), self._recall(high) - self._recall(low)
            if high >= WIDEST_BEAM or (high > low and brought < SATURATED * missing):
                return None, 0.0
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._recall(middle) >= target else (middle, high)
        return high, self.costs[high]

    def _recall(self, ef: int) -> float:
        if ef not in self.recalls:
            found = self.searcher.search(
                self.validation.queries,
                self.k,
                ef=ef,
                rerank=self.rerank or None,
                n_threads=self.n_threads,
            )
            self.recalls[ef] = self.validation.recall(found.ids)
            self.costs[ef] = self._bytes_read(found)
        return self.recalls[ef]

    def _bytes_read(self, found: SearchResult) -> float:
        routed = found.n_routing.mean() * self.searcher.space.rows[0].nbytes
        return float(routed + found.n_rerank.mean() * self.searcher.base.rows[0].nbytes)
