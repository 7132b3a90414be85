"""Vectors of fewer bytes: half floats, or codes of one byte."""

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from l2route.memory import pad_rows
from l2route.search import BaseVectors, RoutingSpace

Compression = Literal["int8", "float16"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
LARGEST_CODE = 127
"""Seven bits: kernels add pairs of products of codes in sixteen."""
CLIPPED = 0.0005
"""Share of the values at either end of a dimension that codes do not tell apart."""

N_SAMPLED = 100_000
"""Vectors that the ends of a dimension are taken from, at the most."""


def compress_space(space: RoutingSpace, compression: Compression) -> RoutingSpace:
    """A space whose vectors have fewer bytes and steer nearly alike.

    Codes stand for lowest + step · code, dimension by dimension. Scores are inner products then:
    where the space routes by l2, −|x|²/2 goes into the bias, which ranks alike.

    Args:
        space: routing vectors of float32.
        compression: int8 (a byte per dimension) or float16.
    """
    if compression not in COMPRESSIONS:
        raise ValueError(f"expected compression {', '.join(COMPRESSIONS)}, got {compression!r}")
    if space.rows.dtype != np.float32:
        raise ValueError(f"expected a space of float32, got {space.rows.dtype}")
    name = f"{space.name}-{compression}"
    if compression == "float16":
        return replace(space, rows=_halves(space.rows), name=name)
    vectors = space.rows[:, : space.dim]
    codes, steps = encode(vectors)
    bias = space.bias
    if space.scorer == "l2":
        halves = -0.5 * np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
        bias = (halves if bias is None else halves + 0.5 * bias).astype(np.float32)
    return replace(space, rows=pad_rows(codes), steps=steps, scorer="ip", bias=bias, name=name)


def halve(base: BaseVectors) -> BaseVectors:
    """Original vectors as half floats: answers are reranked by them, and distances are theirs."""
    return replace(base, rows=_halves(base.rows))


def encode(vectors: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Codes [n, dim] and what one of them counts in each dimension [dim]."""
    sample = vectors[:: -(-len(vectors) // N_SAMPLED)]
    lowest, highest = np.quantile(sample, [CLIPPED, 1 - CLIPPED], axis=0)  # [dim]
    steps = (highest - lowest) / LARGEST_CODE
    steps[steps == 0] = 1.0  # all alike: every code is 0
    codes = np.clip(np.rint((vectors - lowest) / steps), 0, LARGEST_CODE)
    return codes.astype(np.uint8), steps.astype(np.float32)


def _halves(rows: NDArray[Any]) -> NDArray[Any]:
    largest = float(np.abs(rows).max())
    if largest > float(np.finfo(np.float16).max):
        raise ValueError(f"expected values that a half float can hold, got {largest:g}")
    return pad_rows(rows.astype(np.float16))
