"""Scores by inner product that can be read as distances."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from l2route.files.memory import aligned
from l2route.search.base import BaseVectors
from l2route.search.space import RoutingSpace

N_OWN = 10_000
"""Vectors that are scored by themselves to find a space's origin, at the most."""


def with_origin(space: RoutingSpace, base: BaseVectors) -> RoutingSpace:
    """A space of inner products that tells distances: vectors have none to themselves.

    What all vertices have in common does not change their ranks, so that learning leaves it open: a
    vector in all rows, a number in all biases. Both are chosen here, with the origin, by least
    squares. Without an origin where the metric, or what was learned, is no distance.

    Rows that are a multiple of the vectors need nothing but that multiple, so the fit starts there
    and is drawn to it: where vectors hardly differ, along an axis or in length, they say nothing,
    and what fits their noise best may be of any size. Such a number in rows or biases would leave
    float32 no digits for the scores.
    """
    if base.metric == "ip" or space.scorer != "ip" or space.rows.dtype != np.float32:
        return replace(space, origin=None)
    every = -(-len(base.rows) // N_OWN)
    vectors, matrix = base.vectors()[::every], space.query_matrix
    queries = (vectors if matrix is None else vectors @ matrix.T).astype(np.float64)  # [n, dim]
    if not queries.any():
        return replace(space, origin=None)
    mean, row_mean = queries.mean(axis=0), space.rows[::every, : space.dim].mean(axis=0, dtype="f8")
    bias = np.zeros(len(base.rows), dtype=np.float32) if space.bias is None else space.bias
    rows = space.rows[::every, : space.dim] - row_mean  # [n, dim]
    own = np.einsum("nd,nd->n", rows, queries) + bias[::every]  # [n]
    origin, tilt, constant = _origin_of(rows, queries - mean, own)
    if origin <= 0:  # rows do not point where vectors do
        return replace(space, origin=None)
    moved = space.rows.copy()
    moved[:, : space.dim] += np.float32(tilt + origin * mean - row_mean)
    constant -= tilt @ mean + 0.5 * origin * mean @ mean
    return replace(
        space, rows=aligned(moved), bias=bias + np.float32(constant), origin=float(origin)
    )


def _origin_of(
    rows: NDArray[np.float64], centred: NDArray[np.float64], own: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], float]:
    """Origin, tilt t and constant c of own = origin · |z|²/2 − ⟨t, z⟩ − c, by least squares.

    Ridge regression about origin = ⟨rows, z⟩ / |z|² and no tilt. Its penalty is the variance of
    what is to be explained, in units in which an origin and a tilt of the rows' own size are 1:
    what vectors tell clearly is taken from them, and what they do not tell stays below that size.

    Args:
        rows: routing vectors without their mean [n, dim].
        centred: queries z, the vectors in the space without their mean [n, dim].
        own: scores of the vectors by themselves [n].
    """
    squares = np.einsum("nd,nd->n", centred, centred)
    if not squares.any():
        return 1.0, np.zeros(centred.shape[1]), float(-own.mean())  # all alike: any scale will do
    start = np.einsum("nd,nd->", rows, centred) / squares.sum()
    size = np.sqrt(np.einsum("nd,nd->", rows, rows) / squares.sum())  # at least |start|
    left = own - 0.5 * start * squares
    unknown = size * np.column_stack([0.5 * squares, -centred.std(axis=0).max() * centred])
    about = unknown - unknown.mean(axis=0)  # [n, dim + 1]
    penalty = left.var() * np.eye(about.shape[1])
    found = np.linalg.lstsq(about.T @ about + penalty, about.T @ (left - left.mean()))[0]
    constant = unknown.mean(axis=0) @ found - left.mean()
    tilt = size * centred.std(axis=0).max() * found[1:]
    return float(start + size * found[0]), tilt, float(constant)
