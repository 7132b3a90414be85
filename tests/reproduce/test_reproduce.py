"""The paper's experiments end to end, on data so small that all of them take seconds."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from l2route.cli import app as cli
from l2route.data.dataset import Dataset
from l2route.data.metrics import first_hops, recall_at
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import Metric
from l2route.evaluation.compare import methods
from l2route.files.formats import read_npz
from l2route.graph.build import GraphKind, GraphOptions, build_graph
from l2route.graph.entry import Entry
from l2route.graph.report import report
from l2route.reproduce import jobs, plan
from l2route.reproduce.jobs import Job, Outcome, Source, Workshop, paper_index
from l2route.reproduce.page import page
from l2route.reproduce.plan import Cell, Method, PaperDataset
from l2route.reproduce.runner import Progress, run_experiments
from l2route.reproduce.store import PlannedCell, PlannedTable, Store
from l2route.reproduce.summary import Figure, Gain, as_markdown, cells_of, points, summarize

MINUTES = 0.002
DATA_FACTS = ("n_base", "n_learn", "n_query", "dim", "metric")
DIM = 128
"""As in the paper's SIFT100K, so that its own k and rDCS are used."""


@pytest.fixture(autouse=True, scope="module")
def tiny_paper() -> Iterator[None]:
    """The paper's datasets, had they been as small as the data here."""
    real = plan.paper_datasets

    def small() -> dict[str, PaperDataset]:
        return {name: replace(data, n_base=300) for name, data in real().items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "paper_datasets", small)
        yield


def make_file(directory: Path, name: str = "sift_tiny", n: int = 300) -> Path:
    """Clustered vectors with training and test queries of the same kind."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, DIM))

    def draw(count: int) -> NDArray[np.float32]:
        near = centres[rng.integers(0, len(centres), count)]
        return (near + 0.5 * rng.normal(size=(count, DIM))).astype(np.float32)

    path = directory / f"{name}.npz"
    Dataset(name, draw(n), draw(40), draw(200)).write(path)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[Progress]]:
    """A finished run of all experiments, its data, and what it said of its progress."""
    directory = tmp_path_factory.mktemp("reproduce")
    data, said = make_file(directory), []
    run_experiments(
        ["table1", "routing", "ablation", "sota"],
        [data],
        directory / "run",
        minutes=MINUTES,
        on_progress=said.append,
    )
    return directory / "run", data, said


def test_all_cells_have_a_result(finished: tuple[Path, Path, list[Progress]]) -> None:
    """Equal cells of two experiments share one, and the progress ends with nothing left."""
    run, _, said = finished
    tables = summarize(Store(run))
    figures = [figure for table in tables for figure in table.figures]
    assert [table.plan.name for table in tables] == ["table1", "routing", "ablation", "sota"]
    assert all(figure.recall is not None for figure in figures)
    assert len(list((run / "results").glob("*.json"))) < len(figures)
    assert (said[-1].n_done, said[-1].seconds_left) == (said[-1].n_cells, 0)
    assert [progress.n_done for progress in said] == list(range(said[-1].n_cells + 1))
    assert "recall@1" in said[1].last
    assert said[0].now == "sift_tiny, original ×1 at 128"
    assert said[-1].now == ""


def test_results_are_raw_and_whole(finished: tuple[Path, Path, list[Progress]]) -> None:
    """Every query has an answer, its counts and its time; budgets hold; all is said beside it."""
    run, path, _ = finished
    data = Dataset.read(path)
    for facts in (run / "results").glob("*.json"):
        content = json.loads(facts.read_text())
        arrays = read_npz(facts.with_suffix(".npz"))
        assert {"ids", "distances", "n_computed", "seconds"} <= set(arrays)
        assert all(array.shape == (len(data.query),) for array in arrays.values())
        if content["job"]["method"]["peer"] is None:
            assert (arrays["n_computed"] <= content["job"]["budget"]).all()
        found = arrays["ids"]
        true = ((data.query - data.base[found]) ** 2).sum(axis=1)
        np.testing.assert_allclose(arrays["distances"], true, rtol=1e-4)
        assert content["versions"]["l2route"]
        assert content["machine"]["n_cores"] >= 1
        assert content["job"]["seed"] == 0


def test_what_is_finished_is_not_run_again(
    finished: tuple[Path, Path, list[Progress]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run of the same does nothing; with other minutes only what learns is run."""
    run, path, _ = finished
    ran: list[Job] = []

    def record(self: Workshop, job: Job, on_event: Any = None) -> Outcome:
        ran.append(job)
        raise KeyboardInterrupt

    monkeypatch.setattr(Workshop, "run", record)
    run_experiments(["table1"], [path], run, minutes=MINUTES)
    assert not ran
    with pytest.raises(KeyboardInterrupt):
        run_experiments(["table1"], [path], run, minutes=2 * MINUTES)
    assert ran[0].method.space == "learned"
    monkeypatch.setattr(
        Workshop,
        "run",
        lambda self, job, on_event: (
            ran.append(job)
            or Outcome({"distances": np.zeros(40, np.float32), "ids": np.zeros(40, np.int64)}, {})
        ),
    )
    run_experiments(["table1"], [path], run, minutes=2 * MINUTES)
    assert len(ran) == 9
    assert {job.method.space for job in ran} == {"learned"}
    run_experiments(["table1"], [path], run, minutes=MINUTES)  # the plan is as it was


