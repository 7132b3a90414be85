"""Original vectors, from which true distances are computed."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from l2route.data.truth import exact_distances
from l2route.data.vectors import Metric, check_lengths, check_vectors, normalize
from l2route.search.layout import pad_rows, padded_dim

Scorer = Literal["l2", "ip"]
BASE_TYPES = ("float32", "float16")
"""Element types of original vectors."""


@dataclass(frozen=True, slots=True)
class BaseVectors:
    """The original vectors in padded rows; for cosine they are scaled to unit length."""

    rows: NDArray[Any]
    """Padded rows of float32 or float16 [n, padded_dim(dim)]."""
    dim: int
    metric: Metric

    def __post_init__(self) -> None:
        if self.rows.dtype not in BASE_TYPES:
            raise ValueError(f"expected vectors of {', '.join(BASE_TYPES)}, got {self.rows.dtype}")
        if self.dim < 1 or self.rows.shape[1:] != (padded_dim(self.dim),):
            got = list(self.rows.shape)
            raise ValueError(f"expected vectors [*, {padded_dim(max(1, self.dim))}], got {got}")

    @classmethod
    def of(cls, vectors: object, metric: Metric) -> "BaseVectors":
        """Copy vectors [n, dim] into padded rows."""
        checked = check_vectors("vectors", vectors)
        if metric == "cosine":
            return cls(pad_rows(normalize(checked)), checked.shape[1], metric)
        check_lengths("vectors", checked)
        return cls(pad_rows(checked), checked.shape[1], metric)

    @property
    def scorer(self) -> Scorer:
        """The core's scorer for this metric."""
        return "l2" if self.metric == "l2" else "ip"

    def vectors(self) -> NDArray[np.float32]:
        """The vectors as float32 without padding [n, dim]; a view unless they are float16."""
        return self.rows[:, : self.dim].astype(np.float32, copy=False)

    def exact_distances(
        self, queries: NDArray[np.float32], ids: NDArray[np.integer[Any]]
    ) -> NDArray[np.float32]:
        """Distances of queries [n_queries, dim] to rows `ids` [n_queries, k]; inf for −1.

        Computed in double precision. For cosine the vectors are normalised again, since half floats
        have only approximately unit length.
        """
        unique_ids, places = np.unique(ids, return_inverse=True)
        vectors = self.rows[unique_ids, : self.dim].astype(np.float32, copy=False)
        distances = exact_distances(vectors, queries, places.reshape(ids.shape), self.metric)
        distances[ids < 0] = np.inf
        return distances
