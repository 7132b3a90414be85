"""What is to be learned: queries with their true neighbours, cut into training and validation."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import recall_per_query
from l2route.data.truth import Truth, exact_neighbors
from l2route.data.vectors import check_vectors, normalize
from l2route.files.hashing import hash_arrays
from l2route.files.progress import Progress
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, original_space
from l2route.search.validation import DEPTH, N_KEPT, Validation
from l2route.training.base_queries import (
    affordable_vectors,
    base_as_queries,
    look_alike,
    nearest_others,
)
from l2route.training.clock import Clock, timed
from l2route.training.footprint import max_hop_blocks
from l2route.training.options import LearnOptions
from l2route.training.queries import QueryLog, answer_radius, hold_out, n_validation_of

SHARPNESS = 3.0
"""Softmax of scores in units of the gap between the best and the eighth best visited."""
N_ASKED = 2000
"""Queries whose walks tell which vertices are visited most."""
LEAST_DISTINCT = 20
"""Distinct queries without which nothing is learned."""
VALIDATION_TIME, TRAIN_TIME, BASE_TIME = 0.1, 0.2, 0.1
"""Shares of a run's time for the true neighbours of validation queries, of training queries and of
base vectors that serve as queries. What would take longer is left out."""
N_PROBED = 256
"""Queries that tell how long it takes to find a query's true neighbours."""
CHOOSING, CONFIRMING = slice(0, None, 2), slice(1, None, 2)
"""Halves of the validation queries: one chooses a state, the other confirms that it is better."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of what there is a run learns from, as its time and memory allow.

    A run that goes on from a checkpoint learns from the same.
    """

    validation: int
    """Distinct queries that may validate."""
    train: int
    """Distinct queries that are learned from."""
    base: int
    """Base vectors that may serve as queries."""
    blocks: int
    """Blocks of hops that are held at once."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be learned: training and validation queries with their true neighbours."""

    graph: Graph
    base: BaseVectors
    train: NDArray[np.float32]
    """Training queries, and after them base vectors that serve as such."""
    validation: Validation
    """Queries that are not learned from, and their true neighbours."""
    targets: NDArray[np.int64]
    """The k nearest neighbours of each training query [n_train, k]."""
    hidden: NDArray[np.int32]
    """The vertex that each training query is, and that its walk is not to see; −1 for none."""
    nearest: NDArray[np.float32]
    """True distances of the k nearest of each validation query [n_validation, k]."""
    scale: float
    """Multiplies vectors and queries, so that vectors have root-mean-square length 1."""
    n_queries: int
    """Queries in the log, repeats included."""
    n_distinct: int
    """Distinct queries in the log."""
    sizes: Sizes

    def digest(self) -> str:
        """What tells this problem from others."""
        layers = [part for each in self.graph.upper for part in (each.vertices, each.neighbors)]
        graph = (self.graph.neighbors, self.graph.entries, *layers)
        asked = (self.train, self.targets, self.hidden, self.validation.queries)
        return hash_arrays(self.base.metric, *graph, self.base.rows, *asked)

    def to_keep(self) -> Validation:
        """Validation queries for an index to keep, first those that chose nothing."""
        order = np.arange(len(self.validation.queries))
        order = np.concatenate([order[CONFIRMING], order[CHOOSING]])[:N_KEPT]
        return Validation(self.validation.queries[order], self.validation.neighbors[order])

    def recalls(
        self, space: RoutingSpace, options: LearnOptions, part: slice
    ) -> NDArray[np.float64]:
        """Recall@k of each validation query of a part, at the total budget [n_part]."""
        searcher = Searcher(self.graph, space, self.base)
        limits = Limits(options.budget, rerank=options.rerank)
        queries, nearest = self.validation.queries[part], self.nearest[part]
        k = nearest.shape[1]
        found = searcher.search(queries, k, limits=limits, n_threads=options.n_threads)
        return recall_per_query(self.base.exact_distances(queries, found.ids), nearest, k)


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds true neighbours, as many as there is time for."""

    base: BaseVectors
    cache: Path | None
    progress: Progress | None
    clock: Clock

    def find(self, queries: NDArray[np.float32], k: int) -> Truth:
        vectors, metric = self.base.vectors(), self.base.metric
        return exact_neighbors(
            vectors, queries, k, metric, cache=self.cache, progress=self.progress
        )

    def affordable(self, queries: NDArray[np.float32], k: int, share: float) -> int:
        """How many of the queries can be searched for in a share of the run's time."""
        seconds = self.clock.allowance(share)
        if seconds is None or len(queries) <= N_PROBED:
            return len(queries)
        vectors, metric = self.base.vectors(), self.base.metric
        _, taken = timed(lambda: exact_neighbors(vectors, queries[:N_PROBED], k, metric))
        return max(N_PROBED, min(len(queries), int(N_PROBED * seconds / max(taken, 1e-9))))