def test_other_data_is_another_job(tmp_path: Path) -> None:
    """One vector changed changes every key; so do seed, budget and method."""
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
    """Where nothing is learned nothing of learning counts."""
    source = Source.of(Dataset.read(make_file(tmp_path)))
    cell = Cell("sift_tiny", "original", 256, 1, 0, 256)
    one, two = (
        Job.of(cell, Method("", model=m), source, t, 0) for m, t in (("gcn", 1), ("ffn", 2))
    )
    assert one == two


def test_a_cut_off_result_does_not_count(
    finished: tuple[Path, Path, list[Progress]], tmp_path: Path
) -> None:
    """Arrays without their JSON are no result."""
    run, _, _ = finished
    key = summarize_keys(run)[0]
    store = Store(tmp_path)
    store.create()
    arrays = (run / "results" / f"{key}.npz").read_bytes()
    (tmp_path / "results" / f"{key}.npz").write_bytes(arrays)
    assert store.read(key) is None
    facts = (run / "results" / f"{key}.json").read_bytes()
    (tmp_path / "results" / f"{key}.json").write_bytes(facts)
    assert store.is_finished(key)
    (tmp_path / "results" / f"{key}.npz").write_bytes(arrays[:-100])
    assert not store.is_finished(key)
    (tmp_path / "results" / f"{key}.npz").write_bytes(arrays)
    (tmp_path / "results" / f"{key}.json").write_bytes(facts[:-9])
    assert not store.is_finished(key)


def test_a_graph_that_was_cut_off_is_built_again(tmp_path: Path) -> None:
    """A directory without what belongs in it does not stop the next run."""
    source = Source.of(Dataset.read(make_file(tmp_path)))
    shop = Workshop(source, tmp_path, 0)
    job = Job.of(Cell("sift_tiny", "original", 64, 1, 0, 64), Method(""), source, None, 0)
    first = shop.run(job).arrays["ids"]
    (path,) = tmp_path.glob("*.l2r")
    (path / "meta.json").unlink()
    assert (shop.run(job).arrays["ids"] == first).all()


@pytest.mark.parametrize(
    ("kind", "metric"), [("nsw", "l2"), ("nsw", "ip"), ("hnsw", "cosine"), ("nsg", "l2")]
)
@pytest.mark.parametrize("pca_dim", [None, 4])
def test_graphs_are_the_paper_s_to_the_last_edge(
    kind: GraphKind, metric: Metric, pca_dim: int | None
) -> None:
    """M = 8 and efConstruction 300; walks on NSW start at vertex 0; lost vertices stay lost."""
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


def test_two_runs_do_not_share_a_directory(tmp_path: Path) -> None:
    """The second is refused, and the directory says that it is in use."""
    data = make_file(tmp_path)
    store = Store(tmp_path / "run")
    store.create()
    assert not store.is_locked()
    with store.locked():
        assert store.is_locked()
        with pytest.raises(ValueError, match="expected one run at a time"):
            run_experiments(["routing"], [data], tmp_path / "run")


