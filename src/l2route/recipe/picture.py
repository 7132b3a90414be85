"""The picture of a build: a bar per step, what it brought and whether it was kept."""

from __future__ import annotations

import io
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from l2route.extras import install
from l2route.files.atomic import replace_text, replacing
from l2route.recipe.outcome import Step, times
from l2route.recipe.steps import Recipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {
    "build": "plain graph",
    "refine": "refined graph",
    "edges": "edges from the log",
    "entries": "entries from the log",
    "learn": "learned space",
    "renumber": "renumbered",
    "compress": "codes",
    "stop": "learned stopping",
}
"""What the steps are called in the picture."""
BLUE, PALE, ORANGE, GREY = "#0072B2", "#B8D5E8", "#D55E00", "#B5B5B5"
"""Gains, what was there before, losses and what was not kept: of Okabe and Ito's colours, which
colour-blind readers can tell apart; losses and what was not kept are hatched besides."""
INK, MUTED, GRID = "#222222", "#666666", "#E6E6E6"
WIDTH, ROW, HEAD, FOOT = 12.0, 0.66, 1.5, 0.35
"""Inches: the whole width, the height of a row, and what is above and below all rows."""
BARS = (0.175, 0.40)
"""Where the bars begin, and how wide they are, as shares of the width."""
SHARE, WORDS = 0.60, 0.665
"""Where the columns of shares and of words begin."""
LETTERS, MOST_LINES = 72, 2
"""Letters in a line of a note, and lines of it."""
FOOT_LETTERS, MOST_REMARKS = 170, 4
"""Letters in a line below the rows, and lines there."""
BAR = 0.52
"""Height of a bar, of a row's."""
ROOM = 1.2
"""Length of the axis for the fastest step of length 1: its figure has to fit beside it."""
DPI = 200
PICTURES = ("png", "svg", "pdf", "html")
"""Kinds of files that a picture can be written to."""


class Drawable(Protocol):
    """What the picture shows of a report; see `l2route.recipe.report.BuildReport`."""

    @property
    def recipe(self) -> Recipe:
        """Options of the build."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in order."""

    @property
    def shares(self) -> tuple[float | None, ...]:
        """What each step brought, as a multiple of the speed before it."""

    @property
    def n_measured(self) -> int:
        """Queries that were measured on."""

    @property
    def seconds(self) -> float:
        """Time of the whole build."""

    @property
    def measuring_seconds(self) -> float:
        """Time of measuring."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """What to doubt."""

    def title(self) -> str:
        """What was built and measured."""

    def summary(self) -> str:
        """What the build brought."""


def draw(report: Drawable) -> Figure:
    """Draw the steps of a build from top to bottom; the figure is made without pyplot."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f'expected matplotlib for plots, got "{error}"; {install("plots")}'
        ) from error
    n, remarks = len(report.steps), _remarks(report)
    foot = FOOT + 0.17 * len(remarks)
    height = HEAD + n * ROW + foot
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((BARS[0], foot / height, BARS[1], n * ROW / height))
    _prepare(axes, report)
    _draw_bars(axes, report)
    for row, (step, share) in enumerate(zip(report.steps, report.shares, strict=True)):
        _write_row(axes, row, step, share, report.n_measured > 0)
    _write_head(figure, report, height)
    for line, text in enumerate(remarks):
        y = (foot - 0.22 - 0.17 * line) / height
        figure.text(0.02, y, text, color=MUTED, fontsize=7.5, va="top", parse_math=False)
    return figure


