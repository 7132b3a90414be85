"""Laws of the calibration of learned spaces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route.data.vectors import Metric
from l2route.search.base import BaseVectors
from l2route.search.layout import pad_rows
from l2route.search.origin import with_origin
from l2route.search.space import RoutingSpace

N, DIM = 400, 8
SPREADS = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1.0)


def learned_like(base: BaseVectors, scale: float, rng: np.random.Generator) -> RoutingSpace:
    """A space as training leaves it: centred rows, near a multiple of the vectors, and biases."""
    vectors = base.vectors().astype(np.float64)
    centred = vectors - vectors.mean(axis=0)
    rows = scale * (centred + 0.1 * centred.std() * rng.normal(size=vectors.shape))
    halves = 0.5 * (vectors**2).sum(axis=1) if base.metric == "l2" else np.zeros(len(vectors))
    bias = scale * (halves.mean() - halves + 0.05 * rng.normal(size=len(vectors)))
    padded = pad_rows(rows.astype(np.float32))
    return RoutingSpace(padded, base.dim, "ip", None, bias.astype(np.float32))


def drawn(seed: int, spread: float, mean: float, metric: Metric) -> BaseVectors:
    """Vectors with variance 1 in all dimensions but the first."""
    vectors = np.random.default_rng(seed).normal(size=(N, DIM))
    vectors[:, 0] = mean + spread * vectors[:, 0]
    return BaseVectors.of(vectors, metric)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from(SPREADS),
    mean=st.sampled_from([0.0, 1.0, 5.0]),
    scale=st.sampled_from([0.1, 1.0, 40.0]),
    metric=st.sampled_from(["l2", "cosine"]),
)
def test_what_is_common_is_in_proportion(
    seed: int, spread: float, mean: float, scale: float, metric: Metric
) -> None:
    """Rows and biases stay of the size of scores, however little vectors vary along an axis."""
    base = drawn(seed, spread, mean, metric)
    space = learned_like(base, scale, np.random.default_rng(seed + 1))
    calibrated = with_origin(space, base)
    assert calibrated.origin is not None
    assert calibrated.bias is not None
    assert 0.5 * scale < calibrated.origin < 2 * scale
    length = float(np.sqrt((base.vectors() ** 2).sum(axis=1).mean()))
    assert np.linalg.norm(calibrated.rows.mean(axis=0)) < 2 * scale * length
    assert abs(calibrated.bias.mean()) < 2 * scale * length**2


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("spread", SPREADS)
def test_vectors_have_no_distance_to_themselves(spread: float, metric: Metric) -> None:
    """Calibrated distances of vectors to themselves are 0 on average, and vary little."""
    base = drawn(0, spread, 1.0, metric)
    calibrated = with_origin(learned_like(base, 10.0, np.random.default_rng(1)), base)
    own, others = distances(calibrated, base.vectors())
    assert abs(own.mean()) < 0.01 * others.mean()
    assert own.std() < 0.1 * others.mean()


def distances(
    space: RoutingSpace, vectors: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Calibrated distances of vectors to themselves [n], and to all vectors [n, n]."""
    assert space.origin is not None
    halves = 0.5 * np.float32(space.origin) * (vectors**2).sum(axis=1)
    calibrated = halves[:, None] - (vectors @ space.rows[:, : space.dim].T + space.bias)
    return np.diag(calibrated), calibrated


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_vectors_that_are_all_alike_have_an_origin(metric: Metric) -> None:
    """Equal vectors get origin 1, and distance 0 to themselves."""
    base = BaseVectors.of(np.ones((5, DIM)), metric)
    calibrated = with_origin(learned_like(base, 3.0, np.random.default_rng(0)), base)
    own, _ = distances(calibrated, base.vectors())
    assert abs(float(own.mean())) < 1e-5
    assert calibrated.origin == 1.0
