"""Laws of learned stopping in an index: searches, saves, changes."""

from __future__ import annotations

import json
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.data.vectors import normalize
from l2route.files.meta import signed
from l2route.index import RoutingIndex, load

DIM, K = 16, 10
RNG = np.random.default_rng(5)
WIDTHS = RNG.uniform(0.3, 2.0, size=(3600, 1))
POINTS = (RNG.normal(size=(3600, DIM)) * WIDTHS).astype(np.float32)
BASE, LOG, VALIDATION = POINTS[:2000], POINTS[2000:3200], POINTS[3200:]


@cache
def _made() -> bytes:
    index = RoutingIndex.build(BASE, degree=8, ef_construction=40)
    index.compress("int8")
    index.validate_with(VALIDATION)
    index.learn_stopping(LOG, K)
    with_rule(index)
    return pickle.dumps(index)


@pytest.fixture(name="index")
def _index() -> RoutingIndex:
    """An index with a rule that its searches use; a copy for each test."""
    index: RoutingIndex = pickle.loads(_made())
    return index


def with_rule(index: RoutingIndex) -> RoutingIndex:
    """The index, whose settings surely have a threshold: searches follow that of p95."""
    setting = index.setting(0.8, K, guarantee="p95")
    if setting.threshold is None:
        changed = {"threshold": -6.0, "power": 2.0, "first_level": 1}
        index.keep(type(setting)(**{**without_cache(setting), **changed}))
    return index


def without_cache(setting: Any) -> dict[str, Any]:
    """Fields of a setting."""
    return {name: value for name, value in vars(setting).items() if name != "limits"}


@pytest.mark.parametrize("guarantee", [None, "mean", "p95"])
def test_searches_plans_and_single_queries_agree(index: RoutingIndex, guarantee: Any) -> None:
    """A search, a plan, and single queries of either have the same answers and counts."""
    asked: dict[str, Any] = {"recall": 0.8, "guarantee": guarantee}
    batch = index.search(VALIDATION, K, **asked)
    plan = index.plan(K, **asked)
    np.testing.assert_array_equal(plan(VALIDATION).counts, batch.counts)
    for row in range(5):
        for one in (plan(VALIDATION[row]), index.search(VALIDATION[row], K, **asked)):
            np.testing.assert_array_equal(one.ids[0], batch.ids[row])
            np.testing.assert_array_equal(one.counts[:, 0], batch.counts[:, row])


def test_p95_keeps_most_queries_above_the_recall(index: RoutingIndex) -> None:
    """Under p95 at most 5% of the validation queries are below the recall; under mean more are."""
    assert index.validation is not None
    judge = index.validation.judge_each(index.base, K)
    found = index.search(VALIDATION, K, recall=0.9, guarantee="p95")
    recalls = judge(index.rows_of(found.ids))
    assert (recalls < 0.9 - 1e-9).mean() <= 0.05
    usual = index.search(VALIDATION, K, recall=0.9)
    assert usual.n_routing.mean() < found.n_routing.mean()


def test_saves_keep_rules(index: RoutingIndex, tmp_path: Path) -> None:
    """A saved, loaded, mapped or pickled index answers as it did, and measures nothing again."""
    with_rule(index).save(tmp_path / "index")
    before = index.search(VALIDATION, K, recall=0.8, guarantee="p95")
    copies = [load(tmp_path / "index"), load(tmp_path / "index", mmap=True)]
    copies.append(pickle.loads(pickle.dumps(index)))
    for copy in copies:
        assert copy.info()["rules"] == [{"space": "original-int8", "k": K}]
        assert [each.key for each in copy.settings] == [each.key for each in index.settings]
        after = copy.search(VALIDATION, K, recall=0.8, guarantee="p95")
        np.testing.assert_array_equal(after.counts, before.counts)
        np.testing.assert_array_equal(after.ids, before.ids)


def test_a_rule_changes_walks(index: RoutingIndex) -> None:
    """Walks of a setting with a threshold are not those of its slack."""
    setting = with_rule(index).setting(0.8, K, guarantee="p95")
    assert setting.threshold is not None
    ruled = index.search(VALIDATION, K, recall=0.8, guarantee="p95")
    plain = index.search(VALIDATION, K, **setting.limits._asdict())
    assert (ruled.n_routing != plain.n_routing).any()


