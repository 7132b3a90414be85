"""Compression of vectors: half floats, or codes of eight, four or two bits."""

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from l2route.search.base import BaseVectors
from l2route.search.layout import pack_codes, pad_rows, padded_dim, unpack_codes
from l2route.search.rotation import Rotation
from l2route.search.space import Codes, RoutingSpace, check_coded_dim

Compression = Literal["int2", "int4", "int8", "float16"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
CODE_BITS: dict[Compression, int] = {"int2": 2, "int4": 4, "int8": 8}
LARGEST_CODES = {2: 3, 4: 15, 8: 127}
"""Largest code, by bits. Only seven of eight bits are used: AVX2 sums pairs of products in 16 bits,
which would overflow."""
CLIPPED = {2: 0.067, 4: 0.002, 8: 0.0005}
"""Share of the values of a dimension that are clipped at each end, by bits. The four values of two
bits are then 1 standard deviation apart, which rounds normal numbers best."""
CORRECTED = 0.5
"""Share of what a coded vector has lost of its squared length that is added to its bias."""
MOST_LOST = 0.25
"""The most that can be lost to rounding, as a share of the coded vector's squared length. Two bits
lose 0.14 of it on average, four 0.01."""
NEGLIGIBLE = 1e-5
"""A rotated dimension whose range is below this share of the widest is taken to be constant."""
N_SAMPLED = 100_000
"""Maximum number of vectors from which the quantiles of a dimension are computed."""


def compress_space(space: RoutingSpace, compression: Compression, seed: int = 0) -> RoutingSpace:
    """Return a space with smaller routing vectors and nearly the same ranking.

    Codes are scored by inner product. A space scored by l2 is converted: −|x|²/2 is added to the
    bias, which gives the same ranking. Scores that resemble distances are then centred, so that
    neither query codes nor biases lose precision far from the origin. For codes of four and two
    bits the vectors are rotated at random first, so that all dimensions have about the same
    variance, and padded to whole cache lines; the rotation becomes part of the query matrix if
    there is one. What rounding takes from a vector's length is corrected in its bias
    (`corrected_bias`).

    Args:
        space: routing vectors of float32.
        compression: int2 (a quarter of a byte per dimension), int4 (half a byte), int8 or float16.
        seed: seed of the rotation.
    """
    if compression not in COMPRESSIONS:
        raise ValueError(f"expected compression {', '.join(COMPRESSIONS)}, got {compression!r}")
    if space.rows.dtype != np.float32:
        raise ValueError(f"expected a space of float32, got {space.rows.dtype}")
    smaller = replace(space, name=f"{space.name}-{compression}", is_exact=False)
    if compression == "float16":
        return replace(smaller, rows=half_rows(space.rows))
    bits = CODE_BITS[compression]
    check_coded_dim(padded_dim(space.dim, np.uint8, bits) if bits < 8 else space.dim, bits)
    if bits < 8:
        smaller = _rotated(smaller, bits, seed)
    vectors, bias, origin = _by_ip(smaller)
    centre = None if bias is None else centre_of(vectors, origin)
    if bias is not None:
        vectors, bias = centred(vectors, bias, centre, origin)
    codes = fit_codes(vectors, bits)
    if bias is not None:
        bias = corrected_bias(vectors, bias, codes, origin)
    return replace(
        smaller,
        rows=code_rows(vectors, codes),
        codes=codes,
        scorer="ip",
        bias=bias,
        centre=centre,
        origin=origin,
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


def corrected_bias(
    vectors: NDArray[np.float32],
    bias: NDArray[np.float32],
    codes: Codes,
    origin: float | None,
) -> NDArray[np.float32]:
    """Biases [n] of coded vectors [n, dim] that make up for what rounding takes from products.

    Rounded to few bits, a vector x becomes x' with ⟨x', x⟩ < |x|², by an amount that differs from
    vector to vector. A query that has x among its nearest resembles x, so its product loses about
    the same share of ⟨x, q⟩. RaBitQ multiplies each estimate by |x|²/⟨x', x⟩. As ⟨x, q⟩ is about
    half of |x|² for those queries, adding half of |x|² − ⟨x', x⟩ ranks as well, for no cost. A
    vector that is clipped loses far more, but not to rounding: it would come too near, so the
    correction is bounded. Where scores are not distances, queries do not resemble their answers,
    and nothing is corrected; eight bits lose too little.
    """
    if codes.bits == 8 or not origin:
        return bias
    values = codes.offset + codes.scale * encode(vectors, codes)
    lost = np.einsum("nd,nd->n", vectors, vectors - values, dtype=np.float64)
    most = MOST_LOST * np.einsum("nd,nd->n", values, values, dtype=np.float64)
    corrected: NDArray[np.float64] = bias + CORRECTED * np.clip(lost, -most, most)
    return corrected.astype(np.float32)


def _rotated(space: RoutingSpace, bits: int, seed: int) -> RoutingSpace:
    """A space of float32 with the same scores, rotated at random and padded to cache lines."""
    dim, matrix, by = padded_dim(space.dim, np.uint8, bits), space.query_matrix, space.vertex_map
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


def fit_codes(vectors: NDArray[np.float32], bits: int = 8, clipped: float | None = None) -> Codes:
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
    if bits < 8:  # rotated: a dimension that hardly varies has nothing but rounding errors
        scale[scale < NEGLIGIBLE * scale.max()] = scale.max()
    flat = np.flatnonzero(scale == 0)
    # In most vectors it is one number: codes are for the few others, if there are any.
    low[flat] = sample[:, flat].min(axis=0)
    scale[flat] = np.ptp(sample[:, flat], axis=0) / LARGEST_CODES[bits]
    # Constant dimensions: every code is 0, so the codes of queries should waste no digits on them.
    scale[scale == 0] = NEGLIGIBLE * scale[scale > 0].min(initial=1.0)
    return Codes(bits, low.astype(np.float32), scale)


def encode(vectors: NDArray[np.float32], codes: Codes) -> NDArray[np.uint8]:
    """Codes of vectors [n, dim]; values out of range get the nearest code."""
    numbers: NDArray[np.float32] = np.rint((vectors - codes.offset) / codes.scale)
    return np.clip(numbers, 0, LARGEST_CODES[codes.bits]).astype(np.uint8)


def code_rows(vectors: NDArray[np.float32], codes: Codes) -> NDArray[np.uint8]:
    """Codes of vectors [n, dim] in the padded rows of a space."""
    numbers = encode(vectors, codes)
    return pad_rows(numbers) if codes.bits == 8 else pack_codes(numbers, codes.bits)


def decode_rows(space: RoutingSpace) -> NDArray[np.float32]:
    """Routing vectors of a space without padding, decoded if they are codes [n, dim]."""
    if space.codes is None:
        return space.rows[:, : space.dim].astype(np.float32, copy=False)
    bits = space.codes.bits
    numbers = space.rows if bits == 8 else unpack_codes(space.rows, bits)
    return space.codes.offset + space.codes.scale * numbers[:, : space.dim]


def half_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows as half floats; values that those cannot hold are refused."""
    check_half(rows)
    return pad_rows(rows.astype(np.float16))


def check_half(rows: NDArray[Any]) -> None:
    """Refuse values that half floats cannot hold."""
    largest = float(np.abs(rows).max(initial=0))
    if largest > float(np.finfo(np.float16).max):
        raise ValueError(f"expected values that a half float can hold, got {largest:g}")
