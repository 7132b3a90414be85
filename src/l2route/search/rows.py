"""Routing vectors as the core reads them, with copies of neighbours' vectors if inlined."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.codes import code_rows, fit_codes
from l2route.search.layout import aligned_rows, pad_rows, padded_dim
from l2route.search.space import MAX_CODED_DIMS, Codes, RoutingSpace

MATRIX_BITS = 8
"""Bits of the codes of a query matrix."""
LEAST_CODED = 2**14
"""Smallest number of elements of a query matrix that is turned into codes. A product with fewer
floats takes less than half a microsecond."""
N_AVERAGED = 10_000
"""Largest number of vectors whose mean is the centre of queries."""
MAX_INLINED = 2**31 - 1
"""Largest total length of neighbour lists that can be inlined: the core has 32-bit numbers."""


def check_inlined(graph: Graph) -> None:
    """Refuse a graph with too many neighbours to copy their vectors."""
    if graph.neighbors.size > MAX_INLINED:
        got = f"{graph.neighbors.size:,}"
        raise ValueError(f"expected at most {MAX_INLINED:,} neighbours to be inlined, got {got}")


def inlined_bytes(graph: Graph, space: RoutingSpace) -> int:
    """Bytes of the copies of neighbours' vectors and biases that a searcher makes."""
    if not space.inlined:
        return 0
    bias = 0 if space.bias is None else space.bias.itemsize
    return int(graph.neighbors.size * (space.rows[0].nbytes + bias))


def rows_of_space(graph: Graph, space: RoutingSpace, simd: str = "auto") -> _core.Rows:
    """The routing vectors of a space as rows of the core."""
    near = None
    if space.inlined:
        check_inlined(graph)
        ids = np.maximum(graph.neighbors.ravel(), 0)  # any row in place of -1
        bias = None if space.bias is None else space.bias[ids]
        near = core_rows(aligned_rows(space.rows, ids), bias, space, simd, None)
    return core_rows(space.rows, space.bias, space, simd, near)


@dataclass(frozen=True, slots=True)
class QueryMap:
    """How the core maps a query q into a space: M·(q − c) − centre."""

    matrix: _core.Rows | None = None
    """M, in codes if the space has codes; None for the identity or a rotation."""
    query_centre: NDArray[np.float32] | None = None
    """c, by which queries far from the origin are precise in codes, too [original dim]."""
    centre: NDArray[np.float32] | None = None
    """Subtracted at the end [dim]."""


def query_map_of(space: RoutingSpace, base: BaseVectors, simd: str = "auto") -> QueryMap:
    """The query matrix and centre of a space for the core.

    The matrix of a space of codes is in codes, too, if it is large: they are precise enough for a
    query that becomes codes next, and the product takes a tenth of the time. The query is centred
    before it, by the mean of the vectors or of a sample, which changes nothing but the precision.
    """
    matrix = space.query_matrix
    if matrix is None:
        return QueryMap(centre=space.centre)
    is_coded = space.codes is not None and matrix.size >= LEAST_CODED
    if not is_coded or matrix.shape[1] > MAX_CODED_DIMS[MATRIX_BITS]:
        return QueryMap(_core.Rows(pad_rows(matrix), "ip", simd=simd), None, space.centre)
    codes = fit_codes(matrix, MATRIX_BITS, clipped=0.0)
    rows = _core.Rows(
        code_rows(matrix, codes),
        "ip",
        code_bits=MATRIX_BITS,
        offset=_padded(codes, codes.offset),
        scale=_padded(codes, codes.scale),
        simd=simd,
    )
    if not len(base.rows):
        return QueryMap(rows, None, space.centre)
    sample = base.rows[:: -(-len(base.rows) // N_AVERAGED), : base.dim]
    mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    moved = -matrix.astype(np.float64) @ mean
    if space.centre is not None:
        moved += space.centre
    return QueryMap(rows, mean, moved.astype(np.float32))


def core_rows(
    rows: NDArray[np.generic],
    bias: NDArray[np.float32] | None,
    space: RoutingSpace,
    simd: str,
    near: _core.Rows | None,
) -> _core.Rows:
    """Rows and biases of a space as rows of the core, with copies of neighbours' rows or none."""
    codes = space.codes
    if codes is None:
        return _core.Rows(rows, space.scorer, bias=bias, near=near, simd=simd)
    return _core.Rows(
        rows,
        space.scorer,
        bias=bias,
        code_bits=codes.bits,
        offset=_padded(codes, codes.offset),
        scale=_padded(codes, codes.scale),
        near=near,
        simd=simd,
    )


def _padded(codes: Codes, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Values [dim] with zeros up to the width of a row of codes."""
    padded = np.zeros(padded_dim(len(values), np.uint8, codes.bits), dtype=np.float32)
    padded[: len(values)] = values
    return padded
