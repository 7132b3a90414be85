"""Laws of query logs: repeats, near-duplicates, held-out queries."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import Metric, normalize
from l2route.search.validation import CalibrationWarning
from l2route.training.options import LearnOptions
from l2route.training.problem import Problem, pose
from l2route.training.queries import (
    MAX_HELD_OUT,
    MIN_CHOSEN,
    QueryLog,
    answer_radius,
    hold_out,
    n_validation_of,
)

DIM = 8
OPTIONS = LearnOptions(budget=48, rerank=4, steps=1, learns_from_base=False)


def draw(n: int, seed: int) -> NDArray[np.float32]:
    """Normal vectors."""
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def small_index(metric: Metric = "l2") -> RoutingIndex:
    """An index of 1,000 vectors."""
    return RoutingIndex.build(
        draw(1000, 0), metric, degree=8, ef_construction=40, entry=0, refine=False
    )


def posed(index: RoutingIndex, queries: NDArray[np.float32], **changes: Any) -> Problem:
    """The problem of a query log on an index."""
    return pose(index.graph, index.base, queries, replace(OPTIONS, **changes))


def rows_of(queries: NDArray[np.float32]) -> set[bytes]:
    """The distinct queries."""
    return {row.tobytes() for row in queries}


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 3))
def test_a_log_is_its_distinct_queries_and_their_counts(log_ids: list[int], seed: int) -> None:
    """Distinct queries and counts equal those of a dictionary; +0 and −0 are equal."""
    values = np.array([[0.0, each] for each in log_ids], np.float32)
    values[::2, 0] = -0.0
    log = QueryLog.of(values, seed)
    counts: dict[int, int] = {}
    for each in log_ids:
        counts[each] = counts.get(each, 0) + 1
    assert log.distinct[:, 1].tolist() == list(counts)
    assert log.counts.tolist() == list(counts.values())
    assert log.first.tolist() == [log_ids.index(each) for each in counts]
    assert sorted(log.order.tolist()) == list(range(len(counts)))


def hold_out_slowly(
    queries: NDArray[np.float32], candidates: NDArray[np.int64], radii: NDArray[np.float64]
) -> tuple[list[int], set[int]]:
    """Slow twin of `hold_out` that compares every pair."""
    chosen: list[int] = []
    held: set[int] = set()
    for position, radius in zip(candidates.tolist(), radii, strict=True):
        if position in held:
            continue
        if len(chosen) >= MIN_CHOSEN and len(held) >= MAX_HELD_OUT * len(queries):
            break
        chosen.append(position)
        apart = [np.linalg.norm(each.astype(float) - queries[position]) for each in queries]
        near = {n for n, each in enumerate(apart) if n == position or 0 < radius >= each}
        held |= near if len(near) <= MAX_HELD_OUT * len(queries) else {position}
    return sorted(chosen), held


@given(
    st.integers(0, 1000),
    st.integers(1, 60),
    st.sampled_from([0.0, 0.5, 1.2, 1.6, 2.1]),  # none of them a distance between integers
    st.sampled_from([0.0, 200.0]),
)
def test_holding_out_equals_its_slow_twin(seed: int, n: int, radius: float, far: float) -> None:
    """Chosen and held-out queries are those found by comparing every pair."""
    rng = np.random.default_rng(seed)
    queries = (rng.integers(-2, 3, size=(n, 3)) + far).astype(np.float32)
    radii = np.where(rng.random(n) < 0.2, 0.0, radius)
    queries = queries[QueryLog.of(queries, 0).first]
    order = rng.permutation(len(queries))
    n_candidates = rng.integers(1, len(queries) + 1)
    chosen, held = hold_out(queries, order[:n_candidates], radii[:n_candidates])
    expected, expected_held = hold_out_slowly(queries, order[:n_candidates], radii[:n_candidates])
    assert chosen.tolist() == expected
    assert set(np.flatnonzero(held).tolist()) == expected_held


def test_the_number_of_validation_queries() -> None:
    """It is a tenth of the log, or up to 400 of a short one, but at most a third of it."""
    assert [n_validation_of(n, 5000) for n in (20, 300, 1200, 3000, 5000, 90_000)] == [
        6,
        100,
        400,
        400,
        500,
        5000,
    ]
    assert n_validation_of(90_000, 70) == 70


def test_repeats_are_never_in_training_and_validation() -> None:
    """In a log of few queries, each repeated, no query is used for training and validation."""
    index, distinct = small_index(), draw(60, 1)
    log = distinct[np.random.default_rng(2).integers(60, size=3000)]
    problem = posed(index, log)
    assert (problem.n_queries, problem.n_distinct) == (3000, 60)
    train, validation = rows_of(problem.train), rows_of(problem.validation.queries)
    assert not train & validation
    assert len(train) == len(problem.train) == 40
    assert len(validation) == len(problem.validation.queries) == 20


def test_repeats_can_be_trained_on() -> None:
    """With `count_repeats` a query is trained on as often as it is in the log."""
    index, distinct = small_index(), draw(60, 1)
    log = distinct[np.minimum(np.random.default_rng(2).zipf(1.5, size=3000) - 1, 59)]
    once, often = posed(index, log), posed(index, log, count_repeats=True)
    np.testing.assert_array_equal(once.validation.queries, often.validation.queries)
    assert rows_of(once.train) == rows_of(often.train)
    counts = dict.fromkeys(rows_of(once.train), 0)
    for row in log:
        if row.tobytes() in counts:
            counts[row.tobytes()] += 1
    for row in rows_of(often.train):
        assert sum(each.tobytes() == row for each in often.train) == counts[row]
    truth = exact_neighbors(index.base.vectors(), often.train, 1)
    np.testing.assert_array_equal(often.targets, truth.ids)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_near_duplicates_are_never_in_training_and_validation(metric: Metric) -> None:
    """Of fifty clusters of a hundred near-duplicates, none is in training and validation."""
    index, kinds = small_index(metric), draw(50, 1)
    kind_of = np.repeat(np.arange(50), 100)
    log = kinds[kind_of] + np.float32(1e-4) * draw(5000, 2)
    problem = posed(index, log, near_duplicate=0.1)
    where = {row.tobytes(): kind for row, kind in zip(_seen(log, metric), kind_of, strict=True)}
    train, validation = (
        {where[row.tobytes()] for row in rows}
        for rows in (problem.train, problem.validation.queries)
    )
    assert not train & validation
    assert len(train | validation) == 50
    assert len(validation) == len(problem.validation.queries) == 17


def test_a_kind_of_query_that_is_most_of_the_log() -> None:
    """If most queries are near-duplicates of each other, some validate, and others are learned."""
    index = small_index()
    log = np.concatenate([np.float32(1e-4) * draw(900, 1), draw(100, 2)])
    problem = posed(index, log, near_duplicate=0.1)
    assert len(problem.validation.queries) >= 50
    assert len(problem.train) >= 600


@pytest.mark.parametrize("far", [30, 1000])
def test_a_log_that_is_far_from_all_vectors(far: float) -> None:
    """Queries that are nearer to each other than to any vector are no near-duplicates."""
    base, log = (np.random.default_rng(n).normal(size=(800, 16)) for n in (0, 1))
    index = RoutingIndex.build((base + far).astype(np.float32), degree=16, ef_construction=40)
    report = index.learn(log.astype(np.float32), k=5, recall=0.9, steps=5)
    assert min(report.n_choosing, report.n_confirming) >= 5


def _seen(queries: NDArray[np.float32], metric: Metric) -> NDArray[np.float32]:
    return normalize(queries) if metric == "cosine" else queries


def test_the_radius_of_answers() -> None:
    """It is the l2 distance to the second nearest vector; by inner product the query's length."""
    index, queries = small_index("cosine"), draw(5, 3)
    unit = _seen(queries, "cosine")
    vectors = index.base.vectors().astype(np.float64)
    apart = np.sort(np.linalg.norm(vectors[None] - unit[:, None], axis=2), axis=1)
    truth = exact_neighbors(vectors, unit, 3, "cosine")
    np.testing.assert_allclose(
        answer_radius(unit, truth.distances, "cosine"), apart[:, 1], rtol=1e-3
    )
    lengths = np.linalg.norm(queries, axis=1)
    np.testing.assert_allclose(answer_radius(queries, truth.distances, "ip"), lengths, rtol=1e-6)


