"""Buffers: arrays with room for more rows, one row per slot."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.files.memory import aligned_zeros

MIN_CAPACITY = 1024
"""Fewest rows of a buffer."""
GROWTH = 1.5
"""Factor by which buffers grow."""
EMPTY = {"neighbors": -1, "parents": -1, "labels": -1}
"""Values in unused rows, by the name of the array; 0 in others."""

PER_SLOT = re.compile(r"vectors|neighbors|labels|space\d+_(rows|bias)")
"""Names of saved arrays that have a row per slot."""

Arrays = Mapping[str, NDArray[Any]]


def capacity_for(n_rows: int) -> int:
    """Rows of a buffer that holds n rows and has room for more."""
    return max(MIN_CAPACITY, int(GROWTH * n_rows))


def with_room(arrays: Arrays, n_rows: int, capacity: int) -> dict[str, NDArray[Any]]:
    """Copy the first rows of arrays into buffers aligned to cache lines.

    Args:
        arrays: arrays by name; what unused rows hold depends on the name.
        n_rows: rows to copy.
        capacity: rows of the buffers.
    """
    buffers = {}
    for name, array in arrays.items():
        buffer = aligned_zeros((capacity, *array.shape[1:]), array.dtype.type)
        buffer[:n_rows] = array[:n_rows]
        if name in EMPTY:
            buffer[n_rows:] = EMPTY[name]
        buffers[name] = buffer
    return buffers


def widened(lists: NDArray[np.int32], width: int) -> NDArray[np.int32]:
    """Neighbour lists [n, *] padded with −1 to a width."""
    wide = np.full((len(lists), width), -1, dtype=np.int32)
    wide[:, : lists.shape[1]] = lists
    return wide
