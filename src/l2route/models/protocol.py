"""Routing models: what f(v) and g(q) are made of, and how they become a routing space.

A model of one's own is an `nn.Module` with the two methods of `RoutingModel`; see
examples/own_model.py. Vectors and queries come scaled so that the base vectors have
root-mean-square length 1.
"""

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from l2route.models.features import VertexFeatures
from l2route.search.base import Scorer
from l2route.search.layout import pad_rows
from l2route.search.space import LEARNED, RoutingSpace


@runtime_checkable
class RoutingModel(Protocol):
    """Scores vertex v for query q by ⟨vertices()[0][v], queries(q)⟩ + vertices()[1][v]."""

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Vectors [n, width] and biases [n] of all vertices; constants need no gradient."""
        ...

    def queries(self, queries: Tensor) -> Tensor:
        """Map queries [batch, dim] to [batch, width], affinely."""
        ...


@runtime_checkable
class ShiftedModel(RoutingModel, Protocol):
    """A model with constant vertices, some of which learn a shift of their own beside."""

    def shifts(self) -> tuple[NDArray[np.int64], Tensor]:
        """Vertices [h] and what is added to their vectors' first columns and biases [h, c + 1]."""
        ...


UNSEEN = float(np.finfo(np.float32).eps)
"""Largest square along an axis, as a share of the longest axis' variance, that scores round off."""


