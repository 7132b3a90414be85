"""Laws of validation queries: which queries are others."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from l2route.data.vectors import METRICS, Metric, normalize
from l2route.search.base import BaseVectors
from l2route.search.validation import Validation


def draw(n: int, dim: int, seed: int = 0) -> NDArray[np.float32]:
    """Normal vectors whose lengths differ [n, dim]."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, dim)) * rng.uniform(0.1, 9, size=(n, 1))).astype(np.float32)


def validation_of(queries: NDArray[np.float32], metric: Metric) -> Validation:
    """Validation queries of some vectors."""
    return Validation.of(BaseVectors.of(draw(20, queries.shape[1], seed=1), metric), queries)


@pytest.mark.parametrize("metric", METRICS)
def test_queries_that_validate_are_left_out(metric: Metric) -> None:
    """Others keep their order; a query that validates is none of them, also with −0 for 0."""
    queries = draw(50, 8)
    queries[3, 2] = 0.0
    held = queries[[3, 40]].copy()
    held[0, 2] = -0.0
    others = validation_of(held, metric).others(queries, metric)
    np.testing.assert_array_equal(others, np.delete(queries, [3, 40], axis=0))
    assert validation_of(held, metric).others(queries[:0], metric).shape == (0, 8)


@pytest.mark.parametrize("dim", [4, 100, 2000])
def test_by_cosine_lengths_do_not_matter(dim: int) -> None:
    """A query validates if it does at length 1, whichever of the two was scaled."""
    queries = draw(400, dim)
    held, rest = queries[:300], queries[300:]
    for given, kept in ((queries, normalize(held)), (normalize(queries), held)):
        others = validation_of(kept, "cosine").others(given, "cosine")
        np.testing.assert_array_equal(others, given[300:])
    for metric, n_left in (("cosine", 0), ("ip", 0), ("l2", 100)):
        chosen: Metric = metric  # type: ignore[assignment] # one of the three
        doubled = validation_of(rest, chosen).others(2 * rest, chosen)
        assert len(doubled) == n_left
