"""Projections that know the queries: the best inner products of fewer dimensions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import check_vectors, normalize
from l2route.search.base import BaseVectors
from l2route.search.layout import pad_rows
from l2route.search.origin import with_origin
from l2route.search.space import RoutingSpace
from l2route.search.vertex_map import LinearMap

NEGLIGIBLE = 1e-9
"""Axes along which the base vectors vary by less than this fraction of the largest variance are
left out: inner products with them are the same for all vectors."""
BLOCK = 1 << 14
"""Vectors that are held in double precision at once."""
PRIOR = 1.0
"""Queries that the base vectors count for in the moments of queries, per dimension. With few
queries the projection is then that of PCA; with many it is their own."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Moments:
    """Means and covariances of queries and base vectors, along the axes that base vectors vary."""

    axes: Matrix
    """Principal axes of the base vectors, in columns [D, m]."""
    variances: Matrix
    """Variances of the base vectors along them, all above 0 [m]."""
    queries: Matrix
    """Covariance of the queries along them, positive definite [m, m]."""
    base_mean: Matrix
    """[D]"""
    query_mean: Matrix
    """[D]"""

    @classmethod
    def of(cls, vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> "Moments":
        """Moments of base vectors [n, D] and queries [n_queries, D]."""
        base_mean = vectors.mean(axis=0, dtype=np.float64)
        variances, axes = np.linalg.eigh(_covariance(vectors, base_mean))  # ascending
        varies = variances > NEGLIGIBLE * max(variances[-1], np.finfo(np.float64).tiny)
        axes, variances = axes[:, varies][:, ::-1], variances[varies][::-1]
        if not len(variances):
            axes, variances = np.eye(vectors.shape[1])[:, :1], np.ones(1)  # all vectors are equal
        weight = PRIOR * len(variances) / (len(queries) + PRIOR * len(variances))
        query_mean = (1 - weight) * queries.mean(axis=0, dtype=np.float64) + weight * base_mean
        own = axes.T @ _covariance(queries, query_mean) @ axes  # [m, m]
        size = max(float(np.trace(own)), NEGLIGIBLE * float(variances.sum()))
        prior = np.diag(variances) * size / variances.sum()
        return cls(axes, variances, (1 - weight) * own + weight * prior, base_mean, query_mean)


def query_aware_space(base: BaseVectors, queries: object, dim: int) -> RoutingSpace:
    """Routing by the `dim` dimensions that keep most of the queries' inner products.

    With covariances K_q of the queries and K_x of the base vectors, and K_q^½·K_x^½ = U·S·Vᵀ, the
    matrices P = (K_q^-½·U_d·S_d^½)ᵀ for queries and R = (K_x^-½·V_d·S_d^½)ᵀ for vertices make the
    mean squared error of ⟨P·q, R·x⟩ as an estimate of ⟨q, x⟩ the smallest of all matrices of d rows
    (Eckart and Young), where queries and vectors are centred. What depends on the vertex alone, its
    length and its inner product with the mean query, is exact and in the bias. If queries are
    distributed like base vectors, P and R are the projection of PCA.

    Args:
        base: the vectors.
        queries: a sample of the queries that will be asked [n_queries, D].
        dim: dimension of the routing vectors, below D.
    """
    if not 1 <= dim < base.dim:
        raise ValueError(f"expected a query-aware dimension in [1, {base.dim}), got {dim}")
    sample = check_vectors("queries", queries, base.dim)
    if base.metric == "cosine":
        sample = normalize(sample)
    vectors = np.ascontiguousarray(base.vectors())
    query_matrix, by = _fit(Moments.of(vectors, sample), dim, is_l2=base.metric != "ip")
    rows, bias = by(vectors)
    space = RoutingSpace(
        pad_rows(rows), dim, "ip", query_matrix, bias, name=f"aware{dim}", vertex_map=by
    )
    return with_origin(space, base)


def _fit(moments: Moments, dim: int, *, is_l2: bool) -> tuple[NDArray[np.float32], LinearMap]:
    """The query matrix [dim, D] and the map of vertices."""
    query_matrix, vertex_matrix = (
        np.zeros((dim, len(moments.axes)), dtype=np.float32) for _ in range(2)
    )
    root, inverse = _roots(moments.queries)  # [m, m]
    left, lengths, right = np.linalg.svd(root * np.sqrt(moments.variances))
    halves = np.sqrt(lengths[:dim])  # [at most dim]: the others stay 0
    query_matrix[: len(halves)] = (moments.axes @ (inverse @ left[:, :dim] * halves)).T
    scaled = right[:dim].T / np.sqrt(moments.variances)[:, None]  # [m, at most dim]
    vertex_matrix[: len(halves)] = (moments.axes @ (scaled * halves)).T
    mean = moments.query_mean
    tilt = mean - vertex_matrix.T.astype(np.float64) @ (query_matrix.astype(np.float64) @ mean)
    return query_matrix, LinearMap(
        matrix=vertex_matrix,
        centre=moments.base_mean.astype(np.float32),
        shift=np.zeros(dim, dtype=np.float32),
        tilt=(tilt - moments.base_mean * is_l2).astype(np.float32),
        lengthwise=float(is_l2),
        constant=0.0,
    )


def _covariance(vectors: NDArray[np.float32], mean: Matrix) -> Matrix:
    """Covariance of vectors [n, D], block by block, so that no copy in double precision is made."""
    total = np.zeros((len(mean), len(mean)))
    for begin in range(0, len(vectors), BLOCK):
        centred = vectors[begin : begin + BLOCK] - mean  # [BLOCK, D]
        total += centred.T @ centred
    return total / len(vectors)


def _roots(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """The square root of a positive definite matrix [m, m] and its inverse."""
    values, vectors = np.linalg.eigh(matrix)
    roots = np.sqrt(np.maximum(values, NEGLIGIBLE * max(values[-1], np.finfo(np.float64).tiny)))
    return (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T
