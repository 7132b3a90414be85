"""The report of a build: time, memory and search cost after each step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l2route.files.atomic import replace_text
from l2route.recipe.outcome import Step, times
from l2route.recipe.picture import draw, html_of
from l2route.recipe.record import check_cost, checked, dataclass_of, read_record, record_of
from l2route.recipe.steps import Recipe
from l2route.search.setting import Setting

if TYPE_CHECKING:  # serving never imports torch; figures need an extra
    from matplotlib.figure import Figure

    from l2route.training.report import Report

MISSING = "–"
MAX_STEPS = 100
"""More steps are refused when a report is read: no build has so many."""
FROM_LOG = ("edges", "entries", "learn", "stop")
"""Steps that learn from the query log."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """Time, memory and search cost after each step of `l2route.build`.

    `print` shows a table, `plot` and a notebook a picture. An index keeps the report of its build:
    `BuildReport.load` reads it from the directory of a saved index.
    """

    n_vectors: int
    dim: int
    recipe: Recipe
    n_queries: int
    """Queries in the log."""
    n_distinct: int
    """Distinct queries in the log."""
    n_measured: int
    """Validation queries that costs and the setting were measured on."""
    steps: tuple[Step, ...]
    measuring_seconds: float
    """Time to find settings and costs, not included in the times of the steps."""
    setting: Setting | None
    """The setting that reaches the recall; None if none does or nothing was measured."""
    learned: Report | None
    """The report of learning; None if it did not run, or if this report was loaded: the note of the
    step then says what it brought."""
    doubts: tuple[str, ...]
    """Reasons why the recall of later searches may differ from the measured one."""

    @property
    def seconds(self) -> float:
        """Time of the whole build."""
        return self.measuring_seconds + sum(step.seconds for step in self.steps)

    @property
    def shares(self) -> tuple[float | None, ...]:
        """What each step brought: queries a second as a multiple of those before it.

        None for the first step that reaches the recall, for those that do not reach it, and for
        those that were not kept.
        """
        shares, before = list[float | None](), None
        for step in self.steps:
            speed = None if step.cost is None else step.cost.speed
            is_known = speed and before and step.decision == "kept"
            shares.append(speed / before if is_known and speed and before else None)
            before = speed or before
        return tuple(shares)

    def share_of(self, names: Iterable[str]) -> float:
        """What several steps brought together, as a multiple; 1 if nothing."""
        asked = set(names)
        pairs = zip(self.steps, self.shares, strict=True)
        return math.prod(share or 1.0 for step, share in pairs if step.name in asked)

    def summary(self) -> str:
        """What the build brought, and what of it came from the query log, in a sentence."""
        reached = [step.cost.speed for step in self.steps if step.cost is not None]
        if not reached or self.steps[-1].cost is None:
            return self._unreached()
        first, last = reached[0], reached[-1]
        speeds = f"{first:,.0f} → {last:,.0f} queries a second, {times(last / first)} in all"
        return f"{speeds}; {self._learning()}"

    def _unreached(self) -> str:
        if not self.n_measured:
            return "nothing was measured: there are too few vectors"
        return f"no setting reaches a recall@{self.recipe.k} of {self.recipe.recall:g}"

    def _learning(self) -> str:
        """What learning from the log brought, also if that is nothing."""
        tried = [step for step in self.steps if step.name in FROM_LOG]
        if all(step.decision == "skipped" for step in tried):
            return "nothing was learned from a query log"
        if all(step.decision != "kept" for step in tried):
            return "learning from the log brought nothing on these data"
        return f"{times(self.share_of(FROM_LOG))} by learning from the log"

    def facts(self) -> dict[str, Any]:
        """The report as a dict of plain values."""
        learned = None if self.learned is None else self.learned.facts()
        derived = {"seconds": self.seconds, "shares": self.shares, "summary": self.summary()}
        return asdict(self) | derived | {"learned": learned}

    def record(self) -> dict[str, Any]:
        """All but `learned` as plain values, such as JSON can say, for `of_record`."""
        return record_of(self)

    @classmethod
    def of_record(cls, record: object) -> BuildReport:
        """The inverse of `record`, but for `learned`; the record is not trusted.

        Args:
            record: what `record` returned, or `RoutingIndex.build_record`.
        """
        report = dataclass_of(cls, {**checked(record), "learned": None}, "the report")
        if not 1 <= len(report.steps) <= MAX_STEPS:
            raise ValueError(f"expected 1 to {MAX_STEPS} steps, got {len(report.steps)}")
        for step in report.steps:
            check_cost(step.cost)
        return report

    def save(self, path: str | Path) -> None:
        """Write the report into a JSON file, all but `learned`, for `load`."""
        replace_text(Path(path), json.dumps(self.record(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> BuildReport:
        """Read the report of a build; the file is not trusted.

        Args:
            path: the directory of an index made by `l2route.build`, or a file that `save` wrote.
        """
        record = read_record(Path(path))
        try:
            return cls.of_record(record)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def plot(self) -> Figure:
        """Draw the picture of the build, a bar per step; needs the extra `plots`."""
        return draw(self)

    def _repr_html_(self) -> str:
        try:
            return html_of(self)
        except ImportError:  # without the extra `plots` the table has to do
            return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        table = _table(self.steps, self.shares)
        return "\n".join([self.title(), *table, self.summary(), *self._remarks()])

    def title(self) -> str:
        """What was built, and what was measured on what."""
        recipe = self.recipe
        source = "queries" if self.n_queries else "held-out vectors"
        where = f"on {self.n_measured:,} {source}, one thread" if self.n_measured else "unmeasured"
        return (
            f"{self.n_vectors:,} vectors of {self.dim} dimensions ({recipe.metric}); "
            f"recall@{recipe.k} of {recipe.recall:g} {where}"
        )

    def _remarks(self) -> Iterator[str]:
        notes: dict[str, list[str]] = {}  # several steps may be skipped for one reason
        for step in self.steps:
            if step.note is not None:
                notes.setdefault(step.note, []).append(step.name)
        yield from (f"{', '.join(names)}: {note}" for note, names in notes.items())
        if self.setting is not None:
            width = self.setting.slack if self.setting.ef is None else self.setting.ef
            kind = "slack" if self.setting.ef is None else "ef"
            limit = f"{kind} {width:g}"
            if self.setting.threshold is not None:
                limit = f"a learned rule (under filters {limit})"
            yield f"setting: {limit}, rerank {self.setting.rerank}"
            yield from self._low()
        yield f"{self.seconds:.0f} s in all, of which {self.measuring_seconds:.0f} s for measuring"
        yield from (f"note: {doubt}" for doubt in self.doubts)

    def _low(self) -> Iterator[str]:
        """How many queries have a low recall at the end."""
        cost = self.steps[-1].cost if self.steps else None
        if cost is not None:
            k = self.recipe.k
            yield f"recall@{k} is below 0.8 for {cost.share_low:.2%} of the queries"


HEADINGS = (
    "step",
    "seconds",
    "bytes/vector",
    "recall",
    "worst 5%",
    "scored",
    "bytes read",
    "queries/s",
    "share",
)


def _table(steps: Sequence[Step], shares: Sequence[float | None]) -> list[str]:
    """Lines of a table with aligned columns: the headings, then one line per step."""
    lines = [HEADINGS, *map(_cells, steps, shares)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])])
        for first, *others in lines
    ]


def _cells(step: Step, share: float | None) -> tuple[str, ...]:
    shown = (step.name, f"{step.seconds:.1f}", f"{step.bytes_per_vector:,.0f}")
    outcome = MISSING if share is None else times(share)
    if step.decision != "kept":
        outcome = step.decision
    cost = step.cost
    if cost is None:
        return (*shown, *[MISSING] * (len(HEADINGS) - len(shown) - 1), outcome)
    counts = (f"{each:,.0f}" for each in (cost.n_scored, cost.bytes_read, cost.speed))
    recalls = (f"{cost.recall:.4f}", f"{cost.worst_recall:.4f}")
    return (*shown, *recalls, *counts, outcome)