def _prepare(axes: Axes, report: Drawable) -> None:
    """An axis of queries a second above the bars, and a row for each step."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    fastest = max([step.cost.speed for step in report.steps if step.cost] or [1.0])
    is_empty = all(step.cost is None for step in report.steps)
    axes.set_xlim(0, ROOM * fastest)
    axes.set_ylim(len(report.steps) - 0.5, -0.5)
    axes.set_yticks([])
    axes.xaxis.tick_top()
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(axis="x", length=0, labelsize=8, labelcolor=MUTED)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.spines["left"].set_color("#999999")
    if is_empty:
        axes.set_xticks([])


def _draw_bars(axes: Axes, report: Drawable) -> None:
    """A bar per step: what there was before is pale, what was gained is dark."""
    before: float | None = None
    for row, step in enumerate(report.steps):
        if step.cost is None:
            continue
        speed = step.cost.speed
        if before is not None:
            axes.plot([before] * 2, [row - 1 + BAR / 2, row - BAR / 2], color="#AAAAAA", lw=0.8)
        if step.decision == "skipped":
            axes.plot([speed] * 2, [row - BAR / 2, row + BAR / 2], color="#AAAAAA", lw=0.8)
        elif step.decision == "not kept":
            axes.barh(row, speed, BAR, facecolor="white", edgecolor=GREY, hatch="////")
        elif before is None:
            axes.barh(row, speed, BAR, color=BLUE)
        else:
            axes.barh(row, min(before, speed), BAR, color=PALE)
            if speed > before:
                axes.barh(row, speed - before, BAR, left=before, color=BLUE)
            elif speed < before:
                look = axes.barh(row, before - speed, BAR, left=speed, facecolor="white")
                look[0].set(edgecolor=ORANGE, hatch="\\\\\\\\")
        _write_speed(axes, row, step, max(speed, before or speed))
        before = speed


def _write_speed(axes: Axes, row: int, step: Step, end: float) -> None:
    assert step.cost is not None
    if step.decision == "skipped":
        return
    is_kept = step.decision == "kept"
    axes.annotate(
        f"{step.cost.speed:,.0f}" if is_kept else f"still {step.cost.speed:,.0f}",
        (end, row),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=9 if is_kept else 8,
        fontweight="bold" if is_kept else "normal",
        color=INK if is_kept else MUTED,
    )


def _write_row(axes: Axes, row: int, step: Step, share: float | None, is_measured: bool) -> None:
    """The name of a step and its cost on the left; its share and the decision on the right."""
    is_kept = step.decision == "kept"
    colour = INK if is_kept else MUTED
    name = TITLES.get(step.name, _clean(step.name, 24))
    _write(axes, 0.02, row - 0.13, name, size=10.5, color=colour, bold=is_kept)
    cost = f"{_duration(step.seconds)} · {step.bytes_per_vector:,.0f} bytes a vector"
    if step.decision != "skipped":
        _write(axes, 0.02, row + 0.2, cost, size=7.5, color=MUTED)
    if share is not None:
        shade = ORANGE if share < 1 and times(share) != "±0%" else BLUE
        _write(axes, SHARE, row, times(share), size=12, color=shade, bold=True)
    note = short_note(step)
    lines = len(note.splitlines())
    top = row - (0.08 + 0.115 * lines if note else 0.0)
    _write(axes, WORDS, top, _outcome(step, is_measured), size=9, color=colour)
    if note:
        _write(axes, WORDS, top + 0.14, note, size=7.5, color=MUTED, align="top")


def _write(
    axes: Axes,
    x: float,
    row: float,
    text: str,
    *,
    size: float,
    color: str,
    bold: bool = False,
    align: str = "center",
) -> None:
    """Write at a share of the figure's width, and at the height of a row."""
    from matplotlib.transforms import blended_transform_factory

    figure = axes.get_figure()
    assert figure is not None
    axes.text(
        x,
        row,
        text,
        transform=blended_transform_factory(figure.transFigure, axes.transData),
        fontsize=size,
        color=color,
        fontweight="bold" if bold else "normal",
        va=align,
        linespacing=1.25,
        parse_math=False,
    )


def _outcome(step: Step, is_measured: bool) -> str:
    """The decision, and the recall after it."""
    if step.decision != "kept":
        return step.decision
    if step.cost is None:
        return "kept · no setting reaches the recall" if is_measured else "kept · not measured"
    return f"kept · recall {step.cost.recall:.3f}, worst 5% {step.cost.worst_recall:.3f}"


