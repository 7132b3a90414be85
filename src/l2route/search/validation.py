"""Queries that settings are measured on."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import recall_at
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import check_lengths, check_vectors, normalize
from l2route.search.base import BaseVectors

DEPTH = 100
"""True neighbours kept of each query, at the most."""
N_KEPT = 2000
"""Queries kept, at the most."""
FEW_QUERIES = 200
"""Validation queries below which a recall is hardly known."""
SHARE_INSIDE = 0.05
"""Share of the validation queries that may be vectors of the index without a warning."""
SAME = 1e-6
"""Difference in any dimension, as a share of the largest, below which a query is a base vector."""


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
            return recall_at(base.exact_distances(self.queries, found), nearest, k)

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
