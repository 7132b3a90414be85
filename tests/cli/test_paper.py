"""The commands `reproduce`, `progress` and `report`."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from l2route.cli import app as cli
from l2route.reproduce.store import Store
from paper_runs import make_file


def test_reproduce_progress_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`reproduce`, `progress` and `report` on two files."""
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
    Store(run).write_status(Store(run).status() | {"now": "b: step 1", "n_done": 7})
    assert "b: step 1 (interrupted; the same command resumes it)" in call("progress", str(run))
    text = tmp_path / "results.md"
    assert call("report", str(run), "--markdown", str(text)).strip() == str(run / "report.html")
    command = "l2route reproduce routing --data b.npz --out run --minutes-per-run 0.001"
    assert command in text.read_text()


def test_a_run_in_the_background_outlives_the_command(tmp_path: Path) -> None:
    """The command returns at once, and the run finishes without it."""
    run, data = tmp_path / "run", make_file(tmp_path)
    words = ["reproduce", "routing", "--data", str(data), "--minutes-per-run", "0.001"]
    words += ["--out", str(run), "--background"]
    done = subprocess.run(
        [sys.executable, "-m", "l2route", *words], capture_output=True, text=True, check=True
    )
    assert f"l2route progress {run}" in done.stdout
    for _ in range(600):
        facts = Store(run).status() if run.exists() else None
        if facts is not None and facts["n_done"] == 4:
            break
        time.sleep(0.1)
    assert len(list((run / "results").glob("*.json"))) == 4
    assert "recall@1" in (run / "log.txt").read_text()


def test_a_missing_file_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file is refused before anything is run, also in the background."""
    words = ["reproduce", "all", "--data", str(tmp_path / "sfit.npz"), "--background"]
    monkeypatch.setattr("sys.argv", ["l2route", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "expected files of data, got no" in capsys.readouterr().err
