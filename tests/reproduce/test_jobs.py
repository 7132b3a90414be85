"""Laws of jobs: what a result depends on, and how it is computed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.data.dataset import Dataset
from l2route.data.metrics import first_hops, recall_at
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import Metric
from l2route.graph.build import GraphKind, GraphOptions, build_graph
from l2route.graph.entry import Entry
from l2route.graph.report import report
from l2route.reproduce import jobs
from l2route.reproduce.jobs import Job, JobRunner, Source, paper_index
from l2route.reproduce.plan import Cell, Method
from paper_runs import MINUTES, make_file

pytestmark = pytest.mark.usefixtures("small_data_stands_in")


def test_other_data_is_another_job(tmp_path: Path) -> None:
    """Another vector, seed, time limit or model gives another key; another label does not."""
    data = Dataset.read(make_file(tmp_path))
    other = data.base.copy()
    other[0, 0] += 1
    changed = Dataset(data.name, other, data.query, data.learn)
    cell = Cell(data.name, "learned", 256, 4, 32, 768)
    method = Method("learned", space="learned")
    first = Job.of(cell, method, Source.of(data), None, 0)
    keys = {
        first.key,
        Job.of(cell, method, Source.of(changed), None, 0).key,
        Job.of(cell, method, Source.of(data), None, 1).key,
        Job.of(cell, method, Source.of(data), 1.0, 0).key,
        Job.of(cell, Method("", space="learned", model="gcn"), Source.of(data), None, 0).key,
    }
    assert len(keys) == 5
    same = Job.of(cell, Method("other label", space="learned"), Source.of(data), None, 0)
    assert same.key == first.key


def test_minutes_do_not_make_another_job_of_plain_search(tmp_path: Path) -> None:
    """Options of learning do not enter jobs without learning."""
    source = Source.of(Dataset.read(make_file(tmp_path)))
    cell = Cell("sift_tiny", "original", 256, 1, 0, 256)
    one, two = (
        Job.of(cell, Method("", model=m), source, t, 0) for m, t in (("gcn", 1), ("ffn", 2))
    )
    assert one == two


def test_an_incomplete_graph_is_built_again(tmp_path: Path) -> None:
    """An incomplete index in the cache is replaced."""
    source = Source.of(Dataset.read(make_file(tmp_path)))
    runner = JobRunner(source, tmp_path, 0)
    job = Job.of(Cell("sift_tiny", "original", 64, 1, 0, 64), Method(""), source, None, 0)
    first = runner.run(job).arrays["ids"]
    (path,) = tmp_path.glob("*.l2r")
    (path / "meta.json").unlink()
    assert (runner.run(job).arrays["ids"] == first).all()


@pytest.mark.parametrize(
    ("kind", "metric"), [("nsw", "l2"), ("nsw", "ip"), ("hnsw", "cosine"), ("nsg", "l2")]
)
@pytest.mark.parametrize("pca_dim", [None, 4])
def test_graphs_are_the_paper_s_to_the_last_edge(
    kind: GraphKind, metric: Metric, pca_dim: int | None
) -> None:
    """M = 8, efConstruction 300, NSW entered at vertex 0; unreachable vertices stay so."""
    base = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)
    index = paper_index(Dataset("little", base, base[:1], metric=metric), kind, 3, pca_dim)
    vectors = index.base.vectors() if pca_dim is None else index.spaces[1].rows[:, :pca_dim]
    scorer = "ip" if metric == "ip" else "l2"
    entry: Entry = 0 if kind == "nsw" else "medoid"
    expected = build_graph(vectors, scorer, GraphOptions(kind, 16, 300, entry, 3, 1))
    np.testing.assert_array_equal(index.graph.neighbors, expected.neighbors)
    np.testing.assert_array_equal(index.graph.entries, expected.entries)
    assert len(index.graph.upper) == len(expected.upper)
    assert metric != "ip" or report(index.graph).n_unreachable > 0


def test_a_learned_space_is_measured_even_if_it_is_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table shows the learned space, not the plain one that an index would use instead."""
    source = Source.of(Dataset.read(make_file(tmp_path)))
    cell = Cell("sift_tiny", "learned", 128, 1, 8, 120)
    job = Job.of(cell, Method("", space="learned"), source, MINUTES, 0)
    real = jobs.train

    def scramble(*given: Any, **more: Any) -> Any:
        space, report = real(*given, **more)
        rows = np.random.default_rng(0).permutation(space.rows)
        return replace(space, rows=rows), replace(report, contests=())

    monkeypatch.setattr(jobs, "train", scramble)
    outcome = JobRunner(source, tmp_path, 0).run(job)
    truth = JobRunner(source, tmp_path, 0).truth(source.data.query).ids[:, 0]
    assert outcome.facts["is_better"] is False
    assert (outcome.arrays["ids"] == truth).mean() < 0.9
    assert (outcome.arrays["n_computed"] == 128).all()
    assert not list(tmp_path.glob("*.checkpoint"))


def test_first_hops_agree_with_traces(tmp_path: Path) -> None:
    """The stored hop per query is the first in its trace that visits the target."""
    source = Source.of(Dataset.read(make_file(tmp_path)))
    runner = JobRunner(source, tmp_path, 0)
    cell = Cell("sift_tiny", "original", 64, 1, 0, 64)
    job = Job.of(cell, Method(""), source, None, 0)
    first = runner.run(job).arrays["first_hop"]
    found = runner._index(job, None).search(source.data.query, 1, budget=64, trace=True)
    assert found.trace is not None
    targets = exact_neighbors(source.data.base, source.data.query, 1).ids[:, 0]
    trace = found.trace
    expected = first_hops(trace.offsets, trace.vertices, trace.hops, targets)
    np.testing.assert_array_equal(first, expected)


def test_the_better_graph_has_the_higher_recall_of_plain_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph is chosen by recall on training queries, independent of the test queries."""
    data = Dataset.read(make_file(tmp_path))
    blind = replace(data, query=np.full_like(data.query, 1e9))
    source = Source.of(data)
    runner = JobRunner(source, tmp_path, 0)
    cell = Cell("sift_tiny", "learned", 128, 4, 16, 320)
    method = Method("", space="learned", graph_space="better")
    job = Job.of(cell, method, source, MINUTES, 0)
    seen: list[float] = []

    def record(found: Any, true: Any, r: int) -> float:
        seen.append(recall_at(found, true, r))
        return seen[-1]

    monkeypatch.setattr(jobs, "recall_at", record)
    chosen = runner._graph_space(job)
    assert chosen == ("original" if seen[0] >= seen[1] else "pca")
    assert JobRunner(Source(blind, source.digest), tmp_path, 0)._graph_space(job) == chosen
    for best in (0, 1):
        recalls = iter([0.1, 0.2] if best else [0.2, 0.1])
        monkeypatch.setattr(jobs, "recall_at", lambda *_, r=recalls: next(r))
        assert runner._graph_space(job) == ("original", "pca")[best]