def test_a_cell_that_fails_is_skipped_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are made; the next run makes up for it."""
    data, real = make_file(tmp_path), Workshop.run

    def fail(self: Workshop, job: Job, on_event: Any = None) -> Outcome:
        if job.method.space == "learned" and job.budget == 128:
            raise ValueError("no luck")
        return real(self, job, on_event)

    with monkeypatch.context() as patch:
        patch.setattr(Workshop, "run", fail)
        run_experiments(["routing"], [data], tmp_path / "run", minutes=MINUTES)
    (table,) = summarize(Store(tmp_path / "run"))
    assert [figure.skipped for figure in table.figures] == [None, "no luck", None, None]
    run_experiments(["routing"], [data], tmp_path / "run", minutes=MINUTES)
    (table,) = summarize(Store(tmp_path / "run"))
    assert all(figure.recall is not None for figure in table.figures)


def test_what_was_learned_is_measured_even_if_it_is_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table shows the method, not what an index would fall back to."""
    source = Source.of(Dataset.read(make_file(tmp_path)))
    cell = Cell("sift_tiny", "learned", 128, 1, 8, 120)
    job = Job.of(cell, Method("", space="learned"), source, MINUTES, 0)
    real = jobs.learn_space

    def scramble(*given: Any, **more: Any) -> Any:
        space, report = real(*given, **more)
        rows = np.random.default_rng(0).permutation(space.rows)
        return replace(space, rows=rows), replace(report, contests=())

    monkeypatch.setattr(jobs, "learn_space", scramble)
    outcome = Workshop(source, tmp_path, 0).run(job)
    truth = Workshop(source, tmp_path, 0).truth(source.data.query).ids[:, 0]
    assert outcome.facts["is_better"] is False
    assert (outcome.arrays["ids"] == truth).mean() < 0.9
    assert (outcome.arrays["n_computed"] == 128).all()
    assert not list(tmp_path.glob("*.checkpoint"))


def summarize_keys(run: Path) -> list[str]:
    """Keys of all planned cells."""
    return [cell.key for table in Store(run).tables() for cell in table.cells]


def test_tables_are_those_of_the_raw_results(finished: tuple[Path, Path, list[Progress]]) -> None:
    """Recall, gain and the paper's gain, recomputed the slow way."""
    run, path, _ = finished
    data = Dataset.read(path)
    nearest = ((data.query[:, None] - data.base[None]) ** 2).sum(axis=2).argmin(axis=1)
    table = summarize(Store(run))[0]
    planned = Store(run).tables()[0].cells
    recalls = {}
    for figure, cell in zip(table.figures, planned, strict=True):
        ids = read_npz(run / "results" / f"{cell.key}.npz")["ids"]
        recalls[figure.cell.method, figure.cell.budget, figure.cell.compression] = (
            ids == nearest
        ).mean()
        assert figure.recall == pytest.approx((ids == nearest).mean())
    figures = {figure.cell.place: figure for figure in table.figures}
    learned, short = figures["learned", 256, 1], figures["learned", 128, 4]
    gain = recalls["learned", 256, 1] - recalls["original", 256, 1]
    assert (learned.gain.ours, learned.gain.paper) == pytest.approx((gain, 0.799 - 0.672))
    assert (learned.over_original.ours, learned.over_original.paper) == (None, None)
    gain = recalls["learned", 128, 4] - recalls["pca", 128, 4]
    assert (short.gain.ours, short.gain.paper) == pytest.approx((gain, 0.837 - 0.794))
    over = recalls["learned", 128, 4] - recalls["original", 128, 1]
    assert short.over_original.ours == pytest.approx(over)
    assert short.over_original.paper == pytest.approx(0.837 - 0.239)


def test_curves_are_those_of_traces(tmp_path: Path) -> None:
    """The hops kept per query give the same curve as the whole trace does."""
    source = Source.of(Dataset.read(make_file(tmp_path)))
    shop = Workshop(source, tmp_path, 0)
    cell = Cell("sift_tiny", "original", 64, 1, 0, 64)
    job = Job.of(cell, Method(""), source, None, 0)
    first = shop.run(job).arrays["first_hop"]
    found = shop._index(job, None).search(source.data.query, 1, 64, trace=True)
    assert found.trace is not None
    targets = exact_neighbors(source.data.base, source.data.query, 1).ids[:, 0]
    trace = found.trace
    expected = first_hops(trace.offsets, trace.vertices, trace.hops, targets)
    np.testing.assert_array_equal(first, expected)


