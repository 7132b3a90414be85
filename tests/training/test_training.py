"""Laws of learning, on a few thousand vectors."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from l2route import RoutingIndex, load
from l2route.data.public import demo_words
from l2route.data.truth import exact_neighbors
from l2route.graph.graph import UpperLayer
from l2route.models.protocol import GraphFilter, space_of
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import original_space
from l2route.training import problem as posing
from l2route.training import run as running
from l2route.training.checkpoint import read_sizes, write_checkpoint
from l2route.training.clock import Clock, timed
from l2route.training.log import Event
from l2route.training.loop import learn_space, make_model, plain_space
from l2route.training.options import LearnOptions
from l2route.training.problem import CONFIRMING, Problem, Sizes, calibrate_sharpness, pose
from l2route.training.report import Contest
from l2route.training.rollout import Lesson, WalkOptions

OPTIONS = LearnOptions(budget=96, rerank=8, steps=40, batch_size=200, n_validation=1000)
ENOUGH = 400
"""Steps after which what is learned is better beyond doubt."""


@pytest.fixture(scope="module")
def index() -> RoutingIndex:
    """A graph over 4,000 words."""
    return RoutingIndex.build(words().base, degree=8, ef_construction=60, entry=0, refine=False)


def words() -> Any:
    """Real vectors, few enough for a test."""
    return demo_words(n_base=4_000, n_learn=10_000, n_query=500).dataset


@pytest.fixture(scope="module")
def problem(index: RoutingIndex) -> Problem:
    """What is to be learned on it."""
    return pose(index.graph, index.base, words().learn, OPTIONS)


def losses(problem: Problem, options: LearnOptions, **more: Any) -> list[Event]:
    """Events of a run, without what the clock says."""
    events: list[Event] = []
    learn_space(problem, options, on_event=events.append, **more)
    return [replace(event, seconds=0.0, seconds_left=0.0) for event in events]


def test_learning_beats_the_plain_graph(problem: Problem) -> None:
    """On queries that neither taught nor chose it, recall rises by points, beyond doubt."""
    _, report = learn_space(problem, replace(OPTIONS, steps=ENOUGH))
    assert report.is_better
    assert report.learned > report.plain + 0.05
    assert str(report) == (
        f"recall@1 of {report.plain:.3f} without learning, {report.learned:.3f} with it, at 96 "
        "distance computations per query, on 500 validation queries: kept"
    )


def test_learning_on_hnsw_descends_through_its_layers() -> None:
    """Walks and validation start at the top as searches do, and recall rises there too."""
    index = RoutingIndex.build(words().base, graph="hnsw", degree=8, ef_construction=60)
    problem = pose(index.graph, index.base, words().learn, OPTIONS)
    _, report = learn_space(problem, replace(OPTIONS, steps=2 * ENOUGH))
    assert index.graph.upper
    flat = replace(problem, graph=index.graph.entered_at(index.graph.entries))
    descending, walking = (
        each.recalls(original_space(index.base), OPTIONS, CONFIRMING).mean()
        for each in (problem, flat)
    )
    assert report.plain == descending != walking
    assert report.learned > report.plain + 0.01


def test_a_fresh_filter_ranks_like_the_plain_space(problem: Problem) -> None:
    """Before the first step the collapsed model visits what the original vectors visit."""
    model = make_model(problem, OPTIONS, plain_space(problem.base, None), 40.0)
    assert isinstance(model, GraphFilter)
    space = space_of(model, problem.base.dim, problem.base.dim, problem.scale, 8)
    plain = Searcher(problem.graph, original_space(problem.base), problem.base)
    fresh = Searcher(problem.graph, space, problem.base)
    first, second = (
        searcher.search(problem.validation.queries, 1, limits=limits)
        for searcher, limits in ((plain, Limits(200)), (fresh, Limits(208, rerank=8)))
    )
    assert (first.ids == second.ids).mean() > 0.98


def test_a_projected_filter_collapses_to_its_dimension(problem: Problem) -> None:
    """With d < D the collapsed space has d dimensions and scores as the model does."""
    options = replace(OPTIONS, dim=10)
    model = make_model(problem, options, plain_space(problem.base, options.dim), 40.0)
    assert isinstance(model, GraphFilter)
    assert len(model.hubs) > 5
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape))
    space = space_of(model, 50, 10, problem.scale, 8)
    queries = problem.train[:5]
    with torch.no_grad():
        vectors, bias = (part.clone() for part in model.vertices())
        ids, shifts = model.shifts()
        vectors[ids, :50] += shifts[:, :-1]
        bias[ids] += shifts[:, -1]
        routed = model.queries(torch.from_numpy(queries * problem.scale))
        expected = (routed @ vectors.T + bias).numpy()
    assert space.query_matrix is not None
    got = queries @ space.query_matrix.T @ space.rows[:, :10].T + space.bias
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(
    ("model", "hidden_dim"), [("filter", None), ("filter", 32), ("ffn", 32), ("gcn", 32)]
)
def test_threads_change_no_loss(problem: Problem, model: Any, hidden_dim: int | None) -> None:
    """The same seed gives the same losses on one thread and on two."""
    options = replace(OPTIONS, model=model, steps=6, hidden_dim=hidden_dim)
    one, two = (losses(problem, replace(options, n_threads=n)) for n in (1, 2))
    assert one == two


def test_the_topk_term_weighs_more_where_walks_are_long_or_vectors_short() -> None:
    """Its weight grows with the scores of a walk and with D/d; without routing it stays."""
    options = replace(OPTIONS, topk_weight=0.5, rerank=8)
    assert WalkOptions.of(options, 100, 50).topk_weight == 50
    assert WalkOptions.of(options, 200, 50).topk_weight == 100
    assert WalkOptions.of(replace(options, dim=10), 200, 50).topk_weight == 500
    only = WalkOptions.of(replace(options, objective="topk"), 100, 50)
    assert (only.k, only.routing_weight, only.topk_weight) == (8, 0, 50)


def test_another_seed_learns_otherwise(problem: Problem) -> None:
    """Seeds matter, however large: batches and walks differ."""
    options = replace(OPTIONS, steps=3)
    first = losses(problem, options)
    for seed in (1, 2**62):
        assert losses(problem, replace(options, seed=seed)) != first


def test_a_run_killed_goes_on_to_the_same_losses(index: RoutingIndex, tmp_path: Path) -> None:
    """A process killed with SIGKILL, started again, has the losses of one that was let be."""
    index.save(tmp_path / "index.l2r")
    np.save(tmp_path / "queries.npy", words().learn[:1000])

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "l2route", "learn", "index.l2r", "-o", f"{name}.l2r"]
        files = ["--queries", "queries.npy", "--log", f"{name}.log", "--checkpoint", f"{name}.pt"]
        return subprocess.Popen(
            [*command, *files, "--steps", "200", "--budget", "96"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
        )

    def events(name: str) -> list[dict[str, float]]:
        path = tmp_path / f"{name}.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    with start("cut") as process:
        while len(events("cut")) < 3:
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    n_before = len(events("cut"))
    assert n_before < 20
    with start("cut") as again, start("whole") as whole:
        assert again.wait() == 0
        assert whole.wait() == 0
    cut, uncut = ([without_clock(event) for event in events(name)] for name in ("cut", "whole"))
    assert cut[n_before:] == uncut[-len(cut[n_before:]) :]
    assert 0 < len(cut[n_before:]) < 20
    same = [load(tmp_path / f"{name}.l2r").spaces[-1].rows for name in ("cut", "whole")]
    np.testing.assert_array_equal(same[0], same[1])


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


def without_clock(event: dict[str, float]) -> dict[str, float]:
    """What a logged event says besides how long it took."""
    return {name: value for name, value in event.items() if not name.startswith("seconds")}


def test_tensorboard_shows_the_run(problem: Problem, tmp_path: Path) -> None:
    """Where TensorBoard is installed, its events stand beside the log and say the same."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = losses(problem, replace(OPTIONS, steps=4), log=tmp_path / "log.jsonl")
    board = accumulator.EventAccumulator(str(tmp_path / "log.jsonl.tb"))
    board.Reload()
    shown = [(scalar.step, scalar.value) for scalar in board.Scalars("recall")]
    assert shown == [(event.step, pytest.approx(event.recall)) for event in events]