class GraphFilter(nn.Module):
    """Graph-propagated features, weighted axis by axis: f(v) = α·M(Σ w_k∘φ_k(v) + Σ s_j(v)·u_j).

    Groups of features φ_k are of vectors rotated to their principal axes, so that a weight is of
    one axis in one group: few weights, which overfit little. Single features s_j have a vector
    each, all features a share in the bias, products of features nothing else. M is the identity, or
    for d < D as free as the query map.

    While it learns, all this is applied to the query instead: ⟨w∘φ(v), q⟩ = ⟨φ(v), w∘q⟩. The
    vertices' rows are then constants, and a step costs as much as the walks it learns from, however
    large the graph is. Hubs, vertices that so many walks come by that there is enough to learn
    from, have a shift of x and a bias of their own besides.

    Axes along which the vectors do not differ are not seen, of vertices and queries alike: they
    tell no vertex from another, and what is learned of them would be learned from noise.

    Args:
        features: features of every vertex, of vectors rotated to their principal axes.
        vectors: scaled base vectors [n, dim].
        axes: principal axes of the vectors, in columns [dim, dim].
        sharpness: α, the inverse temperature.
        query_matrix: where the query map starts [d, dim]; None for the identity.
        scorer: what the start ranks like, l2 or ip.
        hubs: vertices with a shift of their own [h].
    """

    def __init__(
        self,
        features: VertexFeatures,
        vectors: NDArray[np.float32],
        axes: NDArray[np.float32],
        sharpness: float,
        query_matrix: NDArray[np.float32] | None = None,
        scorer: Scorer = "l2",
        hubs: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__()
        dim = vectors.shape[1]
        sight = _sight(vectors, axes)
        vectors = vectors if sight is None else vectors @ sight
        self.sight: Tensor | None
        shown = None if sight is None else torch.from_numpy(sight)
        self.register_buffer("sight", shown, persistent=False)
        start = np.ascontiguousarray(axes.T) if query_matrix is None else query_matrix  # [d, dim]
        projected = vectors @ start.T  # [n, d]
        bias = (-0.5 if scorer == "l2" else 0.0) * (projected**2).sum(axis=1)
        self.sharpness = sharpness
        self.register_buffer("rows", torch.from_numpy(features.rows), persistent=False)
        offset = torch.from_numpy(sharpness * (bias - bias.mean()))
        self.register_buffer("offset", offset, persistent=False)
        origin = np.zeros((features.n_groups, dim), dtype=np.float32)
        origin[0] = features.vector_scale
        self.register_buffer("origin", torch.from_numpy(origin), persistent=False)
        self.along = nn.Parameter(torch.zeros(features.n_groups, dim))
        self.single = nn.Parameter(torch.zeros(features.n_singles, dim))
        self.bias = nn.Parameter(torch.zeros(features.rows.shape[1]))
        is_projected = query_matrix is not None
        self.matrix = nn.Parameter(torch.from_numpy(start.copy()), requires_grad=is_projected)
        rotated = np.ascontiguousarray(start @ axes)  # M [d, dim]
        self.mixing = nn.Parameter(torch.from_numpy(rotated), requires_grad=is_projected)
        self.hubs = np.zeros(0, dtype=np.int64) if hubs is None else hubs
        self.shift = nn.Parameter(torch.zeros(len(self.hubs), dim + 1))

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Features [n, n_features] and the biases that the start ranks with [n]."""
        return self.get_buffer("rows"), self.get_buffer("offset")

    def shifts(self) -> tuple[NDArray[np.int64], Tensor]:
        """Hubs [h] and their shifts [h, dim + 1], the last column for biases."""
        bias = self.sharpness * self.shift[:, -1:]
        return self.hubs, torch.cat([self.shift[:, :-1], bias], dim=1)

    def queries(self, queries: Tensor) -> Tensor:
        """Map queries [batch, dim] to [batch, n_features]."""
        seen = queries if self.sight is None else queries @ self.sight
        rotated = seen @ self.matrix.T @ self.mixing  # [batch, dim]
        weights = self.get_buffer("origin") + self.along  # [n_groups, dim]
        grouped = (rotated[:, None, :] * weights).flatten(1)  # [batch, n_groups · dim]
        moving = torch.cat([grouped, rotated @ self.single.T], dim=1)
        still = self.bias.shape[0] - moving.shape[1]  # products do not meet the query
        return self.sharpness * (functional.pad(moving, (0, still)) + self.bias)


def _sight(vectors: NDArray[np.float32], axes: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """What leaves of a vector its part along axes that vectors differ in; None if that is all.

    Args:
        vectors: [n, dim].
        axes: principal axes, in columns [dim, dim].
    """
    rotated = (vectors - vectors.mean(axis=0, dtype=np.float64)) @ axes  # [n, dim]
    squares = np.square(rotated, out=rotated)
    seen = axes[:, squares.max(axis=0) >= UNSEEN * squares.mean(axis=0).max()].astype(np.float64)
    if seen.shape[1] == axes.shape[1]:
        return None
    return np.asarray(seen @ seen.T, dtype=np.float32)


@torch.no_grad()
def space_of(
    model: RoutingModel, original_dim: int, dim: int, scale: float, rerank: int
) -> RoutingSpace:
    """Collapse a model into vectors of `dim` dimensions, a query matrix and biases.

    Args:
        model: what has been learned.
        original_dim: dimension of queries as they come.
        dim: routing dimension; equal to the original one, queries stay as they are.
        scale: what queries were multiplied by while learning.
        rerank: vertices that searches rerank by default.
    """
    vectors, bias = model.vertices()  # [n, width], [n]
    device = vectors.device
    constant = model.queries(torch.zeros(1, original_dim, device=device))  # [1, width]
    matrix = model.queries(torch.eye(original_dim, device=device)) - constant  # [D, width]
    query_matrix = None
    if dim == original_dim:
        collapse = matrix.T * scale  # [width, D]
    else:
        left, lengths, right = torch.linalg.svd(matrix, full_matrices=False)
        collapse = (lengths[:dim, None] * right[:dim]).T  # [width, dim]
        query_matrix = np.ascontiguousarray(left[:, :dim].T.cpu().numpy() * np.float32(scale))
    rows = vectors @ collapse  # [n, dim]
    offsets = bias + (vectors @ constant.T)[:, 0]  # [n]
    if isinstance(model, ShiftedModel):
        ids, shifts = model.shifts()
        moved, width = torch.from_numpy(ids).to(device), shifts.shape[1] - 1
        rows[moved] += shifts[:, :-1] @ collapse[:width]
        offsets[moved] += shifts[:, -1] + shifts[:, :-1] @ constant[0, :width]
    padded = pad_rows(rows.cpu().numpy())
    return RoutingSpace(padded, dim, "ip", query_matrix, offsets.cpu().numpy(), LEARNED, rerank)
