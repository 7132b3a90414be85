"""Tables of a run, computed from its raw results alone, with the paper's figures beside ours."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.evaluation.tables import MISSING
from l2route.metrics import recall_per_query, standard_error
from l2route.reproduce.plan import Cell
from l2route.reproduce.store import PlannedCell, PlannedTable, Result, Store

HOPS = (2, 4, 6, 8, 10, 12, 15, 20, 30)
"""Where curves are read off in a table."""
HEADINGS = (
    ("budget", "all distance computations per query"),
    ("method", "what is routed by"),
    ("k", "vertices reranked by true distance"),
    ("rDCS", "scores that are routed by"),
    ("recall@1", "share of test queries whose nearest neighbour is found"),
    ("paper", "the paper's figure on its data of the same kind"),
    ("difference", "ours less the paper's, in points"),
    ("gain", "over plain search at the same budget, in points; ▼ less than the paper gains"),
    ("paper's gain", "in points"),
    ("learned in", "true neighbours, oracle, steps and validation"),
    ("µs/query", "median, one query at a time, one thread"),
)
"""Columns of a table, and what they mean."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A cell with what came of it; None where there is nothing yet."""

    cell: Cell
    label: str
    recall: float | None
    error: float | None
    """Standard error of the recall."""
    gain: float | None
    """Over the method that it is held against."""
    paper_gain: float | None
    n_computed: float | None
    """Distance computations, mean over the queries."""
    microseconds: float | None
    """For one query alone, median."""
    learn_seconds: float | None
    """All of learning; None where there is none."""
    n_steps: int | None
    graph_space: str | None
    """What the graph was built on, where that was chosen."""
    skipped: str | None
    """Why there is no result."""
    reached: NDArray[np.float64] | None
    """Share of queries that visited their target within 0, 1, … hops."""

    @property
    def falls_short(self) -> bool:
        """Whether the paper gains, and gains more."""
        if self.gain is None or self.paper_gain is None:
            return False
        return self.paper_gain > 0 and round(self.gain, 3) < round(self.paper_gain, 3)


@dataclass(frozen=True, slots=True)
class Table:
    """An experiment on one dataset."""

    name: str
    dataset: str
    title: str
    source: str
    about: str
    command: str
    figures: tuple[Figure, ...]


def summarize(store: Store) -> list[Table]:
    """Compute all tables of a run."""
    return [_table(planned, store) for planned in store.tables()]


def _table(planned: PlannedTable, store: Store) -> Table:
    results = {cell.key: store.read(cell.key) for cell in planned.cells}
    recalls = {
        _place(cell.cell, cell.cell.method): _recalls(results[cell.key], store)
        for cell in planned.cells
    }
    papers = {_place(cell.cell, cell.cell.method): cell.cell.recall for cell in planned.cells}
    figures = tuple(_figure(cell, results[cell.key], recalls, papers) for cell in planned.cells)
    return Table(
        planned.name,
        planned.dataset,
        planned.title,
        planned.source,
        planned.about,
        planned.command,
        figures,
    )


def _figure(
    planned: PlannedCell,
    result: Result | None,
    recalls: dict[Any, NDArray[np.bool_] | None],
    papers: dict[Any, float | None],
) -> Figure:
    cell = planned.cell
    mine = recalls[_place(cell, cell.method)]
    rival = None if planned.against is None else _place(cell, planned.against)
    arrays = {} if result is None else result.arrays
    facts = {} if result is None else result.facts
    return Figure(
        cell=cell,
        label=planned.label,
        recall=None if mine is None else float(mine.mean()),
        error=None if mine is None or len(mine) < 2 else standard_error(mine),
        gain=_difference(mine, None if rival is None else recalls[rival]),
        paper_gain=_difference(cell.recall, None if rival is None else papers[rival]),
        n_computed=float(arrays["n_computed"].mean()) if "n_computed" in arrays else None,
        microseconds=float(np.median(arrays["seconds"])) * 1e6 if "seconds" in arrays else None,
        learn_seconds=facts.get("learn_seconds"),
        n_steps=facts.get("n_steps"),
        graph_space=facts.get("graph_space") if cell.compression > 1 else None,
        skipped=facts.get("skipped"),
        reached=_reached(arrays["first_hop"]) if "first_hop" in arrays else None,
    )


def _recalls(result: Result | None, store: Store) -> NDArray[np.bool_] | None:
    """Whether each query found its nearest neighbour [n_queries]."""
    if result is None or "distances" not in result.arrays:
        return None
    nearest = store.nearest(str(result.job["digest"]))
    return recall_per_query(result.arrays["distances"][:, None], nearest[:, None], 1)


