"""The steps of `l2route.build` that make decisions: learning, compression and measurement."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric, normalize
from l2route.graph.duplicates import Duplicates
from l2route.graph.graph import Graph
from l2route.index import RoutingIndex
from l2route.recipe.coding import Coder, coded
from l2route.recipe.measuring import Judge, hold_out, measure
from l2route.recipe.measuring import Reached as _Reached
from l2route.recipe.measuring import Refused as _Refused
from l2route.recipe.outcome import Cost, Decision, Step
from l2route.recipe.report import BuildReport
from l2route.recipe.steps import Recipe, StepProgress, named
from l2route.recipe.timing import Chain, compare, with_setting
from l2route.search.calibrate import OutOfReachError
from l2route.search.stopping import FEW_WALKS, FewWalksError
from l2route.search.validation import FEW_QUERIES, N_KEPT, CalibrationWarning, doubts
from l2route.state.log_refining import LogRefiner

if TYPE_CHECKING:  # serving never imports torch
    from l2route.training.log import Event
    from l2route.training.report import Report

N_HELD_OUT = 1000
"""Base vectors held out as queries if there is no query log; at most a tenth of all vectors."""
LEAST_LEFT = 0.5
"""Share of the time limit that is for learning a space, however long edges and entries took."""
PLAIN_STEPS = ("build", "refine", "edges", "entries")
"""Steps after which the index has no other space than the original one."""


class Builder:
    """The steps of one build, with its query log and the measurements so far.

    Args:
        recipe: options of the build.
        log: query log [n_queries, dim], if there is one.
        neighbors: true neighbours of the queries, checked row numbers [n_queries, at least k], if
            known.
        progress: called while the true neighbours of the log are computed.
        on_event: called after every validation of learning.
    """

    def __init__(
        self,
        recipe: Recipe,
        log: NDArray[np.float32] | None,
        neighbors: NDArray[np.int64] | None,
        progress: StepProgress | None,
        on_event: Callable[[Event], None] | None,
    ) -> None:
        self.recipe, self.log, self.neighbors = recipe, log, neighbors
        self.progress, self.on_event = progress, on_event
        self.distinct = None if log is None else _distinct(log, recipe.metric)
        self.learned: Report | None = None
        self.steps: list[Step] = []
        self._notes: dict[str, str] = {}
        self._decisions: dict[str, Decision] = {}
        self._ratios: dict[str, float | None] = {}  # speeds that decided
        self._unmeasured: list[tuple[Step, Graph]] = []
        self._judge: Judge | None = None
        self._chain = Chain(recipe)
        self._measured: RoutingIndex | None = None  # the index after the last step, if measured
        self._outcome: _Reached | _Refused = _Refused("nothing was measured")
        self._n_measured = 0
        self._doubts: list[str] = []
        self._measuring_seconds = 0.0
        self._began = 0.0  # when the log was first used
        self._is_refined = False  # for the log
        self._unseen = self.distinct  # those that the graph was not refined for
        self._deducted_seconds = 0.0  # measuring time up to the end of the previous step

    def refine_for_log(self, index: RoutingIndex) -> Iterator[tuple[str, RoutingIndex]]:
        """Add edges and entry points from the log, if it is long enough and if they pay."""
        recipe = self.recipe
        self._began = time.perf_counter()
        reason = self._reason_to_skip()
        if reason is not None:
            for step in ("edges", "entries"):
                self._note(step, "skipped", reason)
                yield step, index
            return
        refiner = LogRefiner(
            index.base,
            self.log,
            k=recipe.k,
            recall=recipe.recall,
            neighbors=self.neighbors,
            seed=recipe.seed,
            n_threads=recipe.n_threads,
            is_timed=True,
            progress=named(self.progress, "edges"),
        )
        graph, space = index.graph, index.spaces[-1]
        for step, change in (("edges", refiner.with_edges), ("entries", refiner.with_entries)):
            graph = change(graph, space)
            tried = refiner.steps[-1]
            is_kept = tried.is_kept
            self._note(step, "kept" if is_kept else "not kept", str(tried), tried.speedup)
            self._is_refined = self._is_refined or is_kept
            if self._is_refined:
                self._unseen = refiner.split.spare
            yield step, RoutingIndex(index.base, graph, validation=refiner.split.validation)

    def learn(self, index: RoutingIndex) -> RoutingIndex:
        """Learn from the log if it is long enough, and choose the validation queries."""
        index = self._learn(index)
        if self.distinct is None:
            return index
        is_kept = self._is_refined or self._decisions.get("learn") == "kept"
        kept = 0 if index.validation is None else len(index.validation.queries)
        if not is_kept and kept < min(N_KEPT, len(self.distinct)):
            order = np.random.default_rng(self.recipe.seed).permutation(len(self.distinct))
            # nothing of the log is used, so queries that were trained on may validate
            index.validate_with(self.distinct[order[:N_KEPT]])
        return index

    def _reason_to_skip(self) -> str | None:
        """Why nothing can be learned from the log; None if something can."""
        if self.distinct is None:
            return "skipped: there are no queries to learn from"
        if self.recipe.minutes == 0:
            return "skipped: its time limit is 0 minutes"
        if len(self.distinct) < FEW_QUERIES:
            n = len(self.distinct)
            return (
                f"skipped: expected at least {FEW_QUERIES} distinct queries to learn and measure, "
                f"got {n}, which are all used to measure"
            )
        return None

    def _learn(self, index: RoutingIndex) -> RoutingIndex:
        """Learn in the time that is left; keep what is better, and no slower by validation."""
        recipe = self.recipe
        reason = self._reason_to_skip()
        if reason is not None:
            self._note("learn", "skipped", reason)
            return index
        left = recipe.minutes - (time.perf_counter() - self._began) / 60
        try:
            self.learned = index.learn(
                self.log,
                k=recipe.k,
                recall=recipe.recall,
                dim=recipe.dim,
                minutes=max(left, LEAST_LEFT * recipe.minutes),
                seed=recipe.seed,
                n_threads=recipe.n_threads,
                neighbors=self.neighbors,
                progress=named(self.progress, "learn"),
                on_event=self.on_event,
            )
        except (OutOfReachError, ImportError) as error:
            self._note("learn", "skipped", f"skipped: {error}")
            return index
        if not self.learned.is_better:
            self._note("learn", "not kept", str(self.learned))
            return index
        plain = RoutingIndex(index.base, index.graph, validation=index.validation)
        with self._measuring():
            timed = compare(plain, index, recipe)
        self._note("learn", timed.decision, f"{self.learned.figures}, {timed}", timed.speedup)
        return index if timed.is_kept else plain

    def _note(self, step: str, decision: Decision, note: str, ratio: float | None = None) -> None:
        self._decisions[step], self._notes[step], self._ratios[step] = decision, note, ratio

    def compress(self, index: RoutingIndex) -> RoutingIndex:
        """Compress to the codes that serve fastest, or to the smallest from `recipe.routing` up."""
        with self._measuring():
            measured = self._index_to_measure(index, index.graph)
            if measured is None:
                self._notes["compress"] = "there are too few vectors to measure the recall"
                return index
            queries = self._queries_to_project(index)
            coder = Coder(self.recipe, measured, index.base, queries)
            chosen = None if self.recipe.routing == "float32" else coder.choose(self._outcome)
        if chosen is not None:
            coding, self._outcome = chosen
            index = coded(index, coding, queries)
            self._judge = coder.judge  # by the vectors before
        self._notes["compress"] = "; ".join(coder.notes) or "vectors stay float32"
        if isinstance(self._outcome, _Reached):
            index.keep(self._outcome.setting)
        return index

    def _queries_to_project(self, index: RoutingIndex) -> NDArray[np.float32] | None:
        """Queries of the log beside those that validate; None if there are too few."""
        if self.distinct is None or index.validation is None or self._reason_to_skip() is not None:
            return None
        others = index.validation.others(self.distinct, self.recipe.metric)
        return others if len(others) >= FEW_QUERIES else None

    def stop(self, index: RoutingIndex) -> RoutingIndex:
        """Learn from the log when walks end; keep it if it saves time, expected and measured."""
        reason = self._reason_not_to_stop(index) or self._learn_to_stop(index)
        if reason is not None:
            self._note("stop", "skipped", f"skipped: {reason}")
            return index
        recipe, before = self.recipe, self._outcome
        assert index.validation is not None
        assert isinstance(before, _Reached)
        with self._measuring():
            by_rows = self._judge or index.validation.judge_each(index.base, recipe.k)
            outcome = self._measure(index, lambda ids: by_rows(index.rows_of(ids)))
            if isinstance(outcome, _Refused) or outcome.setting.threshold is None:
                self._note("stop", "not kept", "a learned rule is not expected to save time")
            else:
                timed = compare(with_setting(index, before.setting), index, recipe)
                note = f"walks end by a learned rule, {timed}"
                self._note("stop", timed.decision, note, timed.speedup)
        if self._decisions["stop"] == "kept":
            self._outcome = outcome
        else:
            index.forget_stopping(recipe.k)
            index.keep(before.setting)
        return index

    def _reason_not_to_stop(self, index: RoutingIndex) -> str | None:
        """Why it is not learned when walks end; None if it is."""
        if self.distinct is None or index.validation is None:
            return "there are no queries to learn from"
        if self.recipe.minutes == 0:
            return "its time limit is 0 minutes"
        if not isinstance(self._outcome, _Reached):
            return "no setting reaches the recall"
        if index.searcher().space.origin is None:
            return "scores of the space cannot be turned into distances"
        return None

    def _learn_to_stop(self, index: RoutingIndex) -> str | None:
        """Learn when walks end; returns why not, if queries are too few."""
        recipe, queries = self.recipe, self._queries_to_walk(index)
        if len(queries) < FEW_WALKS:
            needed = f"expected at least {FEW_WALKS} distinct queries beside those that validate"
            return f"{needed}, got {len(queries)}"
        try:
            index.learn_stopping(queries, recipe.k, seed=recipe.seed, n_threads=recipe.n_threads)
        except FewWalksError as error:  # any other error is a defect, and is not hidden
            return str(error)
        return None

    def _queries_to_walk(self, index: RoutingIndex) -> NDArray[np.float32]:
        """Queries beside those that validate: unseen ones if they suffice, otherwise all."""
        assert self.distinct is not None
        assert self._unseen is not None
        assert index.validation is not None
        unseen = index.validation.others(self._unseen, self.recipe.metric)
        if self._unseen is self.distinct or len(unseen) >= FEW_WALKS:
            return unseen
        return index.validation.others(self.distinct, self.recipe.metric)

    def watch(self, step: str, seconds: float, index: RoutingIndex) -> None:
        """Record a step. The first are measured after learning, which chooses the queries."""
        own = max(0.0, seconds - (self._measuring_seconds - self._deducted_seconds))
        size = index.n_bytes / len(index)
        done = Step(step, own, size, None, self._notes.get(step), self._decision_of(step, index))
        self._unmeasured.append((done, index.graph))
        if step in PLAIN_STEPS:
            return
        for done, graph in self._unmeasured:
            with self._measuring():
                cost = self._cost_after(done, index, graph)
                cost = self._chain.after(done, self._measured, cost, self._ratios.get(done.name))
            self.steps.append(replace(done, cost=cost))
        self._unmeasured, self._deducted_seconds = [], self._measuring_seconds

    def _decision_of(self, step: str, index: RoutingIndex) -> Decision:
        """What became of a step; compression says it by the element types of the index."""
        if step != "compress":
            return self._decisions.get(step, "kept")
        if any(space.rows.dtype != np.float32 for space in index.spaces):
            return "kept"
        return "skipped" if self.recipe.routing == "float32" else "not kept"

    def _cost_after(self, step: Step, index: RoutingIndex, graph: Graph) -> Cost | None:
        """Search cost after a step; None if the recall is not measured or not reached."""
        self._measured = None
        if self.distinct is not None and step.name == "stop":
            self._measured = index
        elif self.distinct is not None and step.name == "compress":
            if isinstance(self._outcome, _Reached):  # a copy, since the index learns when to stop
                self._measured = with_setting(index, self._outcome.setting)
        elif step.name not in ("compress", "stop") and step.decision == "kept":
            measured = self._index_to_measure(index, graph, is_plain=step.name in PLAIN_STEPS)
            if measured is None:
                return None
            if step.name == "renumber" and isinstance(self._outcome, _Reached):
                measured.keep(self._outcome.setting)  # renumbering changes no walk
            assert measured.validation is not None
            judge = measured.validation.judge_each(measured.base, self.recipe.k)
            self._outcome, self._measured = self._measure(measured, judge), measured
        return self._outcome.cost if isinstance(self._outcome, _Reached) else None

    def _measure(self, index: RoutingIndex, judge: Judge) -> _Reached | _Refused:
        """Find the setting that reaches the recall, and measure its cost on one thread."""
        return measure(index, self.recipe, judge)

    def _index_to_measure(
        self, index: RoutingIndex, graph: Graph, *, is_plain: bool = False
    ) -> RoutingIndex | None:
        """An index with validation queries to measure; None if there are too few vectors.

        Args:
            index: the index at this step.
            graph: the graph to measure, which may be that of an earlier step.
            is_plain: route by the original vectors only.
        """
        if self.distinct is None:
            return self._held_out(index, graph)
        assert index.validation is not None
        self._n_measured = len(index.validation.queries)
        self._doubts = doubts(index.validation, index.base)
        spaces = () if is_plain else index.spaces[1:]
        return RoutingIndex(index.base, graph, spaces, validation=index.validation)

    def _held_out(self, index: RoutingIndex, graph: Graph) -> RoutingIndex | None:
        """The index without some of its vectors, which become the validation queries."""
        n = len(index)
        n_held = min(N_HELD_OUT, n // 10)
        if n_held < 1 or self.recipe.k > n - n_held:
            self._doubts = [f"{n} vectors are too few to hold some out: nothing was measured"]
            return None
        self._n_measured = n_held
        self._doubts = [
            f"the setting was measured on {n_held:,} vectors held out of the graph; it holds for "
            "queries that are distributed like the vectors"
        ]
        return hold_out(index, graph, n_held, self.recipe.seed)

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._measuring_seconds += time.perf_counter() - begin

    def report(self, index: RoutingIndex) -> BuildReport:
        """The report of the build. Warns if no setting reaches the recall."""
        setting = self._outcome.setting if isinstance(self._outcome, _Reached) else None
        if isinstance(self._outcome, _Refused) and self._n_measured:
            self._doubts.append(f"no setting was found: {self._outcome.reason}")
            warnings.warn(self._doubts[-1], CalibrationWarning, stacklevel=4)
        return BuildReport(
            n_vectors=len(index),
            dim=index.dim,
            recipe=self.recipe,
            n_queries=0 if self.log is None else len(self.log),
            n_distinct=0 if self.distinct is None else len(self.distinct),
            n_measured=self._n_measured,
            steps=tuple(self.steps),
            measuring_seconds=self._measuring_seconds,
            setting=setting,
            learned=self.learned,
            doubts=tuple(self._doubts),
        )


def _distinct(log: NDArray[np.float32], metric: Metric) -> NDArray[np.float32]:
    """The distinct queries of a log, in the order of first appearance [n_distinct, dim]."""
    return log[Duplicates.of(normalize(log) if metric == "cosine" else log).first]