def test_a_foreign_checkpoint_is_refused(problem: Problem, tmp_path: Path) -> None:
    """A state of other options or of other queries, or no state at all, is named and refused."""
    state = tmp_path / "state"
    learn_space(problem, replace(OPTIONS, steps=2), checkpoint=state)
    with pytest.raises(ValueError, match="expected a run with the same options"):
        learn_space(problem, replace(OPTIONS, steps=3), checkpoint=state)
    other = replace(problem, train=problem.train[::-1].copy())
    with pytest.raises(ValueError, match="expected the same graph, vectors and queries"):
        learn_space(other, replace(OPTIONS, steps=2), checkpoint=state)
    layer = UpperLayer(np.array([0], np.int32), np.array([[-1]], np.int32))
    taller = replace(problem, graph=replace(problem.graph, upper=(layer,)))
    with pytest.raises(ValueError, match="expected the same graph, vectors and queries"):
        learn_space(taller, replace(OPTIONS, steps=2), checkpoint=state)
    state.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="expected a checkpoint"):
        learn_space(problem, OPTIONS, checkpoint=state)
    state.unlink()
    state.mkdir()
    with pytest.raises(ValueError, match="expected a regular file, got a directory"):
        learn_space(problem, OPTIONS, checkpoint=state)


def test_a_run_by_the_clock_goes_on_with_what_it_learned_from(
    index: RoutingIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many queries there was time for stands in the checkpoint; time may tell otherwise now."""
    path = tmp_path / "state"
    fresh = RoutingIndex(index.base, index.graph)
    monkeypatch.setattr(posing, "TRAIN_TIME", 1e-9)
    first = fresh.learn(words().learn, budget=96, minutes=0.1, checkpoint=path)
    assert read_sizes(path).train == posing.N_PROBED
    monkeypatch.undo()
    again = fresh.learn(words().learn, budget=96, minutes=0.1, checkpoint=path)
    assert again.n_steps >= first.n_steps > 0
    assert again.seconds > first.seconds
    with pytest.raises(ValueError, match="expected a run with the same options"):
        fresh.learn(words().learn, budget=96, minutes=0.2, checkpoint=path)


def test_a_flipped_bit_in_a_checkpoint_is_noticed(problem: Problem, tmp_path: Path) -> None:
    """Wherever it is among the tensors, the file is refused."""
    path = tmp_path / "state"
    options = replace(OPTIONS, steps=2)
    learn_space(problem, options, checkpoint=path)
    intact = path.read_bytes()
    kept = torch.load(path, weights_only=True)["state"]["kept"]
    largest = max(kept, key=Tensor.numel).numpy().tobytes()
    begin = intact.index(largest)
    for at in np.random.default_rng(0).integers(0, len(largest), size=5):
        damaged = bytearray(intact)
        damaged[begin + int(at)] ^= 1 << int(at) % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="expected an intact checkpoint"):
            learn_space(problem, options, checkpoint=path)


FORGED: list[tuple[str, Any]] = [
    ("step", 10**9),
    ("step", -1),
    ("step", None),
    ("step", 1.5),
    ("window", 0),
    ("window", 10**9),
    ("share", float("nan")),
    ("share", 2.0),
    ("peak", float("inf")),
    ("peak", "high"),
    ("spent", -1.0),
    ("parameters", []),
    ("average", None),
    ("kept", [torch.zeros(1)]),
    ("optimizer", {}),
]


@pytest.mark.parametrize(("name", "value"), FORGED)
def test_forged_checkpoints_are_refused(
    problem: Problem, tmp_path: Path, name: str, value: object
) -> None:
    """A state that no run has made, its digest correct, is one clear error and no endless run."""
    path = tmp_path / "state"
    options = replace(OPTIONS, steps=2)
    learn_space(problem, options, checkpoint=path)
    content = torch.load(path, weights_only=True)
    state = content["state"] | {name: value}
    made_with = (asdict(options), content["problem"], Sizes(**content["sizes"]))
    write_checkpoint(path, state, *made_with)
    with pytest.raises(ValueError, match=f"{path}: expected"):
        learn_space(problem, options, checkpoint=path)
    del state[name]
    write_checkpoint(path, state, *made_with)
    with pytest.raises(ValueError, match=f"{path}: expected a state of this model"):
        learn_space(problem, options, checkpoint=path)


def test_what_a_checkpoint_has_reached_is_measured_anew(problem: Problem, tmp_path: Path) -> None:
    """Weights that are no good are reported as no good, whatever run they come from."""
    path = tmp_path / "state"
    options = replace(OPTIONS, steps=2)
    learn_space(problem, options, checkpoint=path)
    content = torch.load(path, weights_only=True)
    spoiled = [100 * torch.randn_like(each) for each in content["state"]["kept"]]
    sizes = Sizes(**content["sizes"])
    state = content["state"] | {"kept": spoiled}
    write_checkpoint(path, state, asdict(options), content["problem"], sizes)
    _, report = learn_space(problem, options, checkpoint=path)
    assert report.learned < 0.5 * report.plain
    assert not report.is_better


@pytest.mark.parametrize("objective", ["teacher", "topk"])
def test_other_objectives_learn(problem: Problem, objective: Any) -> None:
    """Teacher forcing and top-k only run, and change the model."""
    events = losses(problem, replace(OPTIONS, objective=objective, steps=10))
    assert events[-1].step == 10
    assert all(np.isfinite(event.routing) and np.isfinite(event.topk) for event in events)


@pytest.mark.parametrize("more", [{}, {"k": 5, "recall": 0.8}, {"model": "ffn"}])
def test_minutes_are_kept(index: RoutingIndex, more: dict[str, Any]) -> None:
    """Set-up, steps, choosing and confirming together end when the time is over, or soon after."""
    fresh = RoutingIndex(index.base, index.graph)
    report, seconds = timed(lambda: fresh.learn(words().learn, minutes=0.1, **more))
    assert report.n_steps > 0 or "recall" in more  # which may leave no time for steps
    assert report.seconds <= seconds
    assert seconds < 6 + 10


def test_a_long_step_is_not_begun_when_time_is_short(
    index: RoutingIndex, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose next step would end after its time is over ends before it."""
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


def test_a_run_ends_after_so_many_epochs(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that is left is not used; the schedule has come to its end by then."""
    monkeypatch.setattr(running, "MIN_STEPS", 10)
    batch_size = len(problem.train) // 10
    options = replace(OPTIONS, steps=None, minutes=60.0, epochs=3.0, batch_size=batch_size)
    _, report = learn_space(problem, options)
    assert report.n_steps == pytest.approx(30, abs=1)
    monkeypatch.setattr(running, "MIN_STEPS", 50)
    _, report = learn_space(problem, options)
    assert report.n_steps == 50


def test_divergence_is_survived(problem: Problem) -> None:
    """An absurd step size returns to the best state and never below the start."""
    _, report = learn_space(problem, replace(OPTIONS, learning_rate=10.0))
    start = losses(problem, replace(OPTIONS, steps=1, learning_rate=1e-9))[0].recall
    assert report.learned >= start - 0.01


def test_sharpness_follows_the_scale(index: RoutingIndex, problem: Problem) -> None:
    """Vectors of another length are calibrated to the same sharpness."""
    data = words()
    scaled = RoutingIndex.build(data.base * 7, degree=8, ef_construction=60, entry=0, refine=False)
    other = pose(scaled.graph, scaled.base, data.learn * 7, OPTIONS)
    assert calibrate_sharpness(other, OPTIONS) == pytest.approx(
        calibrate_sharpness(problem, OPTIONS), rel=0.02
    )


def test_index_learns_saves_and_searches(index: RoutingIndex, tmp_path: Path) -> None:
    """Learn adds a space that searches use, that is saved and loaded, and that can be left out."""
    data = words()
    fresh = RoutingIndex(index.base, index.graph)
    rerank = np.int64(9)  # as good as any integer, also in what is saved
    report = fresh.learn(data.learn, 96, rerank, steps=ENOUGH, log=tmp_path / "log.jsonl")  # type: ignore[arg-type] # on purpose
    assert report.is_better
    assert [space.name for space in fresh.spaces] == ["original", "learned"]
    fresh.save(tmp_path / "learned.l2r")
    opened = load(tmp_path / "learned.l2r")
    assert opened.spaces[-1].rerank == 9
    first, second = (i.search(data.query, k=5, budget=96) for i in (fresh, opened))
    np.testing.assert_array_equal(first.ids, second.ids)
    assert (first.n_computed <= 96).all()
    plain = opened.search(data.query, k=5, budget=96, space="original")
    assert (plain.ids != first.ids).any()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == ENOUGH


def test_what_searches_use_is_only_replaced_by_better(
    index: RoutingIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run has to beat the space of the first one too, compressed or not."""
    data = words()
    fresh = RoutingIndex(index.base, index.graph)
    assert fresh.learn(data.learn, budget=96, steps=ENOUGH).is_better
    learned = fresh.spaces[-1]
    again = fresh.learn(data.learn, budget=96, steps=20)
    assert [contest.rival for contest in again.contests] == ["original", "learned"]
    assert not again.is_better
    assert fresh.spaces[-1] is learned
    fresh.compress("int8")
    monkeypatch.setattr(Contest, "is_won", property(lambda _: True))
    third = fresh.learn(data.learn, budget=96, steps=20)
    assert [contest.rival for contest in third.contests] == ["original", "learned-int8"]
    assert [space.name for space in fresh.spaces] == ["original", "learned"]


def test_short_vectors_have_to_beat_the_original_ones(index: RoutingIndex) -> None:
    """What was learned in three dimensions is better than their PCA, and of no use at all."""
    data = words()
    fresh = RoutingIndex(index.base, index.graph)
    report = fresh.learn(data.learn, budget=96, dim=3, steps=30)
    against = {contest.rival: contest for contest in report.contests}
    assert against.keys() == {"pca3", "original"}
    assert against["original"].ours < 0.5 * against["original"].theirs
    assert not report.is_better
    assert [space.name for space in fresh.spaces] == ["original"]


def test_what_is_no_better_changes_nothing(
    index: RoutingIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither spaces nor queries kept to measure on, nor settings found with them."""
    data = words()
    fresh = RoutingIndex(index.base, index.graph)
    fresh.validate_with(data.query)
    fresh.setting(0.5)
    before, kept = fresh.info(), fresh.validation
    monkeypatch.setattr(running.Run, "share", lambda _: 1.0)  # not a step
    assert not fresh.learn(data.learn, budget=96, steps=1).is_better
    assert fresh.info() == before
    assert fresh.validation is kept


def test_known_neighbours_are_called_as_answers_call_them(index: RoutingIndex) -> None:
    """In an index whose vertices have other numbers too: the same is learned as without them."""
    data = words()
    truth = exact_neighbors(data.base, data.learn, 1).ids
    learned = []
    for neighbors in (None, truth):
        renumbered = RoutingIndex(index.base, index.graph)
        renumbered.renumber()
        renumbered.learn(data.learn, 96, 8, steps=ENOUGH, neighbors=neighbors)
        learned.append(renumbered.spaces[-1])
    assert learned[0].name == learned[1].name == "learned"
    np.testing.assert_array_equal(learned[0].rows, learned[1].rows)


def test_a_model_of_ones_own(index: RoutingIndex) -> None:
    """An nn.Module with two methods learns like the built-in ones; anything else is refused."""

    class Biases(nn.Module):
        """A bias per vertex."""

        def __init__(self) -> None:
            super().__init__()
            vectors = index.base.vectors().copy()
            self.rows = torch.from_numpy(vectors * 40)
            self.bias = nn.Parameter(torch.zeros(len(vectors)))

        def vertices(self) -> tuple[Tensor, Tensor]:
            """Vectors and biases."""
            return self.rows, self.bias

        def queries(self, queries: Tensor) -> Tensor:
            """Queries as they are."""
            return queries

    fresh = RoutingIndex(index.base, index.graph)
    report = fresh.learn(words().learn, budget=96, model=Biases(), steps=5)
    assert report.n_steps == 5
    short = Biases()
    short.bias = nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match="expected a row and a bias for every vertex"):
        fresh.learn(words().learn, budget=96, model=short, steps=5)
    with pytest.raises(ValueError, match="expected a model with the methods"):
        fresh.learn(words().learn, model=nn.Linear(2, 2), steps=5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "tree"}, "expected model filter, gcn, ffn, got 'tree'"),
        ({"objective": "luck"}, "expected objective .*, got 'luck'"),
        ({"budget": 0}, "expected budget of at least 1, got 0"),
        ({"rerank": 0}, "expected rerank of at least 1, got 0"),
        ({"minutes": 0}, "expected minutes above 0, got 0"),
        ({"steps": 0}, "expected steps of at least 1, got 0"),
        ({"dim": 0}, "expected dim of at least 1, got 0"),
        ({"hidden_dim": 0}, "expected hidden_dim of at least 1, got 0"),
    ],
)
def test_bad_options_are_refused(changes: dict[str, Any], message: str) -> None:
    """An option out of range is named, with what was expected and what came."""
    with pytest.raises(ValueError, match=message):
        replace(OPTIONS, **changes)


def test_bad_queries_are_refused(index: RoutingIndex) -> None:
    """Too few queries, or of another dimension, are refused before any work."""
    with pytest.raises(
        ValueError, match="expected at least 20 distinct training queries, got 1 among 50"
    ):
        index.learn(np.ones((50, 50)))
    with pytest.raises(ValueError, match=r"expected queries \[\*, 50\], got \[\*, 3\]"):
        index.learn(np.ones((50, 3)))
    with pytest.raises(ValueError, match="expected dim of at most 50, got 60"):
        index.learn(words().learn, dim=60, steps=1)


def test_serving_needs_no_torch() -> None:
    """Importing, loading and searching never import torch."""
    script = """
import sys
import numpy as np
import l2route
import l2route.cli.app
l2route.RoutingIndex.build(np.random.default_rng(0).normal(size=(50, 4))).search(np.ones((2, 4)))
sys.exit("torch" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
