"""Laws of the core's kernels: scores as numpy computes them, the same on every machine."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2route import _core
from l2route.search.layout import pad_rows
from scores_twin import scores_of

SIMD_LEVELS = _core.simd_levels()


@pytest.mark.parametrize("simd", SIMD_LEVELS)
@pytest.mark.parametrize("scorer", ["l2", "ip"])
@given(dim=st.integers(1, 70), n=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_scores_equal_numpy(simd: str, scorer: str, dim: int, n: int, seed: int) -> None:
    """Every kernel scores rows as numpy does in double precision."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, dim)).astype(np.float32)
    query = rng.normal(size=dim).astype(np.float32)
    scores = _core.Rows(pad_rows(rows), scorer, simd=simd).scores(pad_rows(query[None])[0])
    np.testing.assert_allclose(scores, scores_of(rows, query, scorer), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif("avx512" not in SIMD_LEVELS, reason="needs both kernels")
@given(dim=st.integers(1, 300), scorer=st.sampled_from(["l2", "ip"]), seed=st.integers(0, 999))
def test_fused_kernels_agree_to_the_last_bit(dim: int, scorer: str, seed: int) -> None:
    """AVX2 and AVX-512 add in the same order, so an answer does not depend on the machine."""
    rng = np.random.default_rng(seed)
    rows = pad_rows(rng.normal(size=(6, dim)).astype(np.float32))
    query = pad_rows(rng.normal(size=(1, dim)).astype(np.float32))[0]
    scores = [_core.Rows(rows, scorer, simd=simd).scores(query) for simd in ("avx2", "avx512")]
    np.testing.assert_array_equal(scores[0], scores[1])


@pytest.mark.parametrize("degree", [2**61, 2**62 + 1, 2**63])
def test_array_sizes_that_overflow_are_refused(degree: int) -> None:
    """An output whose size in bytes overflows 64 bits is refused."""
    rows = _core.Rows(pad_rows(np.zeros((8, 3), np.float32)), "l2")
    candidates = np.zeros((8, 1), np.int32)
    with pytest.raises(ValueError, match=r"expected arrays of fewer than 2\^64 bytes"):
        _core.pruned_lists(rows=rows, candidates=candidates, degree=degree, alpha=1, n_threads=1)
