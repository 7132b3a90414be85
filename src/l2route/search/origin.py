"""Calibration of inner-product scores as distances."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from l2route.files.memory import aligned
from l2route.search.base import BaseVectors
from l2route.search.space import RoutingSpace
from l2route.search.vertex_map import FilterMap, LinearMap

Movable = FilterMap | LinearMap
N_FITTED = 10_000
"""Largest number of vectors to fit the origin of a space on."""


def with_origin(space: RoutingSpace, base: BaseVectors) -> RoutingSpace:
    """Calibrate inner-product scores so that d(x, x) ≈ 0.

    A vector added to all rows and a number added to all biases change no ranks, so training leaves
    them undetermined. Both are fitted here together with the origin, by least squares. The origin
    is None where the metric is no distance or where the learned scores do not resemble one.

    Rows proportional to the vectors need only the factor of proportionality, so the fit starts
    there and is regularised towards it. Where vectors hardly vary, along an axis or in length, the
    data do not determine the fit, and an unregularised one could be arbitrarily large; such values
    in rows or biases would leave float32 no digits for the scores.
    """
    if base.metric == "ip" or space.scorer != "ip" or space.rows.dtype != np.float32:
        return replace(space, origin=None)
    step = -(-len(base.rows) // N_FITTED)
    by = space.vertex_map
    queries = space.map_queries(base.vectors()[::step]).astype(np.float64)  # [n, dim]
    if not queries.any():
        return replace(space, origin=None)
    mean, row_mean = queries.mean(axis=0), space.rows[::step, : space.dim].mean(axis=0, dtype="f8")
    bias = np.zeros(len(base.rows), dtype=np.float32) if space.bias is None else space.bias
    rows = space.rows[::step, : space.dim] - row_mean  # [n, dim]
    own = np.einsum("nd,nd->n", rows, queries) + bias[::step]  # [n]
    origin, tilt, constant = _origin_of(rows, queries - mean, own)
    if origin <= 0:  # rows point away from the vectors
        return replace(space, origin=None)
    moved, shift = space.rows.copy(), (tilt + origin * mean - row_mean).astype(np.float32)
    moved[:, : space.dim] += shift
    constant -= tilt @ mean + 0.5 * origin * mean @ mean
    return replace(
        space,
        rows=aligned(moved),
        bias=bias + np.float32(constant),
        origin=float(origin),
        is_exact=False,
        vertex_map=by.moved(shift, float(constant)) if isinstance(by, Movable) else None,
    )


def _origin_of(
    rows: NDArray[np.float64], centred: NDArray[np.float64], own: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], float]:
    """Origin, tilt t and constant c of own = origin · |z|²/2 − ⟨t, z⟩ − c, by least squares.

    Ridge regression towards origin = ⟨rows, z⟩ / |z|² and t = 0. The penalty is the variance of the
    residual at that point, in units in which an origin and a tilt of the rows' own size are 1. So
    well-determined coefficients follow the data, and the others stay below that size.

    Args:
        rows: routing vectors without their mean [n, dim].
        centred: queries z: the vectors mapped into the space, without their mean [n, dim].
        own: score of each vector as a query against its own row [n].
    """
    squares = np.einsum("nd,nd->n", centred, centred)
    if not squares.any():
        return 1.0, np.zeros(centred.shape[1]), float(-own.mean())  # all equal: any scale fits
    start = np.einsum("nd,nd->", rows, centred) / squares.sum()
    size = np.sqrt(np.einsum("nd,nd->", rows, rows) / squares.sum())  # at least |start|
    residual = own - 0.5 * start * squares
    features = size * np.column_stack([0.5 * squares, -centred.std(axis=0).max() * centred])
    varying = features - features.mean(axis=0)  # [n, dim + 1]
    penalty = residual.var() * np.eye(varying.shape[1])
    solution = np.linalg.lstsq(
        varying.T @ varying + penalty,
        varying.T @ (residual - residual.mean()),
    )[0]
    constant = features.mean(axis=0) @ solution - residual.mean()
    tilt = size * centred.std(axis=0).max() * solution[1:]
    return float(start + size * solution[0]), tilt, float(constant)
