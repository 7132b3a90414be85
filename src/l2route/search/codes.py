"""Compression of vectors: half floats, or codes of eight or four bits."""

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from l2route.search.base import BaseVectors
from l2route.search.layout import pack_codes, pad_rows, padded_dim, unpack_codes
from l2route.search.rotation import Rotation
from l2route.search.space import Codes, RoutingSpace, check_coded_dim

Compression = Literal["int4", "int8", "float16"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
LARGEST_CODES = {4: 15, 8: 127}
"""Largest code, by bits. Only seven of eight bits are used: AVX2 sums pairs of products in 16 bits,
which would overflow."""
CLIPPED = {4: 0.002, 8: 0.0005}
"""Share of the values of a dimension that are clipped at each end, by bits."""
N_SAMPLED = 100_000
"""Maximum number of vectors from which the quantiles of a dimension are computed."""


def compress_space(space: RoutingSpace, compression: Compression, seed: int = 0) -> RoutingSpace:
    """Return a space with smaller routing vectors and nearly the same ranking.

    Codes are scored by inner product. A space scored by l2 is converted: −|x|²/2 is added to the
    bias, which gives the same ranking. Scores that resemble distances are then centred, so that
    neither query codes nor biases lose precision far from the origin. For codes of four bits the
    vectors are rotated at random first, so that all dimensions have about the same variance, and
    padded to whole cache lines; the rotation becomes part of the query matrix if there is one.

    Args:
        space: routing vectors of float32.
        compression: int4 (half a byte per dimension), int8 or float16.
        seed: seed of the rotation.
    """
    if compression not in COMPRESSIONS:
        raise ValueError(f"expected compression {', '.join(COMPRESSIONS)}, got {compression!r}")
    if space.rows.dtype != np.float32:
        raise ValueError(f"expected a space of float32, got {space.rows.dtype}")
    smaller = replace(space, name=f"{space.name}-{compression}", is_exact=False)
    if compression == "float16":
        return replace(smaller, rows=half_rows(space.rows))
    bits = 4 if compression == "int4" else 8
    check_coded_dim(padded_dim(space.dim, np.uint8, bits) if bits == 4 else space.dim, bits)
    if bits == 4:
        smaller = _rotated(smaller, seed)
    vectors, bias, origin = _by_ip(smaller)
    centre = None if bias is None else centre_of(vectors, origin)
    if bias is not None:
        vectors, bias = centred(vectors, bias, centre, origin)
    codes = fit_codes(vectors, bits)
    rows = code_rows(vectors, codes)
    return replace(
        smaller, rows=rows, codes=codes, scorer="ip", bias=bias, centre=centre, origin=origin
    )


def _by_ip(
    space: RoutingSpace,
) -> tuple[NDArray[np.float32], NDArray[np.floating[Any]] | None, float | None]:
    """Routing vectors, biases and origin with which inner products rank as a space does."""
    vectors = space.rows[:, : space.dim]
    if space.scorer == "ip":
        return vectors, space.bias, space.origin
    halves = negated_halves(vectors)
    return vectors, halves if space.bias is None else halves + 0.5 * space.bias, 1.0


def negated_halves(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Biases −|x|²/2 of vectors [n, dim], with which inner products rank as distances do [n]."""
    halves: NDArray[np.float64] = -0.5 * np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
    return halves


def centre_of(vectors: NDArray[np.float32], origin: float | None) -> NDArray[np.float32] | None:
    """What to subtract from queries to centre them [dim]; None if scores are not distances.

    Where scores resemble distances, routing vectors [n, dim] resemble queries times the origin.
    """
    if not origin:
        return None
    centre: NDArray[np.float64] = vectors.mean(axis=0, dtype=np.float64) / origin
    return centre.astype(np.float32)


def centred(
    vectors: NDArray[np.float32],
    bias: NDArray[np.floating[Any]],
    centre: NDArray[np.float32] | None,
    origin: float | None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Routing vectors [n, dim] and biases [n] with the same scores for centred queries.

    With z = q − c and o for the origin, −⟨f, q⟩ − b + o·|q|²/2 = −⟨f − o·c, z⟩ − b' + o·|z|²/2,
    where b' = b + ⟨f, c⟩ − o·|c|²/2.
    """
    if centre is None or origin is None:
        return vectors, bias.astype(np.float32)
    exact = centre.astype(np.float64)
    bias = bias + vectors @ exact - 0.5 * origin * (exact @ exact)
    return (vectors - origin * exact).astype(np.float32), bias.astype(np.float32)


def _rotated(space: RoutingSpace, seed: int) -> RoutingSpace:
    """A space of float32 with the same scores, rotated at random and padded to cache lines."""
    dim, matrix, by = padded_dim(space.dim, np.uint8, 4), space.query_matrix, space.vertex_map
    rotation = Rotation.random(space.dim, dim, seed)
    return replace(
        space,
        rows=pad_rows(rotation(space.rows[:, : space.dim])),
        dim=dim,
        rotation=rotation if matrix is None else None,
        query_matrix=None if matrix is None else np.ascontiguousarray(rotation(matrix.T).T),
        vertex_map=None if by is None else by.rotated(rotation.matrix),
    )


def to_float16(base: BaseVectors) -> BaseVectors:
    """Original vectors as half floats; reranking then returns distances to the rounded vectors."""
    return replace(base, rows=half_rows(base.rows))


def fit_codes(
    vectors: NDArray[np.float32], bits: int = 8, clipped: float | None = None
) -> Codes:
    """The offset and scale of each dimension, from the quantiles of vectors [n, dim].

    Args:
        vectors: what will be encoded, or a sample of it.
        bits: bits of a code.
        clipped: share of the values that are clipped at each end; by default as the bits need.
    """
    sample = vectors[:: -(-len(vectors) // N_SAMPLED)]
    share = CLIPPED[bits] if clipped is None else clipped
    low, high = np.quantile(sample, [share, 1 - share], axis=0)  # [dim]
    scale = ((high - low) / LARGEST_CODES[bits]).astype(np.float32)
    scale[scale == 0] = 1.0  # the dimension is constant, or nearly: every code is 0
    return Codes(bits, low.astype(np.float32), scale)


def encode(vectors: NDArray[np.float32], codes: Codes) -> NDArray[np.uint8]:
    """Codes of vectors [n, dim]; values out of range get the nearest code."""
    numbers: NDArray[np.float32] = np.rint((vectors - codes.offset) / codes.scale)
    return np.clip(numbers, 0, LARGEST_CODES[codes.bits]).astype(np.uint8)


def code_rows(vectors: NDArray[np.float32], codes: Codes) -> NDArray[np.uint8]:
    """Codes of vectors [n, dim] in the padded rows of a space."""
    numbers = encode(vectors, codes)
    return pack_codes(numbers) if codes.bits == 4 else pad_rows(numbers)


def decode_rows(space: RoutingSpace) -> NDArray[np.float32]:
    """Routing vectors of a space without padding, decoded if they are codes [n, dim]."""
    if space.codes is None:
        return space.rows[:, : space.dim].astype(np.float32, copy=False)
    numbers = unpack_codes(space.rows) if space.codes.bits == 4 else space.rows
    return space.codes.offset + space.codes.scale * numbers[:, : space.dim]


def half_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows as half floats; values that those cannot hold are refused."""
    largest = float(np.abs(rows).max(initial=0))
    if largest > float(np.finfo(np.float16).max):
        raise ValueError(f"expected values that a half float can hold, got {largest:g}")
    return pad_rows(rows.astype(np.float16))
