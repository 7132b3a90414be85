"""Laws of the plane that vectors are drawn on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2route.explain.plane import Plane


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 30))
def test_plane_is_that_of_a_singular_value_decomposition(seed: int, n: int, dim: int) -> None:
    """Positions are those by the first two right singular vectors, up to signs."""
    rng = np.random.default_rng(seed)
    vectors = (rng.normal(size=(n, dim)) * np.linspace(3, 0.5, dim)).astype(np.float32)
    plane = Plane.of(vectors)
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    expected = np.zeros((n, 2))
    expected[:, : min(2, len(axes))] = centred @ axes[:2].T
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(
        np.abs(plane.positions(vectors)) / scale, np.abs(expected) / scale, atol=2e-4
    )
    total = float(np.square(sizes).sum())
    share = float(np.square(sizes[:2]).sum()) / total if total > 1e-20 else 1.0
    assert plane.share == pytest.approx(share, abs=1e-6)


def test_plane_keeps_distances_in_two_dimensions() -> None:
    """Vectors of a plane keep all distances."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(100, 2)) @ np.linalg.qr(rng.normal(size=(40, 2)))[0].T
    vectors = flat.astype(np.float32)
    plane = Plane.of(vectors)
    places = plane.positions(vectors)
    got = np.linalg.norm(places[:, None] - places, axis=2)
    expected = np.linalg.norm(vectors[:, None] - vectors, axis=2)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert plane.share == pytest.approx(1.0)


def test_many_vectors_are_sampled() -> None:
    """The plane of very many vectors is nearly that of all of them."""
    rng = np.random.default_rng(1)
    vectors = (rng.normal(size=(20_000, 8)) * [9, 5, 1, 1, 1, 1, 1, 1]).astype(np.float32)
    plane = Plane.of(vectors)
    assert abs(plane.axes[0, 0]) > 0.99
    assert abs(plane.axes[1, 1]) > 0.99
