"""Laws of the kernels that score half floats and codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route import _core
from l2route.search.codes import LARGEST_CODES, compress_space
from l2route.search.layout import pad_rows, padded_dim
from l2route.search.space import MAX_CODED_DIMS, Codes, RoutingSpace
from scores_twin import packed_rows, padded_to, scores_of

SIMD_LEVELS = _core.simd_levels()


@pytest.mark.parametrize("simd", SIMD_LEVELS)
@pytest.mark.parametrize("scorer", ["l2", "ip"])
@given(dim=st.integers(1, 70), n=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_scores_of_half_floats_equal_numpy(
    simd: str, scorer: str, dim: int, n: int, seed: int
) -> None:
    """Every kernel scores rows of half floats as numpy does in double precision."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, dim)).astype(np.float16)
    query = rng.normal(size=dim).astype(np.float32)
    padded = pad_rows(rows)
    scores = _core.Rows(padded, scorer, simd=simd).scores(padded_to(query, padded.shape[1]))
    np.testing.assert_allclose(scores, scores_of(rows, query, scorer), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("simd", SIMD_LEVELS)
def test_every_half_float_is_read(simd: str) -> None:
    """All 65,536 half floats, with subnormals and infinities, are read correctly; NaN stays NaN."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    rows = pad_rows(halves[:, None])
    scores = _core.Rows(rows, "ip", simd=simd).scores(padded_to(np.ones(1), rows.shape[1]))
    with np.errstate(invalid="ignore"):
        expected = 0 - halves.astype(np.float32)
    np.testing.assert_array_equal(scores, expected)


def core_codes(
    rows: NDArray[np.uint8],
    bits: int,
    offset: NDArray[np.float32],
    scale: NDArray[np.float32],
    simd: str = "auto",
) -> _core.Rows:
    """Rows of codes in the core."""
    return _core.Rows(rows, "ip", code_bits=bits, offset=offset, scale=scale, simd=simd)


def code_scores(
    codes: NDArray[np.uint8],
    query: NDArray[np.float32],
    offset: NDArray[np.float32],
    scale: NDArray[np.float32],
) -> NDArray[np.float64]:
    """The slow twin: round query · scale to a signed byte, then sum integer products."""
    wide = query.astype(np.float64)
    shift, weighed = -(wide @ offset), wide * scale
    largest = np.abs(weighed).max()
    if largest == 0:
        return np.full(len(codes), shift)
    rounded = np.rint(weighed / largest * 127)
    return shift - (codes.astype(np.int64) @ rounded.astype(np.int64)) * (largest / 127)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("simd", SIMD_LEVELS)
@given(
    dim=st.integers(1, 300),
    n=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    extreme=st.booleans(),
)
def test_scores_of_codes_equal_their_twin(
    simd: str, bits: int, dim: int, n: int, seed: int, extreme: bool
) -> None:
    """Every kernel computes the scores of the twin, also for the largest values."""
    rng = np.random.default_rng(seed)
    largest = LARGEST_CODES[bits]
    codes = rng.integers(largest if extreme else 0, largest + 1, (n, dim), dtype=np.uint8)
    query = (rng.choice([-1.0, 1.0], dim) if extreme else rng.normal(size=dim)).astype(np.float32)
    offset = rng.normal(size=dim).astype(np.float32)
    scale = (np.ones(dim) if extreme else rng.uniform(0.01, 2.0, dim)).astype(np.float32)
    rows, width = packed_rows(codes, bits)
    coded = core_codes(rows, bits, padded_to(offset, width), padded_to(scale, width), simd)
    scores = coded.scores(padded_to(query, width))
    expected = code_scores(codes, query, offset, scale)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=2e-5 * dim)


@pytest.mark.parametrize("bits", [2, 4, 8])
@given(dim=st.integers(1, 300), seed=st.integers(0, 999))
def test_kernels_of_codes_agree_to_the_last_bit(bits: int, dim: int, seed: int) -> None:
    """All kernels give the same scores of codes, bit by bit."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, LARGEST_CODES[bits] + 1, (7, dim), dtype=np.uint8)
    rows, width = packed_rows(codes, bits)
    query, offset = (padded_to(rng.normal(size=dim), width) for _ in range(2))
    scale = padded_to(rng.uniform(0.1, 1, dim), width)
    every = [core_codes(rows, bits, offset, scale, s).scores(query) for s in SIMD_LEVELS]
    for other in every[1:]:
        np.testing.assert_array_equal(every[0], other)


def test_a_query_of_zeros_scores_nothing() -> None:
    """A query of zeros scores 0, without a division by its largest value."""
    rows = pad_rows(np.full((3, 5), 9, dtype=np.uint8))
    zeros = np.zeros(rows.shape[1], dtype=np.float32)
    scores = core_codes(rows, 8, zeros + 1, zeros + 1).scores(zeros)
    np.testing.assert_array_equal(scores, 0)


@pytest.mark.parametrize(
    ("rows", "scorer", "scale", "message"),
    [
        (np.zeros((2, 64), np.uint8), "l2", np.ones(64, np.float32), "codes scored by 'ip'"),
        (np.zeros((2, 64), np.uint8), "ip", None, "an offset and a scale for codes"),
        (
            np.zeros((2, 64), np.float32),
            "ip",
            np.ones(64, np.float32),
            "an offset and a scale for codes",
        ),
        (np.zeros((2, 32), np.uint8), "ip", np.ones(32, np.float32), "a multiple of 16 elements"),
        (np.zeros((2, 64), np.int8), "ip", None, "rows of float32, float16 or uint8"),
        (np.zeros((2, 64), np.float64), "ip", None, "rows of float32, float16 or uint8"),
        (
            np.zeros((2, 64), np.uint8),
            "ip",
            np.ones(63, np.float32),
            "an offset and a scale per element",
        ),
    ],
)
def test_rows_that_no_kernel_reads_are_refused(
    rows: NDArray[Any], scorer: str, scale: NDArray[np.float32] | None, message: str
) -> None:
    """Rows that no kernel can read are refused with what was expected."""
    with pytest.raises(ValueError, match=message):
        _core.Rows(rows, scorer, offset=scale, scale=scale)


@pytest.mark.parametrize(("bits", "compression"), [(2, "int2"), (4, "int4"), (8, "int8")])
def test_codes_of_too_many_dimensions_are_refused(bits: int, compression: Any) -> None:
    """Codes are scored correctly up to the largest dimension, and refused beyond it."""
    most, largest = MAX_CODED_DIMS[bits], LARGEST_CODES[bits]
    assert most * 127 * largest <= 2**31 - 1 < (most + 1) * 127 * largest
    rows, width = packed_rows(np.full((1, most), largest, dtype=np.uint8), bits)
    one = padded_to(np.ones(most), width)
    for simd in SIMD_LEVELS:
        scores = core_codes(rows, bits, 0 * one, one, simd).scores(one)
        np.testing.assert_allclose(scores, [-largest * most], rtol=1e-6)
    dim = most + 1
    space = RoutingSpace(np.zeros((1, padded_dim(dim)), np.float32), dim, "l2")
    message = "expected codes of at most .* dimensions, got"
    with pytest.raises(ValueError, match=message):
        compress_space(space, compression)
    scale = np.ones(dim, np.float32)
    coded = np.zeros((1, padded_dim(dim, np.uint8, bits) * bits // 8), np.uint8)
    with pytest.raises(ValueError, match=message):
        RoutingSpace(coded, dim, "ip", codes=Codes(bits, scale, scale))
