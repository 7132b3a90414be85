"""Vectors of fewer bytes: half floats, or codes of seven bits or four."""

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from l2route.search.base import BaseVectors
from l2route.search.layout import pack_codes, pad_rows, padded_dim, unpack_codes
from l2route.search.space import RoutingSpace, check_coded_dim

Compression = Literal["int4", "int8", "float16"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
LARGEST_CODES = {4: 15, 8: 127}
"""By bits; of eight seven are used, since kernels add pairs of products in sixteen."""
CLIPPED = {4: 0.002, 8: 0.0005}
"""Share of the values at either end of a dimension that codes do not tell apart, by bits."""
N_SAMPLED = 100_000
"""Vectors that the ends of a dimension are taken from, at the most."""


def compress_space(space: RoutingSpace, compression: Compression, seed: int = 0) -> RoutingSpace:
    """A space whose vectors have fewer bytes and steer nearly alike.

    Codes stand for lowest + step · code, dimension by dimension. Scores are inner products then:
    where the space routes by l2, −|x|²/2 goes into the bias, which ranks alike. Codes of four bits
    are of vectors rotated at random, so that no dimension is worse off than another, into as many
    dimensions as fill whole cache lines; queries are rotated likewise.

    Args:
        space: routing vectors of float32.
        compression: int4 (half a byte per dimension), int8 or float16.
        seed: of the rotation.
    """
    if compression not in COMPRESSIONS:
        raise ValueError(f"expected compression {', '.join(COMPRESSIONS)}, got {compression!r}")
    if space.rows.dtype != np.float32:
        raise ValueError(f"expected a space of float32, got {space.rows.dtype}")
    name = f"{space.name}-{compression}"
    if compression == "float16":
        return replace(space, rows=_to_float16(space.rows), name=name)
    bits = 4 if compression == "int4" else 8
    dim = padded_dim(space.dim, np.uint8, bits) if bits == 4 else space.dim
    check_coded_dim(dim, bits)
    vectors = space.rows[:, : space.dim]
    bias, origin = space.bias, space.origin
    if space.scorer == "l2":
        halves = -0.5 * np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
        bias = (halves if bias is None else halves + 0.5 * bias).astype(np.float32)
        origin = 1.0
    matrix = space.query_matrix
    if bits == 4:
        rotation = random_rotation(dim, space.dim, seed)
        vectors = vectors @ rotation.T
        matrix = rotation if matrix is None else rotation @ matrix
    codes, lowest, steps = encode(vectors, bits)
    return replace(
        space,
        rows=pack_codes(codes) if bits == 4 else pad_rows(codes),
        dim=dim,
        scorer="ip",
        query_matrix=matrix,
        bias=bias,
        name=name,
        code_bits=bits,
        lowest=lowest,
        steps=steps,
        origin=origin,
    )


def random_rotation(n_out: int, n_in: int, seed: int) -> NDArray[np.float32]:
    """A matrix [n_out, n_in] that keeps lengths and inner products; n_out is at least n_in."""
    normal = np.random.default_rng(seed).normal(size=(n_out, n_in))
    return np.linalg.qr(normal)[0].astype(np.float32)


def to_float16(base: BaseVectors) -> BaseVectors:
    """Original vectors as half floats: answers are reranked by them, and distances are theirs."""
    return replace(base, rows=_to_float16(base.rows))


def encode(
    vectors: NDArray[np.float32], bits: int = 8
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """Codes [n, dim]; what 0 stands for and what one counts in each dimension [dim]."""
    sample = vectors[:: -(-len(vectors) // N_SAMPLED)]
    lowest, highest = np.quantile(sample, [CLIPPED[bits], 1 - CLIPPED[bits]], axis=0)  # [dim]
    steps = (highest - lowest) / LARGEST_CODES[bits]
    steps[steps == 0] = 1.0  # all alike: every code is 0
    codes = np.clip(np.rint((vectors - lowest) / steps), 0, LARGEST_CODES[bits])
    return codes.astype(np.uint8), lowest.astype(np.float32), steps.astype(np.float32)


def decode_rows(space: RoutingSpace) -> NDArray[np.float32]:
    """Routing vectors of a space without their padding, or what their codes stand for [n, dim]."""
    if space.lowest is None or space.steps is None:
        return space.rows[:, : space.dim].astype(np.float32, copy=False)
    codes = unpack_codes(space.rows) if space.code_bits == 4 else space.rows
    return space.lowest + space.steps * codes[:, : space.dim]


def _to_float16(rows: NDArray[Any]) -> NDArray[Any]:
    largest = float(np.abs(rows).max())
    if largest > float(np.finfo(np.float16).max):
        raise ValueError(f"expected values that a half float can hold, got {largest:g}")
    return pad_rows(rows.astype(np.float16))
