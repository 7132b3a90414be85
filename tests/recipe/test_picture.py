"""Laws of the picture of a build: every step has its bar, its share and its decision in words."""

from __future__ import annotations

import builtins
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from build_reports import GAINED, GAINED_NOTHING, LONG, UNREACHED, report_of, reports, step
from l2route.recipe.picture import BLUE, ORANGE, PALE, TITLES, short_note, write_picture
from l2route.recipe.report import BuildReport


def axes_of(report: BuildReport) -> Axes:
    """The axes of the picture of a report."""
    (axes,) = report.plot().axes
    return axes


def bars_of(report: BuildReport) -> list[Rectangle]:
    """The bars of a picture, from top to bottom."""
    bars = [each for each in axes_of(report).patches if isinstance(each, Rectangle)]
    return sorted(bars, key=lambda bar: (bar.get_y(), bar.get_x()))


def row_of(bar: Rectangle) -> int:
    """The number of the step that a bar belongs to."""
    return round(bar.get_y() + bar.get_height() / 2)


def texts_of(report: BuildReport) -> list[str]:
    """All that is written in a picture."""
    figure = report.plot()
    return [text.get_text() for text in (*figure.texts, *figure.axes[0].texts)]


def ends_of(report: BuildReport) -> dict[int, float]:
    """How far the bars of each row reach without what was lost, in queries a second."""
    ends: dict[int, float] = {}
    for bar in bars_of(report):
        if not bar.get_hatch() or bar.get_x() == 0:
            row, end = row_of(bar), bar.get_x() + bar.get_width()
            ends[row] = max(end, ends.get(row, 0.0))
    return ends


def hex_of(bar: Rectangle) -> str:
    """The colour of a bar."""
    red, green, blue, _ = (round(255 * each) for each in bar.get_facecolor())  # type: ignore[union-attr]
    return f"#{red:02X}{green:02X}{blue:02X}"


def test_bars_end_at_queries_a_second() -> None:
    """Bars end at the queries a second after each step; a skipped step has no bar."""
    speeds = [each.cost.speed for each in GAINED.steps if each.cost is not None]
    assert ends_of(GAINED) == pytest.approx(dict(enumerate(speeds[:-1])))


def test_gains_losses_and_what_was_there_before_differ() -> None:
    """What there was is pale, what was gained is dark, what was lost or not kept is hatched."""
    by_row: dict[int, list[Rectangle]] = {}
    for bar in bars_of(GAINED):
        by_row.setdefault(row_of(bar), []).append(bar)
    edges, entries, renumbered = by_row[1], by_row[2], by_row[4]
    assert [hex_of(bar) for bar in edges] == [PALE, BLUE]
    assert [bar.get_width() for bar in edges] == pytest.approx([1000, 250])
    assert [bool(bar.get_hatch()) for bar in entries] == [True]
    lost = renumbered[-1]
    assert (lost.get_x(), lost.get_width()) == pytest.approx((1350, 150))
    assert lost.get_hatch()
    red, green, blue, _ = lost.get_edgecolor()  # type: ignore[misc]
    assert f"#{round(255 * red):02X}{round(255 * green):02X}{round(255 * blue):02X}" == ORANGE


def test_every_step_is_described() -> None:
    """Each step has its name, share, decision, recall, time and memory, in words."""
    texts = texts_of(GAINED)
    assert [text for text in texts if text in TITLES.values()] == [
        TITLES[each.name] for each in GAINED.steps
    ]
    shares = [text for text in texts if text[:1] in "×+−" and len(text) < 6]
    assert shares == ["×1.25", "×1.20", "−10%", "×2.00"]
    assert texts.count("kept · recall 0.951, worst 5% 0.712") == 5
    assert (texts.count("not kept"), texts.count("skipped")) == (1, 1)
    assert texts.count("1.5 s · 1,792 bytes a vector") == 6  # a skipped step took nothing
    assert "still 1,250" in texts
    assert "there are no queries to learn from" in texts
    assert "float16 routing vectors" in texts
    assert "1,000 → 2,700 queries a second, ×2.70 in all; ×1.50 by learning from the log" in texts


def test_nothing_gained_is_said() -> None:
    """If learning brought nothing, the title says so, and no bar is dark but the first."""
    texts = texts_of(GAINED_NOTHING)
    title = "1,000 → 1,000 queries a second, ±0% in all; learning from the log brought nothing on "
    assert any(text.startswith(title) for text in texts)
    assert "it is no better than 'original'" in texts
    assert [hex_of(bar) for bar in bars_of(GAINED_NOTHING)].count(BLUE) == 1
    assert not any(text.startswith("×") for text in texts)


