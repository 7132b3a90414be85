"""Laws of the step of `l2route.build` that learns when walks end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import l2route
from l2route.data.vectors import Metric, normalize
from l2route.recipe.outcome import Step
from l2route.recipe.report import BuildReport
from l2route.recipe.timing import Timed
from l2route.search.stopping import learn_rule
from l2route.state.log_refining import LogStep

Vectors = NDArray[np.float32]


def draw(n: int, dim: int = 16, seed: int = 0) -> Vectors:
    """Normal vectors [n, dim]."""
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)


def stop_of(report: BuildReport) -> Step:
    """The last step of a build."""
    assert report.steps[-1].name == "stop"
    return report.steps[-1]


@pytest.fixture(autouse=True)
def _few_validate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave queries of a short log to learn from."""
    monkeypatch.setattr("l2route.recipe.builder.N_KEPT", 300)


@pytest.fixture(name="learned_from")
def _learned_from(monkeypatch: pytest.MonkeyPatch) -> list[Vectors]:
    """The queries of every rule that is learned, in builds without a learned space."""
    seen: list[Vectors] = []

    def spied(searcher: Any, queries: Vectors, k: int, **options: Any) -> Any:
        seen.append(queries)
        return learn_rule(searcher, queries, k, **options)

    monkeypatch.setattr("l2route.state.changes.learn_rule", spied)
    monkeypatch.setattr("l2route.recipe.builder.Builder._learn", lambda _, index: index)
    return seen


def test_a_log_of_large_vectors(learned_from: list[Vectors]) -> None:
    """A rule is learned where queries are vectors of the index, whose numbers are large."""
    base, log = 1e5 * draw(2000), 1e5 * draw(1500, seed=1)
    log[::2] = base[:750]
    _, report = l2route.build(base, log, minutes=0.01)
    assert stop_of(report).decision != "skipped"
    assert len(learned_from) == 1


@pytest.mark.parametrize("seed", [2, 3])
def test_few_vectors(
    learned_from: list[Vectors], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule is learned where walks score all vectors of an index before the last level."""
    monkeypatch.setattr(LogStep, "is_kept", False)
    both = draw(1800, 17, seed)
    _, report = l2route.build(both[:600], both[600:], k=1, minutes=0.01, routing="float32")
    assert stop_of(report).decision != "skipped"
    assert len(learned_from) == 1


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_validation_queries_are_not_learned_from(
    metric: Metric, learned_from: list[Vectors]
) -> None:
    """A rule is learned from queries that do not validate, whatever their lengths."""
    base, log = draw(1000), 3 * draw(1500, seed=1)
    index, _ = l2route.build(base, log, metric=metric, minutes=0.01)
    (queries,), validation = learned_from, index.validation
    assert validation is not None
    assert len(queries) == 1500 - len(validation.queries)
    known = {row.tobytes() for row in np.round(normalize(validation.queries), 3)}
    assert not any(row.tobytes() in known for row in np.round(normalize(queries), 3))


def test_queries_are_counted_beside_those_that_validate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Queries that the graph was not refined for may validate after learning: all others count."""
    pytest.importorskip("torch")
    for module in ("training.log_split", "training.problem", "recipe.builder"):
        monkeypatch.setattr(f"l2route.{module}.N_KEPT", 200)
    for module in ("search.stopping", "recipe.builder"):
        monkeypatch.setattr(f"l2route.{module}.FEW_WALKS", 150)
    monkeypatch.setattr(LogStep, "is_kept", True)
    monkeypatch.setattr("l2route.training.report.Report.is_better", True)
    monkeypatch.setattr(Timed, "is_kept", True)
    index, report = l2route.build(draw(600), draw(3000, seed=1), minutes=0.02)
    assert [step.decision for step in report.steps[1:4]] == ["kept"] * 3
    assert index.validation is not None
    assert len(index.validation.queries) == 200
    assert stop_of(report).decision != "skipped"


def test_too_few_queries_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where walks are too few to learn from, the step is skipped and its note says why."""
    monkeypatch.setattr("l2route.search.stopping.FEW_WALKS", 10_000)
    index, report = l2route.build(draw(600), draw(1200, seed=1), minutes=0.01)
    assert stop_of(report).decision == "skipped"
    assert str(stop_of(report).note).startswith("skipped: expected at least 10000 queries")
    assert index.search(draw(3), 10, recall=0.95).ids.shape == (3, 10)


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that no log causes is a defect, and ends the build."""

    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError("expected finite numbers")

    monkeypatch.setattr("l2route.state.changes.learn_rule", fails)
    with pytest.raises(ValueError, match="expected finite numbers"):
        l2route.build(draw(600), draw(1200, seed=1), minutes=0.01)
