"""Laws of settings: the cheapest limits that reach a recall on the validation queries."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.data.truth import exact_neighbors
from l2route.data.vectors import METRICS
from l2route.evaluation.measure import measure
from l2route.graph.build import GraphOptions, build_graph
from l2route.index import RoutingIndex, load
from l2route.search.base import BaseVectors
from l2route.search.calibrate import RERANKS, cheapest_beam, cheapest_slack
from l2route.search.limits import Limits
from l2route.search.machine import TYPICAL
from l2route.search.setting import Setting
from l2route.search.validation import DEPTH, N_KEPT, Validation

N, DIM = 1500, 24
VECTORS = np.random.default_rng(0).normal(size=(N, DIM)).astype(np.float32)
VALIDATION = np.random.default_rng(1).normal(size=(150, DIM)).astype(np.float32)


def built(**options: Any) -> RoutingIndex:
    """An index with validation queries."""
    index = RoutingIndex.build(VECTORS, **{"ef_construction": 40, "degree": 8} | options)
    index.validate_with(VALIDATION)
    return index


def recall_of(index: RoutingIndex, k: int, **limits: Any) -> float:
    """Recall@k of the validation queries, computed with sets."""
    truth = exact_neighbors(index.base.vectors(), VALIDATION, k, index.base.metric).ids
    found = index.search(VALIDATION, k, **limits).ids
    return float(np.mean([len(set(a) & set(b)) / k for a, b in zip(found, truth, strict=True)]))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 10])
def test_a_setting_reaches_its_recall_and_no_narrower_beam_does(metric: str, k: int) -> None:
    """A setting has the recall measured, and no narrower one with its rerank reaches the target.

    Inner products are not distances, so their settings have a beam width.
    """
    index = built(metric=metric)
    index.compress("int8")
    setting = index.setting(0.8, k)
    assert setting.recall == pytest.approx(recall_of(index, k, **setting.limits._asdict()))
    assert setting.recall >= 0.8
    narrower = (
        replace(setting, slack=setting.slack - 0.001)
        if setting.slack
        else replace(setting, ef=(setting.ef or 0) - 1)
        if setting.ef and setting.ef > max(k, setting.rerank)
        else None
    )
    if narrower is not None:
        assert recall_of(index, k, **narrower.limits._asdict()) < 0.8
    if metric == "ip":
        assert setting.ef is not None


@pytest.mark.parametrize(
    ("metric", "routing"), [("l2", "int8"), ("l2", "int2"), ("ip", "int8"), ("ip", "int4")]
)
def test_no_other_rerank_is_cheaper(metric: Any, routing: Any) -> None:
    """A setting costs what the best of all reranks costs, each with its narrowest walk.

    With two bits many have to be reranked, with eight few: it is not the first that is tried.
    """
    index = built(metric=metric)
    index.compress(routing)
    searcher, validation = index.searcher(), index.validation
    assert validation is not None
    judge = validation.judge(searcher.base, 10)
    found = {}
    for rerank in sorted({round(10 * share) for share in RERANKS}):
        slacks = (Limits(slack=width / 1000, rerank=rerank) for width in range(250))
        beams = (Limits(ef=width, rerank=rerank) for width in range(rerank, 400))
        for limits in slacks if metric == "l2" else beams:
            result = searcher.search(VALIDATION, 10, limits=limits)
            if judge(result.ids) >= 0.9:
                found[TYPICAL.search_ns(searcher, result)] = limits
                break
    cheapest = cheapest_slack if metric == "l2" else cheapest_beam
    setting = cheapest(searcher, validation, 10, 0.9)
    assert setting is not None
    assert setting.limits == found[min(found)]


def test_a_setting_gives_limits() -> None:
    """The limits of a setting are its beam width or slack, and its rerank."""
    beam = Setting("original", 10, 0.9, 0, 0.91, ef=20)
    assert beam.limits == Limits(ef=20, rerank=0)
    slack = Setting("learned", 10, 0.9, 15, 0.91, slack=0.1)
    assert slack.limits == Limits(slack=0.1, rerank=15)


def test_one_of_two_equal_vectors_is_as_good_as_the_other() -> None:
    """Recall is judged by distance: of two equal vectors either counts."""
    index = RoutingIndex.build(np.concatenate([VECTORS, VECTORS]), degree=8, ef_construction=40)
    index.validate_with(VALIDATION)
    assert index.validation is not None
    recall = index.validation.judge(index.base, 10)
    true = index.validation.neighbors[:, :10].astype(np.int64)
    copies = (true + N) % (2 * N)
    assert recall(true) == recall(copies) == 1.0
    assert recall(np.where(np.arange(10) < 5, copies, -1)) == 0.5
    farther = index.validation.neighbors[:, 80:90].astype(np.int64)
    assert recall(farther) == 0.0


@pytest.mark.parametrize("metric", METRICS)
def test_rounded_vectors_are_found(metric: str) -> None:
    """Rounding to float16 changes the measured recall little, in every metric."""
    index = built(metric=metric, degree=32)
    assert index.validation is not None
    rows, recalls = [], []
    for vectors in (None, "float16"):
        index.compress(None, vectors=vectors)
        truth = exact_neighbors(index.base.vectors(), VALIDATION, 10, metric)
        rows.append(measure(index, VALIDATION, truth, ef=100))
        found = index.searcher().search(VALIDATION, 10, limits=Limits(ef=100)).ids
        recalls.append(index.validation.judge(index.base, 10)(found))
    assert rows[0].recall_at_10 == recalls[0] > 0.9
    assert recalls[1] == pytest.approx(recalls[0], abs=0.002)
    for name in ("recall_at_1", "recall_at_10"):
        assert getattr(rows[1], name) == pytest.approx(getattr(rows[0], name), abs=0.002)


@pytest.mark.parametrize("number", [np.float32(0.7), np.float64(0.7)])
def test_numbers_of_numpy_are_numbers(number: Any, tmp_path: Path) -> None:
    """Numbers of numpy make settings that can be saved and loaded."""
    index = built()
    setting = index.setting(number, np.int64(5))  # type: ignore[arg-type] # on purpose
    index.save(tmp_path / "index")
    assert load(tmp_path / "index").info()["settings"] == [asdict(setting)]


def test_searching_for_a_recall_uses_the_setting() -> None:
    """A search for a recall has the answers of the setting's limits, in any space."""
    index = built(pca_dim=12)
    for space in (None, "original"):
        setting = index.setting(0.7, 10, space=space)
        found = index.search(VALIDATION, 10, recall=0.7, space=space)
        expected = index.search(VALIDATION, 10, space=space, **setting.limits._asdict())
        np.testing.assert_array_equal(found.ids, expected.ids)
    assert index.setting(0.7, 10, space="original").rerank == 0  # an exact space


