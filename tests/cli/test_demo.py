"""The demo at a small size."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from l2route import load
from l2route.cli import demo
from l2route.cli.demo import BUDGETS, Point, run_demo
from l2route.data.labels import Labels
from l2route.data.public import demo_words

WORDS = demo_words(n_base=2_000, n_learn=1_000, n_query=200)


def run(out: Path, steps: int, minutes: float) -> tuple[list[Point], list[Point], str]:
    """Run the demo: the points of both tables, and the printed text."""
    printed = StringIO()
    console = Console(file=printed, width=100)
    points, served = run_demo(WORDS, out, console, steps=steps, minutes=minutes)
    return points, served, printed.getvalue()


def test_the_demo(tmp_path: Path) -> None:
    """Recall@10 rises with the budget for every method; no learned row is worse without a reason.

    No method computes more distances than a budget allows; the picture, the indexes and the words
    are kept, and the command is printed that opens the page on them.
    """
    points, served, printed = run(tmp_path, steps=100, minutes=0.02)
    recalls = {(point.method, point.budget): point.recall for point in points}
    for method in {point.method for point in points}:
        line = [recalls[method, budget] for budget in BUDGETS if (method, budget) in recalls]
        assert line == sorted(line)
        assert line[-1] > 0.9
    for point in points:
        assert point.budget is not None
        assert point.n_computed is not None
        assert 0.5 * point.budget < point.n_computed <= 1.02 * point.budget
        if recalls.get(("learned", point.budget), 1.0) < recalls["plain", point.budget]:
            assert f"at {point.budget} learning loses" in printed
    assert [point.method for point in served] == ["l2route", "hnswlib"]
    assert all(point.recall == pytest.approx(0.95, abs=0.03) for point in served)
    headings = [line for line in printed.splitlines() if "recall@10" in line and "µs" in line]
    assert len(headings) == 1
    assert len(set(headings[0].split())) == len(headings[0].split())
    assert (tmp_path / "recall.png").read_bytes().startswith(b"\x89PNG")
    assert load(tmp_path / "words.l2r").info()["settings"][0]["target"] == 0.95
    opened = "paper.l2r" if (tmp_path / "paper.l2r").exists() else "words.l2r"
    names = tmp_path / "words.tsv"
    assert f"l2route serve {tmp_path / opened} --labels {names}" in printed
    index, labels = load(tmp_path / opened), Labels.read(names)
    assert len(labels) == len(index) == len(WORDS.base_words)
    assert labels.names(index.ids) == [WORDS.base_words[i] for i in index.ids.tolist()]
    assert (opened == "paper.l2r") == any(point.method == "learned" for point in points)
    ranks = WORDS.base_ranks[[id_ for id_, _ in labels]]
    assert (ranks[1:] > ranks[:-1]).all()


def test_the_demo_without_hnswlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without hnswlib its rows are left out, and the reason is printed."""

    def missing(*_: object, **__: object) -> None:
        raise ImportError("No module named 'hnswlib'")

    monkeypatch.setattr(demo, "Hnswlib", missing)
    points, served, printed = run(tmp_path, steps=2, minutes=0.0)
    assert {point.method for point in points} <= {"plain", "learned"}
    assert [point.method for point in served] == ["l2route"]
    assert "hnswlib: left out, since No module named 'hnswlib'" in printed


@pytest.mark.parametrize("learned", [0.4, 0.6])
def test_losses_have_a_reason(learned: float) -> None:
    """A reason is given for each budget at which the learned recall is below the plain one."""
    points = [
        Point(method, budget, recall, budget, 1.0)
        for budget in BUDGETS
        for method, recall in (("plain", 0.5), ("learned", learned))
    ]
    assert len(demo._losses(points)) == (len(BUDGETS) if learned < 0.5 else 0)
