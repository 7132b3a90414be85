"""Search for NaN and infinities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CHUNK_VALUES = 1 << 20  # values checked at a time, to bound memory


def first_nonfinite_row(array: NDArray[Any]) -> int | None:
    """Find the first row with a NaN or an infinity, in bounded memory.

    Args:
        array: Numbers [n, d].

    Returns:
        Index of the row, or None if all numbers are finite.
    """
    if array.dtype.kind != "f":
        return None
    if array.flags.c_contiguous and array.dtype.itemsize in (4, 8):
        flat = array.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            if math.isfinite(np.dot(flat, flat)):  # one pass of BLAS, nothing allocated
                return None
    n_rows = max(1, _CHUNK_VALUES // max(1, array.shape[1]))
    for start in range(0, len(array), n_rows):
        finite = np.isfinite(array[start : start + n_rows]).all(axis=1)
        if not finite.all():
            return start + int(np.argmin(finite))
    return None
