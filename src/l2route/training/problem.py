"""A query log with true neighbours, split into training and validation queries."""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import recall_per_query
from l2route.data.truth import Truth, exact_neighbors
from l2route.files.hashing import hash_arrays
from l2route.files.progress import Progress
from l2route.graph.graph import Graph
from l2route.models.protocol import unit_scale
from l2route.search.base import BaseVectors
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace
from l2route.search.validation import DEPTH, N_KEPT, Validation
from l2route.training.base_queries import (
    affordable_vectors,
    base_as_queries,
    draw_targets,
    look_alike,
    nearest_others,
)
from l2route.training.clock import Clock, timed
from l2route.training.footprint import max_hop_blocks
from l2route.training.log_split import HeldOut, checked_neighbors, distinct_queries, hold_out_of
from l2route.training.options import Goal, LearnOptions
from l2route.training.queries import QueryLog, n_validation_of

VALIDATION_TIME, TRAIN_TIME, BASE_TIME = 0.1, 0.2, 0.1
"""Fractions of a run's time for the true neighbours of validation queries, of training queries and
of base vectors used as queries. Queries for which there is no time are left out."""
N_PROBED = 256
"""Queries on which the time of an exact search is measured."""
CHOOSING, CONFIRMING = slice(0, None, 2), slice(1, None, 2)
"""The choosing and the confirming half of the validation queries. Weights are chosen on the first;
the second tests whether the chosen ones are better."""

Judge = Callable[[RoutingSpace, NDArray[np.float32]], NDArray[np.float64]]
"""From a space and queries [n, dim] to the quality of the answers in [0, 1], per query [n]."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much data a run uses, given its time and memory.

    A run resumed from a checkpoint uses the same.
    """

    validation: int
    """Distinct queries that are candidates for validation."""
    train: int
    """Distinct training queries."""
    base: int
    """Base vectors that are candidates for training queries."""
    blocks: int
    """Blocks of hops held in memory at once."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A graph, and training and validation queries with their true neighbours."""

    graph: Graph
    base: BaseVectors
    train: NDArray[np.float32]
    """Training queries, followed by base vectors used as training queries [n_train, dim]."""
    validation: Validation
    """Held-out queries and their true neighbours."""
    targets: NDArray[np.int64]
    """Nearest neighbours of each training query, which walks have to find [n_train, n_targets]."""
    target_ks: tuple[int, ...]
    """Which targets they are: each is one of the k nearest [n_targets]."""
    hidden: NDArray[np.int32]
    """Vertex hidden from each training query's walk: the vertex of a base vector used as query; −1
    for none [n_train]."""
    nearest: NDArray[np.float32]
    """True distances of the nearest of each validation query [n_validation, largest k]."""
    scale: float
    """Factor by which vectors and queries are multiplied; see `unit_scale`."""
    n_queries: int
    """Queries in the log, repeats included."""
    n_distinct: int
    """Distinct queries in the log."""
    sizes: Sizes
    judge: Judge | None = None
    """Measures spaces, in place of recall@k within the budget."""

    def digest(self) -> str:
        """Hash of graph, vectors, training and validation queries."""
        layers = [part for each in self.graph.upper for part in (each.vertices, each.neighbors)]
        table = () if self.graph.table is None else astuple(self.graph.table)
        graph = (self.graph.neighbors, self.graph.entries, *layers, *table)
        queries = (self.train, self.targets, self.hidden, self.validation.queries)
        return hash_arrays(self.base.metric, *graph, self.base.rows, *queries)

    def to_keep(self) -> Validation:
        """Validation queries for an index to keep, the confirming half first."""
        order = np.arange(len(self.validation.queries))
        order = np.concatenate([order[CONFIRMING], order[CHOOSING]])[:N_KEPT]
        return Validation(self.validation.queries[order], self.validation.neighbors[order])

    def recalls(
        self, space: RoutingSpace, goal: Goal, part: slice, n_threads: int = 0
    ) -> NDArray[np.float64]:
        """Recall@k of each validation query of a part, within the budget [n_part]."""
        queries, k = self.validation.queries[part], goal.k
        nearest = self.nearest[part, :k]
        if self.judge is not None:
            return self.judge(space, queries)
        searcher = Searcher(self.graph, space, self.base)
        found = searcher.search(queries, k, limits=goal.limits, n_threads=n_threads)
        return recall_per_query(self.base.exact_distances(queries, found.ids), nearest, k)


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds true neighbours of as many queries as there is time for."""

    base: BaseVectors
    cache: Path | None
    progress: Progress | None
    clock: Clock
    sizes: Sizes | None
    """Numbers of queries that an earlier process found time for."""

    def find(self, queries: NDArray[np.float32], k: int) -> Truth:
        vectors, metric = self.base.vectors(), self.base.metric
        return exact_neighbors(
            vectors, queries, k, metric, cache=self.cache, progress=self.progress
        )

    def affordable(self, queries: NDArray[np.float32], k: int, share: float) -> int:
        """Number of queries that can be searched for exactly in a fraction of the run's time."""
        seconds = self.clock.allowance(share)
        if seconds is None or len(queries) <= N_PROBED:
            return len(queries)
        vectors, metric = self.base.vectors(), self.base.metric
        _, taken = timed(lambda: exact_neighbors(vectors, queries[:N_PROBED], k, metric))
        return max(N_PROBED, min(len(queries), int(N_PROBED * seconds / max(taken, 1e-9))))


