"""Laws of queries between those of a log."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2route.data.truth import exact_neighbors
from l2route.data.vectors import METRICS, Metric, normalize
from l2route.graph.build import GraphOptions
from l2route.rewiring import log_mixes
from l2route.rewiring.grow import grow_graph
from l2route.rewiring.log_mixes import (
    MIXED_EF,
    N_NEAR,
    mixed,
    mixed_neighbors,
    near_pairs,
)
from l2route.search.base import BaseVectors
from l2route.search.searcher import Searcher
from l2route.search.space import original_space


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 60), metric=st.sampled_from(METRICS))
def test_pairs_are_of_different_queries(seed: int, n: int, metric: Metric) -> None:
    """Nobody is paired with itself, or twice with the same; few queries, too, are paired."""
    queries = np.random.default_rng(seed).normal(size=(n, 5)).astype(np.float32)
    pairs = near_pairs(queries, metric, seed % 7)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    assert ((pairs >= 0) & (pairs < n)).all()
    counts = np.bincount(pairs[:, 0], minlength=n)
    assert counts.max(initial=0) <= N_NEAR + 1  # one more if a query does not find itself
    assert counts.min() >= min(N_NEAR, n - 1) - 1


@pytest.mark.parametrize("metric", METRICS)
def test_pairs_are_near_and_the_same_for_any_threads(metric: Metric) -> None:
    """Partners are among the 32 nearest queries, by direction unless the metric is l2."""
    queries = np.random.default_rng(0).normal(size=(800, 8)).astype(np.float32)
    pairs = near_pairs(queries, metric, n_threads=1)
    assert np.array_equal(pairs, near_pairs(queries, metric, n_threads=3))
    rows = queries if metric == "l2" else normalize(queries)
    nearest = exact_neighbors(rows, rows, N_NEAR + 1, "l2").ids
    is_near = (nearest[pairs[:, 0]] == pairs[:, 1:]).any(axis=1)
    assert is_near.mean() > 0.98  # the graph over the queries may miss a few


def test_there_are_at_most_so_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many queries or pairs some are drawn, from all over the log."""
    queries = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    monkeypatch.setattr(log_mixes, "MAX_PAIRS", 100)
    pairs = near_pairs(queries, "l2")
    assert len(pairs) == 100
    assert (np.diff(pairs[:, 0]) >= 0).all()
    assert pairs[0, 0] < 30
    assert pairs[-1, 0] >= 270
    monkeypatch.setattr(log_mixes, "MAX_QUERIES", 20)
    drawn = np.unique(near_pairs(queries, "l2"))
    assert len(drawn) <= 20
    assert drawn[-1] > 150


def test_mixed_queries_are_halfway() -> None:
    """The mean of both, of length 1 for cosine; opposite queries and huge numbers do no harm."""
    queries = np.array([[2.0, 0.0], [0.0, 2.0], [-2.0, 0.0], [3e38, 0.0]], dtype=np.float32)
    pairs = np.array([[0, 1], [0, 2], [3, 3]])
    assert mixed(queries, pairs, "l2").tolist() == [[1, 1], [0, 0], [np.float32(3e38), 0]]
    half = np.float32(np.sqrt(0.5))
    assert np.allclose(mixed(queries, pairs[:2], "cosine"), [[half, half], [0, 0]])


@pytest.mark.parametrize("metric", METRICS)
def test_neighbors_are_those_of_an_exact_search(
    metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beam as wide as the graph finds the true neighbours, in whatever chunks."""
    rng = np.random.default_rng(1)
    vectors, queries = (rng.normal(size=(n, 6)).astype(np.float32) for n in (MIXED_EF, 40))
    base = BaseVectors.of(vectors, metric)
    searcher = Searcher(grow_graph(base, GraphOptions("l2route", 8)), original_space(base), base)
    pairs = near_pairs(queries, metric)
    truth = exact_neighbors(vectors, mixed(queries, pairs, metric), 7, metric).ids
    monkeypatch.setattr(log_mixes, "CHUNK", 33)
    assert np.array_equal(mixed_neighbors(searcher, queries, pairs, 7), truth)


def test_queries_with_too_few_neighbors_are_left_out() -> None:
    """Where a graph has fewer vertices than neighbours are asked for, there is nothing to join."""
    base = BaseVectors.of(np.eye(3, dtype=np.float32), "l2")
    searcher = Searcher(grow_graph(base, GraphOptions("l2route", 2)), original_space(base), base)
    pairs = np.array([[0, 1], [1, 2]])
    assert mixed_neighbors(searcher, np.eye(3, dtype=np.float32), pairs, 5).shape == (0, 5)
    assert mixed_neighbors(searcher, np.eye(3, dtype=np.float32), pairs[:0], 2).shape == (0, 2)