def test_an_unreached_recall_is_said() -> None:
    """Without a setting that reaches the recall there are no bars, and the title says why."""
    texts = texts_of(UNREACHED)
    assert "No setting reaches a recall@10 of 0.95" in texts
    assert "kept · no setting reaches the recall" in texts
    assert any("no setting was found" in text for text in texts)
    assert bars_of(UNREACHED) == []
    unmeasured = texts_of(replace(UNREACHED, n_measured=0))
    assert "Nothing was measured: there are too few vectors" in unmeasured
    assert "kept · not measured" in unmeasured


def test_a_recall_that_a_later_step_reaches() -> None:
    """A step after which the recall is reached for the first time has no share."""
    report = report_of(step("build", None), step("edges", 500), step("learn", 600))
    assert report.shares == (None, None, pytest.approx(1.2))
    assert set(ends_of(report)) == {1, 2}


def test_shares_are_multiples_of_the_step_before() -> None:
    """Shares multiply to the whole; those of steps that were not kept are None."""
    assert GAINED.shares == pytest.approx([None, 1.25, None, 1.2, 0.9, 2.0, None])
    assert GAINED.share_of(["edges", "learn", "entries"]) == pytest.approx(1.5)
    assert GAINED.share_of([each.name for each in GAINED.steps]) == pytest.approx(2.7)
    assert GAINED_NOTHING.share_of(["edges"]) == 1.0


def test_the_table_has_speeds_and_shares() -> None:
    """`print` shows queries a second, the share of each step or what became of it, and the sum."""
    lines = str(GAINED).splitlines()
    assert lines[1].split()[-2:] == ["queries/s", "share"]
    assert [line.split()[-2:] for line in lines[2:5]] == [
        ["1,000", "–"],
        ["1,250", "×1.25"],
        ["not", "kept"],
    ]
    assert lines[9] == GAINED.summary()
    repeated = [replace(each, note="skipped: no log") for each in GAINED.steps[:2]]
    text = str(replace(GAINED, steps=(*repeated, *GAINED.steps[2:])))
    assert "build, edges: skipped: no log" in text


def test_long_notes_are_cut() -> None:
    """A note has at most two lines in the picture; what was tried in vain before is left out."""
    noted = GAINED_NOTHING.steps[-1]
    assert noted.note == LONG
    assert len(short_note(noted).splitlines()) == 2
    assert short_note(noted).endswith(" …")
    assert short_note(GAINED.steps[5]) == "float16 routing vectors"


def test_no_text_leaves_the_picture() -> None:
    """All that is written is within the figure, and notes do not touch the next row."""
    steps = [step(name, 1e6, "not kept", LONG) for name in TITLES]
    figure = report_of(*steps).plot()
    whole = figure.get_window_extent()
    boxes = [text.get_window_extent() for text in (*figure.texts, *figure.axes[0].texts)]
    for box in boxes:
        assert whole.x0 <= box.x0
        assert box.x1 <= whole.x1
        assert whole.y0 <= box.y0
        assert box.y1 <= whole.y1
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])


@settings(max_examples=20)
@given(reports)
def test_any_report_can_be_drawn(report: BuildReport) -> None:
    """Whatever numbers and texts a report has, there is a picture of it."""
    assert report.plot().axes[0].get_xlim()[1] > 0


@pytest.mark.parametrize("kind", ["png", "svg", "pdf", "html"])
def test_pictures_are_files(tmp_path: Path, kind: str) -> None:
    """The ending of the name says which kind of file is written."""
    path = tmp_path / f"picture.{kind}"
    write_picture(GAINED, path)
    starts = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF", "html": b"<!doctype html>"}
    assert path.read_bytes().startswith(starts[kind])


def test_other_files_are_refused(tmp_path: Path) -> None:
    """The error names the kinds that there are."""
    with pytest.raises(ValueError, match=r"expected a file \.png, \.svg, .*got 'picture\.gif'"):
        write_picture(GAINED, tmp_path / "picture.gif")


def test_the_same_report_is_the_same_picture(tmp_path: Path) -> None:
    """SVG files of equal reports are equal."""
    for name in ("a.svg", "b.svg"):
        write_picture(GAINED, tmp_path / name)
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "b.svg").read_text()


def test_a_notebook_shows_picture_and_table() -> None:
    """In a notebook a report is its picture, with the table below; text cannot become markup."""
    steps = (*GAINED.steps[:-1], step("stop", 2700, "not kept", "<script>alert(1)</script>"))
    shown = replace(GAINED, steps=steps)._repr_html_()
    assert "<svg" in shown
    assert "queries/s" in shown
    assert "<script" not in shown


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install; a notebook shows the table."""
    real = builtins.__import__

    def no_matplotlib(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(ImportError, match=r"expected matplotlib for plots.*l2route\[plots\]"):
        GAINED.plot()
    assert GAINED._repr_html_().startswith("<pre>100,000 vectors")