def test_a_setting_is_measured_once_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loaded index does not measure again a setting that was saved."""
    index = built()
    setting = index.setting(0.9)
    index.save(tmp_path / "index")
    monkeypatch.setattr("l2route.state.current.calibrate", lambda *_: pytest.fail("measured again"))
    again = load(tmp_path / "index")
    assert again.setting(0.9) == index.setting(0.9) == setting
    assert again.info() == index.info()


def test_more_recall_takes_a_wider_beam() -> None:
    """A higher recall costs more, and a recall of 1 is reachable."""
    index = built(graph="nsg", degree=32)
    settings = [index.setting(recall) for recall in (0.5, 0.8, 0.95, 1.0)]
    costs = [index.search(VALIDATION, **one.limits._asdict()).n_routing.mean() for one in settings]
    assert costs == sorted(costs)
    assert recall_of(index, 10, recall=1.0) == 1.0


def test_a_recall_out_of_reach_is_refused() -> None:
    """The error for an unreachable recall names the highest recall measured."""
    vectors = np.concatenate([VECTORS, VECTORS + 100])  # two clusters; the entry is in one
    graph = build_graph(vectors, options=GraphOptions("knn", 4, entry=0))
    index = RoutingIndex(BaseVectors.of(vectors, "l2"), graph)
    index.validate_with(np.concatenate([VALIDATION, VALIDATION + 100]))
    with pytest.raises(ValueError, match=r"expected a recall@10 of at most 0\.[0-5]"):
        index.setting(0.9)


def test_changes_of_the_index_drop_settings() -> None:
    """New validation queries or vectors drop all settings; a replaced space drops its own."""
    index = built(pca_dim=12)
    index.setting(0.7)
    index.setting(0.7, space="original")
    index.compress("int8")
    assert [setting["space"] for setting in index.info()["settings"]] == ["original"]
    index.compress(None, vectors="float16")
    assert index.info()["settings"] == []
    index.setting(0.6)
    index.validate_with(VALIDATION[:20])
    assert index.info()["settings"] == []
    assert index.info()["n_validation"] == 20


def test_at_most_so_many_queries_are_kept() -> None:
    """At most N_KEPT queries are kept, with 100 true neighbours, or as many as vectors."""
    index = RoutingIndex.build(VECTORS[:50], ef_construction=40)
    index.validate_with(np.zeros((N_KEPT + 5, DIM)))
    assert index.validation is not None
    assert index.validation.queries.shape == (N_KEPT, DIM)
    assert index.validation.neighbors.shape == (N_KEPT, 50)
    kept = Validation.of(built().base, VALIDATION)
    assert kept.neighbors.shape == (len(VALIDATION), DEPTH)
    truth = exact_neighbors(VECTORS, VALIDATION, DEPTH).ids
    np.testing.assert_array_equal(kept.neighbors, truth)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recall": 0}, r"expected a recall in \(0, 1\], got 0"),
        ({"recall": 1.01}, r"expected a recall in \(0, 1\], got 1.01"),
        ({"recall": float("nan")}, r"expected a recall in \(0, 1\], got nan"),
        ({"recall": 0.9, "k": 0}, r"expected k in \[1, 100\], the true neighbours .* got 0"),
        ({"recall": 0.9, "k": 101}, r"expected k in \[1, 100\], the true neighbours .* got 101"),
        ({"recall": 0.9, "ef": 10}, "expected a recall, or else .*, got recall=0.9 with ef=10$"),
        ({"recall": 0.9, "budget": 100, "slack": 0.1}, "with budget=100, slack=0.1$"),
        ({"recall": 0.9, "rerank": 100}, "got recall=0.9 with rerank=100$"),
        ({"recall": 0.9, "space": "none"}, "expected a space of original, got 'none'"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    """Wrong arguments of a search for a recall are refused with what was expected and given."""
    with pytest.raises(ValueError, match=message):
        built().search(VALIDATION, **options)


def test_without_queries_no_recall_can_be_asked_for() -> None:
    """Without validation queries, the error names the methods that keep some."""
    with pytest.raises(ValueError, match="call learn or validate_with first"):
        RoutingIndex.build(VECTORS[:50]).search(VALIDATION, recall=0.9)
    with pytest.raises(ValueError, match="expected queries"):
        built().validate_with(np.zeros((0, DIM)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 0}, "k of at least 1, got 0"),
        ({"rerank": -1}, "rerank of at least 0, got -1"),
        ({"ef": None}, "either ef or slack, got ef None and slack None"),
        ({"slack": 0.5}, "either ef or slack, got ef 20 and slack 0.5"),
        ({"ef": -1}, "a finite ef or slack of at least 0, got -1"),
        ({"ef": None, "slack": float("nan")}, "a finite ef or slack of at least 0, got nan"),
    ],
)
def test_a_setting_that_cannot_be_searched_with_is_refused(
    wrong: dict[str, Any], message: str
) -> None:
    """Each wrong value of a setting has its own error message."""
    setting = Setting("original", 10, 0.9, 0, 0.91, ef=20)
    with pytest.raises(ValueError, match=f"expected a setting with {message}"):
        replace(setting, **wrong)


@pytest.mark.parametrize(
    ("queries", "neighbors", "message"),
    [
        ((5,), (5, 3), r"queries with two axes, got shape \[5\]"),
        ((5, DIM), (5,), r"neighbours with two axes, got shape \[5\]"),
        ((0, DIM), (0, 3), "at least 1 validation query, got 0"),
        ((5, DIM), (4, 3), "neighbours of 5 validation queries, got 4"),
        ((5, DIM), (5, 0), "at least 1 neighbour of each validation query, got 0"),
    ],
)
def test_validation_arrays_that_do_not_fit_are_refused(
    queries: tuple[int, ...], neighbors: tuple[int, ...], message: str
) -> None:
    """Each fault of validation arrays has its own error message."""
    with pytest.raises(ValueError, match=f"expected .*{message}"):
        Validation(np.zeros(queries, np.float32), np.zeros(neighbors, np.int32))
