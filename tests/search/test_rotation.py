"""Laws of fast random rotations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route import _core
from l2route.search.rotation import N_ROUNDS, Rotation


def hadamard(n: int) -> NDArray[np.float64]:
    """The Walsh–Hadamard matrix of a power of two, with orthonormal rows [n, n]."""
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(n)


def slow_rotation(rotation: Rotation, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """The same rotation by products with dense matrices in double precision."""
    rotated = np.zeros((len(vectors), rotation.dim))
    rotated[:, : rotation.n_in] = vectors
    block = 2 ** int(np.log2(rotation.dim))
    for number, signs in enumerate(rotation.signs):
        rotated *= signs
        part = slice(0, block) if number % 2 == 0 else slice(rotation.dim - block, None)
        rotated[:, part] = rotated[:, part] @ hadamard(block)
    return rotated


dims = st.one_of(st.integers(16, 300), st.sampled_from([128, 256, 384, 512, 640, 896, 1536]))


@given(dims, st.integers(0, 5), st.integers(0, 2**32), st.data())
def test_rotation_equals_dense_twin(dim: int, n: int, seed: int, data: st.DataObject) -> None:
    """A rotation by fast transforms is the product with signs and Hadamard matrices."""
    n_in = data.draw(st.integers(1, dim))
    rotation = Rotation.random(n_in, dim, seed)
    vectors = np.random.default_rng(seed).normal(size=(n, n_in)).astype(np.float32)
    rotated = rotation(vectors)
    assert rotated.dtype == np.float32
    np.testing.assert_allclose(rotated, slow_rotation(rotation, vectors), atol=1e-5)


@given(dims, st.integers(0, 2**32))
def test_rotations_agree_to_the_last_bit(dim: int, seed: int) -> None:
    """Every kernel rotates to the same bits."""
    rotation = Rotation.random(dim, dim, seed)
    vectors = np.random.default_rng(seed).normal(size=(2, dim)).astype(np.float32)
    every = [_core.rotated(vectors, rotation.signs, simd) for simd in _core.simd_levels()]
    for other in every[1:]:
        np.testing.assert_array_equal(every[0], other)


@given(dims, st.integers(0, 2**32))
def test_rotations_keep_lengths_and_products(dim: int, seed: int) -> None:
    """The matrix of a rotation has orthonormal columns, and says the same as the rotation."""
    rotation = Rotation.random(dim - 3, dim, seed)
    matrix = rotation.matrix
    assert matrix.shape == (dim, dim - 3)
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(dim - 3), atol=1e-5)
    vectors = np.random.default_rng(seed).normal(size=(3, dim - 3)).astype(np.float32)
    np.testing.assert_allclose(rotation(vectors), vectors @ matrix.T, atol=1e-4)


def test_the_seed_alone_decides() -> None:
    """Equal seeds give equal rotations, other seeds others."""
    signs = [Rotation.random(20, 128, seed).signs for seed in (3, 3, 4)]
    np.testing.assert_array_equal(signs[0], signs[1])
    assert not np.array_equal(signs[0], signs[2])


@pytest.mark.parametrize("dim", [128, 384, 896, 1536])
def test_a_rotation_spreads_every_axis(dim: int) -> None:
    """What was in one element is spread over all as by Gaussian weights: none has a large share.

    Of a million squares of normal numbers the largest is about 24; 21 to 28 were measured.
    """
    matrix = Rotation.random(dim, dim, 0).matrix
    assert np.square(matrix).max() < 40 / dim


def test_costs_are_counted_in_distances() -> None:
    """Four rounds over 384 elements are 4·384 signs and 4·256·8 additions: 13 distances."""
    assert N_ROUNDS == 4
    assert Rotation.random(384, 384, 0).n_distances == -(-(4 * 384 + 4 * 256 * 8) // (2 * 384))


@pytest.mark.parametrize(
    ("signs", "n_in", "message"),
    [
        (np.ones((4, 15), np.int8), 3, r"signs int8 \[n_rounds, at least 16\], got int8 \[4, 15\]"),
        (np.ones(16, np.int8), 3, r"got int8 \[16\]"),
        (np.ones((4, 16), np.int16), 3, "got int16"),
        (np.zeros((4, 16), np.int8), 3, "signs of \\+1 and −1"),
        (np.ones((4, 16), np.int8), 17, "1 to 16 elements, got 17"),
        (np.ones((4, 16), np.int8), 0, "1 to 16 elements, got 0"),
    ],
)
def test_bad_rotations_are_refused(signs: NDArray[np.int8], n_in: int, message: str) -> None:
    """Signs of another type, shape or value are refused, and dimensions beyond them."""
    with pytest.raises(ValueError, match=message):
        Rotation(signs, n_in)
