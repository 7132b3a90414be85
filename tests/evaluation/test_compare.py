"""Laws of comparisons: methods take turns, raw results are kept, speeds are interpolated."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from l2route.cli import compare as commands
from l2route.cli.app import main
from l2route.data.dataset import Dataset
from l2route.data.truth import exact_neighbors
from l2route.evaluation.compare import methods
from l2route.evaluation.compare import report as speeds
from l2route.evaluation.compare.methods import Entry, select
from l2route.evaluation.compare.run import Comparison, Line, Point, compare
from l2route.evaluation.judge import Judge

N, DIM = 500, 16


def make_data() -> Dataset:
    """A small dataset with training queries."""
    rng = np.random.default_rng(0)
    base, learn, query = (rng.normal(size=(n, DIM)).astype(np.float32) for n in (N, 60, 120))
    return Dataset("little", base, query, learn=learn)


class Honest:
    """Finds the first `knob` of the ten nearest, and logs its searches."""

    knobs = (2, 5, 9, 10, 10)
    learn_seconds = 0.0

    def __init__(self, log: list[tuple[str, int]], name: str) -> None:
        self.log, self.name = log, name

    def build(self, data: Dataset) -> None:
        """Find the true neighbours."""
        self.data = data
        self.truth = exact_neighbors(data.base, data.query, 10).ids

    def set(self, knob: int) -> None:
        """Set the number to find."""
        self.knob = knob

    def search(self, queries: NDArray[np.float32], k: int) -> NDArray[np.int64]:
        """The first of the true neighbours."""
        if len(queries) == len(self.data.query):
            self.log.append((self.name, self.knob))
        ids = self.truth[: len(queries)].copy()
        ids[:, self.knob :] = -1
        return ids

    def count(self, queries: NDArray[np.float32], k: int) -> NDArray[np.int64] | None:
        """Ten times the knob."""
        return np.full(len(queries), 10 * self.knob)

    def n_bytes(self) -> int | None:
        """100 per vector."""
        return 100 * N


class Absent(Honest):
    """Cannot be built."""

    def build(self, data: Dataset) -> None:
        """Fail."""
        raise OSError("expected another machine")


class Fragile(Honest):
    """Fails at its smallest knob."""

    def search(self, queries: NDArray[np.float32], k: int) -> NDArray[np.int64]:
        """Fail as hnswlib does if it finds too few."""
        if self.knob == 2:
            raise RuntimeError("ef or M is too small")
        return super().search(queries, k)


def test_methods_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each method explores its knobs up to HIGHEST; then all are timed again, in order."""
    log: list[tuple[str, int]] = []
    entries = (
        Entry("a", "one", lambda *_: Honest(log, "a")),
        Entry("b", "two", lambda *_: Honest(log, "b")),
        Entry("c", "none", lambda *_: Absent(log, "c")),
    )
    monkeypatch.setattr(methods, "METHODS", entries)
    messages: list[str] = []
    out = tmp_path / "new" / "raw.json"
    result = compare(make_data(), n_rounds=3, out=out, on_message=messages.append)
    knobs = [2, 5, 9, 10]  # recall is 1 at 10: no larger knob is tried
    explored = [(name, knob) for name in "ab" for knob in knobs for _ in range(2)]
    repeated = [(name, knob) for name in "ab" for knob in knobs] * 2
    assert log == explored + repeated
    assert result.skipped == {"c (none)": "expected another machine"}
    assert [line.label for line in result.lines] == ["one", "two"]
    for line in result.lines:
        np.testing.assert_allclose([p.recall for p in line.points], [0.2, 0.5, 0.9, 1.0])
        assert [p.n_computed for p in line.points] == [20, 50, 90, 100]
        assert all(len(p.seconds) == 3 for p in line.points)
        assert line.bytes_per_vector == 100
    assert messages[-1] == "round 3 of 3 done"
    assert Comparison.read(out) == result