@dataclass(frozen=True, slots=True)
class _HeldOut:
    """Validation queries of a log, and what may not be learned from because of them."""

    chosen: NDArray[np.int64]
    truth: Truth
    n_candidates: int
    is_held_out: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Taught:
    """Training queries with their targets, and the vertex that each is."""

    queries: NDArray[np.float32]
    targets: NDArray[np.int64]
    hidden: NDArray[np.int32]
    n_drawn: int
    """Distinct queries, or base vectors, that these are of."""


def pose(
    graph: Graph,
    base: BaseVectors,
    queries: object,
    options: LearnOptions,
    progress: Progress | None = None,
    cache: Path | None = None,
    neighbors: object = None,
    clock: Clock | None = None,
    sizes: Sizes | None = None,
) -> Problem:
    """Cut validation queries from a query log and find everyone's true neighbours.

    Args:
        graph: the graph to walk.
        base: base vectors.
        queries: the log [n_queries, dim].
        options: how to learn.
        progress: called with queries done and in all while true neighbours are found.
        cache: directory to keep the true neighbours in.
        neighbors: true neighbours of the queries, row numbers [n_queries, at least k], nearest
            first, if they are known. Those of validation queries are found all the same.
        clock: the run's time; by default it starts here.
        sizes: how much to learn from; by default what time and memory allow.
    """
    checked = check_vectors("queries", queries, base.dim)
    if options.k > graph.n_vertices:
        raise ValueError(f"expected k of at most {graph.n_vertices}, got {options.k}")
    known = None if neighbors is None else _known(neighbors, len(checked), options.k, graph)
    log = QueryLog.of(normalize(checked) if base.metric == "cosine" else checked, options.seed)
    if len(log.distinct) < LEAST_DISTINCT:
        got = f"{len(log.distinct)} among {len(checked)}"
        raise ValueError(f"expected at least {LEAST_DISTINCT} distinct training queries, got {got}")
    clock = clock or Clock(options.time_limit)
    finder = _Finder(base, cache, progress, clock)
    held = _hold_out(log, finder, options, sizes)
    taught = _from_log(log, held, finder, options, known, sizes)
    n_blocks, n_base = max_hop_blocks(graph.n_vertices, options.memory_gb), 0
    n_blocks = n_blocks if sizes is None else sizes.blocks
    validation = Validation(log.distinct[held.chosen], held.truth.ids.astype(np.int32))
    parts = [taught]
    if _learns_from_base(base, taught.queries, validation.queries, options):
        parts.append(_from_base(graph, base, options, taught.targets, clock, sizes, n_blocks))
        n_base = parts[-1].n_drawn
    vectors = base.vectors()
    length = float(np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1).mean()))
    return Problem(
        graph=graph,
        base=base,
        train=np.concatenate([part.queries for part in parts]),
        validation=validation,
        targets=np.concatenate([part.targets for part in parts]),
        hidden=np.concatenate([part.hidden for part in parts]),
        nearest=held.truth.distances[:, : options.k],
        scale=1.0 / length if length > 0 else 1.0,
        n_queries=len(checked),
        n_distinct=len(log.distinct),
        sizes=Sizes(held.n_candidates, taught.n_drawn, n_base, n_blocks),
    )


def _known(neighbors: object, n_queries: int, k: int, graph: Graph) -> NDArray[np.int64]:
    """The k nearest neighbours of each query, as the caller knows them [n_queries, k]."""
    ids, n = np.asarray(neighbors), graph.n_vertices
    if ids.ndim != 2 or len(ids) != n_queries or ids.shape[1] < k or ids.dtype.kind not in "iu":
        expected = f"neighbors int [{n_queries}, at least {k}]"
        raise ValueError(f"expected {expected}, got {ids.dtype} {list(ids.shape)}")
    if ids.min() < 0 or ids.max() >= n:
        raise ValueError(f"expected neighbors in [0, {n}), got {ids.min()}, {ids.max()}")
    return ids[:, :k].astype(np.int64)


