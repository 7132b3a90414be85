"""npy bodies and answers."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from fastapi import HTTPException
from numpy.typing import NDArray

from l2route.files.npy import read_npy_header

MAX_AXIS = 1 << 40
"""Longest axis of an array, also of one without elements."""
FOUND = np.dtype([("id", "<i8"), ("distance", "<f4")])
"""An answer of a search."""


def read_npy(body: bytes) -> NDArray[Any]:
    """The array of a body, of at most two axes and of plain values."""
    stream = io.BytesIO(body)
    try:
        shape, order, dtype = read_npy_header(stream)
    except Exception as error:  # numpy raises many kinds of errors for damaged headers
        reason = " ".join(str(error).split())[:200]
        raise HTTPException(400, f"expected a npy body, got a broken one ({reason})") from None
    if len(shape) > 2 or any(type(n) is not int or n > MAX_AXIS for n in shape):
        got = f"{len(shape)} axes, {list(shape)!r:.60}"
        raise HTTPException(400, f"expected an array [n, dim] or [n], got {got}")
    n_expected, n_got = math.prod(shape) * dtype.itemsize, len(body) - stream.tell()
    if n_expected != n_got:
        raise HTTPException(400, f"expected {n_expected} bytes of data in the body, got {n_got}")
    return np.frombuffer(body, dtype, offset=stream.tell()).reshape(shape, order=order)


def write_npy(ids: NDArray[np.int64], distances: NDArray[np.float32]) -> bytes:
    """Answers as one array of ids and distances [n_queries, k]."""
    found = np.empty(ids.shape, FOUND)
    found["id"], found["distance"] = ids, distances
    stream = io.BytesIO()
    np.lib.format.write_array(stream, found, allow_pickle=False)
    return stream.getvalue()
