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


def pack_codes(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Pack codes of 4 or 2 bits into bytes, as the core reads them.

    Args:
        codes: numbers below 2^bits [n, m · 64 · 8 / bits].
        bits: bits of a code, 4 or 2.

    Returns:
        Of each block of 64 bytes, byte i has codes i, 64 + i and so on, lowest bits first
        [n, m · 64].
    """
    blocks = codes.reshape(len(codes), -1, 8 // bits, CODE_LANES)
    packed = np.zeros((*blocks.shape[:2], CODE_LANES), dtype=np.uint8)
    for part in range(8 // bits):
        packed |= blocks[:, :, part] << np.uint8(bits * part)
    return pad_rows(packed.reshape(len(codes), -1))


def unpack_codes(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Unpack codes packed by `pack_codes` [n, m · 64] to [n, m · 64 · 8 / bits]."""
    blocks = packed.reshape(len(packed), -1, 1, CODE_LANES)
    low = np.uint8(2**bits - 1)
    parts = [(blocks >> np.uint8(bits * part)) & low for part in range(8 // bits)]
    return np.concatenate(parts, axis=2).reshape(len(packed), -1)


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
