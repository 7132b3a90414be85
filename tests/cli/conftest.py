"""A directory with data, and a way to call the command line in it."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from l2route.cli.app import main


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with vectors and queries; it becomes the working directory."""
    rng = np.random.default_rng(0)
    arrays: dict[str, NDArray[np.float32]] = {
        "base": rng.normal(size=(400, 8)).astype(np.float32),
        "query": rng.normal(size=(20, 8)).astype(np.float32),
    }
    np.savez(tmp_path / "data.npz", **arrays)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[int, str, str]]:
    """Call the command line: exit code, output, errors."""

    def call(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["l2route", *line.split()])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return call
