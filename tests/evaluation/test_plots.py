"""Laws of the pictures of operating points and of walks."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from l2route.evaluation.plots import (
    draw_recall_against_budget,
    draw_recall_against_distances,
    draw_success_by_hops,
    plot_recall_against_budget,
    write_figure,
)
from l2route.evaluation.tables import Row

BUDGETS = (128, 256, 512)
CURVES = {"plain": np.array([0.0, 0.2, 0.6]), "learned": np.array([0.1, 0.5, 0.8, 0.9])}


def measured(method: str, recalls: Sequence[float]) -> list[Row]:
    """One row per budget, with slightly fewer distances than the budget."""
    return [
        Row(method, budget, None, recall / 2, recall, 0.96 * budget, 9.0, 100.0)
        for budget, recall in zip(BUDGETS, recalls, strict=True)
    ]


ROWS = measured("plain", (0.3, 0.6, 0.8)) + measured("learned", (0.5, 0.7, 0.9))


def line_of(axes: Axes, method: str) -> Line2D:
    """The one line with this label."""
    (line,) = [line for line in axes.get_lines() if line.get_label() == method]
    return line


def labels(axes: Axes) -> list[str]:
    """The values written beside points."""
    return [text.get_text() for text in axes.texts]


def png_size(path: Path) -> tuple[int, int]:
    """Width and height from a PNG's own header."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def test_recall_picture_is_a_png(tmp_path: Path) -> None:
    """A large enough PNG is written into a new directory, and no other file."""
    path = tmp_path / "new" / "recall.png"
    plot_recall_against_budget(ROWS, path, "SIFT")
    width, height = png_size(path)
    assert 800 <= width <= 2400
    assert 500 <= height <= 1600
    assert list(path.parent.iterdir()) == [path]


def test_hops_picture_is_a_png(tmp_path: Path) -> None:
    """The curves are written as a PNG too."""
    write_figure(draw_success_by_hops(CURVES, "SIFT"), tmp_path / "hops.png")
    assert png_size(tmp_path / "hops.png")[0] >= 800


def test_failed_writing_leaves_the_old_picture(tmp_path: Path) -> None:
    """An unknown file type is refused; the old file stays, and no other file is left."""
    path = tmp_path / "recall.nonsense"
    path.write_text("old")
    with pytest.raises(ValueError, match="nonsense"):
        plot_recall_against_budget(ROWS, path, "SIFT")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_each_method_has_its_line() -> None:
    """A method's line goes through its points from left to right, whatever the rows' order."""
    (axes,) = draw_recall_against_budget(ROWS[::-1], "SIFT").axes
    line = line_of(axes, "learned")
    np.testing.assert_allclose(np.asarray(line.get_xdata()), 0.96 * np.array(BUDGETS))
    np.testing.assert_allclose(np.asarray(line.get_ydata()), [0.5, 0.7, 0.9])
    assert line.get_marker() != "None"
    assert axes.get_title(loc="left") == "SIFT"


def test_recall_at_1_can_be_drawn_instead() -> None:
    """Recall@10 is drawn unless recall@1 is asked for; the axis names the one that is drawn."""
    for k, share in ((1, 0.5), (10, 1.0)):
        (axes,) = draw_recall_against_budget(ROWS, "SIFT", k).axes
        recalls = np.asarray(line_of(axes, "learned").get_ydata())
        np.testing.assert_allclose(recalls, share * np.array([0.5, 0.7, 0.9]))
        assert axes.get_ylabel() == f"recall@{k}"


def test_ticks_are_the_budgets() -> None:
    """The x axis is logarithmic and marked at the budgets in plain numbers."""
    figure = draw_recall_against_budget(ROWS, "SIFT")
    (axes,) = figure.axes
    figure.draw_without_rendering()
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["128", "256", "512"]
    assert len(axes.get_xticks(minor=True)) == 0


def test_ticks_without_budgets_are_powers_of_two() -> None:
    """Without budgets, ticks are powers of two."""
    rows = [replace(row, budget=None, ef=16) for row in ROWS]
    (axes,) = draw_recall_against_budget(rows, "SIFT").axes
    np.testing.assert_allclose(axes.get_xticks(), [64, 128, 256, 512])


def test_crowded_ticks_are_left_out() -> None:
    """With a hundred budgets, ticks are left out so that labels do not overlap."""
    rows = [replace(ROWS[0], budget=b, n_computed=float(b)) for b in range(100, 200)]
    (axes,) = draw_recall_against_budget(rows, "SIFT").axes
    assert 2 <= len(axes.get_xticks()) <= 13


def test_legend_is_outside_of_the_data() -> None:
    """The legend names all methods, the best first, and does not cover the axes."""
    figure = draw_recall_against_budget(ROWS, "SIFT")
    (axes,) = figure.axes
    figure.draw_without_rendering()
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["learned", "plain"]
    assert legend.get_window_extent().x0 > axes.get_window_extent().x1
    assert legend.get_window_extent().x1 < figure.bbox.x1


