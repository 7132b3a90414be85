"""Arrays laid out for the core: cache-line aligned, rows padded to whole SIMD registers."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

CACHE_LINE = 64
"""Bytes; rows of routing vectors start on one."""
LANES = 16
"""Floats; the core's kernels have no tail, so rows are padded with zeros to a multiple of it."""
CODE_LANES = 64
"""Bytes; the same for codes."""


def padded_dim(dim: int, dtype: DTypeLike = np.float32, code_bits: int = 8) -> int:
    """Elements of a padded row that holds `dim` floats, half floats or codes (uint8)."""
    lanes = CODE_LANES * 8 // code_bits if np.dtype(dtype) == np.uint8 else LANES
    return -(-dim // lanes) * lanes


def pack_codes(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes of 4 bits [n, 128 · m], two in a byte as the core reads them [n, 64 · m]."""
    blocks = codes.reshape(len(codes), -1, 2, CODE_LANES)
    packed = blocks[:, :, 0] | (blocks[:, :, 1] << np.uint8(4))
    return pad_rows(packed.reshape(len(codes), -1))


def unpack_codes(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What `pack_codes` packed [n, 128 · m]."""
    blocks = packed.reshape(len(packed), -1, 1, CODE_LANES)
    halves = np.concatenate([blocks & np.uint8(15), blocks >> np.uint8(4)], axis=2)
    return halves.reshape(len(packed), -1)


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


def pad_rows(vectors: NDArray[Any]) -> NDArray[Any]:
    """Copy vectors [n, dim] into aligned rows [n, padded_dim(dim)], padded with zeros."""
    dtype = vectors.dtype.type
    padded = aligned_zeros((len(vectors), padded_dim(vectors.shape[1], dtype)), dtype)
    padded[:, : vectors.shape[1]] = vectors
    return padded


def aligned_rows(rows: NDArray[Any], ids: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Copy rows of these numbers, in their order, into aligned rows."""
    taken = aligned_zeros((len(ids), *rows.shape[1:]), rows.dtype.type)
    np.take(rows, ids, axis=0, out=taken)
    return taken


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
