"""Random rotations that take far fewer operations than a product with a matrix."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route import _core

LEAST_DIM = 16
"""Smallest dimension of a rotation."""
N_ROUNDS = 4
"""Rounds of a rotation. After four, each element depends on all elements of the vector."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rounds of random signs and Walsh–Hadamard transforms; keeps lengths and inner products.

    A round multiplies all elements by its signs and transforms a block of them, scaled to keep
    lengths. The block is as long as the largest power of two that is not above the dimension; it is
    at the beginning in even rounds, and at the end in odd ones.
    """

    signs: NDArray[np.int8]
    """+1 or −1 [n_rounds, dim]."""
    n_in: int
    """Dimension of vectors before they are padded with zeros and rotated."""

    def __post_init__(self) -> None:
        signs = self.signs
        if signs.dtype != np.int8 or signs.ndim != 2 or signs.shape[1] < LEAST_DIM:
            expected = f"signs int8 [n_rounds, at least {LEAST_DIM}]"
            raise ValueError(f"expected {expected}, got {signs.dtype} {list(signs.shape)}")
        if not np.isin(signs, (-1, 1)).all():
            raise ValueError("expected signs of +1 and −1, got other numbers")
        if not 1 <= self.n_in <= signs.shape[1]:
            raise ValueError(f"expected to rotate 1 to {signs.shape[1]} elements, got {self.n_in}")

    @classmethod
    def random(cls, n_in: int, dim: int, seed: int) -> "Rotation":
        """A rotation of vectors of `n_in` elements, padded to `dim`, at least 16."""
        bits = np.random.default_rng(seed).integers(0, 2, (N_ROUNDS, dim), dtype=np.int8)
        return cls(2 * bits - 1, n_in)

    def __call__(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rotate vectors [n, n_in] to [n, dim], on all cores."""
        rotated: NDArray[np.float32] = _core.rotated(
            np.ascontiguousarray(vectors, dtype=np.float32), self.signs
        )
        return rotated

    @property
    def dim(self) -> int:
        """Dimension of rotated vectors."""
        return int(self.signs.shape[1])

    @property
    def matrix(self) -> NDArray[np.float32]:
        """The same as a matrix [dim, n_in]."""
        return np.ascontiguousarray(self(np.eye(self.n_in, dtype=np.float32)).T)

    @property
    def n_distances(self) -> int:
        """What rotating a vector costs, in distance computations of its dimension, rounded up.

        A distance takes two operations per element: a product, and an addition.
        """
        n_rounds, dim = self.signs.shape
        block = 1 << (dim.bit_length() - 1)
        n_operations = n_rounds * (dim + block * (block.bit_length() - 1))
        return int(-(-n_operations // (2 * self.n_in)))
