"""The start of a run: the plain space, a model that ranks like it, the temperature of scores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from l2route.data.metrics import paired_p_value
from l2route.data.truth import exact_neighbors
from l2route.models.features import principal_axes, vertex_features
from l2route.models.graph_filter import GraphFilter
from l2route.models.networks import FeedForward, FilterNetwork, GraphNetwork
from l2route.models.start import Start
from l2route.search.base import BaseVectors
from l2route.search.codes import negated_halves
from l2route.search.limits import Limits
from l2route.search.query_aware import query_aware_space
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, original_space, pca_space
from l2route.search.vertex_map import LinearMap
from l2route.training.options import Goal, LearnOptions
from l2route.training.problem import CHOOSING, Problem
from l2route.training.report import CONFIDENCE

SHARPNESS = 3.0
"""Difference of scores between the best and the eighth best visited vertex, after scaling by α."""
STARTING_RERANK = 4
"""Starts are compared by the nearest neighbours among this many times as many best."""
N_STARTED, N_COMPARED = 500, 100_000
"""Largest numbers of validation queries and of vectors that starts are compared on."""
N_SAMPLED = 2000
"""Training queries on whose walks hubs are found."""


def plain_space(base: BaseVectors, dim: int | None) -> RoutingSpace:
    """The space without learning: the original vectors, or their PCA to fewer dimensions."""
    return original_space(base) if dim is None or dim == base.dim else pca_space(base, dim)


def start_space(problem: Problem, options: LearnOptions) -> RoutingSpace:
    """The space that learning starts from: the plain one, or one that knows the queries.

    Both are projections. Which one keeps more of the nearest neighbours is found by exhaustive
    searches for validation queries. The one that knows the queries has to be better with
    confidence. Only the filter can start from it: its vertices have a matrix of their own.
    """
    plain, k = plain_space(problem.base, options.dim), options.ks[-1]
    if plain.is_exact or options.model != "filter" or options.hidden_dim is not None:
        return plain
    own = problem.train[problem.hidden < 0]
    aware = query_aware_space(problem.base, own, plain.dim)
    sample = Sample.of(problem, k, options.seed)
    gains = sample.shares(aware, STARTING_RERANK * k) - sample.shares(plain, STARTING_RERANK * k)
    return aware if paired_p_value(gains) <= 1 - CONFIDENCE else plain


@dataclass(frozen=True, slots=True)
class Sample:
    """Validation queries, some of the vectors, and the queries' true neighbours among those."""

    rows: NDArray[np.int64]
    """Vectors of the base [n]."""
    queries: NDArray[np.float32]
    neighbors: NDArray[np.int64]
    """Numbers of the k nearest among `rows` [n_queries, k]."""

    @classmethod
    def of(cls, problem: Problem, k: int, seed: int) -> "Sample":
        """Draw vectors and choosing queries of a problem."""
        vectors, queries = problem.base.vectors(), problem.validation.queries[CHOOSING][:N_STARTED]
        rows = np.random.default_rng(seed).permutation(len(vectors))[:N_COMPARED]
        truth = exact_neighbors(vectors[rows], queries, min(k, len(rows)), problem.base.metric)
        return cls(rows, queries, truth.ids)

    def shares(self, space: RoutingSpace, n_best: int) -> NDArray[np.float64]:
        """Share of each query's nearest that are among the best by a space [n_queries]."""
        routed = space.map_queries(self.queries)
        rows = space.rows[self.rows, : space.dim].astype(np.float32)  # [n, dim]
        bias = (
            np.zeros(len(rows), dtype=np.float32) if space.bias is None else space.bias[self.rows]
        )
        if space.scorer == "l2":
            bias = negated_halves(rows).astype(np.float32) - 0.5 * bias
        found = []
        for query, neighbors in zip(routed, self.neighbors, strict=True):
            scores = rows @ query + bias  # [n]
            own = scores[neighbors]  # [k]
            worst = np.partition(scores, -min(n_best, len(scores)))[-min(n_best, len(scores))]
            found.append(float((own >= worst).mean()))
        return np.array(found)


def make_model(
    problem: Problem,
    options: LearnOptions,
    goals: Sequence[Goal],
    plain: RoutingSpace,
    sharpness: float,
) -> nn.Module:
    """The model that the options name; untrained, it ranks like the plain space."""
    vectors = np.ascontiguousarray(problem.base.vectors()) * np.float32(problem.scale)
    start = _start(problem, vectors, plain, sharpness, options.seed)
    sizes = {} if options.hidden_dim is None else {"hidden_dim": options.hidden_dim}
    if options.model == "ffn":
        return FeedForward(start, **sizes)
    if options.model == "gcn":
        return GraphNetwork(start, problem.graph.neighbors, **sizes)
    axes = principal_axes(vectors)
    rotated = np.asarray(vectors @ axes, dtype=np.float32)
    is_projected = plain.query_matrix is not None
    features = vertex_features(problem.graph, rotated, with_products=is_projected)
    if options.hidden_dim is not None:
        return FilterNetwork(start, features.rows, **sizes)
    return GraphFilter(start, features, axes, find_hubs(problem, options, goals))


def _start(
    problem: Problem,
    vectors: NDArray[np.float32],
    plain: RoutingSpace,
    sharpness: float,
    seed: int,
) -> Start:
    """What an untrained model ranks by, for scaled vectors: the scores of the plain space."""
    by = plain.vertex_map
    if not isinstance(by, LinearMap):
        return Start(vectors, sharpness, plain.query_matrix, plain.scorer, seed)
    tilt = by.tilt + np.float32(by.lengthwise) * by.centre  # of lengths from the origin
    return Start(
        vectors,
        sharpness,
        plain.query_matrix,
        "l2" if by.lengthwise else "ip",
        seed,
        by.matrix,
        np.float32(problem.scale) * tilt,
    )


def find_hubs(problem: Problem, options: LearnOptions, goals: Sequence[Goal]) -> NDArray[np.int64]:
    """Vertices that plain walks visit often enough to learn a shift of their own [n_hubs]."""
    sample = problem.train[:N_SAMPLED]
    searcher = Searcher(problem.graph, original_space(problem.base), problem.base)
    counts = np.zeros(problem.graph.n_vertices)
    for goal in goals:
        found = searcher.search(
            sample, 1, limits=Limits(goal.budget), n_threads=options.n_threads, trace=True
        )
        assert found.trace is not None
        counts += np.bincount(found.trace.vertices, minlength=len(counts))
    per_epoch = counts / len(goals) / len(sample) * len(problem.train)
    return np.flatnonzero(per_epoch >= options.visits_per_weight * (problem.base.dim + 1))


def calibrate_sharpness(problem: Problem, goals: Sequence[Goal], n_threads: int = 0) -> float:
    """Inverse temperature α at which the best and the eighth best score differ by SHARPNESS.

    With a smaller α noisy walks find less than greedy ones, and recall falls at first; with a
    larger α most steps have no gradient.
    """
    sample = problem.train[:500]
    searcher = Searcher(problem.graph, original_space(problem.base), problem.base)
    found = np.concatenate(
        [
            searcher.search(sample, 8, limits=Limits(goal.budget), n_threads=n_threads).distances
            for goal in goals
        ]
    )  # [n_goals · n, 8]
    gaps = (found[:, 7] - found[:, 0])[np.isfinite(found[:, 7])]
    halved = 0.5 if problem.base.metric == "l2" else 1.0  # scores are halves of squared distances
    gap = float(gaps.mean()) * halved * problem.scale**2 if len(gaps) else 0.0
    return SHARPNESS / gap if gap > 0 else 1.0
