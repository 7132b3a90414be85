"""A plane through high-dimensional vectors, to draw them on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_SAMPLED = 4096
"""Vectors of which principal axes are computed, if there are more."""
BLOCK = 4096
"""Vectors that are projected at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """The plane of the two axes along which vectors vary most."""

    centre: NDArray[np.float64]
    """Mean of the vectors [dim]."""
    axes: NDArray[np.float64]
    """Orthogonal unit vectors [2, dim]; 0 where vectors do not vary."""
    share: float
    """Share of the variance that the plane keeps, in [0, 1]."""

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> "Plane":
        """The principal plane of vectors [n, dim], n at least 1."""
        step = -(-len(vectors) // N_SAMPLED)
        sample = vectors[::step].astype(np.float64)
        centre = sample.mean(axis=0)
        sample -= centre
        values, axes = _principal_axes(sample)
        total = float(np.square(sample).sum())
        share = min(float(values.sum()) / total, 1.0) if total > 0 else 1.0
        return cls(centre, axes, share)

    def positions(self, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
        """Coordinates of vectors [n, dim] in the plane [n, 2]."""
        placed = np.empty((len(vectors), 2))
        for begin in range(0, len(vectors), BLOCK):
            part = slice(begin, begin + BLOCK)
            placed[part] = (vectors[part].astype(np.float64) - self.centre) @ self.axes.T
        return placed


def _principal_axes(
    centred: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of squares along the first two principal axes [2], and the axes [2, dim]."""
    n, dim = centred.shape
    is_wide = n < dim
    products = centred @ centred.T if is_wide else centred.T @ centred  # the smaller of both
    values, vectors = np.linalg.eigh(products)  # ascending
    found = vectors.T[::-1][:2]
    kept = np.maximum(values[::-1][:2], 0.0)
    largest = kept[0] if len(kept) else 0.0
    if is_wide:
        found = found @ centred
    axes, sums = np.zeros((2, dim)), np.zeros(2)
    for i, (value, axis) in enumerate(zip(kept, found, strict=True)):
        length = float(np.linalg.norm(axis))
        if value > 1e-12 * largest and length > 0:  # below it is rounding
            axes[i], sums[i] = axis / length, value
    return sums, axes
