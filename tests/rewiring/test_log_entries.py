"""Laws of entry points from a query log."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2route.data.vectors import Metric
from l2route.rewiring.log_entries import DEPTH, MAX_CLUSTERS, N_COORDINATES, WIDTH, entries_of_log


def test_entry_points_are_what_queries_of_the_cluster_find_most_often() -> None:
    """Two kinds of queries far apart: each starts at the vertices that its kind finds."""
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(64, 5)).astype(np.float32)
    queries[32:] += 100
    nearest = np.arange(64 * 8, dtype=np.int32).reshape(64, 8) + 100  # found by one query each
    nearest[:, 5] = np.where(np.arange(64) < 32, 90, 91)
    table = entries_of_log(queries, nearest, "l2")
    for i in (0, 31, 32, 63):
        part = queries[i][table.coordinates]
        cluster = ((table.centroids - part) ** 2).sum(axis=1).argmin()
        assert table.vertices[cluster, 0] == (90 if i < 32 else 91)


@given(
    n=st.integers(1, 80),
    dim=st.integers(1, 90),
    metric=st.sampled_from(["l2", "ip", "cosine"]),
    kind=st.sampled_from(["normal", "equal", "zero", "constant columns", "far", "huge", "tiny"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_queries_give_a_table(n: int, dim: int, metric: Metric, kind: str, seed: int) -> None:
    """Whatever queries look like, a valid table of vertices that they find comes out."""
    rng = np.random.default_rng(seed)
    queries = rng.normal(size=(n, dim)).astype(np.float32)
    if kind == "equal":
        queries[:] = queries[0]
    elif kind == "zero":
        queries[:] = 0
    elif kind == "constant columns":
        queries[:, ::2] = 3
    elif kind == "far":
        queries += 1e4
    elif kind in ("huge", "tiny"):
        queries *= np.float32(1e15 if kind == "huge" else 1e-20)
    nearest = rng.integers(0, 50, size=(n, 12)).astype(np.int32)
    table = entries_of_log(queries, nearest, metric, seed % 100)
    table.check_fits(50)
    assert len(table.coordinates) == min(dim, N_COORDINATES)
    assert len(table.centroids) <= min(MAX_CLUSTERS, n)
    assert table.vertices.shape[1] == WIDTH
    assert np.isfinite(table.centroids).all()
    assert np.isfinite(table.groups).all()
    assert np.isin(table.vertices[table.vertices >= 0], nearest[:, :DEPTH]).all()
    again = entries_of_log(queries, nearest, metric, seed % 100)
    assert np.array_equal(table.vertices, again.vertices)


def test_the_coordinates_are_those_that_vary_most() -> None:
    """Of more than 64 coordinates the constant ones are left out."""
    rng = np.random.default_rng(0)
    queries = np.zeros((50, 100), dtype=np.float32)
    varying = np.sort(rng.permutation(100)[:N_COORDINATES])
    queries[:, varying] = rng.normal(size=(50, N_COORDINATES))
    table = entries_of_log(queries, np.zeros((50, 1), dtype=np.int32), "l2")
    assert table.coordinates.tolist() == varying.tolist()


def test_other_lengths_are_refused() -> None:
    """There are neighbours of every query, and at least one."""
    queries = np.zeros((3, 2), dtype=np.float32)
    with pytest.raises(ValueError, match="expected as many queries as neighbours"):
        entries_of_log(queries, np.zeros((2, 1), dtype=np.int32), "l2")
    with pytest.raises(ValueError, match="at least 1, got 0 and 0"):
        entries_of_log(queries[:0], np.zeros((0, 1), dtype=np.int32), "l2")
