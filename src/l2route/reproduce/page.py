"""A run's report as one self-contained HTML page."""

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from l2route.evaluation.plots import draw_recall_against_budget, draw_success_by_hops
from l2route.evaluation.tables import Row
from l2route.files.atomic import replace_text
from l2route.reproduce.plan import TOY_PICTURE
from l2route.reproduce.store import Store
from l2route.reproduce.summary import HEADINGS, Figure, Table, cells_of, contexts, skipped_in

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

STRONG = 0.10
"""Difference to the paper that gets the strongest colour."""
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; margin: 2rem auto; max-width: 86rem;
       padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { margin-top: 2.5rem; border-top: 1px solid #ddd; padding-top: 1rem; }
table { border-collapse: collapse; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .45rem; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #999; font-weight: 600; cursor: help; }
td { border-bottom: 1px solid #eee; }
th:nth-child(2), td:nth-child(2) { text-align: left; }
tr.learned td:nth-child(5) { font-weight: 700; }
tr.new td { border-top: 2px solid #ccc; }
.short { color: #b02a00; font-weight: 600; }
.wide { overflow-x: auto; }
code { background: #f4f4f4; padding: .15rem .4rem; border-radius: 3px; }
img.toy { width: 60rem; }
img { max-width: 100%; width: 34rem; margin: .5rem 1rem .5rem 0; }
footer { margin-top: 3rem; color: #666; font-size: .9rem; }
"""


def write_page(tables: Sequence[Table], store: Store, path: Path) -> None:
    """Write the report of a run.

    Args:
        tables: the tables of `summarize`.
        store: the run.
        path: the HTML file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, page(tables, store))


def page(tables: Sequence[Table], store: Store) -> str:
    """The report as HTML."""
    sections = [
        _section([table for table in tables if table.plan.name == name], store)
        for name in dict.fromkeys(table.plan.name for table in tables)
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>l2route: the paper's evaluation</title><style>{STYLE}</style></head><body>\n"
        "<h1>“Learning to Route in Similarity Graphs”, repeated</h1>\n"
        f"{_preface(tables)}\n{''.join(sections)}\n{_toy(store)}{_footer(tables)}</body></html>\n"
    )


def _preface(tables: Sequence[Table]) -> str:
    figures = [figure for table in tables for figure in table.figures]
    n_done = sum(figure.recall is not None or figure.skipped is not None for figure in figures)
    gains = [gain for figure in figures for gain in (figure.gain, figure.over_original)]
    compared = [gain for gain in gains if gain.ours is not None and (gain.paper or 0) > 0]
    n_short = sum(gain.falls_short for gain in compared)
    return (
        "<p>Recall@1 on test queries, which were not used to choose anything, at equal budgets of "
        "distance computations, rerank and projection included. The paper's data are of the same "
        "kind as ours but not the same, so gains compare better than recalls.</p>"
        f"<p>{n_done} of {len(figures)} cells are measured. Of {len(compared)} gains that the "
        f"paper has too, {len(compared) - n_short} are at least as large here, "
        f'<span class="short">{n_short} are less (▼)</span>.</p>'
    )


def _section(tables: Sequence[Table], store: Store) -> str:
    first = tables[0].plan
    parts = [f"<h2>{escape(first.source)}: {escape(first.title)}</h2><p>{escape(first.about)}</p>"]
    for table in tables:
        parts.append(
            f"<h3>{escape(table.plan.dataset)}</h3><p>{escape(store.describe(table.plan.digest))}</p>"
        )
        parts.append(_html_table(table))
        parts += [f"<p>{escape(line)}</p>" for line in skipped_in(table)]
        parts += [_image(drawing, name) for drawing, name in _drawings(table)]
        parts.append(f"<p><code>{escape(table.plan.command)}</code></p>")
    return "\n".join(parts)


def _html_table(table: Table) -> str:
    heads = "".join(f'<th title="{escape(note)}">{escape(name)}</th>' for name, note in HEADINGS)
    rows, before = [], None
    for figure in table.figures:
        classes = ["learned"] if figure.learn_seconds is not None else []
        if before is not None and figure.cell.budget != before:
            classes.append("new")
        before = figure.cell.budget
        rows.append(f'<tr class="{" ".join(classes)}">{_html_cells(figure)}</tr>')
    return f'<div class="wide"><table><tr>{heads}</tr>{"".join(rows)}</table></div>'


def _html_cells(figure: Figure) -> str:
    texts = [escape(text) for text in cells_of(figure)]
    marks = [""] * len(texts)
    if figure.error is not None:
        marks[4] = f' title="± {100 * figure.error:.1f} points (standard error)"'
    if figure.skipped is not None:
        marks[4] = f' title="{escape(figure.skipped)}"'
    if figure.recall is not None and figure.cell.recall is not None:
        marks[6] = f' style="background: {_colour(figure.recall - figure.cell.recall)}"'
    for at, gain in ((7, figure.gain), (9, figure.over_original)):
        if gain.falls_short:
            marks[at] = ' class="short"'
    return "".join(f"<td{mark}>{text}</td>" for mark, text in zip(marks, texts, strict=True))


def _colour(difference: float) -> str:
    """Green above the paper, red below, paler for smaller differences; distinct in grey, too."""
    strength = min(1.0, abs(difference) / STRONG)
    hue, lightness = (140, 97 - 22 * strength) if difference >= 0 else (12, 97 - 14 * strength)
    return f"hsl({hue} 60% {lightness:.0f}%)"


def _drawings(table: Table) -> list[tuple["Drawing", str]]:
    if table.plan.name == "routing":
        return _curves(table)
    budgets = {figure.cell.budget for figure in table.figures if figure.recall is not None}
    return _lines(table) if len(budgets) > 1 else []


def _curves(table: Table) -> list[tuple["Drawing", str]]:
    drawings = []
    for budget in dict.fromkeys(figure.cell.budget for figure in table.figures):
        curves = {
            figure.label: figure.reached
            for figure in table.figures
            if figure.cell.budget == budget and figure.reached is not None
        }
        if curves:
            longest = max(map(len, curves.values()))
            curves = {name: np.pad(c, (0, longest - len(c)), "edge") for name, c in curves.items()}
            title = f"{table.plan.dataset}: targets visited by hops, {budget} distance computations"
            drawings.append((draw_success_by_hops(curves, title), title))
    return drawings


def _lines(table: Table) -> list[tuple["Drawing", str]]:
    rows = [
        Row(
            method=f"{figure.label} ×{figure.cell.compression}",
            budget=figure.cell.budget,
            ef=None,
            recall_at_1=figure.recall,
            recall_at_10=float("nan"),
            n_computed=float(figure.cell.budget),
            n_hops=float("nan"),
            microseconds_per_query=float("nan"),
        )
        for figure in table.figures
        if figure.recall is not None
    ]
    title = f"{table.plan.dataset}: recall@1 by budget"
    return [(draw_recall_against_budget(rows, title, k=1), title)]


def _image(drawing: "Drawing", name: str) -> str:
    """A drawing embedded as an image, so that the ids of two SVGs cannot clash."""
    content = io.BytesIO()
    drawing.savefig(content, format="svg", metadata={"Date": None})
    encoded = base64.b64encode(content.getvalue()).decode("ascii")
    return f'<img alt="{escape(name)}" src="data:image/svg+xml;base64,{encoded}">'


def _toy(store: Store) -> str:
    """The toy example's picture, if the run has one."""
    path = store.directory / TOY_PICTURE
    if not path.exists():
        return ""
    encoded = base64.b64encode(path.read_bytes()).decode("ascii")
    return (
        "<h2>Figure 3: greedy routing on a toy example</h2><p>33 points in the plane; the route by "
        "original distances ends in a local minimum, the route by learned scores arrives.</p>"
        f'<img class="toy" alt="toy example" src="data:image/png;base64,{encoded}">'
        "<p><code>l2route reproduce toy</code></p>"
    )


def _footer(tables: Sequence[Table]) -> str:
    lines = "<br>".join(escape(line) for line in contexts(tables))
    return f"<footer>{lines}</footer>"
