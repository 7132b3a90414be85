"""Laws of timing: two searches in turns, the fastest pass of each, and the decision by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import l2route
from l2route.recipe import timing
from l2route.recipe.outcome import Cost, Step
from l2route.recipe.report import BuildReport
from l2route.recipe.steps import Recipe
from l2route.recipe.timing import Chain, Timed, compare
from l2route.search.calibrate import OutOfReachError
from l2route.state.timing import speedup


class Machine:
    """A clock that advances only while something is searched."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, list[str]()

    def clock(self) -> float:
        """Seconds so far."""
        return self.now

    def search(self, name: str, seconds: list[float]) -> Any:
        """A search that takes the next of these times whenever it is called."""
        left: Iterator[float] = iter(seconds)

        def run() -> None:
            self.calls.append(name)
            self.now += next(left)

        return run


def test_the_fastest_passes_are_compared() -> None:
    """The ratio of the shortest times counts, whatever disturbed the other passes."""
    machine = Machine()
    before = machine.search("before", [9.0, 2.0, 30.0])
    after = machine.search("after", [50.0, 4.0, 1.0])
    assert speedup(before, after, n_passes=3, clock=machine.clock) == 2.0


def test_a_coarse_clock_does_no_harm() -> None:
    """If no time seems to pass, both are equally fast."""
    assert speedup(lambda: None, lambda: None, clock=lambda: 5.0) == 1.0


def test_searches_take_turns() -> None:
    """Each pass of one is followed by a pass of the other."""
    machine = Machine()
    searches = [machine.search(name, [1.0] * 4) for name in ("before", "after")]
    assert speedup(*searches, n_passes=4, clock=machine.clock) == 1.0
    assert machine.calls == ["before", "after"] * 4


@pytest.mark.parametrize(
    ("timed", "is_kept", "says"),
    [
        (Timed(1.25), True, "1.25 times as fast: kept"),
        (Timed(0.995), True, "0.99 times as fast: kept"),
        (Timed(0.93), False, "0.93 times as fast: not kept"),
        (Timed(None), True, "only with it the recall is reached: kept"),
        (Timed(None, is_reached=False), False, "only without it the recall is reached: not kept"),
    ],
)
def test_a_step_that_is_slower_is_not_kept(timed: Timed, is_kept: bool, says: str) -> None:
    """A step is kept if the recall is reached and no time is lost, but for the hundredth part."""
    assert timed.is_kept == is_kept
    assert timed.decision == ("kept" if is_kept else "not kept")
    assert str(timed) == says


def fake_index(machine: Machine, name: str, seconds: float, reaches: bool = True) -> Any:
    """What `compare` needs of an index, whose searches take this long."""

    def setting(*_: Any, **__: Any) -> None:
        if not reaches:
            raise OutOfReachError("too high")

    search = machine.search(name, [seconds] * 100)
    plan = SimpleNamespace(setting=setting, plan=lambda *_, **__: lambda queries: search())
    plan.validation = SimpleNamespace(queries=np.zeros((3, 2), dtype=np.float32))
    return cast(Any, plan)


def test_indexes_are_compared_at_the_recall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are searched with their setting; one that misses the recall is not timed."""
    machine = Machine()

    def timed(before: Any, after: Any) -> float:
        return speedup(before, after, clock=machine.clock)

    monkeypatch.setattr(timing, "speedup", timed)
    before, after = fake_index(machine, "before", 3.0), fake_index(machine, "after", 2.0)
    assert compare(before, after, Recipe()) == Timed(1.5)
    machine.calls.clear()
    missing = fake_index(machine, "missing", 1.0, reaches=False)
    assert compare(before, missing, Recipe()) == Timed(None, is_reached=False)
    assert compare(missing, after, Recipe()) == Timed(None)
    assert machine.calls == []


def costs_of(*microseconds: float) -> list[Cost]:
    """Costs that differ in time only."""
    return [Cost(0.95, 0.7, 0.1, 900.0, 9000.0, each) for each in microseconds]


def test_costs_of_steps_are_chained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time after a step is that before divided by what both say in turns, measured anew.

    What was not kept costs what there was before. Where the recall was missed, a chain begins.
    """
    ratios = iter([2.0, 0.5])
    monkeypatch.setattr(timing, "compare", lambda *_: Timed(next(ratios)))
    chain, index = Chain(Recipe()), cast(Any, object())
    first, second, third, fourth = costs_of(100.0, 77.0, 33.0, 10.0)
    kept, dropped = Step("a", 0, 0, None), Step("b", 0, 0, None, decision="not kept")
    assert chain.after(kept, index, first) == first
    assert chain.after(kept, index, second) == replace(second, microseconds=50.0)
    assert chain.after(dropped, index, third) == replace(second, microseconds=50.0)
    assert chain.after(kept, index, third) == replace(third, microseconds=100.0)
    assert chain.after(kept, index, third, 4.0) == replace(third, microseconds=25.0)  # known
    assert chain.after(kept, None, fourth) == fourth  # nothing to take turns with
    assert chain.after(kept, index, None) is None
    assert chain.after(kept, index, second) == second


