"""Laws of the HTML report."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from l2route.data.dataset import Dataset
from l2route.evaluation.compare import methods
from l2route.reproduce.jobs import Job, JobRunner, Source
from l2route.reproduce.page import page
from l2route.reproduce.plan import Cell, Method
from l2route.reproduce.store import PlannedCell, PlannedTable, Store
from l2route.reproduce.summary import as_markdown, cells_of, summarize
from paper_runs import Finished, make_file

pytestmark = pytest.mark.usefixtures("small_data_stands_in")

DATA_FACTS = ("n_base", "n_learn", "n_query", "dim", "metric")


def test_the_page_is_self_contained(finished: Finished, tmp_path: Path) -> None:
    """The page loads no other file, shows every figure, and its commands name no directory."""
    path, run = finished.data, tmp_path / "run"
    shutil.copytree(finished.run, run)
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
    assert html.count("<img") == 4  # recall by budget twice, curves at 128 and at 256
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


def test_a_missing_library_is_skipped_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other cells are run, and the page states why this one has no result."""

    def missing(seed: int, minutes: float) -> Any:
        raise ImportError("not installed")

    monkeypatch.setattr(methods, "METHODS", (methods.Entry("annoy", "", missing, ("sota",)),))
    source = Source.of(Dataset.read(make_file(tmp_path)))
    cell = Cell("sift_tiny", "annoy", 512, 1, 0, 512)
    job = Job.of(cell, Method("Annoy", peer="annoy"), source, None, 0)
    store = Store(tmp_path)
    store.create()
    runner = JobRunner(source, tmp_path, 0)
    store.write(job, runner.run(job))
    store.write_source(source, runner.truth(source.data.query))
    assert not store.is_finished(job.key)
    planned = PlannedCell(cell, "Annoy", job.key, None)
    table = PlannedTable("sota", "sift_tiny", source.digest, "T", "S", "A", "l2route", (planned,))
    store.write_plan([table])
    figure = summarize(store)[0].figures[0]
    assert figure.skipped == "not installed"
    assert cells_of(figure)[4] == "skipped"
    assert 'title="not installed">skipped' in page(summarize(store), store)
    assert "Annoy: skipped, not installed." in as_markdown(summarize(store), store)