def test_the_better_graph_is_the_one_that_plain_search_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever graph has the higher recall is taken; test queries have no say."""
    data = Dataset.read(make_file(tmp_path))
    blind = replace(data, query=np.full_like(data.query, 1e9))
    source = Source.of(data)
    shop = Workshop(source, tmp_path, 0)
    cell = Cell("sift_tiny", "learned", 128, 4, 16, 320)
    method = Method("", space="learned", graph_space="better")
    job = Job.of(cell, method, source, MINUTES, 0)
    seen: list[float] = []

    def record(found: Any, true: Any, r: int) -> float:
        seen.append(recall_at(found, true, r))
        return seen[-1]

    monkeypatch.setattr(jobs, "recall_at", record)
    chosen = shop._graph_space(job)
    assert chosen == ("original" if seen[0] >= seen[1] else "pca")
    assert Workshop(Source(blind, source.digest), tmp_path, 0)._graph_space(job) == chosen
    for best in (0, 1):
        recalls = iter([0.1, 0.2] if best else [0.2, 0.1])
        monkeypatch.setattr(jobs, "recall_at", lambda *_, r=recalls: next(r))
        assert shop._graph_space(job) == ("original", "pca")[best]


def test_the_page_needs_nothing_beside_it(finished: tuple[Path, Path, list[Progress]]) -> None:
    """No address is loaded, every figure stands there, and the commands say no folder."""
    run, path, _ = finished
    store = Store(run)
    tables = summarize(store)
    html = page(tables, store)
    assert not re.findall(r'(?:src|href)="(?!data:)', html)
    assert "<script" not in html
    assert str(path.parent) not in html
    for table in tables:
        assert table.plan.command in html
        for figure in table.figures:
            assert f"<td>{figure.cell.rdcs}</td>" in html
            assert f">{figure.recall:.3f}</td>" in html
    assert html.count("<img") == 3  # recall by budget, curves at 128 and at 256
    (run / "toy").mkdir()
    (run / "toy" / "toy.png").write_bytes(b"picture")
    assert "data:image/png;base64,cGljdHVyZQ==" in page(tables, store)


def test_the_page_of_a_run_that_has_only_begun(tmp_path: Path) -> None:
    """Cells without a result are shown as missing."""
    store = Store(tmp_path)
    store.create()
    cell = Cell("words", "original", 128, 1, 0, 128)
    planned = PlannedCell(cell, "a < b", "0" * 16, None)
    store.write_plan([PlannedTable("table1", "words", "d", "T", "S", "A", "l2route", (planned,))])
    (tmp_path / "data" / "d.json").write_text(json.dumps(dict.fromkeys(DATA_FACTS, 1)))
    html = page(summarize(store), store)
    assert "0 of 1 cells are measured" in html
    assert "a &lt; b" in html


def test_markdown_marks_what_falls_short(finished: tuple[Path, Path, list[Progress]]) -> None:
    """Every row is there; as many marks as cells that gain less than the paper."""
    run, _, _ = finished
    store = Store(run)
    tables = summarize(store)
    text = as_markdown(tables, store)
    figures = [figure for table in tables for figure in table.figures]
    rows = [line for line in text.splitlines() if line.startswith(("| 128", "| 256", "| 512"))]
    assert len(rows) == len(figures) + sum(f.reached is not None for f in tables[1].figures)
    assert sum("▼" in row for row in rows) == sum(figure.falls_short for figure in figures)


def make_figure(gain: Gain, over_original: Gain) -> Figure:
    """A figure with these gains and nothing else."""
    cell = Cell("sift", "learned", 128, 4, 16, 320, 0.837)
    return Figure(
        cell, "learned", 0.8, 0.01, gain, over_original, 128.0, 9.0, 300.0, 5, "pca", None, None
    )


@pytest.mark.parametrize(
    ("gain", "paper_gain", "is_short"),
    [
        (0.042, 0.043, True),
        (0.0431, 0.043, False),
        (0.0426, 0.043, False),  # the same in print
        (-0.01, -0.005, False),  # where the paper loses there is nothing to reach
        (None, 0.1, False),
        (0.1, None, False),
    ],
)
def test_falling_short(gain: float | None, paper_gain: float | None, is_short: bool) -> None:
    """A gain falls short if the paper's is above zero and larger, as printed; either counts."""
    none = Gain(None, None)
    for at, figure in (
        (7, make_figure(Gain(gain, paper_gain), none)),
        (9, make_figure(none, Gain(gain, paper_gain))),
    ):
        assert figure.falls_short is is_short
        assert cells_of(figure)[at].endswith("▼") is is_short
        assert cells_of(figure)[1] == "learned ×4 (pca graph)"


def test_points_have_a_sign() -> None:
    """With a minus that is as wide as the plus."""
    assert [points(0.1234), points(-0.0512), points(0.0), points(None)] == [
        "+12.3",
        "−5.1",
        "+0.0",
        "–",
    ]


