"""The start of a run: the plain space, a model that ranks like it, the temperature of scores."""

import numpy as np
from numpy.typing import NDArray
from torch import nn

from l2route.models.features import principal_axes, vertex_features
from l2route.models.graph_filter import GraphFilter
from l2route.models.networks import FeedForward, FilterNetwork, GraphNetwork
from l2route.models.start import Start
from l2route.search.base import BaseVectors
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, original_space, pca_space
from l2route.training.options import LearnOptions, Spending
from l2route.training.problem import Problem

SHARPNESS = 3.0
"""Difference of scores between the best and the eighth best visited vertex, after scaling by α."""
N_SAMPLED = 2000
"""Training queries on whose walks hubs are found."""


def plain_space(base: BaseVectors, dim: int | None) -> RoutingSpace:
    """The space without learning: the original vectors, or their PCA to fewer dimensions."""
    return original_space(base) if dim is None or dim == base.dim else pca_space(base, dim)


def make_model(
    problem: Problem,
    options: LearnOptions,
    spending: Spending,
    plain: RoutingSpace,
    sharpness: float,
) -> nn.Module:
    """The model that the options name; untrained, it ranks like the plain space."""
    vectors = np.ascontiguousarray(problem.base.vectors()) * np.float32(problem.scale)
    start = Start(vectors, sharpness, plain.query_matrix, plain.scorer, options.seed)
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
    return GraphFilter(start, features, axes, find_hubs(problem, options, spending))


def find_hubs(problem: Problem, options: LearnOptions, spending: Spending) -> NDArray[np.int64]:
    """Vertices that plain walks visit often enough to learn a shift of their own [n_hubs]."""
    sample = problem.train[:N_SAMPLED]
    searcher = Searcher(problem.graph, original_space(problem.base), problem.base)
    limits = Limits(spending.budget)
    found = searcher.search(sample, 1, limits=limits, n_threads=options.n_threads, trace=True)
    assert found.trace is not None
    counts = np.bincount(found.trace.vertices, minlength=problem.graph.n_vertices)  # [n]
    per_epoch = counts / len(sample) * len(problem.train)
    return np.flatnonzero(per_epoch >= options.visits_per_weight * (problem.base.dim + 1))


def calibrate_sharpness(problem: Problem, spending: Spending, n_threads: int = 0) -> float:
    """Inverse temperature α at which the best and the eighth best score differ by SHARPNESS.

    With a smaller α noisy walks find less than greedy ones, and recall falls at first; with a
    larger α most steps have no gradient.
    """
    sample = problem.train[:500]
    searcher = Searcher(problem.graph, original_space(problem.base), problem.base)
    limits = Limits(spending.budget)
    found = searcher.search(sample, 8, limits=limits, n_threads=n_threads).distances  # [n, 8]
    gaps = (found[:, 7] - found[:, 0])[np.isfinite(found[:, 7])]
    halved = 0.5 if problem.base.metric == "l2" else 1.0  # scores are halves of squared distances
    gap = float(gaps.mean()) * halved * problem.scale**2 if len(gaps) else 0.0
    return SHARPNESS / gap if gap > 0 else 1.0
