"""Jobs: the inputs of one result, its computation, and the stored outcome."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.dataset import Dataset
from l2route.data.metrics import first_hops, recall_at
from l2route.data.truth import Truth, exact_distances, exact_neighbors
from l2route.evaluation.compare.methods import select
from l2route.evaluation.compare.protocol import knob_for
from l2route.files.atomic import replace_text
from l2route.files.hashing import hash_arrays
from l2route.graph.build import GraphKind, GraphOptions, build_graph
from l2route.graph.entry import Entry
from l2route.index import RoutingIndex, load
from l2route.reproduce.log_graph import log_graph
from l2route.reproduce.plan import Cell, Method
from l2route.rewiring.grow import grow_graph
from l2route.rewiring.log_edges import DEPTH
from l2route.search.base import BaseVectors
from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher
from l2route.search.space import original_space, pca_space, rerank_within
from l2route.training.log import Event
from l2route.training.log_split import split_log
from l2route.training.options import LearnOptions
from l2route.training.train import train

N_TUNING = 2000
"""Training queries on which a graph or a peer's knob is chosen."""
DEGREE, EF_CONSTRUCTION, ENTRY = 16, 300, 0
"""Parameters of the paper's graphs: M = 8, and searches of NSW enter at vertex 0."""


@dataclass(frozen=True, slots=True)
class Source:
    """A dataset and the hash of its vectors."""

    data: Dataset
    digest: str

    @classmethod
    def of(cls, data: Dataset) -> "Source":
        """Hash the vectors and the metric."""
        return cls(data, hash_arrays(data.metric, data.base, data.query, data.training)[:16])

    @property
    def learn(self) -> NDArray[np.float32]:
        """The training queries."""
        return self.data.training


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a result depends on; equal jobs have equal results."""

    data: str
    digest: str
    method: Method
    """Without its label, and with the defaults of options that do not apply."""
    dim: int
    """Dimension of the routing vectors."""
    budget: int
    k: int
    seed: int
    version: str

    @classmethod
    def of(
        cls, cell: Cell, method: Method, source: Source, minutes: float | None, seed: int
    ) -> "Job":
        """The job of a cell.

        Args:
            cell: a cell of the planned table.
            method: the cell's method.
            source: the data.
            minutes: time limit of learning, in place of the method's own.
            seed: seed of every random choice.
        """
        dim = source.data.base.shape[1]
        routing_dim = dim // cell.compression
        plain = Method(
            "",
            peer=method.peer,
            graph=method.graph,
            degree=method.degree,
            log=method.log,
            log_kept=method.log_kept if method.log else "better",
            budgets=method.budgets if method.log or method.space == "learned" else (),
            space=method.space,
        )
        if routing_dim < dim:
            plain = replace(plain, graph_space=method.graph_space)
        if method.space == "learned":
            plain = replace(
                plain,
                model=method.model,
                objective=method.objective,
                hidden_dim=method.hidden_dim,
                minutes=method.minutes if minutes is None else minutes,
                steps=method.steps if minutes is None else None,
            )
        return cls(
            source.data.name,
            source.digest,
            plain,
            routing_dim,
            cell.budget,
            cell.k,
            seed,
            version("l2route"),
        )

    @property
    def key(self) -> str:
        """A file name that only equal jobs share.

        Only options of the method that differ from their defaults enter it, so that results stay
        valid when an option is added.
        """
        method, default = asdict(self.method), asdict(Method(""))
        special = {name: value for name, value in method.items() if value != default[name]}
        special["minutes"] = self.method.minutes
        content = json.dumps({**asdict(self), "method": special}, sort_keys=True).encode()
        return hashlib.sha256(content).hexdigest()[:16]

    @property
    def shared(self) -> "Job":
        """The job whose learned space this one searches with: that of all budgets, or itself."""
        return replace(self, budget=0, k=0) if self.method.budgets else self

    @property
    def expected_seconds(self) -> float:
        """Rough estimate for 100,000 vectors."""
        return 60 * self.method.minutes + 45 if self.method.space == "learned" else 15


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a job, query by query."""

    arrays: dict[str, NDArray[Any]]
    """ids, distances, n_computed, n_hops, first_hop (−1: never) and seconds, each [n_queries]."""
    facts: dict[str, Any]
    """Figures of learning or building; the reason under "skipped" if there is no result."""