def test_a_plan_keeps_tables_of_other_data(tmp_path: Path) -> None:
    """A table is replaced by one of the same name on the same data only."""
    store = Store(tmp_path)
    store.create()

    def table(name: str, dataset: str, key: str) -> PlannedTable:
        cell = PlannedCell(Cell(dataset, "original", 128, 1, 0, 128), "original", key, None)
        return PlannedTable(name, dataset, "d", "T", "S", "A", "l2route", (cell,))

    store.write_plan([table("sota", "a", "1"), table("table1", "a", "2")])
    store.write_plan([table("table1", "b", "3")])
    store.write_plan([table("table1", "a", "4")])
    got = [(t.name, t.dataset, t.cells[0].key) for t in store.tables()]
    assert got == [("table1", "b", "3"), ("table1", "a", "4"), ("sota", "a", "1")]


def test_a_missing_peer_is_skipped_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on, and the page says why there is no figure."""

    def missing(seed: int, minutes: float) -> Any:
        raise ImportError("not installed")

    monkeypatch.setattr(methods, "METHODS", (methods.Entry("annoy", "", missing, ("sota",)),))
    source = Source.of(Dataset.read(make_file(tmp_path)))
    cell = Cell("sift_tiny", "annoy", 512, 1, 0, 512)
    job = Job.of(cell, Method("Annoy", peer="annoy"), source, None, 0)
    store = Store(tmp_path)
    store.create()
    shop = Workshop(source, tmp_path, 0)
    store.write(job, shop.run(job))
    store.write_source(source, shop.truth(source.data.query))
    assert not store.is_finished(job.key)
    planned = PlannedCell(cell, "Annoy", job.key, None)
    table = PlannedTable("sota", "sift_tiny", source.digest, "T", "S", "A", "l2route", (planned,))
    store.write_plan([table])
    figure = summarize(store)[0].figures[0]
    assert figure.skipped == "not installed"
    assert cells_of(figure)[4] == "skipped"
    assert 'title="not installed">skipped' in page(summarize(store), store)
    assert "Annoy: skipped, not installed." in as_markdown(summarize(store), store)


def test_data_without_training_queries_is_refused(tmp_path: Path) -> None:
    """Before anything is run."""
    data = Dataset.read(make_file(tmp_path))
    Dataset("bare", data.base, data.query).write(tmp_path / "bare.npz")
    with pytest.raises(ValueError, match=r"expected training queries \(learn\) in bare"):
        run_experiments(["table1"], [tmp_path / "bare.npz"], tmp_path / "run")


def test_the_command_line_runs_reports_and_says_how_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`reproduce`, `progress` and `report`, with a second file after the first."""
    first, second = make_file(tmp_path, "a"), make_file(tmp_path, "b", 200)
    run = tmp_path / "run"

    def call(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["l2route", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert stopped.value.code in (0, None)
        return capsys.readouterr().out

    files = ["--data", str(first), str(second)]
    options = ["--minutes-per-run", "0.001", "-o", str(run)]
    assert "## Figure 4" in call("reproduce", "routing", *files, *options)
    assert call("progress", str(run)).startswith("[8/8] b, learned ×1 at 256: recall@1 ")
    Store(run).write_progress(Store(run).progress() | {"now": "b: step 1", "n_done": 7})
    assert "b: step 1 (cut off; the same command goes on)" in call("progress", str(run))
    text = tmp_path / "results.md"
    assert call("report", str(run), "--markdown", str(text)).strip() == str(run / "report.html")
    command = "l2route reproduce routing --data b.npz --out run --minutes-per-run 0.001"
    assert command in text.read_text()


def test_a_run_in_the_background_goes_on_alone(tmp_path: Path) -> None:
    """The command comes back at once, and the run finishes without it."""
    run, data = tmp_path / "run", make_file(tmp_path)
    words = ["reproduce", "routing", "--data", str(data), "--minutes-per-run", "0.001"]
    words += ["--out", str(run), "--background"]
    done = subprocess.run(
        [sys.executable, "-m", "l2route", *words], capture_output=True, text=True, check=True
    )
    assert f"l2route progress {run}" in done.stdout
    for _ in range(600):
        facts = Store(run).progress() if run.exists() else None
        if facts is not None and facts["n_done"] == 4:
            break
        time.sleep(0.1)
    assert len(list((run / "results").glob("*.json"))) == 4
    assert "recall@1" in (run / "log.txt").read_text()


def test_a_mistyped_file_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is run, in the background or not."""
    words = ["reproduce", "all", "--data", str(tmp_path / "sfit.npz"), "--background"]
    monkeypatch.setattr("sys.argv", ["l2route", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "expected files of data, got no" in capsys.readouterr().err
