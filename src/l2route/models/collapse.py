"""Collapses a trained model into a routing space: vectors, biases and a query matrix."""

import numpy as np
import torch
from torch import Tensor

from l2route.models.protocol import InductiveModel, RoutingModel, ShiftedModel, name_of
from l2route.search.base import BaseVectors
from l2route.search.layout import pad_rows
from l2route.search.space import LEARNED, LEAST_RERANK, RoutingSpace
from l2route.search.vertex_map import FilterMap

N_PROBED = 4
"""Random queries at which it is checked that a query map is affine."""
ROUNDING = 1e-3
"""Largest difference from an affine map that counts as rounding, relative to the map's values."""


@torch.no_grad()
def space_of(
    model: RoutingModel,
    original_dim: int,
    dim: int,
    scale: float,
    rerank: int | None,
    base: BaseVectors | None = None,
) -> RoutingSpace:
    """Collapse a model into vectors of `dim` dimensions, a query matrix and biases.

    Args:
        model: the model; its query map has to be affine.
        original_dim: dimension D of queries.
        dim: routing dimension d; if it equals D, the space has no query matrix.
        scale: factor that queries were multiplied by while learning.
        rerank: vertices that searches rerank by default; None for a part of the budget.
        base: the original vectors; without them the space's vertex map does not know hubs.
    """
    vectors, bias = model.vertices()  # [n, width], [n]
    constant, matrix = _affine_map(model, original_dim, vectors.device)  # [1, width], [D, width]
    query_matrix = None
    if dim == original_dim:
        collapse = matrix.T * scale  # [width, D]
        readout = np.eye(dim, dtype=np.float32) * np.float32(scale)
    else:
        left, lengths, right = torch.linalg.svd(matrix, full_matrices=False)
        collapse = (lengths[:dim, None] * right[:dim]).T  # [width, dim]
        readout = left[:, :dim].cpu().numpy()  # [D, dim]
        query_matrix = np.ascontiguousarray(readout.T * np.float32(scale))
    rows = vectors @ collapse  # [n, dim]
    offsets = bias + (vectors @ constant.T)[:, 0]  # [n]
    by = model.vertex_map(readout, scale) if isinstance(model, InductiveModel) else None
    if isinstance(model, ShiftedModel):
        ids, shifts = model.shifts()
        moved, width = torch.from_numpy(ids).to(vectors.device), shifts.shape[1] - 1
        moves = shifts[:, :-1] @ collapse[:width]  # [h, dim]
        lifts = shifts[:, -1] + shifts[:, :-1] @ constant[0, :width]  # [h]
        rows[moved] += moves
        offsets[moved] += lifts
        if isinstance(by, FilterMap) and base is not None:
            shifted = torch.column_stack([moves, lifts]).cpu().numpy()
            by = by.with_hubs(base.vectors()[ids], shifted)
    padded = pad_rows(rows.cpu().numpy())
    return RoutingSpace(
        padded,
        dim,
        "ip",
        query_matrix,
        offsets.cpu().numpy(),
        LEARNED,
        LEAST_RERANK if rerank is None else rerank,
        rerank is None,
        model=name_of(model),
        vertex_map=by,
    )


def _affine_map(model: RoutingModel, dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The query map as a constant [1, width] and a matrix [dim, width].

    Raises:
        ValueError: the map is not affine, since these two do not give its values at random queries.
    """
    constant = model.queries(torch.zeros(1, dim, device=device))  # [1, width]
    matrix = model.queries(torch.eye(dim, device=device)) - constant  # [dim, width]
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(N_PROBED, dim, generator=generator).to(device)
    apart = float((model.queries(queries) - (queries @ matrix + constant)).abs().max())
    largest = float((queries.abs() @ matrix.abs() + constant.abs()).max())
    if apart > ROUNDING * largest:  # False too where weights have diverged to NaN
        raise ValueError(
            f"expected an affine query map, queries(x) = A·x + c, got one of {name_of(model)} "
            f"that is {apart:.2g} away from that, at values up to {largest:.2g}"
        )
    return constant, matrix
