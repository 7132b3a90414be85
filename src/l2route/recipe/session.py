"""The steps of `l2route.build` that decide: learn, compress, and measuring what each brings."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric, normalize
from l2route.graph.duplicates import Duplicates
from l2route.graph.graph import Graph
from l2route.index import RoutingIndex
from l2route.recipe.report import BuildReport, Cost, Step
from l2route.recipe.steps import ROUTINGS, Recipe, Routing, StepProgress, named
from l2route.rewiring.remove import remove_vertices
from l2route.search.base import BaseVectors
from l2route.search.calibrate import OutOfReachError, bytes_read
from l2route.search.codes import Compression
from l2route.search.setting import Setting
from l2route.search.validation import FEW_QUERIES, N_KEPT, CalibrationWarning, Validation, doubts

if TYPE_CHECKING:  # serving never imports torch
    from l2route.training.log import Event
    from l2route.training.report import Report

N_HELD_OUT = 1000
"""Base vectors that stand in for queries where there are none; at most a tenth of all vectors."""
LOST_TO_ROUNDING = 0.005
"""Recall that half floats may lose against the original vectors."""
N_TIMED = 3
"""Times that the validation queries are searched to time them; the fastest counts."""

Half = Literal["float16"]
Judge = Callable[[NDArray[np.int64]], float]
"""From answers by row number to their recall@k."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The cheapest setting that reaches the recall, and what it costs."""

    setting: Setting
    cost: Cost


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why there is no such setting, or why it is not used."""

    reason: str


class Session:
    """One build: what it learns from and measures on, and what it found so far.

    Args:
        recipe: what to make.
        log: query log [n_queries, dim], if there is one.
        neighbors: true neighbours of the queries, if they are known.
        progress: called while true neighbours are found.
        on_event: called after every validation of learning.
    """

    def __init__(
        self,
        recipe: Recipe,
        log: NDArray[np.float32] | None,
        neighbors: object,
        progress: StepProgress | None,
        on_event: Callable[[Event], None] | None,
    ) -> None:
        self.recipe, self.log, self.neighbors = recipe, log, neighbors
        self.progress, self.on_event = progress, on_event
        self.distinct = None if log is None else _distinct(log, recipe.metric)
        self.learned: Report | None = None
        self.steps: list[Step] = []
        self._notes: dict[str, str] = {}
        self._waiting: list[tuple[Step, Graph]] = []
        self._found: _Found | _Refused = _Refused("nothing was measured")
        self._n_measured = 0
        self._doubts: list[str] = []
        self._measured, self._counted = 0.0, 0.0  # seconds of measuring, those of past steps

    def learn(self, index: RoutingIndex) -> RoutingIndex:
        """Learn from the log if it is long enough; choose the validation queries in any case."""
        self._notes["learn"] = self._learn(index)
        if self.distinct is None:
            return index
        is_kept = self.learned is not None and self.learned.is_better
        kept = 0 if index.validation is None else len(index.validation.queries)
        if not is_kept and kept < min(N_KEPT, len(self.distinct)):
            order = np.random.default_rng(self.recipe.seed).permutation(len(self.distinct))
            index.validate_with(self.distinct[order[:N_KEPT]])  # nothing was learned from them
        return index

    def _learn(self, index: RoutingIndex) -> str:
        """Learn, and say how that went."""
        recipe = self.recipe
        if self.distinct is None:
            return "not done, since there are no queries to learn from"
        if recipe.minutes == 0:
            return "not done, since it was given no time"
        if len(self.distinct) < FEW_QUERIES:
            n = len(self.distinct)
            return (
                f"not done, since it takes {FEW_QUERIES} distinct queries to learn and measure; "
                f"the log has {n}, which are all measured on"
            )
        try:
            self.learned = index.learn(
                self.log,
                k=recipe.k,
                recall=recipe.recall,
                dim=recipe.dim,
                minutes=recipe.minutes,
                seed=recipe.seed,
                n_threads=recipe.n_threads,
                neighbors=self.neighbors,
                progress=named(self.progress, "learn"),
                on_event=self.on_event,
            )
        except (OutOfReachError, ImportError) as error:
            return f"not done: {error}"
        return str(self.learned)

    def compress(self, index: RoutingIndex) -> RoutingIndex:
        """Use the smallest element types, from those asked for up, that pay."""
        before, refused = self._found, list[str]()
        for routing, vectors in _candidates(self.recipe.routing):
            with self._measuring():
                tried = self._tried(index, routing, vectors, before)
            types = f"{routing} routing vectors and {vectors or 'float32'} original vectors"
            if isinstance(tried, _Found):
                index.compress(routing, vectors=vectors)
                self._found = tried
                self._notes["compress"] = "; ".join([*refused, f"{types}: kept"])
                break
            refused.append(f"{types}: {tried.reason}")
        else:
            self._notes["compress"] = "; ".join([*refused, "vectors stay float32"])
        if isinstance(self._found, _Found):
            index.keep(self._found.setting)
        return index

    def _tried(
        self,
        index: RoutingIndex,
        routing: Compression,
        vectors: Half | None,
        before: _Found | _Refused,
    ) -> _Found | _Refused:
        """Compress a copy, and see whether it reaches the recall and reads fewer bytes."""
        view = self._view(index, index.graph)
        if view is None:
            return _Refused("nothing to measure the recall on")
        assert view.validation is not None
        trial = RoutingIndex(view.base, view.graph, view.spaces[1:], validation=view.validation)
        try:
            trial.compress(routing, vectors=vectors)
        except ValueError as error:  # values beyond half floats, dimensions beyond codes
            return _Refused(f"not possible: {error}")
        found = self._cheapest(trial, view.validation.judge(view.base, self.recipe.k))
        if isinstance(found, _Refused):
            return found
        if found.cost.recall < self.recipe.recall - LOST_TO_ROUNDING:
            return _Refused(f"rounding leaves a recall of {found.cost.recall:.4f}")
        if isinstance(before, _Found) and found.cost.bytes_read >= before.cost.bytes_read:
            return _Refused(f"queries would read {found.cost.bytes_read:,.0f} bytes, no fewer")
        return found

    def watch(self, step: str, seconds: float, index: RoutingIndex) -> None:
        """Note a step; measure it once validation queries are known, which is after learning."""
        own = seconds - (self._measured - self._counted)
        size = index.n_bytes / len(index)
        self._waiting.append((Step(step, own, size, None, self._notes.get(step)), index.graph))
        if step in ("build", "refine"):
            return
        for each, graph in self._waiting:
            with self._measuring():
                cost = self._cost_after(each.name, index, graph)
            self.steps.append(Step(each.name, each.seconds, each.bytes_per_vector, cost, each.note))
        self._waiting, self._counted = [], self._measured

    def _cost_after(self, step: str, index: RoutingIndex, graph: Graph) -> Cost | None:
        """What a search costs after a step, if that is known."""
        is_same = step == "learn" and (self.learned is None or not self.learned.is_better)
        if step != "compress" and not is_same:
            view = self._view(index, graph, is_plain=step in ("build", "refine"))
            if view is None:
                return None
            if step == "renumber" and isinstance(self._found, _Found):
                view.keep(self._found.setting)  # walks are the same, only faster
            assert view.validation is not None
            self._found = self._cheapest(view, view.validation.judge(view.base, self.recipe.k))
        return self._found.cost if isinstance(self._found, _Found) else None

    def _cheapest(self, view: RoutingIndex, judge: Judge) -> _Found | _Refused:
        """Find the setting that reaches the recall, and measure it on one thread."""
        recipe = self.recipe
        assert view.validation is not None
        queries = view.validation.queries
        try:
            setting = view.setting(recipe.recall, recipe.k, n_threads=recipe.n_threads)
        except OutOfReachError as error:
            return _Refused(str(error))
        plan = view.plan(recipe.k, recall=recipe.recall, n_threads=1)
        seconds = []
        for _ in range(N_TIMED):
            begin = time.perf_counter()
            found = plan(queries)
            seconds.append(time.perf_counter() - begin)
        cost = Cost(
            recall=judge(found.ids),
            n_scored=float(found.n_routing.mean()),
            bytes_read=bytes_read(view.searcher(), found),
            microseconds=min(seconds) / len(queries) * 1e6,
        )
        return _Found(setting, cost)

    def _view(
        self, index: RoutingIndex, graph: Graph, *, is_plain: bool = False
    ) -> RoutingIndex | None:
        """The index to measure on, with validation queries; None if there are too few vectors."""
        if self.distinct is None:
            return self._held_out(index, graph)
        assert index.validation is not None
        self._n_measured = len(index.validation.queries)
        self._doubts = doubts(index.validation, index.base)
        spaces = () if is_plain else index.spaces[1:]
        return RoutingIndex(index.base, graph, spaces, validation=index.validation)

    def _held_out(self, index: RoutingIndex, graph: Graph) -> RoutingIndex | None:
        """The index without some of its vectors, which are the queries."""
        n = len(index)
        n_held = min(N_HELD_OUT, n // 10)
        if n_held < 1 or self.recipe.k > n - n_held:
            self._doubts = [f"{n} vectors are too few to hold some out and measure a setting on"]
            return None
        self._n_measured = n_held
        self._doubts = [
            f"the setting was measured on {n_held:,} vectors, taken out of the graph first; it "
            "holds for queries that are distributed like the vectors"
        ]
        gone = np.zeros(n, dtype=bool)
        gone[np.random.default_rng(self.recipe.seed).permutation(n)[:n_held]] = True
        if index.labels is not None:
            gone = gone[index.labels]
        vectors = index.base.vectors()
        left = BaseVectors.of(vectors[~gone], index.base.metric)
        validation = Validation.of(left, vectors[gone])
        return RoutingIndex(left, remove_vertices(graph, index.base, gone), validation=validation)

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._measured += time.perf_counter() - begin

    def report(self, index: RoutingIndex) -> BuildReport:
        """What was done. Warn if the recall is out of reach."""
        setting = self._found.setting if isinstance(self._found, _Found) else None
        if isinstance(self._found, _Refused) and self._n_measured:
            self._doubts.append(f"no setting was found: {self._found.reason}")
            warnings.warn(self._doubts[-1], CalibrationWarning, stacklevel=4)
        return BuildReport(
            n_vectors=len(index),
            dim=index.dim,
            recipe=self.recipe,
            n_queries=0 if self.log is None else len(self.log),
            n_distinct=0 if self.distinct is None else len(self.distinct),
            n_measured=self._n_measured,
            steps=tuple(self.steps),
            measuring_seconds=self._measured,
            setting=setting,
            learned=self.learned,
            doubts=tuple(self._doubts),
        )


def _distinct(log: NDArray[np.float32], metric: Metric) -> NDArray[np.float32]:
    """The distinct queries of a log, in the order of first appearance [n_distinct, dim]."""
    return log[Duplicates.of(normalize(log) if metric == "cosine" else log).first]


def _candidates(routing: Routing) -> list[tuple[Compression, Half | None]]:
    """Element types of routing and original vectors to try, the smallest first."""
    from_smallest: list[tuple[Compression, Half | None]] = []
    for each in ROUTINGS[ROUTINGS.index(routing) :]:
        if each != "float32":
            from_smallest += [(each, "float16"), (each, None)]
    return from_smallest
