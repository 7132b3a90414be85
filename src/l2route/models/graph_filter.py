"""The filter: graph-propagated features of each vertex, weighted axis by axis."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from l2route.models.features import VertexFeatures
from l2route.models.start import Start
from l2route.search.vertex_map import FilterMap

NEGLIGIBLE = float(np.finfo(np.float32).eps)
"""An axis is ignored if no vector's squared coordinate along it reaches this fraction of the
largest variance of any axis: float32 scores would round it off."""


class GraphFilter(nn.Module):
    """Graph-propagated features, weighted axis by axis: f(v) = α·M(Σ w_k∘φ_k(v) + Σ s_j(v)·u_j).

    The groups of features φ_k are made of vectors rotated to their principal axes. Each group has
    one weight per axis: with so few weights the filter hardly overfits. A single feature s_j has a
    weight vector u_j. All features contribute to the bias; products of features contribute to
    nothing else. M is the identity, or for d < D a matrix that is learned like the query matrix.

    While learning, the weights are applied to the query instead: ⟨w∘φ(v), q⟩ = ⟨φ(v), w∘q⟩. Vertex
    vectors are then constant, and a step costs as much as its walks, however large the graph is.
    Hubs, vertices that enough walks visit, learn a shift of their vector and a bias of their own.

    Axes along which the base vectors do not differ are removed from vertices and queries alike:
    they cannot tell vertices apart, and weights on them would fit noise.

    Args:
        start: what the untrained filter ranks by; its seed is not used.
        features: features of every vertex, of vectors rotated to their principal axes.
        axes: principal axes of the vectors, in columns [dim, dim].
        hubs: vertices with a shift of their own [h].
    """

    constant_vertices = True

    def __init__(
        self,
        start: Start,
        features: VertexFeatures,
        axes: NDArray[np.float32],
        hubs: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__()
        dim, sharpness = start.vectors.shape[1], start.sharpness
        projector = _projector(start.vectors, axes)  # [dim, dim]
        vectors = start.vectors if projector is None else start.vectors @ projector
        self.projector: Tensor | None
        buffer = None if projector is None else torch.from_numpy(projector)
        self.register_buffer("projector", buffer, persistent=False)
        is_projected = start.query_matrix is not None
        matrix = start.query_matrix  # [d, dim]
        if matrix is None:
            matrix = np.ascontiguousarray(axes.T)
        is_aware = start.vertex_matrix is not None
        measured = vectors if is_aware else vectors @ matrix.T  # [n, d], or [n, dim]
        bias = (-0.5 if start.scorer == "l2" else 0.0) * (measured**2).sum(axis=1)
        self.sharpness, self.features, self.axes = sharpness, features, axes
        self.mean_bias, self.lengthwise = float(bias.mean()), None
        if start.scorer == "l2":
            by = None if is_aware else start.query_matrix
            self.lengthwise = _lengthwise(axes, projector, by)
        self.register_buffer("rows", torch.from_numpy(features.rows), persistent=False)
        offset = torch.from_numpy(sharpness * (bias - bias.mean()))
        self.register_buffer("offset", offset, persistent=False)
        origin = np.zeros((features.n_groups, dim), dtype=np.float32)
        origin[0] = features.vector_scale
        self.register_buffer("origin", torch.from_numpy(origin), persistent=False)
        self.along = nn.Parameter(torch.zeros(features.n_groups, dim))
        self.single = nn.Parameter(torch.zeros(features.n_singles, dim))
        self.bias = nn.Parameter(torch.from_numpy(_tilted(start, features, axes)))
        self.matrix = nn.Parameter(torch.from_numpy(matrix.copy()), requires_grad=is_projected)
        own = matrix if start.vertex_matrix is None else start.vertex_matrix
        rotated = np.ascontiguousarray(own @ axes)  # M [d, dim]
        self.mixing = nn.Parameter(torch.from_numpy(rotated), requires_grad=is_projected)
        self.hubs = np.zeros(0, dtype=np.int64) if hubs is None else hubs
        self.shift = nn.Parameter(torch.zeros(len(self.hubs), dim + 1))

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Features [n, n_features] and the biases of an untrained filter [n]."""
        return self.get_buffer("rows"), self.get_buffer("offset")

    def shifts(self) -> tuple[NDArray[np.int64], Tensor]:
        """Hubs [h] and their shifts [h, dim + 1], the last column for biases."""
        bias = self.sharpness * self.shift[:, -1:]
        return self.hubs, torch.cat([self.shift[:, :-1], bias], dim=1)

    def queries(self, queries: Tensor) -> Tensor:
        """Map queries [batch, dim] to [batch, n_features]."""
        varying = queries if self.projector is None else queries @ self.projector
        rotated = varying @ self.matrix.T @ self.mixing  # [batch, dim]
        weights = self.get_buffer("origin") + self.along  # [n_groups, dim]
        grouped = (rotated[:, None, :] * weights).flatten(1)  # [batch, n_groups · dim]
        weighted = torch.cat([grouped, rotated @ self.single.T], dim=1)
        n_products = self.bias.shape[0] - weighted.shape[1]  # which are in the bias only
        return self.sharpness * (functional.pad(weighted, (0, n_products)) + self.bias)

    def vertex_map(self, readout: NDArray[np.float32], scale: float) -> FilterMap:
        """The filter for any vertex, without the shifts of hubs; see `InductiveModel`."""
        rotated = (self.matrix.T @ self.mixing).detach().numpy()  # [D, D]
        if self.projector is not None:
            rotated = self.projector.numpy() @ rotated
        by, sharpness = self.lengthwise, np.float32(self.sharpness)
        return FilterMap(
            axes=self.axes * np.float32(scale),
            means=self.features.means,
            lengths=self.features.lengths,
            weights=(self.get_buffer("origin") + self.along).detach().numpy(),
            singles=self.single.detach().numpy().copy(),
            out=sharpness * (rotated.T @ readout),
            shift=np.zeros(readout.shape[1], dtype=np.float32),
            bias=sharpness * self.bias.detach().numpy(),
            lengthwise=None if by is None else np.sqrt(sharpness) * by,
            constant=-self.sharpness * self.mean_bias,
            hubs=np.zeros((0, len(self.axes)), dtype=np.float32),
            hub_shifts=np.zeros((0, readout.shape[1] + 1), dtype=np.float32),
        )


