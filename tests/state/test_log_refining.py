"""Laws of refining a graph for the queries of a log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from entry_tables import with_table
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import METRICS, Metric
from l2route.index import RoutingIndex, load
from l2route.rewiring.log_edges import join_neighbors
from l2route.search.base import BaseVectors
from l2route.search.validation import CalibrationWarning
from l2route.state import log_refining
from l2route.state.log_refining import LEAST_GAIN, LogRefiner, LogStep
from l2route.training.log_split import split_log
from l2route.training.options import LearnOptions

Vectors = NDArray[np.float32]
DIM = 24


def of_another_kind(n: int, n_queries: int, seed: int = 0) -> tuple[Vectors, Vectors]:
    """Vectors in one half-space and queries in the other: neighbours are far from each other."""
    rng = np.random.default_rng(seed)
    base, queries = (rng.normal(size=(m, DIM)) for m in (n, n_queries))
    base[:, 0], queries[:, 0] = 4.0, -4.0
    return base.astype(np.float32), queries.astype(np.float32)


BASE, LOG = of_another_kind(3000, 2500)


@pytest.fixture(scope="module")
def refined() -> RoutingIndex:
    """An index refined for a log."""
    index = RoutingIndex.build(BASE, degree=8, ef_construction=40)
    report = index.refine(queries=LOG)
    assert report is not None
    assert [step.name for step in report.steps] == ["edges", "entries"]
    assert report.steps[0].is_kept
    assert "kept" in str(report)
    return index


def test_held_out_queries_need_fewer_scores(refined: RoutingIndex) -> None:
    """Queries that are not in the log score a tenth fewer vertices at equal recall, or better."""
    plain = RoutingIndex.build(BASE, degree=8, ef_construction=40)
    _, fresh = of_another_kind(1, 800, seed=5)
    works = []
    for index in (plain, refined):
        index.validate_with(fresh)
        works.append(index.setting(0.95, 10).n_work)
    assert works[1] < 0.9 * works[0]


def test_queries_between_those_of_the_log_add_edges(refined: RoutingIndex) -> None:
    """There are more edges than the queries of the log lack, because more queries come."""
    plain = RoutingIndex.build(BASE, degree=8, ef_construction=40)
    split = split_log(LOG, plain.base, 10)
    by_log = join_neighbors(plain.graph, plain.base, split.nearest).graph.neighbors
    counts = [(each >= 0).sum(axis=1) for each in (by_log, refined.graph.neighbors)]
    assert (counts[1] >= counts[0]).all()
    assert counts[1].sum() > 1.05 * counts[0].sum()


def test_where_codes_cannot_be_made_vectors_are_searched_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neighbours of queries between those of the log do not depend on codes."""
    base, log = of_another_kind(120, 200, seed=7)
    index = RoutingIndex.build(base)  # all of it is within the beam
    refiner, space = LogRefiner(index.base, log), index.spaces[0]
    by_codes = refiner.mixed_neighbors(index.graph, space)

    def refuse(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(log_refining, "compress_space", refuse)
    by_floats = refiner.mixed_neighbors(index.graph, space)
    assert (by_codes == by_floats).mean() > 0.99


def test_lists_begin_as_before_and_grow_within_bounds(refined: RoutingIndex) -> None:
    """Edges are added at the end of lists, at most 32 of them."""
    plain = RoutingIndex.build(BASE, degree=8, ef_construction=40)
    before, after = plain.graph.neighbors, refined.graph.neighbors
    assert after.shape[1] <= before.shape[1] + 32
    is_edge = before >= 0
    assert (after[:, : before.shape[1]][is_edge] == before[is_edge]).all()


@pytest.mark.parametrize("metric", METRICS)
def test_the_same_for_any_threads_and_neighbors_given(metric: Metric) -> None:
    """Threads do not matter, nor who found the true neighbours; all metrics are refined."""
    base, log = of_another_kind(600, 300, seed=1)
    ids = np.arange(600) * 3 + 5
    truth = ids[exact_neighbors(base, log, 12, metric).ids]
    graphs = []
    for more in ({"n_threads": 1}, {"n_threads": 2}, {"neighbors": truth}):
        index = RoutingIndex.build(base, metric, degree=6, ef_construction=30, ids=ids)
        index.refine(queries=log, recall=0.9, **more)
        graphs.append(index.graph)
    for other in graphs[1:]:
        assert np.array_equal(graphs[0].neighbors, other.neighbors)
        assert (graphs[0].table is None) == (other.table is None)
        if graphs[0].table is not None and other.table is not None:
            assert np.array_equal(graphs[0].table.vertices, other.table.vertices)


def test_what_is_held_out_is_not_learned_from() -> None:
    """Validation queries are of the log, and neither they nor repeats of them are trained on."""
    base, log = of_another_kind(600, 300, seed=2)
    repeated = np.concatenate([log, log[:100], log[:50]])
    split = split_log(repeated, BaseVectors.of(base, "l2"), 10)
    parts = (split.validation.queries, split.train)
    held, train = ({row.tobytes() for row in part} for part in parts)
    assert held
    assert not held & train
    assert held | train == {row.tobytes() for row in log}
    assert len(split.train) == len(split.nearest) == len(train)
    truth = exact_neighbors(base, split.train, 10, "l2").ids
    assert np.array_equal(split.nearest, truth)


def test_learning_holds_out_the_same_queries() -> None:
    """`learn` on the same log with the same seed validates on queries that edges did not see."""
    problem = pytest.importorskip("l2route.training.problem")
    base, log = of_another_kind(600, 300, seed=3)
    vectors = BaseVectors.of(base, "l2")
    index = RoutingIndex(vectors, RoutingIndex.build(base, degree=6, ef_construction=30).graph)
    posed = problem.pose(index.graph, vectors, log, LearnOptions(steps=1))
    split = split_log(log, vectors, 10)
    assert np.array_equal(posed.validation.queries, split.validation.queries)


def test_what_does_not_pay_is_not_kept() -> None:
    """Where all neighbours reach each other and every vertex is near, the graph stays as it is."""
    rng = np.random.default_rng(0)
    base, log = (rng.normal(size=(n, 3)).astype(np.float32) for n in (60, 300))
    index = RoutingIndex.build(base, degree=32)
    before = index.graph.neighbors.copy()
    report = index.refine(queries=log)
    assert report is not None
    for step in report.steps:
        assert step.is_kept == (step.saved >= LEAST_GAIN)
    if not any(step.is_kept for step in report.steps):
        assert np.array_equal(index.graph.neighbors, before)
        assert index.graph.table is None
    assert index.validation is not None


def test_a_slower_search_is_not_kept() -> None:
    """Time decides: as it was measured, or else as it is expected."""
    scored = (200.0, 300.0)
    assert LogStep("edges", 100, 90, scored, "").is_kept
    assert not LogStep("edges", 100, 98, scored, "").is_kept  # too little to pay for bytes
    assert LogStep("edges", 100, 98, scored, "", speedup=1.1).is_kept
    assert not LogStep("edges", 100, 90, scored, "", speedup=1.01).is_kept
    assert LogStep("edges", np.inf, 90, scored, "").is_kept
    assert not LogStep("edges", np.inf, np.inf, scored, "").is_kept
    assert "200 → 300 vertices scored, 100.0 → 90.0 µs" in str(LogStep("", 100, 90, scored, ""))


def test_lists_grow_as_far_as_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a degree, lists grow by 32 neighbours only where that saves more than by 8."""
    index = RoutingIndex.build(BASE[:600], degree=4, ef_construction=30)
    space, widths = index.spaces[0], []
    for gain in (0.95, -9.0):  # none is so much faster, none is so much slower
        monkeypatch.setattr(log_refining, "LEAST_GAIN", gain)
        refiner = LogRefiner(index.base, LOG[:900], recall=0.9)
        monkeypatch.setattr(LogStep, "is_kept", True)
        widths.append(refiner.with_edges(index.graph, space).neighbors.shape[1])
    width = index.graph.neighbors.shape[1]
    assert widths[0] == width + 8
    assert width + 8 < widths[1] <= width + 32
    refiner = LogRefiner(index.base, LOG[:900], recall=0.9)
    assert refiner.with_edges(index.graph, space, width + 3).neighbors.shape[1] == width + 3


def test_time_is_measured_where_asked_for() -> None:
    """With `is_timed` steps have a speed beside that before."""
    base, log = of_another_kind(400, 300, seed=4)
    index = RoutingIndex.build(base, degree=6, ef_construction=30)
    refiner = LogRefiner(index.base, log, recall=0.9, is_timed=True)
    refiner.with_edges(index.graph, index.spaces[0])
    (step,) = refiner.steps
    assert step.speedup is not None
    assert step.speedup > 0
    assert "times as fast" in str(step)


def test_it_is_saved_searched_and_changed(refined: RoutingIndex, tmp_path: Path) -> None:
    """Saves keep edges and entry points, and deletions drop entry points."""
    refined = with_table(refined)
    refined.save(tmp_path / "index")
    loaded = load(tmp_path / "index", mmap=True)
    _, fresh = of_another_kind(1, 50, seed=6)
    found = [each.search(fresh, 10, ef=30).ids for each in (refined, loaded)]
    assert np.array_equal(*found)
    table = loaded.graph.table
    assert table is not None
    gone = np.unique(table.vertices[table.vertices >= 0])[:20]
    loaded.delete(gone)
    assert not np.isin(loaded.search(fresh, 10, ef=30).ids, gone).any()
    loaded.add(fresh, np.arange(len(fresh)) + 10_000)
    assert (loaded.search(fresh, 1, ef=60).ids[:, 0] >= 10_000).mean() > 0.9
    loaded.save()
    again = load(tmp_path / "index")
    assert np.array_equal(again.search(fresh, 5, ef=40).ids, loaded.search(fresh, 5, ef=40).ids)
    again.compact()
    assert again.graph.table is not None


def test_bad_input_is_refused() -> None:
    """Short logs, other dimensions and neighbours that are not of the log are errors."""
    index = RoutingIndex.build(BASE[:200], degree=8)
    with pytest.raises(ValueError, match="at least 20 distinct queries, got 1 among 50"):
        index.refine(queries=np.repeat(LOG[:1], 50, axis=0))
    with pytest.raises(ValueError, match=r"expected queries \[\*, 24\]"):
        index.refine(queries=LOG[:, :5])
    for wrong in (np.zeros((20, 10), dtype=np.int64), np.zeros(300, dtype=np.int64)):
        with pytest.raises(ValueError, match=r"expected neighbors int \[300, at least 1\]"):
            index.refine(queries=LOG[:300], neighbors=wrong)
    beyond = np.full((300, 10), 2**32 + 5)  # vertex 5 in 32 bits
    with pytest.raises(ValueError, match=r"expected neighbors in \[0, 200\), got 4294967301"):
        LogRefiner(index.base, LOG[:300], neighbors=beyond)
    with pytest.raises(ValueError, match=r"expected queries of a length of at most .* in row 7"):
        index.refine(queries=np.where(np.arange(300)[:, None] == 7, 1e19, LOG[:300]))


def refined_for(log: Vectors, *, is_kept: bool, monkeypatch: pytest.MonkeyPatch) -> RoutingIndex:
    """An index with 900 validation queries, refined for a log that pays or does not."""
    index = RoutingIndex.build(BASE[:400], degree=8, ef_construction=40)
    index.validate_with(LOG[:900])
    monkeypatch.setattr(LogStep, "is_kept", is_kept)
    index.refine(queries=log)
    return index


def test_few_validation_queries_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where few queries are held out, or given, a warning says so, at the caller's line."""
    with pytest.warns(CalibrationWarning, match="on 8 validation queries is only") as caught:
        index = refined_for(LOG[1000:1024], is_kept=True, monkeypatch=monkeypatch)
    with pytest.warns(CalibrationWarning, match="on 9 validation queries is only") as more:
        index.validate_with(LOG[:9])
    assert {each.filename for each in [*caught, *more]} == {__file__}


def test_more_validation_queries_stay_where_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log that changes nothing replaces validation queries by more of them, not by fewer.

    Where it changes the graph, queries that it did not see take their place.
    """
    for is_kept, n_log, n_after in ((False, 24, 900), (True, 24, 8), (True, 600, 200)):
        log = LOG[1000 : 1000 + n_log]
        index = refined_for(log, is_kept=is_kept, monkeypatch=monkeypatch)
        assert index.validation is not None
        assert len(index.validation.queries) == n_after
    index = RoutingIndex.build(BASE[:400], degree=8, ef_construction=40)
    index.validate_with(LOG[:30])
    monkeypatch.setattr(LogStep, "is_kept", False)
    index.refine(queries=LOG[1000:1600])
    assert index.validation is not None
    assert len(index.validation.queries) == 200