def test_filters_have_plain_limits(index: RoutingIndex) -> None:
    """Under a filter the limits without the rule are used, and only what passes is found."""
    passing = np.arange(0, 2000, 2)
    for share in (2, 40):
        found = with_rule(index).search(
            VALIDATION[:50], K, recall=0.8, guarantee="p95", where=passing[:: share // 2]
        )
        assert np.isin(found.ids, passing).all()


def test_an_index_that_changes_keeps_its_rule(index: RoutingIndex) -> None:
    """Additions and deletions leave the rule, and searches by it find what is there."""
    with_rule(index)
    new = index.add(LOG[:20])
    index.delete(np.arange(10))
    found = index.search(LOG[:20], K, recall=0.8, guarantee="p95")
    assert np.isin(new, found.ids[:, 0]).mean() > 0.9
    assert not np.isin(found.ids, np.arange(10)).any()
    index.compact()
    assert index.info()["rules"] != []
    assert (index.search(LOG[:20], K, recall=0.8, guarantee="p95").ids >= 0).all()


def test_changes_of_graph_and_space_drop_rules(index: RoutingIndex) -> None:
    """Renumbering keeps a rule, validation queries too; refining and compressing again do not."""
    index.renumber()
    index.validate_with(VALIDATION[:300])
    assert index.info()["rules"] != []
    index.compress(None, vectors="float16")
    assert index.info()["rules"] == []
    index.learn_stopping(LOG, K)
    assert index.info()["rules"] != []
    index.refine()
    assert index.info()["rules"] == []


def test_what_was_learned_can_be_forgotten(index: RoutingIndex) -> None:
    """A rule is dropped with the settings of its space and k, and with no others."""
    index.setting(0.8, K, space="original")
    index.forget_stopping(K + 1)
    assert index.info()["rules"] != []
    index.forget_stopping(K)
    assert index.info()["rules"] == []
    assert [each["space"] for each in index.info()["settings"]] == ["original"]
    assert index.setting(0.8, K, guarantee="p95").threshold is None
    with pytest.raises(ValueError, match="expected a space of"):
        index.forget_stopping(K, space="none")


def test_validation_queries_are_not_learned_from() -> None:
    """Queries that validate are left out of what is learned from."""
    index = RoutingIndex.build(BASE, degree=8, ef_construction=40)
    index.validate_with(VALIDATION)
    with pytest.raises(ValueError, match="at least 500 queries to learn from, got 99"):
        index.learn_stopping(np.concatenate([VALIDATION, LOG[:99]]))


def test_by_cosine_validation_queries_of_any_length_are_not_learned_from() -> None:
    """An index keeps validation queries at length 1; those of a log are the same at any length."""
    index = RoutingIndex.build(BASE, "cosine", degree=8, ef_construction=40)
    index.validate_with(normalize(VALIDATION))
    with pytest.raises(ValueError, match="at least 500 queries to learn from, got 99"):
        index.learn_stopping(np.concatenate([VALIDATION, LOG[:99], 3 * VALIDATION]))


def test_bad_guarantees_are_refused(index: RoutingIndex) -> None:
    """A guarantee needs a recall, and has to be known."""
    for call in (lambda **asked: index.search(VALIDATION, K, **asked), index.plan):
        with pytest.raises(ValueError, match="with a recall, got 'p95' without"):
            call(guarantee="p95")
        with pytest.raises(ValueError, match="mean, p95, got 'p99'"):
            call(recall=0.9, guarantee="p99")


FORGED: dict[str, Any] = {
    "another space": lambda meta: meta["rules"][0].update(space="none"),
    "no k": lambda meta: meta["rules"][0].pop("k"),
    "text": lambda meta: meta.update(rules="all"),
    "few weights": lambda meta: meta["rules"][0].update(cost=[1.0]),
    "infinite weights": lambda meta: meta["rules"][0].update(cost=[1e300] * 55),
    "unknown guarantee": lambda meta: meta["settings"][0].update(guarantee="p50"),
    "threshold without end": lambda meta: meta["settings"][0].update(threshold=float("inf")),
    "level below 0": lambda meta: meta["settings"][0].update(first_level=-1),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_rules_are_refused(index: RoutingIndex, tmp_path: Path, name: str) -> None:
    """An index whose rule or setting was forged is not opened."""
    with_rule(index).save(tmp_path / "index")
    path = tmp_path / "index" / "meta.json"
    meta = json.loads(path.read_text())
    FORGED[name](meta)
    path.write_bytes(signed(meta))
    with pytest.raises(ValueError, match="expected"):
        load(tmp_path / "index")


def test_a_first_level_beyond_the_rule_is_its_last(index: RoutingIndex) -> None:
    """A setting kept from elsewhere cannot send walks beyond a rule's levels."""
    setting = with_rule(index).setting(0.8, K, guarantee="p95")
    index.keep(type(setting)(**{**without_cache(setting), "first_level": 999}))
    assert (index.search(VALIDATION, K, recall=0.8, guarantee="p95").ids >= 0).all()
