"""Laws of runs of the paper's experiments, on data so small that they take seconds."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.data.dataset import Dataset
from l2route.files.formats import read_npz
from l2route.reproduce.jobs import Job, JobRunner, Outcome
from l2route.reproduce.plan import EXPERIMENTS
from l2route.reproduce.runner import run_experiments
from l2route.reproduce.store import Store
from l2route.reproduce.summary import summarize
from paper_runs import MINUTES, Finished, make_file

pytestmark = pytest.mark.usefixtures("small_data_stands_in")


def test_all_cells_have_a_result(finished: Finished) -> None:
    """Equal cells of two experiments share a result, and the last status has nothing left."""
    run, _, statuses = finished
    tables = summarize(Store(run))
    figures = [figure for table in tables for figure in table.figures]
    assert [table.plan.name for table in tables] == list(EXPERIMENTS)
    assert all(figure.recall is not None for figure in figures)
    assert len(list((run / "results").glob("*.json"))) < len(figures)
    assert (statuses[-1].n_done, statuses[-1].seconds_left) == (statuses[-1].n_cells, 0)
    assert [progress.n_done for progress in statuses] == list(range(statuses[-1].n_cells + 1))
    assert "recall@1" in statuses[1].last
    assert statuses[0].now == "sift_tiny, original ×1 at 128"
    assert statuses[-1].now == ""


def test_results_are_stored_query_by_query(finished: Finished) -> None:
    """Every query has its answer, counts within the budget and time; the context is stored too."""
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


def test_finished_cells_are_not_run_again(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run computes nothing; with another time limit only learned cells are run."""
    path, run = finished.data, tmp_path / "run"
    shutil.copytree(finished.run, run)
    ran: list[Job] = []

    def record(self: JobRunner, job: Job, on_event: Any = None) -> Outcome:
        ran.append(job)
        raise KeyboardInterrupt

    monkeypatch.setattr(JobRunner, "run", record)
    run_experiments(["table1"], [path], run, minutes=MINUTES)
    assert not ran
    with pytest.raises(KeyboardInterrupt):
        run_experiments(["table1"], [path], run, minutes=2 * MINUTES)
    assert ran[0].method.space == "learned"
    monkeypatch.setattr(
        JobRunner,
        "run",
        lambda self, job, on_event: (
            ran.append(job)
            or Outcome({"distances": np.zeros(40, np.float32), "ids": np.zeros(40, np.int64)}, {})
        ),
    )
    run_experiments(["table1"], [path], run, minutes=2 * MINUTES)
    assert len(ran) == 18
    assert {job.method.space for job in ran} == {"learned"}


def test_two_runs_do_not_share_a_directory(tmp_path: Path) -> None:
    """The second is refused, and the directory is locked."""
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
    """The other cells are run, and the next run computes the skipped one."""
    data, real = make_file(tmp_path), JobRunner.run

    def fail(self: JobRunner, job: Job, on_event: Any = None) -> Outcome:
        if job.method.space == "learned" and job.budget == 128:
            raise ValueError("no luck")
        return real(self, job, on_event)

    with monkeypatch.context() as patch:
        patch.setattr(JobRunner, "run", fail)
        run_experiments(["routing"], [data], tmp_path / "run", minutes=MINUTES)
    (table,) = summarize(Store(tmp_path / "run"))
    assert [figure.skipped for figure in table.figures] == [None, "no luck", None, None]
    run_experiments(["routing"], [data], tmp_path / "run", minutes=MINUTES)
    (table,) = summarize(Store(tmp_path / "run"))
    assert all(figure.recall is not None for figure in table.figures)


def test_data_without_training_queries_is_refused(tmp_path: Path) -> None:
    """It is refused before anything is run."""
    data = Dataset.read(make_file(tmp_path))
    Dataset("bare", data.base, data.query).write(tmp_path / "bare.npz")
    with pytest.raises(ValueError, match=r"expected training queries \(learn\) in bare"):
        run_experiments(["table1"], [tmp_path / "bare.npz"], tmp_path / "run")
