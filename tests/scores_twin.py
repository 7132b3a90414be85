"""The slow twin of the kernels, and their arguments as the core reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.search.layout import pack_codes, pad_rows, padded_dim


def scores_of(rows: NDArray[Any], query: NDArray[Any], scorer: str) -> NDArray[np.float64]:
    """Scores of all rows in double precision; smaller is nearer."""
    wide_rows, wide_query = rows.astype(np.float64), query.astype(np.float64)
    if scorer == "l2":
        return ((wide_rows - wide_query) ** 2).sum(axis=1)
    return -wide_rows @ wide_query


def padded_to(values: NDArray[Any], width: int) -> NDArray[np.float32]:
    """Values padded with zeros [width]."""
    return np.pad(values.astype(np.float32), (0, width - len(values)))


def packed_rows(codes: NDArray[np.uint8], bits: int) -> tuple[NDArray[np.uint8], int]:
    """Rows of codes as the core reads them, and the length of a query for them."""
    width = padded_dim(codes.shape[1], np.uint8, bits)
    padded = np.pad(codes, ((0, 0), (0, width - codes.shape[1])))
    return (pad_rows(padded) if bits == 8 else pack_codes(padded, bits)), width
