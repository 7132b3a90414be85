"""What is to be learned: queries with their true neighbours, cut into training and validation."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.data import check_vectors, normalize, split_learn
from l2route.graph import Graph
from l2route.search import BaseVectors, RoutingSpace, Searcher, original_space
from l2route.training.options import LearnOptions
from l2route.truth import Truth, exact_neighbors

SHARPNESS = 3.0
"""Softmax of scores in units of the gap between the best and the eighth best visited."""
TOLERANCE = 1e-5
"""Relative error of float32 distances to the same neighbour."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be learned: training and validation queries with their true neighbours."""

    graph: Graph
    base: BaseVectors
    train: NDArray[np.float32]
    validation: NDArray[np.float32]
    targets: NDArray[np.int64]
    """True nearest neighbour of each training query."""
    nearest: NDArray[np.float32]
    """True nearest distance of each validation query."""
    scale: float
    """Multiplies vectors and queries, so that vectors have root-mean-square length 1."""

    def recall(self, space: RoutingSpace, options: LearnOptions) -> float:
        """Recall@1 of validation queries at the total budget."""
        searcher = Searcher(self.graph, space, self.base)
        rerank = options.rerank if searcher.reranks else 0
        budget = space.budget(options.budget, self.base.dim, rerank)
        found = searcher.search(self.validation, 1, budget, n_threads=options.n_threads)
        slack = TOLERANCE * (np.abs(self.nearest) + np.median(np.abs(self.nearest)))
        return float((found.distances[:, 0] <= self.nearest + slack).mean())


def pose(
    graph: Graph,
    base: BaseVectors,
    queries: object,
    options: LearnOptions,
    progress: Callable[[int, int], None] | None = None,
) -> Problem:
    """Cut validation queries from the training queries and find everyone's true neighbours."""
    checked = check_vectors("queries", queries, base.dim)
    if len(checked) < 20:
        raise ValueError(f"expected at least 20 training queries, got {len(checked)}")
    routed = normalize(checked) if base.metric == "cosine" else checked
    n_validation = min(options.n_validation, len(checked) // 10)
    train, validation = split_learn(routed, n_validation, options.seed)
    vectors = base.vectors()
    truth: Truth = exact_neighbors(
        vectors, np.concatenate([train, validation]), 1, base.metric, progress=progress
    )
    length = float(np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1).mean()))
    return Problem(
        graph=graph,
        base=base,
        train=train,
        validation=validation,
        targets=truth.ids[: len(train), 0],
        nearest=truth.distances[len(train) :, 0],
        scale=1.0 / length if length > 0 else 1.0,
    )


def calibrate_sharpness(problem: Problem, options: LearnOptions) -> float:
    """α such that the softmax tells the best visited from the eighth best, but not by much.

    Too soft, noisy walks are worse than greedy ones and training first unlearns; too sharp, most
    steps teach nothing.
    """
    sample = problem.train[:500]
    searcher = Searcher(problem.graph, original_space(problem.base), problem.base)
    budget = searcher.space.budget(options.budget, problem.base.dim, 0)
    found = searcher.search(sample, 8, budget).distances  # [n, 8]
    gaps = (found[:, 7] - found[:, 0])[np.isfinite(found[:, 7])]
    halved = 0.5 if problem.base.metric == "l2" else 1.0  # scores are halves of squared distances
    gap = float(gaps.mean()) * halved * problem.scale**2 if len(gaps) else 0.0
    return SHARPNESS / gap if gap > 0 else 1.0
