"""Learning for a recall: what budget that is, and how much of what was learned helps."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from l2route.calibration import OutOfReachError, Setting, Validation, calibrate
from l2route.search import Searcher
from l2route.spaces import Budget, RoutingSpace
from l2route.training.options import LearnOptions
from l2route.training.problem import Problem

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Ways from the start of learning to its end that are tried."""
LEAST_RERANK = 2.0
"""True distances of learned walks, in neighbours that are to be found."""


class Aim:
    """A recall@k of walks that end by themselves.

    Args:
        problem: what is to be learned.
        plain: the space that reaches the recall without learning.
        options: how to learn, with a recall.
    """

    def __init__(self, problem: Problem, plain: RoutingSpace, options: LearnOptions) -> None:
        assert options.recall is not None
        self.problem, self.recall, self.k = problem, options.recall, options.k
        self.n_threads = options.n_threads
        self.validation = Validation.of(problem.base, problem.validation)
        searcher = Searcher(problem.graph, plain, problem.base)
        setting, self.plain_cost = self._calibrated(searcher)
        found = searcher.search(
            self.validation.queries,
            self.k,
            n_threads=self.n_threads,
            **setting.limits,
        )
        rerank = max(setting.rerank, round(LEAST_RERANK * self.k))
        spent = Budget(int(np.ceil(found.n_routing.mean())), rerank)
        cost = spent.cost(problem.base.dim, plain.dim, plain.query_matrix is not None)
        self.options = replace(options, budget=int(np.ceil(cost)), rerank=rerank)
        """How to learn: for what the recall costs without."""

    def cheapest(self, space_at: Callable[[float], RoutingSpace]) -> tuple[float, float]:
        """The share that reaches the recall at the least cost, and that in plain ones.

        Learning is for the way to the nearest. Walks that end when nothing near is left have to
        tell distances too, which the plain space does best: some way between is better than both.
        None of it where nothing is cheaper than the plain space.
        """
        costs = {0.0: self.plain_cost} | {share: self._cost(space_at(share)) for share in SHARES}
        best = min(costs, key=costs.__getitem__)
        return best, costs[best] / self.plain_cost

    def _cost(self, space: RoutingSpace) -> float:
        try:
            return self._calibrated(Searcher(self.problem.graph, space, self.problem.base))[1]
        except OutOfReachError:
            return np.inf

    def _calibrated(self, searcher: Searcher) -> tuple[Setting, float]:
        return calibrate(searcher, self.validation, self.k, self.recall, self.n_threads)
