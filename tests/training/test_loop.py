"""Laws of training on a few thousand vectors: gains, reproducibility, time limits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route import RoutingIndex
from l2route.search.space import original_space
from l2route.training import run as running
from l2route.training.clock import Clock, timed
from l2route.training.log import Event
from l2route.training.loop import learn_space
from l2route.training.problem import CONFIRMING, Problem, pose
from l2route.training.rollout import Lesson, WalkOptions
from learning import ENOUGH, OPTIONS, losses, words


def test_learning_beats_the_plain_graph(problem: Problem) -> None:
    """On the confirming queries recall rises by more than 0.05, and the space is kept."""
    _, report = learn_space(problem, replace(OPTIONS, steps=ENOUGH))
    assert report.is_better
    assert report.learned > report.plain + 0.05
    assert str(report) == (
        f"recall@1 of {report.plain:.3f} without learning, {report.learned:.3f} with it, at 96 "
        "distance computations per query, on 500 validation queries: kept"
    )


def test_learning_on_hnsw_descends_through_its_layers() -> None:
    """Walks and validation start in the top layer as searches do, and recall rises."""
    index = RoutingIndex.build(words().base, graph="hnsw", degree=8, ef_construction=60)
    problem = pose(index.graph, index.base, words().learn, OPTIONS)
    _, report = learn_space(problem, replace(OPTIONS, steps=2 * ENOUGH))
    assert index.graph.upper
    flat = replace(problem, graph=index.graph.entered_at(index.graph.entries))
    descending, walking = (
        each.recalls(original_space(index.base), OPTIONS.goals[0], CONFIRMING).mean()
        for each in (problem, flat)
    )
    assert report.plain == descending != walking
    assert report.learned > report.plain + 0.01


@pytest.mark.parametrize(
    ("model", "hidden_dim"), [("filter", None), ("filter", 32), ("ffn", 32), ("gcn", 32)]
)
def test_threads_change_no_loss(problem: Problem, model: Any, hidden_dim: int | None) -> None:
    """The same seed gives the same losses on one thread and on two."""
    options = replace(OPTIONS, model=model, steps=6, hidden_dim=hidden_dim)
    one, two = (losses(problem, replace(options, n_threads=n)) for n in (1, 2))
    assert one == two


def test_another_seed_gives_other_losses(problem: Problem) -> None:
    """Runs with other seeds, also very large ones, have other losses."""
    options = replace(OPTIONS, steps=3)
    first = losses(problem, options)
    for seed in (1, 2**62):
        assert losses(problem, replace(options, seed=seed)) != first


def test_a_cache_changes_nothing_but_the_time(index: RoutingIndex, tmp_path: Path) -> None:
    """Neighbours and hops are written once, read the next time, and give the same losses."""
    flat, queries = index.graph, words().learn

    def run(cache: Path | None) -> list[Event]:
        problem = pose(flat, index.base, queries, OPTIONS, cache=cache)
        return losses(problem, replace(OPTIONS, steps=4), cache=cache)

    first, second = run(tmp_path), run(None)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert len(written) >= 2
    third = run(tmp_path)
    assert first == second == third
    assert written == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}


def test_tensorboard_shows_the_run(problem: Problem, tmp_path: Path) -> None:
    """If TensorBoard is installed, its events have the recalls of the log."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = losses(problem, replace(OPTIONS, steps=4), log=tmp_path / "log.jsonl")
    board = accumulator.EventAccumulator(str(tmp_path / "log.jsonl.tb"))
    board.Reload()
    shown = [(scalar.step, scalar.value) for scalar in board.Scalars("recall")]
    assert shown == [(event.step, pytest.approx(event.recall)) for event in events]


@pytest.mark.parametrize("objective", ["teacher", "topk"])
def test_other_objectives_run(problem: Problem, objective: Any) -> None:
    """Teacher forcing and the top-k term alone run to the end with finite losses."""
    events = losses(problem, replace(OPTIONS, objective=objective, steps=10))
    assert events[-1].step == 10
    assert all(np.isfinite(event.routing) and np.isfinite(event.topk) for event in events)


@pytest.mark.parametrize("more", [{}, {"k": 5, "recall": 0.8}, {"model": "ffn", "budget": 256}])
def test_minutes_are_kept(index: RoutingIndex, more: dict[str, Any]) -> None:
    """Set-up, steps, choosing and confirming end at the time limit, or soon after."""
    fresh = RoutingIndex(index.base, index.graph)
    report, seconds = timed(lambda: fresh.learn(words().learn, minutes=0.1, **more))
    assert report.n_steps > 0 or "recall" in more  # calibration may leave no time for steps
    assert report.seconds <= seconds
    assert seconds < 6 + 10


def test_a_step_that_would_exceed_the_time_limit_is_not_taken(
    index: RoutingIndex, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends before a step that is expected to end after the time limit."""
    clock = Clock(0.1)
    learn = running.Run._learn

    def slowly(run: running.Run) -> Lesson:
        clock.charge(2.5)  # as if it had taken longer
        return learn(run)

    monkeypatch.setattr(running, "timed", lambda work: (work(), 2.5))
    monkeypatch.setattr(running.Run, "_learn", slowly)
    _, report = learn_space(problem, replace(OPTIONS, steps=None, minutes=0.1), clock=clock)
    assert report.n_steps == 0  # two validations and two contests are reserved at 2.5 s each
    clock = Clock(1.0)
    _, report = learn_space(problem, replace(OPTIONS, steps=None, minutes=1.0), clock=clock)
    assert 5 < report.n_steps < 20


def test_epochs_limit_a_run(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ends after the given epochs, but not before MIN_STEPS, even if time is left."""
    monkeypatch.setattr(running, "MIN_STEPS", 10)
    batch_size = len(problem.train) // 10
    options = replace(OPTIONS, steps=None, minutes=60.0, epochs=3.0, batch_size=batch_size)
    _, report = learn_space(problem, options)
    assert report.n_steps == pytest.approx(30, abs=1)
    monkeypatch.setattr(running, "MIN_STEPS", 50)
    _, report = learn_space(problem, options)
    assert report.n_steps == 50


def test_divergence_is_survived(problem: Problem) -> None:
    """With a far too large learning rate, a run returns weights no worse than the initial ones."""
    _, report = learn_space(problem, replace(OPTIONS, learning_rate=10.0))
    start = losses(problem, replace(OPTIONS, steps=1, learning_rate=1e-9))[0].recall
    assert report.learned >= start - 0.01


def test_the_weight_of_the_topk_term() -> None:
    """The weight is proportional to the scores per walk and to D/d, for every objective."""
    options = replace(OPTIONS, topk_weight=0.5)
    assert WalkOptions.of(options, 100, 8, 50).topk_weight == 50
    assert WalkOptions.of(options, 200, 8, 50).topk_weight == 100
    assert WalkOptions.of(replace(options, dim=10), 200, 8, 50).topk_weight == 500
    only = WalkOptions.of(replace(options, objective="topk"), 100, 8, 50)
    assert (only.k, only.routing_weight, only.topk_weight) == (8, 0, 50)
