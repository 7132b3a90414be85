"""Laws of the picture of a comparison."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from l2route.evaluation.compare.picture import draw_speed_against_recall, spread

RECALLS = np.array([0.6, 0.85, 0.95, 0.99])
CURVES = {
    "l2route": np.stack([RECALLS, 1e4 / np.array([1, 2, 4, 8])], axis=1),
    "peer": np.stack([RECALLS, 5e3 / np.array([1, 2, 4, 8])], axis=1),
    "other": np.stack([RECALLS, 5.01e3 / np.array([1, 2, 4, 8])], axis=1),
    "absent": np.zeros((0, 2)),
}


def drawn(**changes: object) -> Figure:
    """The picture of CURVES, laid out."""
    given = {"curves": CURVES, "title": "SIFT", "subtitle": "one thread", **changes}
    figure = draw_speed_against_recall(highlighted=["l2route"], **given)  # type: ignore[arg-type]
    figure.draw_without_rendering()
    return figure


def test_every_method_with_points_is_a_line_and_named_beside_it() -> None:
    """Names are right of the axes in their line's colour, within the picture, not overlapping."""
    figure = drawn()
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.get_lines()] == ["l2route", "peer", "other"]
    names = {text.get_text(): text for text in axes.texts if text.get_text() != "one thread"}
    assert list(names) == ["l2route", "peer", "other"]
    boxes = [text.get_window_extent() for text in names.values()]
    for line, text, box in zip(axes.get_lines(), names.values(), boxes, strict=True):
        assert text.get_color() == line.get_color()
        assert box.x1 <= figure.bbox.x1
    heights = sorted(text.xyann[1] for text in names.values())  # type: ignore[attr-defined]
    low, high = axes.get_window_extent().y0, axes.get_window_extent().y1
    letters = figure.dpi * 10 / 72  # height of a label
    assert all((b - a) * (high - low) >= letters for a, b in pairwise(heights))


def test_our_lines_are_highlighted() -> None:
    """A highlighted line is wider than the others and above them."""
    ours, *others = drawn().axes[0].get_lines()
    for other in others:
        assert ours.get_linewidth() > other.get_linewidth()
        assert ours.get_zorder() > other.get_zorder()


def test_useful_recalls_are_shown_on_a_log_scale() -> None:
    """The axes show recalls from 0.8 on and all speeds there, or all if no recall is higher."""
    (axes,) = drawn().axes
    assert axes.get_yscale() == "log"
    assert 0.78 < axes.get_xlim()[0] <= 0.8
    assert 1.0 <= axes.get_xlim()[1] < 1.01
    low, high = axes.get_ylim()
    assert low < 5e3 / 8 < 5e3 < high < 1e4
    (axes,) = drawn(curves={"l2route": np.array([[0.2, 100.0], [0.5, 50.0]])}).axes
    assert axes.get_xlim()[0] < 0.2


def test_nothing_to_draw_is_refused() -> None:
    """A comparison without points has no picture."""
    with pytest.raises(ValueError, match="expected at least one curve with points, got none"):
        draw_speed_against_recall({"absent": np.zeros((0, 2))}, "SIFT")


@given(st.lists(st.floats(0, 1), max_size=8))
def test_spreading_moves_values_apart_and_no_farther(values: list[float]) -> None:
    """Gaps, order and mean are kept, and values that are far enough apart do not move."""
    given, gap = np.array(values), 0.1
    moved = spread(given, gap)
    order = np.argsort(given, kind="stable")
    assert (np.diff(moved[order]) >= gap - 1e-9).all()
    assert moved.sum() == pytest.approx(given.sum())
    if (np.diff(given[order]) > gap).all():
        np.testing.assert_allclose(moved, given)