def short_note(step: Step) -> str:
    """The reason of a decision in at most two lines; the whole of it is in the table."""
    if step.note is None:
        return ""
    note = step.note.removeprefix("skipped: ")
    for ending in (": kept", ": not kept"):
        note = note.removesuffix(ending)
    note = note.split(": not kept, since ")[-1]
    if step.decision == "kept" and step.name == "compress":
        note = note.split("; ")[-1]  # what was tried before it does not matter any more
    wrapped = textwrap.wrap(_clean(note), LETTERS, max_lines=MOST_LINES, placeholder=" …")
    return "\n".join(wrapped)


def _remarks(report: Drawable) -> list[str]:
    """Lines below the bars: how long it took, what was measured, and what to doubt."""
    seconds = _duration(report.seconds), _duration(report.measuring_seconds)
    own = f"{seconds[0]} in all, of which {seconds[1]} for measuring."
    what = "Dark blue is gained, hatched orange is lost, hatched grey was tried and not kept."
    doubts = [f"Note: {_clean(doubt)}" for doubt in report.doubts]
    lines = [line for text in doubts for line in textwrap.wrap(text, FOOT_LETTERS)]
    return [f"{own} {what}", *lines[:MOST_REMARKS]]


def _write_head(figure: Figure, report: Drawable, height: float) -> None:
    """What the build brought, what was measured, and the names of the columns."""

    def write(x: float, inches: float, text: str, size: float, color: str, weight: str) -> None:
        y = 1 - inches / height
        figure.text(
            x, y, text, fontsize=size, color=color, fontweight=weight, va="top", parse_math=False
        )

    summary = report.summary()
    write(0.02, 0.22, summary[:1].upper() + summary[1:], 14, INK, "bold")
    write(0.02, 0.56, report.title(), 9.5, MUTED, "normal")
    columns = {
        0.02: "step",
        BARS[0]: "queries a second, one thread",
        SHARE: "share",
        WORDS: f"decision, recall@{report.recipe.k}",
    }
    for x, name in columns.items():
        write(x, 0.98, name, 8.5, MUTED, "bold")


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def _clean(text: str, most: int = 2000) -> str:
    """Text on one line, without what no font has."""
    line = " ".join(text[:most].split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def svg_of(report: Drawable) -> str:
    """The picture as an SVG element, the same for the same report."""
    from matplotlib import rc_context

    stream = io.StringIO()
    with rc_context({"svg.hashsalt": "l2route"}):
        draw(report).savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def html_of(report: Drawable) -> str:
    """The picture and the table, which has all notes in full."""
    return (
        f'<figure style="margin: 0" role="img" aria-label="{escape(report.summary())}">'
        f'<div style="max-width: 75rem">{_scaled(svg_of(report))}</div></figure>'
        f"<details><summary>The same as a table</summary><pre>{escape(str(report))}</pre></details>"
    )


def _scaled(svg: str) -> str:
    """An SVG element as wide as there is room, in place of its width in points."""
    head, rest = svg.split(">", 1)
    kept = [word for word in head.split(" ") if not word.startswith(("width=", "height="))]
    return " ".join([*kept, 'width="100%"']) + ">" + rest


def write_picture(report: Drawable, path: Path) -> None:
    """Write the picture into a file, by its ending: png, svg, pdf or html."""
    kind = path.suffix[1:].lower()
    if kind not in PICTURES:
        raise ValueError(f"expected a file .{', .'.join(PICTURES)}, got {path.name!r}")
    if kind == "html":
        head = '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>A build</title>'
        style = '<body style="font-family: system-ui, sans-serif; margin: 1.5rem">'
        replace_text(path, f"{head}{style}{html_of(report)}</html>\n")
    elif kind == "svg":
        replace_text(path, svg_of(report))
    else:
        figure = draw(report)
        with replacing(path) as beside:
            figure.savefig(beside, format=kind, dpi=DPI)