@dataclass(frozen=True, slots=True)
class _TrainingPart:
    """Training queries from one source: the log, or the base vectors."""

    queries: NDArray[np.float32]
    """[n, dim]"""
    targets: NDArray[np.int64]
    """[n, n_targets]"""
    hidden: NDArray[np.int32]
    """[n]"""
    n_drawn: int
    """Number of distinct queries, or base vectors, that these were drawn from."""


def pose(
    graph: Graph,
    base: BaseVectors,
    queries: object,
    options: LearnOptions,
    *,
    neighbors: object = None,
    progress: Progress | None = None,
    cache: Path | None = None,
    clock: Clock | None = None,
    sizes: Sizes | None = None,
    judge: Judge | None = None,
) -> Problem:
    """Hold out validation queries from a query log, and find all true neighbours.

    Arguments as for `train`, and the run's clock and sizes if it has them already.
    """
    options = options.fitted(base.dim, graph.n_vertices)
    log = _distinct(queries, base, graph, options)
    known = _known(neighbors, log, options.ks[-1], graph)
    finder = _Finder(base, cache, progress, clock or Clock(options.time_limit), sizes)
    held = _hold_out(log, finder, options)
    validation = Validation(log.distinct[held.chosen], held.truth.ids.astype(np.int32))
    parts = [_from_log(log, held, finder, options, known)]
    n_blocks = sizes.blocks if sizes else max_hop_blocks(graph.n_vertices, options.memory_gb)
    if _learns_from_base(base, parts[0].queries, validation.queries, options):
        parts.append(_from_base(graph, finder, options, parts[0].targets, n_blocks))
    return Problem(
        graph=graph,
        base=base,
        train=np.concatenate([part.queries for part in parts]),
        validation=validation,
        targets=np.concatenate([part.targets for part in parts]),
        target_ks=options.ks if len(options.ks) > 1 else options.ks * options.ks[0],
        hidden=np.concatenate([part.hidden for part in parts]),
        nearest=held.truth.distances[:, : options.ks[-1]],
        scale=unit_scale(base.vectors()),
        n_queries=int(log.counts.sum()),
        n_distinct=len(log.distinct),
        sizes=_sizes(held, parts, n_blocks),
        judge=judge,
    )


def _sizes(held: HeldOut, parts: list[_TrainingPart], n_blocks: int) -> Sizes:
    n_base = sum(part.n_drawn for part in parts[1:])
    return Sizes(held.n_candidates, parts[0].n_drawn, n_base, n_blocks)