def _hold_out(
    log: QueryLog, finder: _Finder, options: LearnOptions, sizes: Sizes | None
) -> _HeldOut:
    """Choose validation queries and find their neighbours, as deep as an index keeps them."""
    n_wanted = n_validation_of(len(log.distinct), options.n_validation)
    candidates = log.order[:n_wanted]
    depth = max(options.k, min(DEPTH, len(finder.base.rows)))
    if sizes is None:
        n_most = finder.affordable(log.distinct[candidates], depth, VALIDATION_TIME)
    else:
        n_most = sizes.validation
    candidates = candidates[:n_most]
    truth = finder.find(log.distinct[candidates], depth)
    radii = answer_radius(log.distinct[candidates], truth.distances, finder.base.metric)
    chosen, is_held_out = hold_out(log.distinct, candidates, options.near_duplicate * radii)
    order = np.argsort(candidates)
    places = order[np.searchsorted(candidates, chosen, sorter=order)]
    kept = Truth(truth.ids[places], truth.distances[places])
    return _HeldOut(chosen, kept, len(candidates), is_held_out)


def _from_log(
    log: QueryLog,
    held: _HeldOut,
    finder: _Finder,
    options: LearnOptions,
    known: NDArray[np.int64] | None,
    sizes: Sizes | None,
) -> _Taught:
    """Training queries of a log: all that is not held out, or as many as there is time for."""
    drawn = log.order[~held.is_held_out[log.order]]
    if sizes is not None:
        drawn = drawn[: sizes.train]
    elif known is None:
        drawn = drawn[: finder.affordable(log.distinct[drawn], options.k, TRAIN_TIME)]
    drawn = np.sort(drawn)
    queries = log.distinct[drawn]
    targets = finder.find(queries, options.k).ids if known is None else known[log.first[drawn]]
    n_times = log.counts[drawn] if options.count_repeats else 1
    queries, targets = np.repeat(queries, n_times, axis=0), np.repeat(targets, n_times, axis=0)
    return _Taught(queries, targets, np.full(len(queries), -1, dtype=np.int32), len(drawn))


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
    base: BaseVectors,
    options: LearnOptions,
    targets: NDArray[np.int64],
    clock: Clock,
    sizes: Sizes | None,
    n_blocks: int,
) -> _Taught:
    """Base vectors as training queries: all, or as many as there is time for."""
    if sizes is None:
        n_most = affordable_vectors(graph, base, options, clock.allowance(BASE_TIME))
    else:
        n_most = sizes.base
    asked = np.random.default_rng(options.seed).permutation(graph.n_vertices)[:n_most]
    others = nearest_others(graph, base, options, np.sort(asked))
    ids, nearest = base_as_queries(graph, others, targets, n_blocks)
    return _Taught(base.vectors()[ids], nearest, ids, len(asked))


def find_hubs(problem: Problem, options: LearnOptions) -> NDArray[np.int64]:
    """Vertices that plain walks come by so often that they can learn a vector of their own."""
    sample = problem.train[:N_ASKED]
    searcher = Searcher(problem.graph, original_space(problem.base), problem.base)
    limits = Limits(options.budget)
    found = searcher.search(sample, 1, limits=limits, n_threads=options.n_threads, trace=True)
    assert found.trace is not None
    counts = np.bincount(found.trace.vertices, minlength=problem.graph.n_vertices)  # [n]
    per_epoch = counts / len(sample) * len(problem.train)
    return np.flatnonzero(per_epoch >= options.visits_per_weight * (problem.base.dim + 1))


def calibrate_sharpness(problem: Problem, options: LearnOptions) -> float:
    """α such that the softmax tells the best visited from the eighth best, but not by much.

    Too soft, noisy walks are worse than greedy ones and training first unlearns; too sharp, most
    steps teach nothing.
    """
    sample = problem.train[:500]
    searcher = Searcher(problem.graph, original_space(problem.base), problem.base)
    limits = Limits(options.budget)
    result = searcher.search(sample, 8, limits=limits, n_threads=options.n_threads)
    found = result.distances  # [n, 8]
    gaps = (found[:, 7] - found[:, 0])[np.isfinite(found[:, 7])]
    halved = 0.5 if problem.base.metric == "l2" else 1.0  # scores are halves of squared distances
    gap = float(gaps.mean()) * halved * problem.scale**2 if len(gaps) else 0.0
    return SHARPNESS / gap if gap > 0 else 1.0
