"""Memory layout of rows for the core: aligned to cache lines, padded to whole SIMD registers."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from l2route.files.memory import aligned_zeros

LANES = 16
"""Rows of floats are padded with zeros to a multiple of this: kernels do not handle a tail."""
CODE_LANES = 64
"""Rows of codes are padded with zeros to a multiple of this many bytes."""


def padded_dim(dim: int, dtype: DTypeLike = np.float32, code_bits: int = 8) -> int:
    """Number of elements in a padded row of `dim` floats, half floats or codes (uint8)."""
    lanes = CODE_LANES * 8 // code_bits if np.dtype(dtype) == np.uint8 else LANES
    return -(-dim // lanes) * lanes


def pack_codes(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pack codes of 4 bits [n, 128 · m] two to a byte, as the core reads them [n, 64 · m]."""
    blocks = codes.reshape(len(codes), -1, 2, CODE_LANES)
    packed = blocks[:, :, 0] | (blocks[:, :, 1] << np.uint8(4))
    return pad_rows(packed.reshape(len(codes), -1))


def unpack_codes(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Unpack codes packed by `pack_codes` [n, 64 · m] to [n, 128 · m]."""
    blocks = packed.reshape(len(packed), -1, 1, CODE_LANES)
    halves = np.concatenate([blocks & np.uint8(15), blocks >> np.uint8(4)], axis=2)
    return halves.reshape(len(packed), -1)


def pad_rows(vectors: NDArray[Any]) -> NDArray[Any]:
    """Copy vectors [n, dim] into aligned rows [n, padded_dim(dim)], padded with zeros."""
    dtype = vectors.dtype.type
    padded = aligned_zeros((len(vectors), padded_dim(vectors.shape[1], dtype)), dtype)
    padded[:, : vectors.shape[1]] = vectors
    return padded


def aligned_rows(rows: NDArray[Any], ids: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Copy rows[ids] into an array aligned to cache lines [n_ids, width]."""
    taken = aligned_zeros((len(ids), *rows.shape[1:]), rows.dtype.type)
    np.take(rows, ids, axis=0, out=taken)
    return taken
