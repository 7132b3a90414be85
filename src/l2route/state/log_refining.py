"""Refining a graph for the queries of a log: edges and entry points, kept if they pay."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.files.progress import Progress
from l2route.graph.graph import Graph
from l2route.rewiring.log_edges import DEPTH, MAX_DEPTH, N_EXTRA, Joined, join_neighbors
from l2route.rewiring.log_entries import entries_of_log
from l2route.rewiring.log_mixes import mixed_neighbors, near_pairs
from l2route.search.base import BaseVectors
from l2route.search.calibrate import OutOfReachError, calibrate
from l2route.search.codes import compress_space
from l2route.search.searcher import Searcher
from l2route.search.setting import Setting
from l2route.search.space import RoutingSpace
from l2route.state.timing import speedup
from l2route.training.log_split import LogSplit, split_log

LEAST_GAIN = 0.03
"""Share of the time of a search that a change has to save: edges take memory."""
FEW_EXTRA = 8
"""By how many neighbours lists may grow where more of them save too little."""


@dataclass(frozen=True, slots=True)
class LogStep:
    """One change of a graph for a query log, and what it brought at the recall."""

    name: str
    """edges or entries."""
    before: float
    """Microseconds that a held-out query is expected to take by codes of a byte on a typical
    machine, before; inf if the recall is not reached."""
    after: float
    """The same, after the change."""
    scored: tuple[float, float]
    """Vertices that it scores, before and after; inf if the recall is not reached."""
    note: str
    """What was changed."""
    speedup: float | None = None
    """Queries per second after the change, as a multiple of those before; None if not measured."""

    @property
    def is_kept(self) -> bool:
        """Whether the change is kept: it saves time, as measured if it was, or else as expected."""
        return self.after < np.inf and self.saved >= LEAST_GAIN

    @property
    def saved(self) -> float:
        """Share of the time that the change saves."""
        return 1 - (self.after / self.before if self.speedup is None else 1 / self.speedup)

    def __str__(self) -> str:
        decision = "kept" if self.is_kept else "not kept"
        speed = "" if self.speedup is None else f", {self.speedup:.2f} times as fast"
        scored = "{:,.0f} → {:,.0f} vertices scored".format(*self.scored)
        expected = f"{self.before:.1f} → {self.after:.1f} µs expected"
        return f"{self.note}; {scored}, {expected}{speed}: {decision}"


@dataclass(frozen=True, slots=True)
class LogReport:
    """What `RoutingIndex.refine(queries=…)` did. `print` shows it."""

    k: int
    recall: float
    """Recall@k at which costs were measured."""
    n_train: int
    """Distinct queries that edges and entry points are from."""
    n_held_out: int
    """Other queries, on which costs were measured."""
    steps: tuple[LogStep, ...]

    def facts(self) -> dict[str, Any]:
        """The report as a dict of plain values; costs that are infinite are None."""
        facts = asdict(self)
        for step, entry in zip(self.steps, facts["steps"], strict=True):
            entry |= {"before": _finite(step.before), "after": _finite(step.after)}
            entry |= {"scored": [*map(_finite, step.scored)], "is_kept": step.is_kept}
        return facts

    def __str__(self) -> str:
        title = (
            f"{self.n_train:,} queries, measured on {self.n_held_out:,} others "
            f"at a recall@{self.k} of {self.recall:g}"
        )
        return "\n".join([title, *(f"{step.name}: {step}" for step in self.steps)])


def _finite(number: float) -> float | None:
    return number if number < np.inf else None


class _Measured(NamedTuple):
    """The cheapest setting of a searcher that reaches the recall."""

    searcher: Searcher
    setting: Setting
    nanoseconds: float
    """That a query is expected to take, on a typical machine."""


class LogRefiner:
    """Changes graphs over some vectors for the queries of a log.

    Args:
        base: the vectors.
        queries: query log [n_queries, dim]; it may contain repeated queries.
        k: answers per query.
        recall: recall@k at which costs are compared.
        neighbors: true neighbours of the queries, row numbers [n_queries, *], nearest first; found
            by an exact search if not given, or if they are too few.
        seed: seed of the split of the log, and of clusters.
        n_threads: threads; 0 for all cores. Results are the same for any number.
        is_timed: whether time is measured, which may depend on other processes, and decides.
        progress: called with queries done and in total while true neighbours are found.
    """

    def __init__(
        self,
        base: BaseVectors,
        queries: object,
        *,
        k: int = 10,
        recall: float = 0.95,
        neighbors: NDArray[np.int64] | None = None,
        seed: int = 0,
        n_threads: int = 0,
        is_timed: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.base, self.k, self.recall, self.is_timed = base, k, recall, is_timed
        self.seed, self.n_threads = seed, n_threads
        depth = min(len(base.rows), MAX_DEPTH, max(DEPTH, k))
        self.split: LogSplit = split_log(
            queries, base, depth, neighbors=neighbors, seed=seed, progress=progress
        )
        self.steps: list[LogStep] = []
        self._known: list[tuple[Graph, RoutingSpace, _Measured | None]] = []
        self._codings: list[tuple[RoutingSpace, RoutingSpace]] = []

    def with_edges(self, graph: Graph, space: RoutingSpace, degree: int | None = None) -> Graph:
        """The graph with edges by which neighbours of queries reach each other, if they pay.

        Queries are those of the log, and others between them. Without a degree, lists may grow by
        32 neighbours where that saves more than to let them grow by 8.
        """

        def join() -> tuple[Graph, str]:
            nearest, width = self.split.nearest, graph.neighbors.shape[1]
            by_log = self._joined(graph, nearest, degree).graph
            mixes = self.mixed_neighbors(by_log, space)
            nearest = np.concatenate([nearest, mixes])
            degrees = (width + FEW_EXTRA, width + N_EXTRA) if degree is None else (degree,)
            first, *wider = (self._joined(graph, nearest, each) for each in degrees)
            chosen, least = first, _time(self._measured(first.graph, space))
            for joined in wider:
                time = _time(self._measured(joined.graph, space))
                if time < (1 - LEAST_GAIN) * least:
                    chosen, least = joined, time
            return chosen.graph, _edges_added(chosen, len(self.split.train), len(mixes))

        return self._tried("edges", graph, space, join)

    def with_entries(self, graph: Graph, space: RoutingSpace) -> Graph:
        """The graph with entry points that depend on the query, if they pay."""

        def enter() -> tuple[Graph, str]:
            table = entries_of_log(
                self.split.train, self.split.nearest, self.base.metric, self.seed
            )
            note = f"{len(table.centroids)} clusters of queries in {len(table.groups)} groups"
            return replace(graph, table=table), note

        return self._tried("entries", graph, space, enter)

    def mixed_neighbors(self, graph: Graph, space: RoutingSpace) -> NDArray[np.int32]:
        """Neighbours of queries between those of the log, found by searches of this graph."""
        train, n_threads = self.split.train, self.n_threads
        pairs = near_pairs(train, self.base.metric, self.seed, n_threads)
        searcher = Searcher(graph, self._coded(space), self.base)
        return mixed_neighbors(searcher, train, pairs, self.split.nearest.shape[1], n_threads)

    def report(self) -> LogReport:
        """What was done so far."""
        split = self.split
        n_held_out = len(split.validation.queries)
        return LogReport(self.k, self.recall, len(split.train), n_held_out, tuple(self.steps))

    def _coded(self, space: RoutingSpace) -> RoutingSpace:
        """The space in bytes, coded once."""
        for known, coded in self._codings:
            if known is space:
                return coded
        self._codings.append((space, _coded(space)))
        return self._codings[-1][1]

    def _joined(self, graph: Graph, nearest: NDArray[np.int32], degree: int | None) -> Joined:
        return join_neighbors(graph, self.base, nearest, degree=degree, n_threads=self.n_threads)

    def _tried(
        self, name: str, graph: Graph, space: RoutingSpace, change: Callable[[], tuple[Graph, str]]
    ) -> Graph:
        changed, note = change()
        before, after = (self._measured(each, space) for each in (graph, changed))
        speedup = self._speedup(before, after) if self.is_timed else None
        scored = (_work(before), _work(after))
        self.steps.append(LogStep(name, _time(before), _time(after), scored, note, speedup))
        return changed if self.steps[-1].is_kept else graph

    def _measured(self, graph: Graph, space: RoutingSpace) -> _Measured | None:
        """The cheapest setting that reaches the recall, found once per graph; None if none does."""
        for known, known_space, found in self._known:
            if known is graph and known_space is space:
                return found
        searcher = Searcher(graph, self._coded(space), self.base)
        validation = self.split.validation
        try:
            reached = calibrate(searcher, validation, self.k, self.recall, self.n_threads)
            measured = _Measured(searcher, *reached)
        except OutOfReachError:
            measured = None
        self._known.append((graph, space, measured))
        return measured

    def _speedup(self, before: _Measured | None, after: _Measured | None) -> float | None:
        """Queries per second after a change, as a multiple of those before, on one thread."""
        if before is None or after is None:
            return None
        plans = [
            each.searcher.plan(self.k, limits=each.setting.limits, n_threads=1)
            for each in (before, after)
        ]
        queries = self.split.validation.queries
        return speedup(*(partial(plan, queries) for plan in plans))


def _work(measured: _Measured | None) -> float:
    """Vertices that a query scores; inf if the recall is not reached."""
    return np.inf if measured is None else float(measured.setting.n_work)


def _time(measured: _Measured | None) -> float:
    """Microseconds that a query is expected to take; inf if the recall is not reached."""
    return np.inf if measured is None else measured.nanoseconds / 1000


def _edges_added(joined: Joined, n_queries: int, n_mixed: int) -> str:
    n_vertices, width = joined.graph.neighbors.shape
    added = f"{joined.n_added / n_vertices:.2f} more per vertex"
    queries = f"for {n_queries:,} queries and {n_mixed:,} between them"
    refused = f", {joined.n_refused:,} did not fit" if joined.n_refused else ""
    return f"{added}, {queries}, lists of up to {width}{refused}"


def _coded(space: RoutingSpace) -> RoutingSpace:
    """The space in bytes, as it is served mostly; as it is if it cannot be."""
    plain = replace(space, inlined=False)
    if plain.rows.dtype != np.float32:
        return plain
    try:
        return compress_space(plain, "int8")
    except ValueError:  # more dimensions than sums of codes have room for
        return plain
