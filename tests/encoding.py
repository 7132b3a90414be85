"""Comparison of encoded vertices with the rows of a space."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.search.codes import decode_rows
from l2route.search.space import RoutingSpace


def assert_rows_of(
    space: RoutingSpace, ids: Any, rows: NDArray[Any], bias: NDArray[np.float32] | None
) -> None:
    """Rows and biases are those of the space up to rounding; codes differ at ties only, by 1."""
    assert (rows.dtype, rows.shape[1]) == (space.rows.dtype, space.rows.shape[1])
    got = decode_rows(replace(space, rows=rows, bias=bias, is_exact=False))
    wanted = decode_rows(space)[ids]
    if space.codes is None:
        tolerance = 2e-3 if rows.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * np.abs(got).max())
    else:
        apart = np.abs(got - wanted) / space.codes.scale
        assert apart.max(initial=0) < 1.01
        assert (apart > 0.5).mean() <= 0.01 + 1 / apart.size
    if space.bias is None:
        assert bias is None
    else:
        scale = 1 + np.abs(space.bias).max()
        np.testing.assert_allclose(bias, space.bias[ids], rtol=1e-4, atol=1e-5 * scale)