def test_a_point_that_fails_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is reported; later points and other methods are still measured."""
    entries = (
        Entry("a", "one", lambda *_: Fragile([], "a")),
        Entry("b", "two", lambda *_: Honest([], "b")),
    )
    monkeypatch.setattr(methods, "METHODS", entries)
    result = compare(make_data(), n_rounds=2)
    assert [[p.knob for p in line.points] for line in result.lines] == [[5, 9, 10], [2, 5, 9, 10]]
    assert result.skipped == {"a (one) at 2": "ef or M is too small"}


def test_recall_is_computed_from_distances() -> None:
    """Either of two equal vectors counts as found; missing and farther answers do not."""
    base = np.array([[0.0], [1.0], [1.0], [5.0]], dtype=np.float32)
    judge = Judge(Dataset("twins", base, np.zeros((1, 1), dtype=np.float32)), k=2)
    answers = ([0, 1], [0, 2], [0, 3], [0, -1], [-1, -1])
    assert [judge.recall(np.array([ids])) for ids in answers] == [1, 1, 0.5, 0.5, 0]


def test_wrong_names_and_numbers_are_refused() -> None:
    """Unknown methods and too few rounds are refused before anything is built."""
    with pytest.raises(ValueError, match=r"expected a method of l2route, .*, got 'guess'"):
        compare(make_data(), ["guess"])
    with pytest.raises(ValueError, match="expected at least one round, got 0"):
        compare(make_data(), ["hnswlib"], n_rounds=0)


def made(lines: dict[str, list[tuple[float, float]]]) -> Comparison:
    """A comparison of recalls and speeds, 1,000 queries; names are method and label."""
    result = Comparison("some", N, DIM, 1000, 0)
    for name, points in lines.items():
        method, label = name.split()
        line = Line(method, label, 30.0, 10.0, 200.0)
        line.points = [Point(i, r, 10.0 * i, [1.0, 1000 / s]) for i, (r, s) in enumerate(points)]
        result.lines.append(line)
    return result


def test_speeds_are_interpolated() -> None:
    """Speeds are interpolated on a log scale, without dominated points; the faster line counts."""
    result = made(
        {
            "l2route a": [(0.8, 40_000), (0.9, 20_000), (0.99, 10_000)],
            "peer x": [(0.85, 8000), (0.95, 2000), (0.94, 1000)],
            "peer y": [(0.85, 4000), (0.99, 4000)],
        }
    )
    assert result.speed(result.lines[1], 0.90) == pytest.approx(4000)  # the geometric mean
    assert result.speed(result.lines[1], 0.99) is None
    assert result.speed(result.lines[1], 0.80) is None
    best = result.best("peer", 0.94)
    assert best is not None
    assert (best[0], best[1].label) == (pytest.approx(4000), "y")
    rows = {row[0].split()[0]: row for row in speeds.table_rows(result)}
    cells = dict(zip(speeds.header(), rows["peer"], strict=True))
    assert cells["q/s at 0.90"] == "4,000"
    assert cells["× at 0.90"] == "5.00"
    assert cells["× at 0.99"] == "2.50"
    assert (cells["build s"], cells["learn s"], cells["bytes"]) == ("20", "10", "200")
    own = dict(zip(speeds.header(), rows["l2route"], strict=True))
    assert own["× at 0.90"] == "–"
    assert own["scored at 0.95"] == "16"
    np.testing.assert_allclose(result.envelope(result.lines[1:]), [[0.85, 8000], [0.99, 4000]])


def test_a_method_without_points_is_not_drawn(tmp_path: Path) -> None:
    """A method without points has dashes in the table and no line in the picture."""
    result = made({"l2route a": [(0.8, 40_000), (0.99, 20_000)], "peer x": []})
    result.skipped["other (z)"] = "not installed"
    markdown = speeds.as_markdown(result)
    assert "| peer (x) | – | – | – |" in markdown
    assert "Not measured: other (z): not installed" in markdown
    speeds.plot(result, tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="expected at least one curve with points, got none"):
        speeds.plot(made({"peer x": []}), tmp_path / "none.png")


def test_tables_fit_a_narrow_terminal() -> None:
    """No name and no number is truncated at 80 columns."""
    result = made({})
    for entry in select("compare"):
        line = Line(entry.method, entry.label, 3600.0, 300.0, 1024.0)
        line.points = [Point(i, r, 10_000.0, [0.005]) for i, r in enumerate((0.8, 0.995))]
        result.lines.append(line)
    printed = StringIO()
    Console(width=80, file=printed).print(*speeds.rich_tables(result))
    assert "200,000" in printed.getvalue()
    assert "…" not in printed.getvalue()


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the command line, and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["l2route", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_the_metric_of_a_file_can_be_overridden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`--metric` overrides the metric of the file."""
    make_data().write(tmp_path / "little.npz")
    metrics: list[str] = []

    def spy(data: Dataset, *_: object, **__: object) -> Comparison:
        metrics.append(data.metric)
        raise ValueError("seen")

    monkeypatch.setattr(commands, "run_comparison", spy)
    words = ["compare", "--data", str(tmp_path / "little.npz"), "-o", str(tmp_path / "out")]
    for more in ((), ("--metric", "cosine"), ("--metric", "ip")):
        assert call(monkeypatch, *words, *more) == 2
    assert metrics == ["l2", "cosine", "ip"]


def test_the_command_writes_results_table_and_picture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[Any]
) -> None:
    """`compare` writes raw results, a table and a picture, and remakes both from raw results."""
    data = make_data()
    data.write(tmp_path / "little.npz")
    out = tmp_path / "out"
    words = ["compare", "--data", str(tmp_path / "little.npz"), "--rounds", "1", "-o", str(out)]
    assert call(monkeypatch, *words, "--methods", "hnswlib, l2route-pca64") == 0
    printed = capsys.readouterr()
    assert "l2route-pca64 (int8)" in printed.out
    assert "l2route-pca64" in printed.err
    raw = json.loads((out / "little.json").read_text())
    assert [line["method"] for line in raw["lines"]] == ["l2route-pca64", "hnswlib", "hnswlib"]
    assert raw["context"]["versions"]["hnswlib"]
    table = (out / "little.md").read_text()
    again = tmp_path / "again"
    read = ["compare", "--data", str(out / "little.json"), "-o", str(again), "--markdown"]
    assert call(monkeypatch, *read) == 0
    assert (again / "little.md").read_text() == table
    assert table.strip() in capsys.readouterr().out
    assert (again / "little.png").exists()
    assert call(monkeypatch, *words, "--methods", "guess") == 2
