"""The report of a build: time, memory and search cost after each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from l2route.recipe.steps import Recipe
from l2route.search.setting import Setting

if TYPE_CHECKING:  # serving never imports torch
    from l2route.training.report import Report

MISSING = "–"


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a search at the target recall: means over the validation queries."""

    recall: float
    """Recall@k, by distances between the original vectors."""
    worst_recall: float
    """The same of the 5% of queries whose recall is lowest."""
    share_low: float
    """Share of queries whose recall@k is below 0.8."""
    n_scored: float
    """Routing vectors scored per query."""
    bytes_read: float
    """Bytes of vectors read per query, rerank included."""
    microseconds: float
    """Time per query on one thread."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a build, and the index after it."""

    name: str
    seconds: float
    bytes_per_vector: float
    """Memory of the whole index, vectors included."""
    cost: Cost | None
    """None if there were no queries to measure with, or if no setting reaches the recall."""
    note: str | None = None
    """The decision made in this step, and its reason."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """Time, memory and search cost after each step of `l2route.build`. `print` shows a table."""

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
    """The report of learning; None if it did not run."""
    doubts: tuple[str, ...]
    """Reasons why the recall of later searches may differ from the measured one."""

    @property
    def seconds(self) -> float:
        """Time of the whole build."""
        return self.measuring_seconds + sum(step.seconds for step in self.steps)

    def facts(self) -> dict[str, Any]:
        """The report as a dict of plain values."""
        learned = None if self.learned is None else self.learned.facts()
        return asdict(self) | {"seconds": self.seconds, "learned": learned}

    def __str__(self) -> str:
        return "\n".join([self._title(), *_table(self.steps), *self._remarks()])

    def _title(self) -> str:
        recipe = self.recipe
        source = "queries" if self.n_queries else "held-out vectors"
        where = f"on {self.n_measured:,} {source}, one thread" if self.n_measured else "unmeasured"
        return (
            f"{self.n_vectors:,} vectors of {self.dim} dimensions ({recipe.metric}); "
            f"recall@{recipe.k} of {recipe.recall:g} {where}"
        )

    def _remarks(self) -> Iterator[str]:
        for step in self.steps:
            if step.note is not None:
                yield f"{step.name}: {step.note}"
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
    "µs/query",
)


def _table(steps: Sequence[Step]) -> list[str]:
    """Lines of a table with aligned columns: the headings, then one line per step."""
    lines = [HEADINGS, *map(_cells, steps)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])])
        for first, *others in lines
    ]


def _cells(step: Step) -> tuple[str, ...]:
    shown = (step.name, f"{step.seconds:.1f}", f"{step.bytes_per_vector:,.0f}")
    cost = step.cost
    if cost is None:
        return (*shown, *[MISSING] * (len(HEADINGS) - len(shown)))
    counts = (f"{each:,.0f}" for each in (cost.n_scored, cost.bytes_read))
    recalls = (f"{cost.recall:.4f}", f"{cost.worst_recall:.4f}")
    return (*shown, *recalls, *counts, f"{cost.microseconds:.1f}")