class JobRunner:
    """Runs the jobs of one dataset; caches graphs and true neighbours in a directory.

    Args:
        source: the data.
        directory: the cache.
        seed: seed of the graphs.
    """

    def __init__(self, source: Source, directory: Path, seed: int) -> None:
        self.source, self.directory, self.seed = source, directory, seed

    def truth(self, queries: NDArray[np.float32]) -> Truth:
        """The nearest neighbour of each query."""
        data = self.source.data
        return exact_neighbors(data.base, queries, 1, data.metric, cache=self.directory)

    def run(self, job: Job, on_event: Callable[[Event], None] | None = None) -> Outcome:
        """Run a job; `on_event` is called after every validation while it learns."""
        if job.method.peer is not None:
            return self._run_peer(job)
        if job.method.space == "learned":
            return self._run_learned(job, on_event)
        is_on_pca = job.method.graph_space == "pca" and job.dim < self.dim
        index = self._index(job, job.dim if is_on_pca else None)
        space = pca_space(index.base, job.dim) if job.dim < self.dim else original_space(index.base)
        return Outcome(self._measure(Searcher(index.graph, space, index.base), job), {})

    @property
    def dim(self) -> int:
        """Dimension of the original vectors."""
        return int(self.source.data.base.shape[1])

    def _run_learned(self, job: Job, on_event: Callable[[Event], None] | None) -> Outcome:
        """Learn, and measure the learned space even if it is no better than the plain one."""
        shared = job.shared
        path = self.directory / f"{shared.key}.l2r"
        facts_path = path.with_suffix(".json")
        if shared != job and facts_path.exists():  # written last
            index, facts = load(path), json.loads(facts_path.read_text(encoding="utf-8"))
        else:
            index, facts = self._learned(job, on_event)
        if shared != job and not facts_path.exists():
            index.save(path, overwrite=True)  # of a run that was cut off
            replace_text(facts_path, json.dumps(facts))
        outcome = Outcome(
            self._measure(Searcher(index.graph, index.spaces[-1], index.base), job), facts
        )
        self._checkpoint(job).unlink(missing_ok=True)
        return outcome

    def _learned(
        self, job: Job, on_event: Callable[[Event], None] | None
    ) -> tuple[RoutingIndex, dict[str, Any]]:
        """An index whose last space is learned, and figures of learning."""
        is_short = job.dim < self.dim
        graph_space = self._graph_space(job) if is_short else "original"
        index = self._index(job, job.dim if graph_space == "pca" else None)
        method = job.method
        options = LearnOptions(
            budget=_affordable(method.budgets, job.dim if is_short else 0) or job.budget,
            rerank=None if method.budgets else job.k,
            k=1,
            dim=job.dim if is_short else None,
            model=method.model,
            objective=method.objective,
            hidden_dim=method.hidden_dim,
            minutes=method.minutes,
            steps=method.steps,
            seed=job.seed,
        )
        space, report = train(
            index.graph,
            index.base,
            self.source.learn,
            options,
            neighbors=self._log_neighbors() if method.log else None,
            checkpoint=self._checkpoint(job),
            cache=self.directory,
            on_event=on_event,
        )
        facts = report.facts() | {"graph_space": graph_space, "learn_seconds": report.seconds}
        return RoutingIndex(index.base, index.graph, [space]), facts

    def _checkpoint(self, job: Job) -> Path:
        return self.directory / f"{job.shared.key}.checkpoint"

    def _log_neighbors(self) -> NDArray[np.int64]:
        """True neighbours of the training queries [n_queries, at most 10]."""
        data = self.source.data
        k = min(DEPTH, len(data.base))
        return exact_neighbors(
            data.base, self.source.learn, k, data.metric, cache=self.directory
        ).ids

    def _graph_space(self, job: Job) -> str:
        """Vectors to build the graph on; "better" compares plain search on training queries."""
        if job.method.graph_space != "better":
            return job.method.graph_space
        queries = self.source.learn[:N_TUNING]
        nearest = self.truth(queries).distances
        recalls = {}
        for name, dim in (("original", None), ("pca", job.dim)):
            index = self._index(job, dim)
            space = pca_space(index.base, job.dim)
            limits = Limits(job.budget, rerank=job.k)
            found = Searcher(index.graph, space, index.base).search(queries, 1, limits=limits)
            recalls[name] = recall_at(found.distances, nearest, 1)
        return max(recalls, key=lambda name: recalls[name])

    def _index(self, job: Job, pca_dim: int | None) -> RoutingIndex:
        """The index of a job, built once; an incomplete file is replaced."""
        method = job.method
        name = f"{job.digest}-{method.graph}-{pca_dim or 'full'}-{self.seed}-{job.version}"
        if method.degree != DEGREE or method.log:
            kept = [*method.log, method.log_kept] if method.log else []
            name += "-".join(["", str(method.degree), *kept])
        path = self.directory / f"{name}.l2r"
        if path.exists():
            try:
                return load(path)
            except (OSError, ValueError):
                shutil.rmtree(path)
        if method.graph == "l2route":
            index = self._own_index(job)
        else:
            index = paper_index(self.source.data, method.graph, self.seed, pca_dim)
        index.save(path)
        return index

    def _own_index(self, job: Job) -> RoutingIndex:
        """An index with the project's own graph, and what it gets from the training queries."""
        method, learn = job.method, self.source.learn
        if not method.log:
            base = BaseVectors.of(self.source.data.base, self.source.data.metric)
            options = GraphOptions("l2route", method.degree, None, "medoid", self.seed)
            return RoutingIndex(base, grow_graph(base, options))
        plain = self._index(replace(job, method=replace(method, log=(), log_kept="better")), None)
        split = split_log(learn, plain.base, DEPTH, neighbors=self._log_neighbors(), seed=self.seed)
        return RoutingIndex(
            plain.base, log_graph(plain.graph, plain.base, split, method, self.seed)
        )

    def _measure(self, searcher: Searcher, job: Job) -> dict[str, NDArray[Any]]:
        queries = self.source.data.query
        limits = Limits(job.budget, rerank=job.k)

        def search(some: NDArray[np.float32], trace: bool = False) -> SearchResult:
            return searcher.search(some, 1, limits=limits, n_threads=1, trace=trace)

        found = search(queries, trace=True)
        trace, targets = found.trace, self.truth(queries).ids[:, 0]
        assert trace is not None
        return {
            "ids": found.ids[:, 0],
            "distances": found.distances[:, 0],
            "n_computed": found.n_computed,
            "n_hops": found.n_hops,
            "first_hop": first_hops(trace.offsets, trace.vertices, trace.hops, targets),
            "seconds": _time_each(search, queries),
        }

    def _run_peer(self, job: Job) -> Outcome:
        data, peer = self.source.data, str(job.method.peer)
        (entry,) = select("sota", [peer])
        try:
            method = entry.make(job.seed, job.method.minutes)
        except ImportError as error:
            return Outcome({}, {"skipped": str(error)})
        begin = time.perf_counter()
        method.build(data)
        built = time.perf_counter() - begin
        knob = knob_for(method, self.source.learn[:N_TUNING], 1, job.budget)
        ids = method.search(data.query, 1)
        counts = method.count(data.query, 1)
        assert counts is not None  # the knob was found by counting
        distances = exact_distances(data.base, data.query, ids, data.metric)
        seconds = _time_each(lambda some: method.search(some, 1), data.query)
        arrays: dict[str, NDArray[Any]] = {
            "ids": ids[:, 0],
            "distances": distances[:, 0],
            "n_computed": counts.astype(np.float64),
            "seconds": seconds,
        }
        return Outcome(arrays, {"knob": knob, "build_seconds": built})


