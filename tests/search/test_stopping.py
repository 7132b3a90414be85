"""Laws of learned stopping: walks by levels against searches by slack, and the rule itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2route import _core
from l2route.graph.graph import Graph
from l2route.index import RoutingIndex
from l2route.search import stopping
from l2route.search.base import BaseVectors
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.stopping import (
    HORIZON,
    N_LEVELS,
    Recorded,
    StoppingRule,
    learn_rule,
    record,
    terms,
)
from stopping_twin import SLACKS, features_of, walks_by_level

N, DIM, K = 2000, 16, 10
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(N, DIM)).astype(np.float32)
QUERIES = RNG.normal(size=(31, DIM)).astype(np.float32)  # odd: one walks alone
LOG = RNG.normal(size=(700, DIM)).astype(np.float32)


@cache
def searcher(compression: str | None = None) -> Searcher:
    """A searcher by l2 distances, or by codes."""
    index = RoutingIndex.build(VECTORS, degree=8, ef_construction=40)
    if compression is not None:
        index.compress(compression)  # type: ignore[arg-type]
    return index.searcher()


@cache
def rule() -> StoppingRule:
    """A rule learned from the log."""
    return learn_rule(searcher(), LOG, K)


@pytest.mark.parametrize("compression", [None, "int8"])
def test_a_level_is_a_search_by_its_slack(compression: str | None) -> None:
    """At each level a walk has scored, and found, what a search with that slack has."""
    own = searcher(compression)
    rerank = 0 if compression is None else 2 * K
    walks = record(own, QUERIES, SLACKS, K, rerank)
    for level, found in enumerate(walks_by_level(own, QUERIES, SLACKS, K, rerank)):
        np.testing.assert_array_equal(walks.n_scored[:, level], found.n_routing)
        reranked = own.base.exact_distances(QUERIES, walks.best[:, level].astype(np.int64))
        np.testing.assert_allclose(np.sort(reranked, axis=1)[:, :K], found.distances, rtol=1e-5)


@pytest.mark.parametrize("compression", [None, "int8"])
def test_features_are_those_of_the_twin(compression: str | None) -> None:
    """Features at each level are those computed from all scores of a search with that slack."""
    own = searcher(compression)
    rerank = 0 if compression is None else 2 * K
    walks = record(own, QUERIES, SLACKS, K, rerank)
    for level, found in enumerate(walks_by_level(own, QUERIES, SLACKS, K, rerank)):
        for row, query in enumerate(QUERIES):
            expected = features_of(own, query, found, row, level, K)
            # A distance at a limit may be counted on either side of it.
            np.testing.assert_allclose(walks.features[row, level], expected, rtol=2e-3, atol=2e-2)


@given(st.integers(0, 2**32 - 1), st.floats(-1, 1), st.integers(0, len(SLACKS) - 1), st.booleans())
def test_a_walk_ends_at_the_first_level_below_the_threshold(
    seed: int, threshold: float, first: int, is_coded: bool
) -> None:
    """A walk by any rule ends as a search by the slack of the level that the twin chooses."""
    own, rng = searcher("int8" if is_coded else None), np.random.default_rng(seed)
    limits = Limits(slack=0.05, rerank=2 * K if is_coded else None)
    walks = record(own, QUERIES, SLACKS, K, 2 * K if is_coded else 0)
    features = walks.features.reshape(-1, walks.features.shape[2])
    drawn = rng.normal(size=(2, _core.N_STOP_TERMS)) / 8
    made = StoppingRule(
        "original",
        K,
        SLACKS,
        tuple(features.mean(axis=0).tolist()),
        tuple((features.std(axis=0) + 1e-3).tolist()),
        *(tuple(weights.tolist()) for weights in drawn),
    )
    values = made.values(walks.features, 1.5)
    found = own.search(QUERIES, K, limits=limits, rule=made.core(threshold, 1.5, first))
    for row, of_levels in enumerate(values):
        is_below = of_levels[first:] < threshold
        level = first + int(is_below.argmax()) if is_below.any() else len(SLACKS) - 1
        if np.abs(of_levels[first : level + 1] - threshold).min() < 1e-3:
            continue  # single precision may decide otherwise
        assert found.n_routing[row] == walks.n_scored[row, level]
        assert set(found.ids[row]) <= set(walks.best[row, level].tolist())


def test_batches_and_single_queries_agree() -> None:
    """A query has the same answers and counts alone, in a batch, traced and by several threads."""
    own = searcher("int8")
    asked: dict[str, Any] = {"limits": Limits(ef=10, rerank=20), "rule": rule().core(-6.0, 2.0, 1)}
    batch = own.search(QUERIES, K, n_threads=1, **asked)
    others = [own.search(QUERIES, K, n_threads=3, **asked)]
    others.append(own.search(QUERIES, K, trace=True, **asked))
    assert others[1].trace is not None
    np.testing.assert_array_equal(np.diff(others[1].trace.offsets), batch.n_routing)
    for other in others:
        np.testing.assert_array_equal(other.ids, batch.ids)
        np.testing.assert_array_equal(other.counts, batch.counts)
    for row, query in enumerate(QUERIES):
        single = own.search(query, K, **asked)
        np.testing.assert_array_equal(single.ids[0], batch.ids[row])
        np.testing.assert_array_equal(single.counts[:, 0], batch.counts[:, row])


def test_a_budget_bounds_a_walk_by_rule() -> None:
    """A rule that never ends a walk does not make it exceed its budget."""
    found = searcher().search(
        QUERIES, K, limits=Limits(budget=120, ef=64), rule=rule().core(-1e9, 2.0, 0)
    )
    assert (found.n_routing == 120).all()


def test_thresholds_order_walks() -> None:
    """A lower threshold never makes a walk shorter."""
    limits, before = Limits(ef=10), np.zeros(len(QUERIES))
    for threshold in (1e9, 0.0, -4.0, -6.0, -8.0, -1e9):
        found = searcher().search(QUERIES, K, limits=limits, rule=rule().core(threshold, 2.0, 0))
        assert (found.n_routing >= before).all()
        before = found.n_routing


def test_learning_is_deterministic_and_says_what_is_missing() -> None:
    """The same log gives the same rule, whose estimates follow what is missing."""
    again = learn_rule(searcher(), LOG, K, n_threads=1)
    assert again == rule()
    walks = record(searcher(), QUERIES, rule().slacks, K, 0)
    truth = searcher().search(QUERIES, K, limits=Limits(ef=N)).ids
    missing = K - (walks.best[..., None] == truth[:, None, None]).any(axis=3).sum(axis=2)
    rows = (walks.features - np.array(rule().centre)) / np.array(rule().scale)
    expected = np.exp(terms(np.clip(rows, -4, 4)) @ np.array(rule().missing))
    assert np.corrcoef(expected.ravel(), missing.ravel())[0, 1] > 0.5
    assert expected.mean() == pytest.approx(missing.mean(), rel=0.5)


def test_walks_of_a_graph_smaller_than_the_beam() -> None:
    """Rules work with k = 1, and where k is the number of vectors."""
    index = RoutingIndex.build(VECTORS[:30])
    for k in (1, 30):
        small = learn_rule(index.searcher(), LOG, k)
        found = index.searcher().search(
            QUERIES, k, limits=Limits(ef=30), rule=small.core(-1e9, 1.0, 0)
        )
        assert (found.ids >= 0).all()


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e5, 1e15])
def test_queries_may_be_vectors(scale: float) -> None:
    """Where queries are vectors of the index, at a distance of 0, features are finite at any scale.

    The ratio of a large distance and that is no float.
    """
    scaled, log = VECTORS * np.float32(scale), LOG * np.float32(scale)
    log[::2] = scaled[: len(log[::2])]
    index = RoutingIndex.build(scaled, degree=8, ef_construction=40)
    assert np.isfinite(record(index.searcher(), log, SLACKS, K, 0).features).all()
    learn_rule(index.searcher(), log, K)


@pytest.mark.parametrize("compression", [None, "int8"])
def test_a_walk_that_scores_all_vertices_meets_all_levels(compression: Any) -> None:
    """Such a walk is recorded at every level, as a search with that slack; rules are learned."""
    index = RoutingIndex.build(VECTORS[:60], degree=8, ef_construction=40)
    if compression is not None:
        index.compress(compression)
    own, rerank = index.searcher(), 0 if compression is None else 2
    walks = record(own, QUERIES, (*SLACKS, 2.0, 4.0), 1, rerank)
    assert (walks.n_scored[:, -1] == 60).all()
    assert walks.features.any(axis=2).all()
    for level, found in enumerate(walks_by_level(own, QUERIES, SLACKS, 1, rerank)):
        np.testing.assert_array_equal(walks.n_scored[:, level], found.n_routing)
        np.testing.assert_array_equal((walks.best[:, level] == found.ids).any(axis=1), True)
    learn_rule(own, LOG, 1)


def in_two_parts(n_entered: int) -> Searcher:
    """A searcher that starts in a ring of the first vertices, which leads to none of the others."""
    base = BaseVectors.of(VECTORS[:100], "l2")
    after = np.arange(1, 101) % n_entered
    lists = np.stack([after, (after + 1) % n_entered], axis=1).astype(np.int32)
    return RoutingIndex(base, Graph(lists, np.zeros(1, dtype=np.int32))).searcher()


def test_walks_that_find_few_vertices() -> None:
    """A walk that finds fewer than k vertices is at every level what its search is.

    It misses nothing that a longer walk would find. A rule is not learned from such walks alone.
    """
    own = in_two_parts(6)
    walks = record(own, QUERIES, SLACKS, K, 0)
    assert (walks.n_scored == 6).all()
    for level, found in enumerate(walks_by_level(own, QUERIES, SLACKS, K, 0)):
        np.testing.assert_array_equal(walks.best[:, level], found.ids)
    with pytest.raises(ValueError, match="500 queries whose walks find 10 vertices, got 0 of 700"):
        learn_rule(own, LOG, K)
    assert learn_rule(own, LOG, 5).k == 5


def test_walks_that_no_level_ends_teach_nothing() -> None:
    """A rule is the same with and without walks that found fewer than k vertices."""
    slacks = [0.005 * 1.2**level for level in range(N_LEVELS + HORIZON)]
    walks = record(searcher(), LOG, slacks, K, 0)
    missing = stopping._missing(searcher(), LOG, walks.best, K)
    more = Recorded(
        np.concatenate([walks.features, np.zeros_like(walks.features[:90])]),
        np.concatenate([walks.n_scored, np.full_like(walks.n_scored[:90], 6)]),
        np.concatenate([walks.best, np.full_like(walks.best[:90], -1)]),
    )
    fitted = stopping._fitted("original", K, slacks, walks, missing)
    padded = np.concatenate([missing, np.zeros_like(missing[:90])])
    assert stopping._fitted("original", K, slacks, more, padded) == fitted


BAD_CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "few queries": ({"queries": LOG[:499]}, "at least 500 queries"),
    "another dimension": ({"queries": LOG[:, :5]}, r"\[\*, 16\]"),
    "no k": ({"k": 0}, "k in"),
    "large k": ({"k": N + 1}, "k in"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_are_refused(name: str) -> None:
    """Learning names what it expected and what it got."""
    changed, message = BAD_CALLS[name]
    with pytest.raises(ValueError, match=message):
        learn_rule(searcher(), **{"queries": LOG, "k": K} | changed)


def test_inner_products_have_no_rule() -> None:
    """A space without distances is refused."""
    index = RoutingIndex.build(VECTORS, "ip", degree=8)
    with pytest.raises(ValueError, match="turned into distances"):
        learn_rule(index.searcher(), LOG, K)


def test_entries_are_inverse() -> None:
    """A rule is the same after it was written as plain values."""
    assert StoppingRule.of_entry(rule().entry()) == rule()


FORGED: dict[str, dict[str, Any]] = {
    "no slacks": {"slacks": ()},
    "falling slacks": {"slacks": (0.2, 0.1)},
    "negative slack": {"slacks": (-0.1, 0.1)},
    "infinite slack": {"slacks": (0.1, float("inf"))},
    "few weights": {"missing": (1.0,)},
    "NaN": {"cost": (float("nan"),) * _core.N_STOP_TERMS},
    "no scale": {"scale": (0.0,) * _core.N_STOP_FEATURES},
    "k of 0": {"k": 0},
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_rules_are_refused(name: str) -> None:
    """A rule with values that could mislead the core cannot be made."""
    with pytest.raises(ValueError, match="expected"):
        replace(rule(), **FORGED[name])