def test_a_log_of_one_query_is_refused() -> None:
    """A log of one repeated query is refused; the error has the number of distinct queries."""
    log = np.tile(draw(1, 0), (5000, 1))
    with pytest.raises(ValueError, match=r"expected at least 20 distinct .*, got 1 among 5000"):
        small_index().learn(log)


def test_repeats_do_not_inflate_the_gain() -> None:
    """A log of fifty queries, a hundred times each, validates on distinct ones; nothing is kept."""
    index, distinct = small_index(), draw(50, 1)
    with pytest.warns(CalibrationWarning, match="measured on 16 validation queries"):
        report = index.learn(np.tile(distinct, (100, 1)), budget=48, rerank=4, steps=300)
    assert not report.is_better
    assert (report.n_queries, report.n_distinct) == (5000, 50)
    assert (report.n_choosing, report.n_confirming) == (8, 8)
    assert "not kept" in str(report)


def test_noise_is_not_kept() -> None:
    """On random vectors, where nothing can be learned, no learned space is kept."""
    n_kept = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        base, log = (rng.normal(size=(n, 16)).astype(np.float32) for n in (800, 240))
        index = RoutingIndex.build(base, degree=16, ef_construction=40, entry=0, refine=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            n_kept += index.learn(log, budget=64, steps=60, seed=seed).is_better
    assert n_kept == 0


def test_few_validation_queries_or_base_vectors_cause_a_warning() -> None:
    """A warning states the uncertainty, or the number of base vectors among the queries."""
    index = small_index()
    with pytest.warns(CalibrationWarning, match=r"on 50 validation .* known to ±0\.060"):
        index.validate_with(draw(50, 1))
    with pytest.warns(CalibrationWarning, match="300 of 300 validation queries are vectors of"):
        index.validate_with(index.base.vectors()[:300])
    for metric in ("l2", "cosine"):
        rounded = small_index(metric)
        rounded.compress(None, vectors="float16")
        with pytest.warns(CalibrationWarning, match="300 of 300 validation queries are vectors"):
            rounded.validate_with(draw(1000, 0)[:300])
    crowded = RoutingIndex.build(draw(4000, 0)[:, :1], degree=8, ef_construction=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crowded.validate_with(draw(300, 1)[:, :1])
    for metric in ("l2", "cosine", "ip"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            small_index(metric).validate_with(draw(300, 1))
