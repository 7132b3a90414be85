"""Arrays aligned to cache lines, and the amount of free memory."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CACHE_LINE = 64
"""Bytes of a cache line."""
MAX_SHARE = 0.8
"""Share of the free memory that the content of one file may take."""


def aligned_zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    """An array of zeros that starts at a cache line."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.zeros(n_bytes + CACHE_LINE, dtype=np.uint8)
    start = -buffer.ctypes.data % CACHE_LINE
    return buffer[start : start + n_bytes].view(dtype).reshape(shape)


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """The array, or a copy that starts at a cache line if it does not."""
    if array.ctypes.data % CACHE_LINE == 0:
        return array
    copy = aligned_zeros(array.shape, array.dtype.type)
    copy[:] = array
    return copy


def available_bytes() -> int:
    """Bytes of memory that are available without swapping.

    On Linux the least of the physical memory, the kernel's estimate and what the limit of the
    container leaves; elsewhere the physical memory.
    """
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    container = "/sys/fs/cgroup/memory"
    estimate = _number_in("/proc/meminfo", r"MemAvailable: *(\d+) kB")
    limit = _number_in(f"{container}.max", r"(\d+)")
    used = _number_in(f"{container}.current", r"(\d+)")
    reclaimable = _number_in(f"{container}.stat", r"inactive_file (\d+)")
    free = [physical] if estimate is None else [physical, estimate * 1024]
    if limit is not None and used is not None:
        free.append(max(0, limit - used + (reclaimable or 0)))
    return min(free)


def check_room(path: Path, n_bytes: int) -> None:
    """Refuse to read more than there is memory for, as a small file may hold when compressed.

    Args:
        path: the file, for the message.
        n_bytes: bytes that its content takes in memory.
    """
    room = int(MAX_SHARE * available_bytes())
    if n_bytes > room:
        expected = f"expected at most {room:,} bytes of data, {MAX_SHARE:.0%} of free memory"
        raise ValueError(f"{path}: {expected}, got {n_bytes:,}")


def _number_in(path: str, pattern: str) -> int | None:
    """The first group of a pattern at the start of a line of a system file; None if absent."""
    try:
        match = re.search(f"^{pattern}", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if match is None else int(match[1])
