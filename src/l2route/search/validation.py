"""Validation queries: held-out queries with true neighbours, to measure recall on."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import recall_per_query
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import Metric, check_lengths, check_vectors, normalize
from l2route.search.base import BaseVectors

DEPTH = 100
"""Maximum number of true neighbours kept per query."""
N_KEPT = 2000
"""Maximum number of queries kept."""
FEW_QUERIES = 200
"""Fewer validation queries cause a warning, because their recall is too uncertain."""
SHARE_INSIDE = 0.05
"""Largest share of validation queries that may be vectors of the index without a warning."""
SAME = 1e-6
"""A query counts as a base vector if no dimension differs by more than this share of the query's
largest value."""
DECIMALS = 4
"""Queries of length 1 are equal if they are so far."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Queries and their true neighbours, by row number.

    Of several vectors at the distance of the last neighbour only some may be listed.
    """

    queries: NDArray[np.float32]
    """[n_queries, dim]"""
    neighbors: NDArray[np.int32]
    """[n_queries, depth], nearest first."""

    def __post_init__(self) -> None:
        for name, array in (("queries", self.queries), ("neighbours", self.neighbors)):
            if array.ndim != 2:
                got = list(array.shape)
                raise ValueError(f"expected validation {name} with two axes, got shape {got}")
        n, (n_listed, depth) = len(self.queries), self.neighbors.shape
        if n < 1:
            raise ValueError("expected at least 1 validation query, got 0")
        if n_listed != n:
            raise ValueError(f"expected neighbours of {n} validation queries, got {n_listed}")
        if depth < 1:
            raise ValueError("expected at least 1 neighbour of each validation query, got 0")

    @classmethod
    def of(cls, base: BaseVectors, queries: object) -> "Validation":
        """Find the true neighbours of the first N_KEPT queries."""
        kept = check_vectors("queries", queries, base.dim)[:N_KEPT]
        if base.metric != "cosine":
            check_lengths("queries", kept)
        depth = min(DEPTH, len(base.rows))
        truth = exact_neighbors(base.vectors(), kept, depth, base.metric)
        return cls(kept, truth.ids.astype(np.int32))

    def others(self, queries: NDArray[np.float32], metric: Metric) -> NDArray[np.float32]:
        """Queries [n, dim] that are not among these, by cosine and ip whatever their lengths."""
        if not len(queries):
            return queries
        known = {row.tobytes() for form in _forms(self.queries, metric) for row in form}
        is_other = np.ones(len(queries), dtype=np.bool_)
        for form in _forms(queries, metric):
            is_other &= np.array([row.tobytes() not in known for row in form])
        others: NDArray[np.float32] = queries[is_other]
        return others

    def judge(self, base: BaseVectors, k: int) -> Callable[[NDArray[np.int64]], float]:
        """Return a function that computes the recall@k of answers, the mean of `judge_each`.

        Args:
            base: the original vectors.
            k: answers per query.
        """
        judge_each = self.judge_each(base, k)
        return lambda found: float(judge_each(found).mean())

    def judge_each(
        self, base: BaseVectors, k: int
    ) -> Callable[[NDArray[np.int64]], NDArray[np.float64]]:
        """Return a function that computes the recall@k of each query's answers.

        Args:
            base: the original vectors.
            k: answers per query.

        Returns:
            A function of answers by row number [n_queries, k]. An answer counts if it is as near
            as the k-th true neighbour, whichever vertex it is.
        """
        nearest = base.exact_distances(self.queries, self.neighbors[:, :k])

        def recalls(found: NDArray[np.int64]) -> NDArray[np.float64]:
            return recall_per_query(base.exact_distances(self.queries, found), nearest, k)

        return recalls


def _forms(queries: NDArray[np.float32], metric: Metric) -> Iterator[NDArray[np.float32]]:
    """What equal queries [n, dim] have in common: values, without negative zeros.

    Where lengths do not matter, also those at length 1, and the same rounded: queries of a log are
    kept at length 1, and others may be multiples of them.
    """
    yield queries + 0.0
    if metric != "l2":
        unit = normalize(queries)
        yield unit + 0.0
        yield np.round(unit, DECIMALS) + 0.0


class CalibrationWarning(UserWarning):
    """Validation queries are too few, or not like real queries, for a reliable recall."""


def warn_of_doubts(validation: Validation, base: BaseVectors, stacklevel: int) -> None:
    """Warn if validation queries are few, or if many are vectors of the index."""
    for doubt in doubts(validation, base):
        warnings.warn(doubt, CalibrationWarning, stacklevel=stacklevel)


def doubts(validation: Validation, base: BaseVectors) -> list[str]:
    """Reasons why recalls measured on validation queries may not hold for other queries."""
    reasons, n = [], len(validation.queries)
    if n < FEW_QUERIES:
        error = 1.96 * np.sqrt(0.95 * 0.05 / n)
        reasons.append(
            f"a recall of 0.95 measured on {n} validation queries is only known to ±{error:.3f}; "
            f"expected at least {FEW_QUERIES} distinct queries held out from learning"
        )
    n_inside = int(_are_in_base(validation, base).sum())
    if n_inside > SHARE_INSIDE * n:
        reasons.append(
            f"{n_inside} of {n} validation queries are vectors of the index: they find themselves "
            "first, so recalls and settings measured on them hold for such queries only; expected "
            "queries like those of users"
        )
    return reasons


def _are_in_base(validation: Validation, base: BaseVectors) -> NDArray[np.bool_]:
    """Whether each validation query is a base vector up to rounding [n]; False under ip."""
    if base.metric == "ip":
        return np.zeros(len(validation.queries), dtype=bool)
    queries = normalize(validation.queries) if base.metric == "cosine" else validation.queries
    nearest = base.rows[validation.neighbors[:, 0], : base.dim].astype(np.float32)  # [n, dim]
    rounded = queries.astype(base.rows.dtype).astype(np.float32)
    largest = np.abs(rounded).max(axis=1, keepdims=True)
    return np.asarray((np.abs(nearest - rounded) <= SAME * largest).all(axis=1))
