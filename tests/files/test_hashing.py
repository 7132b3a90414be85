"""Laws of the hash of arrays."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray

from l2route.files.hashing import hash_arrays

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "other",
    [
        ARRAY.view(np.int32),  # another dtype
        ARRAY.reshape(3, 2),  # another shape
        ARRAY + np.eye(2, 3, dtype=np.float32),  # other content
    ],
)
def test_dtype_shape_and_content_count(other: NDArray[np.generic]) -> None:
    """Arrays that differ in dtype, shape or content have different hashes."""
    assert hash_arrays("", ARRAY) != hash_arrays("", other)


def test_text_and_order_count() -> None:
    """A different text, or the same arrays in another order, gives a different hash."""
    hashes = {hash_arrays("", ARRAY), hash_arrays("a", ARRAY), hash_arrays("b", ARRAY)}
    hashes |= {hash_arrays("", ARRAY, ARRAY[:1]), hash_arrays("", ARRAY[:1], ARRAY)}
    assert len(hashes) == 5


@pytest.mark.parametrize("array", [ARRAY[:, ::2], ARRAY.T, ARRAY[:0]])
def test_layout_in_memory_does_not_count(array: NDArray[np.float32]) -> None:
    """Equal arrays have equal hashes, whatever their strides and whether they are empty."""
    assert hash_arrays("", array) == hash_arrays("", array.copy(order="C"))


def test_one_array_has_the_checksum_of_saved_indexes() -> None:
    """The hash of one array is the checksum of schema 1.

    That is blake2b of 16 bytes over dtype, shape and content.
    """
    expected = hashlib.blake2b(b"<f4 (2, 3)" + ARRAY.tobytes(), digest_size=16).hexdigest()
    assert hash_arrays("", ARRAY) == expected