def _reached(first_hop: NDArray[np.int32]) -> NDArray[np.float64]:
    """Share of queries that visited their target within h hops, h = 0 … the last that counts."""
    there = first_hop[first_hop >= 0]
    counts = np.bincount(there, minlength=1)
    return np.asarray(counts.cumsum() / len(first_hop))


def _difference(ours: Any, theirs: Any) -> float | None:
    if ours is None or theirs is None:
        return None
    return float(np.mean(ours)) - float(np.mean(theirs))


def _place(cell: Cell, method: str) -> tuple[str, int, int]:
    return method, cell.budget, cell.compression


def as_markdown(tables: Sequence[Table], store: Store) -> str:
    """All tables as a page of Markdown."""
    parts = ["# The paper's evaluation, repeated", _preface(store)]
    for name in dict.fromkeys(table.name for table in tables):
        ours = [table for table in tables if table.name == name]
        parts += [f"## {ours[0].source}: {_lower(ours[0].title)}", ours[0].about]
        for table in ours:
            parts += [f"### {table.dataset}", _rows(table), f"    {table.command}"]
            if table.name == "routing":
                parts.append(_curves(table))
    return "\n\n".join(parts) + "\n"


def _preface(store: Store) -> str:
    """What holds for all tables."""
    results = [
        result
        for table in store.tables()
        for cell in table.cells
        if (result := store.read(cell.key)) is not None
    ]
    machines = dict.fromkeys(
        f"{r.machine['n_cores']} cores of {r.machine['processor']} ({r.machine['simd']})"
        for r in results
    )
    versions = dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in r.versions.items()) for r in results
    )
    seeds = dict.fromkeys(str(r.job["seed"]) for r in results)
    return (
        "Recall@1 on test queries, which nothing was chosen by. The paper's figures stand beside "
        "ours; its data are of the same kind and not the same. Gains are in points over the plain "
        "search that a row is held against; where ours is below the paper's it is marked ▼. Time "
        "to learn is all of it: true neighbours of the training queries, oracle, steps, "
        "validation. A query's time is the median of queries that come one by one, on one "
        "thread.\n\n"
        f"Machine: {'; '.join(machines)}. Versions: {'; '.join(versions)}. "
        f"Seed: {', '.join(seeds)}."
    )


def _rows(table: Table) -> str:
    headings = [name for name, _ in HEADINGS]
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    lines += [f"| {' | '.join(cells_of(figure))} |" for figure in table.figures]
    return "\n".join(lines)


def cells_of(figure: Figure) -> list[str]:
    """A figure's row as people read it."""
    cell = figure.cell
    recall = MISSING if figure.recall is None else f"{figure.recall:.3f}"
    difference = _difference(figure.recall, cell.recall)
    return [
        str(cell.budget),
        method_of(figure),
        str(cell.k),
        str(cell.rdcs),
        "skipped" if figure.skipped else recall,
        MISSING if cell.recall is None else f"{cell.recall:.3f}",
        points(difference),
        points(figure.gain) + (" ▼" if figure.falls_short else ""),
        points(figure.paper_gain),
        MISSING if figure.learn_seconds is None else f"{figure.learn_seconds:.0f} s",
        MISSING if figure.microseconds is None else f"{figure.microseconds:.0f}",
    ]


def method_of(figure: Figure) -> str:
    """A row's method with its compression, and where it was chosen the graph's vectors."""
    name = figure.label
    if figure.cell.compression > 1:
        name += f" ×{figure.cell.compression}"
    return name if figure.graph_space is None else f"{name} ({figure.graph_space} graph)"


def points(share: float | None) -> str:
    """A difference of recalls in points, with its sign."""
    return MISSING if share is None else f"{100 * share:+.1f}".replace("-", "−")


def _curves(table: Table) -> str:
    """Shares of queries that have arrived, at some numbers of hops."""
    lines = [
        f"| budget | method | {' | '.join(f'{h} hops' for h in HOPS)} | in the end |",
        "|" + "---|" * (len(HOPS) + 3),
    ]
    for figure in table.figures:
        if figure.reached is not None:
            shares = [f"{figure.reached[min(h, len(figure.reached) - 1)]:.3f}" for h in HOPS]
            ends = f"{figure.reached[-1]:.3f}"
            name = method_of(figure)
            lines.append(f"| {figure.cell.budget} | {name} | {' | '.join(shares)} | {ends} |")
    return "\n".join(lines)


def _lower(title: str) -> str:
    return title[0].lower() + title[1:]