def draw(n: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Normal vectors whose dimensions have different variances [n, 24]."""
    scale = np.linspace(1, 0.2, 24)
    return (np.random.default_rng(seed).normal(size=(n, 24)) * scale).astype(np.float32)


def decisions_of(report: BuildReport) -> dict[str, str]:
    """What became of each step."""
    return {step.name: step.decision for step in report.steps}


def cost_before(report: BuildReport, name: str) -> object:
    """The cost of the step before another one."""
    names = [step.name for step in report.steps]
    return report.steps[names.index(name) - 1].cost


@pytest.mark.parametrize("ratio", [0.9, 1.1])
def test_learned_stopping_is_kept_by_time(ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that saves bytes and no time is forgotten, and the setting before it comes back."""
    monkeypatch.setattr("l2route.recipe.builder.compare", lambda *_: Timed(ratio))
    monkeypatch.setattr("l2route.recipe.builder.N_KEPT", 200)
    monkeypatch.setattr("l2route.recipe.builder.Builder._learn", lambda _, index: index)
    monkeypatch.setattr("l2route.state.log_refining.speedup", lambda *_: 1.1)
    log = draw(1500, seed=1)
    index, report = l2route.build(draw(3000), log, minutes=0.01, routing="float32")
    step = report.steps[-1]
    assert report.setting is not None
    if ratio < 1:
        assert (step.decision, step.cost) == ("not kept", cost_before(report, "stop"))
        assert step.note == "walks end by a learned rule, 0.90 times as fast: not kept"
        assert index.info()["rules"] == []
        assert report.setting.threshold is None
    else:
        assert step.decision == "kept"
        assert report.shares[-1] == pytest.approx(1.1)
        assert index.info()["rules"] == [{"space": "original", "k": 10}]
        assert report.setting.threshold is not None
    (kept,) = index.info()["settings"]
    assert kept["threshold"] == report.setting.threshold


@pytest.mark.parametrize("ratio", [0.9, 1.1])
def test_a_learned_space_is_kept_by_time(ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A space that is better by bytes and slower by time is dropped, and the note says so."""
    from l2route.training.report import Report

    monkeypatch.setattr("l2route.recipe.builder.compare", lambda *_: Timed(ratio))
    monkeypatch.setattr(Report, "is_better", property(lambda _: True))
    index, report = l2route.build(draw(600), draw(300, seed=1), minutes=0.02, k=5)
    (step,) = (step for step in report.steps if step.name == "learn")
    is_learned = any("learned" in space.name for space in index.spaces)
    assert is_learned == (ratio > 1)
    assert decisions_of(report)["learn"] == ("kept" if ratio > 1 else "not kept")
    assert step.note is not None
    assert step.note.endswith(f"{ratio:.2f} times as fast: {step.decision}")
    if ratio < 1:
        assert step.cost == cost_before(report, "learn")
        assert index.search(draw(3, seed=2), 5, recall=0.95).ids.shape == (3, 5)


def test_skipped_steps_are_in_the_report() -> None:
    """Without a log, and with a time limit of 0, what would learn from it is skipped, and said."""
    for queries, says in ((None, "no queries"), (draw(300, seed=1), "0 minutes")):
        _, report = l2route.build(draw(400), queries, minutes=0)
        decisions = decisions_of(report)
        for name in ("edges", "entries", "learn", "stop"):
            assert decisions[name] == "skipped"
        assert "nothing was learned from a query log" in report.summary()
        assert says in str(report)
        speeds = {step.cost.speed for step in report.steps[:4] if step.cost is not None}
        assert len(speeds) == 1


def test_codes_that_are_not_asked_for_are_skipped() -> None:
    """With routing float32 compression is skipped; otherwise codes that are used are kept."""
    for routing, decision in (("float32", "skipped"), ("int8", "kept")):
        _, report = l2route.build(draw(400), routing=routing)  # type: ignore[arg-type]
        assert decisions_of(report)["compress"] == decision
