"""Laws of arrays that the core reads."""

import numpy as np
import pytest

from l2route.memory import CACHE_LINE, aligned, aligned_rows, aligned_zeros, pad_rows


@pytest.mark.parametrize("n", [1, 3, 1000, 1_000_003])
def test_arrays_start_on_a_cache_line(n: int) -> None:
    """Whatever their size; zeros that can be written."""
    array = aligned_zeros((n, 3), np.int16)
    assert array.shape == (n, 3)
    assert array.ctypes.data % CACHE_LINE == 0
    assert array.flags.c_contiguous
    assert not array.any()
    array += 7
    assert (array == 7).all()


@pytest.mark.parametrize("n", [10, 40_000])
def test_copies_are_equal(n: int) -> None:
    """Padding with zeros, rows in another order, an array that begins anywhere."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(n, 20)).astype(np.float32)
    padded = pad_rows(vectors)
    np.testing.assert_array_equal(padded[:, :20], vectors)
    assert padded.shape == (n, 32)
    assert not padded[:, 20:].any()
    order = rng.permutation(n)
    np.testing.assert_array_equal(aligned_rows(padded, order), padded[order])
    shifted = np.zeros(n * 20 + 1, dtype=np.float32)[1:].reshape(n, 20)
    shifted[:] = vectors
    copy = aligned(shifted)
    assert copy.ctypes.data % CACHE_LINE == 0
    np.testing.assert_array_equal(copy, vectors)
