"""Laws of the row "all of ours": what it takes from the training queries, and what it counts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.data.dataset import Dataset
from l2route.graph.graph import Graph
from l2route.reproduce import jobs, log_graph
from l2route.reproduce.jobs import Job, JobRunner, Source
from l2route.reproduce.log_graph import best_of
from l2route.reproduce.plan import Cell, Method, cells_for, read_experiment
from l2route.search.base import BaseVectors
from l2route.training.log_split import LogSplit, split_log
from l2route.training.options import LearnOptions
from l2route.training.train import train
from paper_runs import MINUTES, make_file

pytestmark = pytest.mark.usefixtures("small_data_stands_in")
BUDGETS = (128, 256, 512)
OURS = read_experiment("table1").methods["ours"]


def job_of(source: Source, method: Method, budget: int) -> Job:
    """The job of a method at a budget, which learns for a moment only."""
    k = 0 if method.space == "original" else 8
    cell = Cell(source.data.name, "ours", budget, 1, k, budget - k)
    return Job.of(cell, method, source, MINUTES, 0)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """Small clustered data, with queries like the vectors."""
    return Source.of(Dataset.read(make_file(tmp_path)))


def split_of(source: Source) -> tuple[BaseVectors, LogSplit]:
    """The vectors, and the log with queries held out."""
    base = BaseVectors.of(source.data.base, source.data.metric)
    return base, split_log(source.learn, base, 10)


def test_all_budgets_share_one_learned_space(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is learned once, for all budgets; each cell keeps to its own, entry points included."""
    learned: list[LearnOptions] = []

    def record(*given: Any, **more: Any) -> Any:
        learned.append(given[3])
        assert given[0].table is not None  # walks are learned from where searches start
        return train(*given, **more)

    monkeypatch.setattr(jobs, "train", record)
    method = replace(OURS, log_kept="always")
    runner = JobRunner(source, tmp_path, 0)
    outcomes = {budget: runner.run(job_of(source, method, budget)) for budget in BUDGETS}
    assert [options.budgets for options in learned] == [BUDGETS]
    assert [options.rerank for options in learned] == [None]
    for budget, outcome in outcomes.items():
        assert (outcome.arrays["n_computed"] <= budget).all()
        assert json.dumps(outcome.facts) == json.dumps(outcomes[128].facts)
    assert not list(tmp_path.glob("*.checkpoint"))


