"""Which setting reaches a recall, measured on queries that an index keeps for it."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import knn_recall_at
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import check_lengths, check_vectors, normalize
from l2route.search.searcher import Searcher, SearchResult
from l2route.search.space import BaseVectors

DEPTH = 100
"""True neighbours kept of each query, at the most."""
LOSS_K, LOSS_EF = 10, 64
"""Answers and beam width at which the loss of compression is measured."""
N_KEPT = 2000
"""Queries kept, at the most."""
RERANKS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""True distances that are tried, in answers asked for."""
WIDEST_BEAM = 4096
"""Beam beyond which a recall counts as out of reach."""
SATURATED = 0.02
"""Share of the missing recall that a beam of twice the width must bring for a wider one to be
tried."""


FEW_QUERIES = 200
"""Validation queries below which a recall is hardly known."""
SHARE_INSIDE = 0.05
"""Share of the validation queries that may be vectors of the index without a warning."""
SAME = 1e-6
"""Difference in any dimension, as a share of the largest, below which a query is a base vector."""


class OutOfReachError(ValueError):
    """No setting reaches the recall that was asked for."""


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
        if base.metric != "cosine":
            check_lengths("queries", kept)
        depth = min(DEPTH, len(base.rows))
        truth = exact_neighbors(base.vectors(), kept, depth, base.metric)
        return cls(kept, truth.ids.astype(np.int32))

    def judge(self, base: BaseVectors, k: int) -> Callable[[NDArray[np.int64]], float]:
        """What tells the recall@k of answers by row number [n_queries, k].

        Whoever is as near as the k-th nearest counts: of equal vectors any may be found.
        """
        nearest = base.exact_distances(self.queries, self.neighbors[:, :k])

        def recall(found: NDArray[np.int64]) -> float:
            return knn_recall_at(base.exact_distances(self.queries, found), nearest, k)

        return recall


class CalibrationWarning(UserWarning):
    """Recalls that are measured on validation queries are worth less than they seem."""


def warn_of_doubts(validation: Validation, base: BaseVectors) -> None:
    """Warn if validation queries are few, or are vectors of the index themselves."""
    n = len(validation.queries)
    if n < FEW_QUERIES:
        error = 1.96 * np.sqrt(0.95 * 0.05 / n)
        warnings.warn(
            f"a recall of 0.95 measured on {n} validation queries is only known to ±{error:.3f}; "
            f"expected at least {FEW_QUERIES} distinct queries that are not learned from",
            CalibrationWarning,
            stacklevel=4,
        )
    n_inside = int(_are_in_base(validation, base).sum())
    if n_inside > SHARE_INSIDE * n:
        warnings.warn(
            f"{n_inside} of {n} validation queries are vectors of the index, which find themselves "
            "first: recalls and settings measured on them hold for such queries only; expected "
            "queries as they will be asked",
            CalibrationWarning,
            stacklevel=4,
        )


def _are_in_base(validation: Validation, base: BaseVectors) -> NDArray[np.bool_]:
    """Which validation queries are base vectors, but for rounding [n]; by inner product, none."""
    if base.metric == "ip":
        return np.zeros(len(validation.queries), dtype=bool)
    queries = normalize(validation.queries) if base.metric == "cosine" else validation.queries
    nearest = base.rows[validation.neighbors[:, 0], : base.dim].astype(np.float32)  # [n, dim]
    rounded = queries.astype(base.rows.dtype).astype(np.float32)
    largest = np.abs(rounded).max(axis=1, keepdims=True)
    return np.asarray((np.abs(nearest - rounded) <= SAME * largest).all(axis=1))


@dataclass(frozen=True, slots=True)
class Setting:
    """Limits that reach a recall, and what they reached when they were chosen."""

    space: str
    k: int
    target: float
    """Recall@k asked for."""
    rerank: int
    recall: float
    """Recall@k on the validation queries."""
    ef: int | None = None
    slack: float | None = None

    def __post_init__(self) -> None:
        widths = [each for each in (self.ef, self.slack) if each is not None]
        if self.k < 1 or self.rerank < 0 or len(widths) != 1 or not 0 <= widths[0] < np.inf:
            raise ValueError(f"expected a setting that can be searched with, got {self}")

    @property
    def limits(self) -> dict[str, Any]:
        """What to search with."""
        return {"ef": self.ef, "slack": self.slack, "rerank": self.rerank or None}


@dataclass(frozen=True, slots=True)
class Loss:
    """What smaller routing vectors cost: recall@k on validation queries at one beam width."""

    space: str
    k: int
    ef: int
    before: float
    after: float

    @classmethod
    def of(cls, before: Searcher, after: Searcher, validation: Validation) -> "Loss":
        """Measure it."""
        k = min(LOSS_K, validation.neighbors.shape[1])
        recall = validation.judge(before.base, k)
        recalls = [
            recall(searcher.search(validation.queries, k, ef=LOSS_EF).ids)
            for searcher in (before, after)
        ]
        return cls(after.space.name, k, LOSS_EF, *recalls)


