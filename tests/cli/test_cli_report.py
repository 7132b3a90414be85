"""The command `report`: the picture of a build. Runs of experiments are in test_paper.py."""

from pathlib import Path

import numpy as np
import pytest

from build_reports import GAINED
from command_line import BUILD, Run
from l2route.recipe.report import BuildReport

SERVED = (
    "build data.npz:base -o served.l2r --degree 8 --ef-construction 40 --threads 1 --recall 0.9"
)


def test_a_build_is_drawn_from_its_index(workdir: Path, run: Run) -> None:
    """`build` names the command that draws what it kept; `report` prints the table and a file."""
    code, out, _ = run(SERVED)
    assert code == 0
    assert out.splitlines()[-1] == "the same as a picture: l2route report served.l2r"
    table = out.splitlines()[:-1]
    code, out, err = run("report served.l2r")
    assert (code, err) == (0, "")
    assert out.splitlines() == [*table, "served.report.png"]
    assert (workdir / "served.report.png").read_bytes().startswith(b"\x89PNG")
    assert run("search served.l2r --queries data.npz:query --recall 0.9")[0] == 0


def test_a_saved_report_is_drawn(workdir: Path, run: Run) -> None:
    """-o says which kind of file is written; .json saves the report itself."""
    GAINED.save(workdir / "build.json")
    for name in ("picture.svg", "picture.html", "copy.json"):
        code, out, _ = run(f"report build.json -o {name}")
        assert code == 0
        assert out.splitlines()[-1] == name
        assert (workdir / name).stat().st_size > 100
    assert BuildReport.load(workdir / "copy.json") == GAINED


def test_the_report_follows_changes(workdir: Path, run: Run) -> None:
    """The report is still there after vectors were added, and gone after a plain build."""
    np.save(workdir / "new.npy", np.ones((2, 8), dtype=np.float32))
    assert run(SERVED)[0] == 0
    assert run("add served.l2r new.npy")[0] == 0
    assert run("report served.l2r -o picture.svg")[0] == 0
    assert run(BUILD.replace("words.l2r", "served.l2r --force"))[0] == 0
    code, _, err = run("report served.l2r")
    assert code == 2
    assert "expected an index made by l2route.build, got one without a report" in err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("report nothing", "expected an index, a report or a run, got no nothing"),
        ("report empty", "expected an index (meta.json) or a run of experiments (plan.json) in"),
        ("report data.npz", "data.npz: expected JSON"),
        ("report build.json -o picture.gif", "expected a file .png, .svg, .pdf, .html, .json, got"),
        ("report build.json --markdown x.md", "expected a run of experiments with --markdown"),
    ],
)
def test_what_is_no_report_is_refused(workdir: Path, run: Run, line: str, says: str) -> None:
    """One line says what was expected and what came; nothing is written."""
    (workdir / "empty").mkdir()
    GAINED.save(workdir / "build.json")
    before = sorted(workdir.iterdir())
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert says in err
    assert sorted(workdir.iterdir()) == before