def test_a_short_space_is_learned_for_budgets_beyond_its_projection(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget that mapping the query would use up is not learned for; the others are kept to."""
    learned: list[LearnOptions] = []

    def record(*given: Any, **more: Any) -> Any:
        learned.append(given[3])
        return train(*given, **more)

    monkeypatch.setattr(jobs, "train", record)
    dim = source.data.base.shape[1] // 2
    method = replace(OURS, budgets=(dim, 256, 512))
    job = Job.of(Cell(source.data.name, "ours", 256, 2, 8, 2), method, source, MINUTES, 0)
    outcome = JobRunner(source, tmp_path, 0).run(job)
    assert [(each.dim, each.budgets) for each in learned] == [(dim, (256, 512))]
    assert (outcome.arrays["n_computed"] <= 256).all()


def test_a_space_that_was_not_kept_whole_is_learned_again(source: Source, tmp_path: Path) -> None:
    """The index of a run that was cut off while it was saved is replaced."""
    runner, job = JobRunner(source, tmp_path, 0), job_of(source, OURS, 128)
    runner.run(job)
    facts = tmp_path / f"{job.shared.key}.json"
    facts.unlink()
    assert (runner.run(job).arrays["n_computed"] <= 128).all()
    assert facts.exists()


def test_what_comes_from_the_log_is_deterministic(source: Source, tmp_path: Path) -> None:
    """Two runs without a common cache have the same graph, and the same answers and counts."""
    method = replace(OURS, space="original", log_kept="always")
    runs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        runner = JobRunner(source, tmp_path / name, 0)
        runs.append((runner._index(job_of(source, method, 128), None).graph, runner))
    (one, first), (two, second) = runs
    np.testing.assert_array_equal(one.neighbors, two.neighbors)
    assert one.table is not None
    assert two.table is not None
    np.testing.assert_array_equal(one.table.vertices, two.table.vertices)
    job = job_of(source, method, 128)
    ours, theirs = first.run(job).arrays, second.run(job).arrays
    for name in ("ids", "distances", "n_computed", "n_hops"):
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_test_queries_do_not_matter_to_the_graph(source: Source, tmp_path: Path) -> None:
    """Graph, edges and entry points depend on vectors and training queries only."""
    blind = replace(source.data, query=np.full_like(source.data.query, 1e9))
    job = job_of(source, replace(OURS, space="original"), 128)
    graphs = []
    for name, data in (("seen", source.data), ("blind", blind)):
        (tmp_path / name).mkdir()
        runner = JobRunner(Source(data, source.digest), tmp_path / name, 0)
        graphs.append(runner._index(job, None).graph)
    np.testing.assert_array_equal(graphs[0].neighbors, graphs[1].neighbors)
    np.testing.assert_array_equal(graphs[0].entries, graphs[1].entries)


def test_the_best_graph_is_that_of_queries_held_out(source: Source) -> None:
    """The higher recall within the budgets wins; of equal graphs the first."""
    base, split = split_of(source)
    n = len(base.rows)
    ring = ((np.arange(n) + 1) % n).astype(np.int32)[:, None]
    poor = Graph(ring, np.zeros(1, np.int32))
    apart = ((base.vectors()[:, None] - base.vectors()) ** 2).sum(axis=2)
    near = np.argsort(apart, axis=1)[:, 1:17].astype(np.int32)
    ordered = Graph(np.ascontiguousarray(near), np.arange(0, n, 10, dtype=np.int32))
    # A ring is walked in its own order, so half of a budget of n finds half of the neighbours.
    halves = (n // 2, n)
    assert best_of([poor, ordered], base, split, halves) is ordered
    assert best_of([ordered, poor], base, split, halves) is ordered
    assert best_of([ordered, replace(ordered)], base, split, halves) is ordered


@pytest.mark.parametrize("is_better", [False, True])
def test_a_part_is_kept_if_it_is_better_or_asked_for(
    source: Source, monkeypatch: pytest.MonkeyPatch, is_better: bool
) -> None:
    """Entry points and edges are compared with the graph without them, unless kept always."""
    base, split = split_of(source)
    offered: list[int] = []

    def choose(graphs: list[Graph], *_: Any) -> Graph:
        offered.append(len(graphs))
        return graphs[-1] if is_better else graphs[0]

    monkeypatch.setattr(log_graph, "best_of", choose)
    method = replace(OURS, log_kept="better")
    graph = Graph(np.zeros((len(base.rows), 1), np.int32), np.zeros(1, np.int32))
    judged = log_graph.log_graph(graph, base, split, method, 0)
    assert (judged.table is not None, judged.neighbors.shape[1] > 1) == (is_better, is_better)
    forced = log_graph.log_graph(graph, base, split, replace(method, log_kept="always"), 0)
    assert forced.table is not None
    assert forced.neighbors.shape[1] > 1
    n = len(log_graph.SHAPES)
    assert offered == [n + 1, 2, n, 1]


@pytest.mark.parametrize("name", ["table1", "techniques"])
def test_all_of_ours_stands_beside_the_papers_learned_vectors(name: str) -> None:
    """The mark is set by the paper's gain of learned vectors of the same compression."""
    paper = {
        (cell.dataset, cell.budget, cell.compression): cell.recall
        for cell in read_experiment("table1").cells
        if cell.method == "learned"
    }
    experiment = read_experiment(name)
    ours = {
        (cell.dataset, cell.budget, cell.compression): cell.recall
        for cell in experiment.cells
        if cell.method == "ours"
    }
    assert all(recall == paper.get(place) for place, recall in ours.items())
    assert {place for place in paper if place[2] == 1} <= set(ours)
    assert (set(paper) <= set(ours)) == (name == "table1")
    own = experiment.methods["ours"]
    assert replace(own, against=OURS.against) == OURS
    assert own.against[0] == "original"
    assert OURS.budgets == BUDGETS


def test_data_of_another_kind_has_the_row_too() -> None:
    """Data that stands in for none of the paper's has all cells that its budgets leave."""
    cells = [
        (cell.budget, cell.compression, cell.k, cell.rdcs)
        for cell in cells_for(read_experiment("table1"), "gloss384", 100_000, 384)
        if cell.method == "ours" and cell.recall is None
    ]
    assert [each for each in cells if each[1] == 1] == [
        (128, 1, 8, 120),
        (256, 1, 12, 244),
        (512, 1, 25, 487),
    ]
    assert [each for each in cells if each[1] > 1] == [
        (128, 4, 8, 96),
        (256, 2, 8, 112),
        (256, 4, 32, 512),
        (512, 2, 32, 576),
        (512, 4, 64, 1408),
    ]
