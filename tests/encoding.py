"""A space as if it were learned, and comparison of encoded vertices with the rows of a space."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.search.codes import decode_rows
from l2route.search.layout import pad_rows
from l2route.search.space import RoutingSpace
from l2route.search.vertex_map import FilterMap


def random_filter(n_axes: int, dim: int) -> FilterMap:
    """A filter of random numbers and two hubs, to routing vectors of this dimension."""
    rng = np.random.default_rng(0)
    shapes = {
        "axes": (n_axes, n_axes),
        "means": (5 * n_axes + 2,),
        "lengths": (7,),
        "weights": (5, n_axes),
        "singles": (2, n_axes),
        "out": (n_axes, dim),
        "shift": (dim,),
        "bias": (5 * n_axes + 2,),
        "lengthwise": (n_axes,),
        "hubs": (2, n_axes),
        "hub_shifts": (2, dim + 1),
    }
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return FilterMap(**arrays, constant=0.1)


def unencoded_space(n: int, dim: int) -> RoutingSpace:
    """A space of n vertices with a random filter, as if it were learned; all rows are zeros."""
    rows, bias = pad_rows(np.zeros((n, dim), dtype=np.float32)), np.zeros(n, dtype=np.float32)
    by = random_filter(dim, dim)
    return RoutingSpace(rows, dim, "ip", bias=bias, name="learned", vertex_map=by)


def assert_rows_of(
    space: RoutingSpace, ids: Any, rows: NDArray[Any], bias: NDArray[np.float32] | None
) -> None:
    """Rows and biases are those of the space up to rounding; codes differ at ties only, by 1."""
    assert (rows.dtype, rows.shape[1]) == (space.rows.dtype, space.rows.shape[1])
    got = decode_rows(replace(space, rows=rows, bias=bias, is_exact=False))
    every = decode_rows(space)
    wanted = every[ids]
    if space.codes is None:
        tolerance = 2e-3 if rows.dtype == np.float16 else 1e-5
        largest = np.abs(every).max()  # a small row may be a difference of large numbers
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * largest)
    else:
        apart = np.abs(got - wanted) / space.codes.scale
        assert apart.max(initial=0) < 1.01
        assert (apart > 0.5).mean() <= 0.01 + 1 / apart.size
    if space.bias is None:
        assert bias is None
    else:
        scale = 1 + np.abs(space.bias).max()
        np.testing.assert_allclose(bias, space.bias[ids], rtol=1e-4, atol=1e-5 * scale)
