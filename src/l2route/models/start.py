"""The scores that an untrained model starts from."""

from dataclasses import dataclass
from operator import index as index_of

import numpy as np
import torch
from numpy.typing import NDArray

from l2route.search.base import Scorer


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """What an untrained model ranks by: vectors, a projection, a scorer and a temperature.

    Untrained, a model ranks vertices as the scorer does on base vectors and queries, or on their
    projections by the query matrix.
    """

    vectors: NDArray[np.float32]
    """Base vectors, scaled to a root-mean-square length of 1 [n, D]."""
    sharpness: float
    """Inverse temperature α, the factor of all scores."""
    query_matrix: NDArray[np.float32] | None = None
    """Initial query matrix, the projection of PCA [d, D]; None for the identity."""
    scorer: Scorer = "l2"
    """l2 or ip."""
    seed: int = 0
    """Seed of the initial weights; layers that start at zero do not depend on it."""
    vertex_matrix: NDArray[np.float32] | None = None
    """Initial matrix of vertices, if it is not that of queries [d, D]. Lengths of vectors are then
    those before the projection."""
    tilt: NDArray[np.float32] | None = None
    """Vector whose inner products with the vectors are added to the scores [D]; None for 0."""

    def __post_init__(self) -> None:
        vectors, matrix = self.vectors, self.query_matrix
        if vectors.ndim != 2 or vectors.dtype != np.float32 or vectors.size == 0:
            got = f"{vectors.dtype} {vectors.shape}"
            raise ValueError(f"expected vectors float32 [n, D], got {got}")
        if not np.isfinite(vectors).all():
            raise ValueError("expected finite vectors, got NaN or infinity")
        if not np.isfinite(self.sharpness) or self.sharpness <= 0:
            raise ValueError(f"expected a finite sharpness above 0, got {self.sharpness}")
        if matrix is not None:
            _check_matrix(matrix, vectors.shape[1])
        if self.vertex_matrix is not None:
            _check_matrix(self.vertex_matrix, vectors.shape[1])
            if matrix is None or matrix.shape != self.vertex_matrix.shape:
                expected = f"a query matrix {self.vertex_matrix.shape}, as that of vertices"
                raise ValueError(
                    f"expected {expected}, got {None if matrix is None else matrix.shape}"
                )
        if self.tilt is not None and self.tilt.shape != vectors.shape[1:]:
            raise ValueError(f"expected a tilt {vectors.shape[1:]}, got {self.tilt.shape}")

    @property
    def dim(self) -> int:
        """Dimension d of the routing vectors; D without a query matrix."""
        return self.vectors.shape[1] if self.query_matrix is None else len(self.query_matrix)

    def generator(self) -> torch.Generator:
        """A new random generator with the seed."""
        return torch.Generator().manual_seed(index_of(self.seed))


def _check_matrix(matrix: NDArray[np.float32], original_dim: int) -> None:
    is_shaped = matrix.ndim == 2 and len(matrix) > 0 and matrix.shape[1] == original_dim
    if not is_shaped or matrix.dtype != np.float32:
        expected = f"a query matrix float32 [d, {original_dim}] with d of at least 1"
        raise ValueError(f"expected {expected}, got {matrix.dtype} {matrix.shape}")