def _distinct(queries: object, base: BaseVectors, graph: Graph, options: LearnOptions) -> QueryLog:
    """Check the log and find its distinct queries."""
    log = distinct_queries(queries, base, options.seed)
    if options.ks[-1] > graph.n_vertices:
        raise ValueError(f"expected k of at most {graph.n_vertices}, got {options.ks[-1]}")
    if options.dim is not None and options.dim > base.dim:
        raise ValueError(f"expected dim of at most {base.dim}, got {options.dim}")
    return log


def _known(neighbors: object, log: QueryLog, k: int, graph: Graph) -> NDArray[np.int64] | None:
    """Check the neighbours that the caller gave, and return the k nearest [n_queries, k]."""
    if neighbors is None:
        return None
    return checked_neighbors(neighbors, int(log.counts.sum()), k, graph.n_vertices)[:, :k]


def _hold_out(log: QueryLog, finder: _Finder, options: LearnOptions) -> HeldOut:
    """Choose validation queries and find as many neighbours of each as an index keeps."""
    n_wanted = n_validation_of(len(log.distinct), options.n_validation)
    candidates = log.order[:n_wanted]
    depth = max(options.ks[-1], min(DEPTH, len(finder.base.rows)))
    if finder.sizes is None:
        n_most = finder.affordable(log.distinct[candidates], depth, VALIDATION_TIME)
    else:
        n_most = finder.sizes.validation
    candidates = candidates[:n_most]
    truth = finder.find(log.distinct[candidates], depth)
    return hold_out_of(log, candidates, truth, finder.base.metric, options.near_duplicate)


def _from_log(
    log: QueryLog,
    held: HeldOut,
    finder: _Finder,
    options: LearnOptions,
    known: NDArray[np.int64] | None,
) -> _TrainingPart:
    """Training queries of a log: all that are not held out, or as many as there is time for."""
    drawn = log.order[~held.is_held_out[log.order]]
    if finder.sizes is not None:
        drawn = drawn[: finder.sizes.train]
    elif known is None:
        drawn = drawn[: finder.affordable(log.distinct[drawn], options.ks[-1], TRAIN_TIME)]
    drawn = np.sort(drawn)
    queries = log.distinct[drawn]
    nearest = finder.find(queries, options.ks[-1]).ids if known is None else known[log.first[drawn]]
    targets = draw_targets(nearest, options.ks, options.seed)
    n_times = log.counts[drawn] if options.count_repeats else 1
    queries, targets = np.repeat(queries, n_times, axis=0), np.repeat(targets, n_times, axis=0)
    return _TrainingPart(queries, targets, np.full(len(queries), -1, dtype=np.int32), len(drawn))


def _learns_from_base(
    base: BaseVectors,
    train: NDArray[np.float32],
    validation: NDArray[np.float32],
    options: LearnOptions,
) -> bool:
    if options.learns_from_base is not None:
        return options.learns_from_base
    return look_alike(base, train, validation, options.seed)


def _from_base(
    graph: Graph,
    finder: _Finder,
    options: LearnOptions,
    targets: NDArray[np.int64],
    n_blocks: int,
) -> _TrainingPart:
    """Base vectors as training queries: all, or as many as there is time for."""
    base, sizes = finder.base, finder.sizes
    if sizes is None:
        n_most = affordable_vectors(graph, base, options, finder.clock.allowance(BASE_TIME))
    else:
        n_most = sizes.base
    chosen = np.random.default_rng(options.seed).permutation(graph.n_vertices)[:n_most]
    others = nearest_others(graph, base, options, np.sort(chosen))
    others = draw_targets(others, options.ks, options.seed)
    ids, nearest = base_as_queries(graph, others, targets, n_blocks)
    return _TrainingPart(base.vectors()[ids], nearest, ids, len(chosen))