def test_one_method_needs_no_legend() -> None:
    """A single line has no legend, and its values are written at its points."""
    (axes,) = draw_recall_against_budget(ROWS[:3], "SIFT").axes
    assert axes.get_legend() is None
    assert labels(axes) == ["0.300", "0.600", "0.800"]


def test_values_do_not_overlap() -> None:
    """The values of two lines that meet do not overlap and are within the picture."""
    rows = measured("plain", (0.3, 0.7, 0.9)) + measured("learned", (0.5, 0.7, 0.901))
    figure = draw_recall_against_budget(rows, "SIFT")
    (axes,) = figure.axes
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == len(rows)
    for index, box in enumerate(boxes):
        assert box.count_overlaps(boxes[index + 1 :]) == 0
        assert figure.bbox.contains(box.x0, box.y0)
        assert figure.bbox.contains(box.x1, box.y1)


def test_values_are_left_out_where_crowded() -> None:
    """Three methods, or points close together, have no values beside them."""
    three = ROWS + measured("third", (0.4, 0.65, 0.85))
    assert labels(draw_recall_against_budget(three, "SIFT").axes[0]) == []
    close = [replace(ROWS[0], n_computed=100.0 + i) for i in range(30)]
    assert labels(draw_recall_against_budget(close, "SIFT").axes[0]) == []


def test_many_methods_look_different() -> None:
    """Up to 28 lines differ in colour, marker or dashes."""
    rows = [replace(ROWS[0], method=str(number)) for number in range(28)]
    (axes,) = draw_recall_against_budget(rows, "SIFT").axes
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 28


def test_no_share_above_one_is_marked() -> None:
    """The y axis has a tick at 1 if the data reach it, and none beyond."""
    (axes,) = draw_recall_against_budget(measured("exact", (0.2, 0.9, 1.0)), "SIFT").axes
    assert max(axes.get_yticks()) == 1.0
    assert axes.get_ylim()[1] > 1.0


def test_methods_without_counts_are_named() -> None:
    """A method that does not count distances is not drawn, and the picture says so."""
    uncounted = replace(ROWS[0], method="annoy", n_computed=float("nan"))
    (axes,) = draw_recall_against_budget([*ROWS, uncounted], "SIFT").axes
    assert len(axes.get_lines()) == 2
    assert "annoy" in axes.get_xlabel()


def test_nothing_to_draw_is_refused() -> None:
    """Rows without a point to draw are refused with an error that states what was expected."""
    with pytest.raises(ValueError, match=r"expected a row .* got none among 1"):
        draw_recall_against_budget([replace(ROWS[0], n_computed=0.0)], "SIFT")
    with pytest.raises(ValueError, match="expected at least one curve, got none"):
        draw_success_by_hops({}, "SIFT")
    with pytest.raises(ValueError, match=r"expected curve 'a' \[n >= 1\], got \[2, 2\]"):
        draw_success_by_hops({"a": np.zeros((2, 2))}, "SIFT")


def test_success_starts_at_hop_zero() -> None:
    """A curve's first share stands at hop 0, and the y axis shows all shares from 0 to 1."""
    (axes,) = draw_success_by_hops(CURVES, "SIFT").axes
    line = line_of(axes, "learned")
    np.testing.assert_array_equal(line.get_xdata(), [0, 1, 2, 3])
    np.testing.assert_array_equal(line.get_ydata(), CURVES["learned"])
    low, high = axes.get_ylim()
    assert low <= 0 < 1 <= high
    assert all(tick == round(tick) for tick in axes.get_xticks())


def test_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib the error says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "l2route\[plots\]"'):
        draw_recall_against_budget(ROWS, "SIFT")


def test_import_needs_no_matplotlib() -> None:
    """The module is imported without matplotlib, and pictures are made without pyplot."""
    code = (
        "import sys, l2route.evaluation.plots as plots;"
        "assert 'matplotlib' not in sys.modules;"
        "import numpy; plots.draw_success_by_hops({'a': numpy.zeros(2)}, '');"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_recall_against_distances_has_a_line_per_method() -> None:
    """Points are where they were measured; ticks are at the first method's distances."""
    curves = {
        "plain": np.array([(256.0, 0.5), (512.0, 0.75), (1024.0, 0.9)]),
        "hnswlib": np.array([(511.2, 0.77), (1020.5, 0.91)]),
    }
    (axes,) = draw_recall_against_distances(curves, "words", k=10).get_axes()
    for method, curve in curves.items():
        np.testing.assert_array_equal(line_of(axes, method).get_xydata(), curve)
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    assert ticks == ["256", "512", "1,024"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == (
        "distance computations per query",
        "recall@10",
    )
