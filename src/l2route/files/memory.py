"""Memory: arrays that start at a cache line, and how much of it is free."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CACHE_LINE = 64
"""Bytes."""


def aligned_zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    """Zeros whose first byte stands at the start of a cache line."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.zeros(n_bytes + CACHE_LINE, dtype=np.uint8)
    start = -buffer.ctypes.data % CACHE_LINE
    return buffer[start : start + n_bytes].view(dtype).reshape(shape)


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """The array, copied if its first byte does not stand at the start of a cache line."""
    if array.ctypes.data % CACHE_LINE == 0:
        return array
    copy = aligned_zeros(array.shape, array.dtype.type)
    copy[:] = array
    return copy


def available_bytes() -> int:
    """Memory that can be had without taking it from somebody, as the system tells it.

    Of Linux's estimate and of what a container has left, the smaller; elsewhere all there is.
    """
    every = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    container = "/sys/fs/cgroup/memory"
    estimate = _told("/proc/meminfo", r"MemAvailable: *(\d+) kB")
    limit, used = _told(f"{container}.max", r"(\d+)"), _told(f"{container}.current", r"(\d+)")
    cached = _told(f"{container}.stat", r"inactive_file (\d+)")  # of files: it can be had
    free = [every] if estimate is None else [every, estimate * 1024]
    if limit is not None and used is not None:
        free.append(max(0, limit - used + (cached or 0)))
    return min(free)


def _told(path: str, pattern: str) -> int | None:
    """A number at the start of a line in a file of the system; None if there is none."""
    try:
        found = re.search(f"^{pattern}", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1])