def _tilted(
    start: Start, features: VertexFeatures, axes: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Initial weights of the features in the bias: the tilt, on the first group [n_features]."""
    weights = np.zeros(features.rows.shape[1], dtype=np.float32)
    if start.tilt is not None:
        weights[: len(axes)] = np.float32(features.vector_scale) * (start.tilt @ axes)
    return weights


def _lengthwise(
    axes: NDArray[np.float32],
    projector: NDArray[np.float32] | None,
    query_matrix: NDArray[np.float32] | None,
) -> NDArray[np.float32]:
    """Matrix B [d, D], or its diagonal [D], by which a vector's bias is −½|B·r|².

    Args:
        axes: principal axes, by which vectors have coordinates r [D, D].
        projector: projector onto the axes along which vectors differ [D, D]; None if they all are.
        query_matrix: what queries are projected by [d, D]; None for the identity.
    """
    if query_matrix is not None:
        rotated = axes if projector is None else projector @ axes  # [D, D]
        return np.asarray(query_matrix @ rotated, dtype=np.float32)
    kept = np.ones(len(axes)) if projector is None else np.diag(axes.T @ projector @ axes)
    return np.rint(kept).astype(np.float32)


def _projector(
    vectors: NDArray[np.float32], axes: NDArray[np.float32]
) -> NDArray[np.float32] | None:
    """Projector onto the axes along which vectors differ [dim, dim]; None if that is every axis.

    Args:
        vectors: [n, dim].
        axes: principal axes, in columns [dim, dim].
    """
    rotated = (vectors - vectors.mean(axis=0, dtype=np.float64)) @ axes  # [n, dim]
    squares = np.square(rotated, out=rotated)
    is_varying = squares.max(axis=0) >= NEGLIGIBLE * squares.mean(axis=0).max()  # [dim]
    if is_varying.all():
        return None
    varying = axes[:, is_varying].astype(np.float64)
    return np.asarray(varying @ varying.T, dtype=np.float32)