def calibrate(
    searcher: Searcher, validation: Validation, k: int, target: float, n_threads: int = 0
) -> tuple[Setting, float]:
    """The setting that reads the fewest bytes of vectors among those that reach a recall@k.

    Args:
        searcher: what is to search.
        validation: queries that it did not learn from.
        k: answers per query.
        target: recall@k to reach, in (0, 1].
        n_threads: threads to use; 0 for all cores.

    Returns:
        The setting, and the bytes that a query then reads.
    """
    if not 0 < target <= 1:
        raise ValueError(f"expected a recall in (0, 1], got {target}")
    depth = validation.neighbors.shape[1]
    if not 1 <= k <= depth:
        raise ValueError(f"expected k in [1, {depth}], which the index keeps, got {k}")
    kinds: list[type[_Trial]] = [_Beams]
    if searcher.space.origin is not None:
        kinds.append(_Slacks)
    tries = [_cheapest(kind, searcher, validation, k, target, n_threads) for kind in kinds]
    reached = [(cost, setting) for cost, setting, _ in tries if setting is not None]
    if not reached:
        best = max(best for _, _, best in tries)
        expected = f"a recall@{k} in reach, which is up to {best:.4f}"
        raise OutOfReachError(f"expected {expected}, got {target}")
    cost, setting = min(reached, key=lambda pair: pair[0])
    return setting, cost


def cheapest_beam(
    searcher: Searcher, validation: Validation, k: int, target: float
) -> Setting | None:
    """The cheapest setting by beam width; None if none reaches the recall."""
    return _cheapest(_Beams, searcher, validation, k, target, 0)[1]


def cheapest_slack(
    searcher: Searcher, validation: Validation, k: int, target: float
) -> Setting | None:
    """The cheapest setting by slack; None if none reaches the recall."""
    return _cheapest(_Slacks, searcher, validation, k, target, 0)[1]


def _cheapest(
    kind: "type[_Trial]",
    searcher: Searcher,
    validation: Validation,
    k: int,
    target: float,
    n_threads: int,
) -> tuple[float, Setting | None, float]:
    """The cheapest setting of a kind with its cost, and the best recall that was met."""
    cost, chosen, best = np.inf, None, 0.0
    known: int | None = None
    reranks = sorted({round(k * share) for share in RERANKS}) if searcher.reranks else [0]
    for rerank in reranks:
        trial = kind(searcher, validation, k, rerank, n_threads)
        width = trial.narrowest(target, known)
        best = max(best, *trial.recalls.values())
        if width is None:
            continue
        if trial.costs[width] >= cost:
            break  # more of them cost more than the shorter walk saves
        cost, known = trial.costs[width], width
        chosen = Setting(
            searcher.space.name, k, target, rerank, trial.recalls[width], **trial.limit(width)
        )
    return cost, chosen, best


class _Trial(ABC):
    """Walks of several lengths with as many true distances; how long is a whole number, a width."""

    def __init__(
        self, searcher: Searcher, validation: Validation, k: int, rerank: int, n_threads: int
    ) -> None:
        self.searcher, self.queries, self.n_threads = searcher, validation.queries, n_threads
        self.k, self.rerank = k, rerank
        self.judge = validation.judge(searcher.base, k)
        self.recalls: dict[int, float] = {}
        self.costs: dict[int, float] = {}

    @abstractmethod
    def limit(self, width: int) -> dict[str, Any]:
        """What a width is to a search."""

    @abstractmethod
    def ends(self) -> tuple[int, int, int]:
        """The narrowest, the first to try and the widest."""

    def narrowest(self, target: float, known: int | None) -> int | None:
        """The narrowest width that reaches a recall; None if none does.

        Args:
            target: the recall.
            known: a width that reached it with fewer true distances, if there is one.
        """
        floor, first, _ = self.ends()
        if known is not None:
            low, high = self._narrow(floor, max(floor, known), target)
        else:
            widest = self._widen(first, target)
            if widest is None:
                return None
            low, high = (floor if widest == first else widest // 2), widest
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._recall(middle) >= target else (middle, high)
        if self._recall(low) >= target:
            high = low
        self._recall(high)  # its cost is asked for
        return high

    def _widen(self, width: int, target: float) -> int | None:
        """The first width to reach a recall, twice the one before each time."""
        before: float | None = None
        while (recall := self._recall(width)) < target:
            is_saturated = before is not None and recall - before < SATURATED * (target - recall)
            if width >= self.ends()[2] or is_saturated:
                return None
            before, width = recall, 2 * width
        return width

    def _narrow(self, floor: int, width: int, target: float) -> tuple[int, int]:
        """Two widths around the narrowest that reaches a recall, down from one that does.

        The first steps are short: a few more true distances make a walk a little shorter.
        """
        high, step = width, max(1, width // 16)
        low = max(floor, high - step)
        while low > floor and self._recall(low) >= target:
            high, step = low, 2 * step
            low = max(floor, high - step)
        return low, high

    def _recall(self, width: int) -> float:
        if width not in self.recalls:
            found = self.searcher.search(
                self.queries,
                self.k,
                rerank=self.rerank or None,
                n_threads=self.n_threads,
                **self.limit(width),
            )
            self.recalls[width] = self.judge(found.ids)
            self.costs[width] = self._bytes_read(found)
        return self.recalls[width]

    def _bytes_read(self, found: SearchResult) -> float:
        routed = found.n_routing.mean() * self.searcher.space.rows[0].nbytes
        return float(routed + found.n_rerank.mean() * self.searcher.base.rows[0].nbytes)


class _Beams(_Trial):
    """Widths are beam widths."""

    def limit(self, width: int) -> dict[str, Any]:
        """The beam."""
        return {"ef": width}

    def ends(self) -> tuple[int, int, int]:
        """A beam holds the answers and what is reranked."""
        narrowest = max(self.k, self.rerank)
        return narrowest, narrowest, WIDEST_BEAM


class _Slacks(_Trial):
    """Widths are slacks, in thousandths."""

    def limit(self, width: int) -> dict[str, Any]:
        """The slack."""
        return {"slack": width / 1000}

    def ends(self) -> tuple[int, int, int]:
        """From none; twice as far is everywhere."""
        return 0, 32, 1000
