"""Tables of a run, computed from its raw results, with the paper's figures beside ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import recall_per_query, standard_error, success_by_hops
from l2route.evaluation.tables import MISSING
from l2route.reproduce.plan import Cell
from l2route.reproduce.store import PlannedCell, PlannedTable, Result, Store

HOPS = (2, 4, 6, 8, 10, 12, 15, 20, 30)
"""Numbers of hops at which a table shows the curves."""
NOT_RUN = '<!-- skip: start "takes hours" -->'
"""Keeps tests of the documents from running the commands."""
HEADINGS = (
    ("budget", "distance computations per query, all included"),
    ("method", "graph and routing vectors"),
    ("k", "candidates reranked by true distance"),
    ("rDCS", "scores computed while routing"),
    ("recall@1", "share of test queries whose nearest neighbour is found"),
    ("paper", "the paper's figure on its data of the same kind"),
    ("difference", "ours minus the paper's, in points"),
    (
        "gain",
        "over PCA of the same dimension or original vectors, in points; ▼ below the paper's",
    ),
    ("paper's gain", "the same for the paper's figures"),
    ("over original", "gain over the original vectors at the same budget, if not in `gain`"),
    ("paper's", "the same for the paper's figures"),
    ("distances", "distance computations per query, mean"),
    ("learned in", "time for true neighbours, oracle, steps and validation"),
    ("µs/query", "median, one query at a time, one thread"),
)
"""Columns of a table with their meaning."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Recall of a cell minus that of another, here and in the paper; None if unknown."""

    ours: float | None
    paper: float | None

    @property
    def falls_short(self) -> bool:
        """Whether the paper's gain is positive and larger than ours, as printed."""
        if self.ours is None or self.paper is None:
            return False
        return self.paper > 0 and round(self.ours, 3) < round(self.paper, 3)


@dataclass(frozen=True, slots=True)
class Figure:
    """A cell with its results; None if they are missing."""

    cell: Cell
    label: str
    recall: float | None
    error: float | None
    """Standard error of the recall."""
    gain: Gain
    """Over the rival that the plan names."""
    over_original: Gain
    """Over the original vectors, if they are not that rival."""
    n_computed: float | None
    """Distance computations, mean over the queries."""
    microseconds: float | None
    """Time of one query, searched alone; median."""
    learn_seconds: float | None
    """Total time of learning; None without learning."""
    n_steps: int | None
    graph_space: str | None
    """Vectors that the graph was built on, if they were chosen."""
    skipped: str | None
    """Why there is no result."""
    reached: NDArray[np.float64] | None
    """Share of queries that visited their target within 0, 1, … hops [n_hops + 1]."""

    @property
    def falls_short(self) -> bool:
        """Whether one of its gains is less than the paper's."""
        return self.gain.falls_short or self.over_original.falls_short


@dataclass(frozen=True, slots=True)
class Table:
    """An experiment on one dataset."""

    plan: PlannedTable
    figures: tuple[Figure, ...]
    contexts: tuple[str, ...]
    """Machines, seeds and versions of its results."""


def summarize(store: Store) -> list[Table]:
    """Compute all tables of a run."""
    return [_table(planned, store) for planned in store.tables()]


def _table(planned: PlannedTable, store: Store) -> Table:
    results = {cell.key: store.read(cell.key) for cell in planned.cells}
    recalls = {
        cell.cell.place: Recalls(_recalls(results[cell.key], store), cell.cell.recall)
        for cell in planned.cells
    }
    figures = tuple(_figure(cell, results[cell.key], recalls) for cell in planned.cells)
    contexts = [_context(result) for result in results.values() if result is not None]
    return Table(planned, figures, tuple(dict.fromkeys(contexts)))


@dataclass(frozen=True, slots=True)
class Recalls:
    """Recall@1 of a cell, ours and the paper's; None if unknown."""

    found: NDArray[np.float64] | None
    """Of each query [n_queries]."""
    paper: float | None

    def over(self, other: "Recalls | None") -> Gain:
        """Gain over another cell."""
        if other is None:
            return Gain(None, None)
        return Gain(_difference(self.found, other.found), _difference(self.paper, other.paper))


def _figure(
    planned: PlannedCell, result: Result | None, recalls: Mapping[tuple[str, int, int], Recalls]
) -> Figure:
    cell = planned.cell
    mine = recalls[cell.place]
    rival = None if planned.against is None else replace(cell, method=planned.against).place
    original = ("original", cell.budget, 1)
    is_another = planned.against is not None and original not in (rival, cell.place)
    arrays = {} if result is None else result.arrays
    facts = {} if result is None else result.facts
    found = mine.found
    return Figure(
        cell=cell,
        label=planned.label,
        recall=None if found is None else float(found.mean()),
        error=None if found is None or len(found) < 2 else standard_error(found),
        gain=mine.over(None if rival is None else recalls[rival]),
        over_original=mine.over(recalls.get(original) if is_another else None),
        n_computed=float(arrays["n_computed"].mean()) if "n_computed" in arrays else None,
        microseconds=float(np.median(arrays["seconds"])) * 1e6 if "seconds" in arrays else None,
        learn_seconds=facts.get("learn_seconds"),
        n_steps=facts.get("n_steps"),
        graph_space=facts.get("graph_space") if cell.compression > 1 else None,
        skipped=facts.get("skipped"),
        reached=_reached(arrays["first_hop"]) if "first_hop" in arrays else None,
    )


