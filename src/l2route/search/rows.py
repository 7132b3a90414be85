"""Routing vectors as the core reads them, with copies of neighbours' vectors if inlined."""

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.graph.graph import Graph
from l2route.search.layout import aligned_rows, padded_dim
from l2route.search.space import Codes, RoutingSpace

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