def _affordable(budgets: tuple[int, ...], n_projection: int) -> tuple[int, ...]:
    """Those budgets that leave something for routing."""
    return tuple(each for each in budgets if rerank_within(each, 1) + n_projection < each)


def paper_index(
    data: Dataset, kind: GraphKind, seed: int = 0, pca_dim: int | None = None
) -> RoutingIndex:
    """An index with the paper's parameters and exactly the graph that faiss builds.

    `RoutingIndex.build` would connect unreachable vertices, which would change the figures.
    """
    entry: Entry = ENTRY if kind == "nsw" else "medoid"
    options = GraphOptions(kind, DEGREE, EF_CONSTRUCTION, entry, seed)
    base = BaseVectors.of(data.base, data.metric)
    if pca_dim is None:
        return RoutingIndex(base, build_graph(base.vectors(), base.metric, options))
    space = pca_space(base, pca_dim)
    graph = build_graph(space.rows[:, : space.dim], space.scorer, options)
    return RoutingIndex(base, graph, [space])


def _time_each(
    search: Callable[[NDArray[np.float32]], Any], queries: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Seconds of each query, searched one at a time [n_queries]."""
    seconds = np.empty(len(queries), dtype=np.float32)
    for i in range(len(queries)):
        begin = time.perf_counter()
        search(queries[i : i + 1])
        seconds[i] = time.perf_counter() - begin
    return seconds