def _recalls(result: Result | None, store: Store) -> NDArray[np.float64] | None:
    """Recall@1 of each query, 0 or 1 [n_queries]; None without answers."""
    if result is None or "distances" not in result.arrays:
        return None
    nearest = store.nearest(str(result.job["digest"]))
    return recall_per_query(result.arrays["distances"][:, None], nearest[:, None], 1)


def _reached(first_hop: NDArray[np.int32]) -> NDArray[np.float64]:
    """Share of queries that visited their target within h hops, up to the last first visit."""
    return success_by_hops(first_hop, max(0, int(first_hop.max())))


def _difference(ours: Any, theirs: Any) -> float | None:
    if ours is None or theirs is None:
        return None
    return float(np.mean(ours)) - float(np.mean(theirs))


def as_markdown(tables: Sequence[Table], store: Store) -> str:
    """All tables as a page of Markdown."""
    parts = ["# The paper's evaluation, repeated", NOT_RUN, _preface(tables)]
    for name in dict.fromkeys(table.plan.name for table in tables):
        ours = [table for table in tables if table.plan.name == name]
        parts += [f"## {ours[0].plan.source}: {_lower(ours[0].plan.title)}", ours[0].plan.about]
        for table in ours:
            parts += [f"### {table.plan.dataset}", store.describe(table.plan.digest), _rows(table)]
            parts += [*skipped_in(table), f"```sh\n{table.plan.command}\n```"]
            if table.plan.name == "routing":
                parts.append(_curves(table))
    return "\n\n".join(parts) + "\n"


def contexts(tables: Sequence[Table]) -> list[str]:
    """Machines, seeds and versions of the results, each once."""
    return list(dict.fromkeys(context for table in tables for context in table.contexts))


def _context(result: Result) -> str:
    machine = result.machine
    versions = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    return (
        f"{machine['n_cores']} cores of {machine['processor']} ({machine['simd']}), "
        f"seed {result.job['seed']}, {versions}"
    )


def _preface(tables: Sequence[Table]) -> str:
    """Explanation of all tables."""
    return (
        "Recall@1 on test queries, which were not used to choose anything. The paper's figures "
        "stand beside ours; its data are of the same kind but not the same. A gain, in points, is "
        "over PCA of the same dimension or over the original vectors; ▼ marks gains below the "
        "paper's. The time to learn includes true neighbours of the training queries, oracle, "
        "steps and validation, but not the graph. The time per query is the median of queries "
        "searched one at a time on one thread.\n\nMeasured on "
        f"{'; '.join(contexts(tables)) or 'nothing yet'}."
    )


def skipped_in(table: Table) -> list[str]:
    """One sentence per row without a result, saying why."""
    return [f"{method_of(f)}: skipped, {f.skipped}." for f in table.figures if f.skipped]


def _rows(table: Table) -> str:
    headings = [name for name, _ in HEADINGS]
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    lines += [f"| {' | '.join(cells_of(figure))} |" for figure in table.figures]
    return "\n".join(lines)


def cells_of(figure: Figure) -> list[str]:
    """The row of a figure as text."""
    cell = figure.cell
    recall = MISSING if figure.recall is None else f"{figure.recall:.3f}"
    return [
        str(cell.budget),
        method_of(figure),
        str(cell.k),
        str(cell.rdcs),
        "skipped" if figure.skipped else recall,
        MISSING if cell.recall is None else f"{cell.recall:.3f}",
        points(_difference(figure.recall, cell.recall)),
        *_shown(figure.gain),
        *_shown(figure.over_original),
        MISSING if figure.n_computed is None else f"{figure.n_computed:.0f}",
        MISSING if figure.learn_seconds is None else f"{figure.learn_seconds:.0f} s",
        MISSING if figure.microseconds is None else f"{figure.microseconds:.0f}",
    ]


def _shown(gain: Gain) -> tuple[str, str]:
    return points(gain.ours) + (" ▼" if gain.falls_short else ""), points(gain.paper)


def method_of(figure: Figure) -> str:
    """A row's method with its compression and, if they were chosen, the graph's vectors."""
    name = figure.label
    if figure.cell.compression > 1:
        name += f" ×{figure.cell.compression}"
    return name if figure.graph_space is None else f"{name} ({figure.graph_space} graph)"


def points(share: float | None) -> str:
    """A difference of recalls in points, with its sign."""
    return MISSING if share is None else f"{100 * share:+.1f}".replace("-", "−")


def _curves(table: Table) -> str:
    """Shares of queries that visited their target, at several numbers of hops."""
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
