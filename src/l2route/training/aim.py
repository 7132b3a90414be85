"""Training targets: the best recall within a budget, or a recall at the least cost."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import recall_per_query
from l2route.search.calibrate import OutOfReachError, calibrate
from l2route.search.limits import Limits, spent
from l2route.search.machine import TYPICAL
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher
from l2route.search.setting import Setting
from l2route.search.space import RoutingSpace
from l2route.search.validation import N_KEPT, Validation
from l2route.training.clock import Clock, timed
from l2route.training.options import Goal, LearnOptions
from l2route.training.problem import CHOOSING, CONFIRMING, Problem
from l2route.training.report import Contest

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Interpolations between the initial and the best weights that are tried; 1 is the best weights."""
LEAST_RERANK = 2.0
"""Smallest rerank of learned walks, as a multiple of k."""
CALIBRATION_SHARE = 0.4
"""Fraction of a run's time for calibrating settings to the target recall."""
N_SEARCHES, RERANKING = 20, 4
"""Approximate number of searches in a calibration, and its multiple where answers are reranked."""
N_PROBED, PROBED_EF = 100, 100
"""Queries and beam width with which the time of a search is measured; also the fewest queries."""
LOWER = 0.25
"""The price of recall is measured from a lower target: lower by this fraction of 1 − recall."""


class Aim(Protocol):
    """A training target: chooses the final weights and compares spaces."""

    goals: tuple[Goal, ...]
    """Budgets, reranks and numbers of neighbours to learn for."""
    seconds: float
    """Seconds that `choose` takes for each interpolation that it tries."""
    shares: tuple[float, ...]
    """Interpolations between the initial weights, 0, and the best ones, 1, that are tried."""
    n_choosing: int
    """Number of validation queries that weights are chosen on."""
    n_confirming: int
    """Number of validation queries that spaces are compared on."""

    def merit(self, start: RoutingSpace) -> float:
        """How good a space to start from is on the choosing queries: more is better."""

    def choose(self, space_at: Callable[[float], RoutingSpace]) -> tuple[float, RoutingSpace]:
        """The best interpolation and its space."""

    def contests(self, space: RoutingSpace, rival: RoutingSpace) -> list[Contest]:
        """Compare a space with another one; none if the other cannot meet the target at all."""


class BudgetAim:
    """The highest recall@k within budgets of distance computations, on average over all goals.

    Args:
        problem: graph and queries.
        options: how to learn.
    """

    seconds = 0.0
    shares: tuple[float, ...] = (1.0,)

    def __init__(self, problem: Problem, options: LearnOptions) -> None:
        self.problem, self.n_threads = problem, options.n_threads
        self.goals = options.fitted(problem.base.dim, problem.graph.n_vertices).goals
        self.n_choosing, self.n_confirming = (
            len(problem.nearest[part]) for part in (CHOOSING, CONFIRMING)
        )

    def merit(self, start: RoutingSpace) -> float:
        """Mean recall within the budgets."""
        recalls = [
            self.problem.recalls(start, goal, CHOOSING, self.n_threads).mean()
            for goal in self.goals
        ]
        return float(np.mean(recalls))

    def choose(self, space_at: Callable[[float], RoutingSpace]) -> tuple[float, RoutingSpace]:
        """The best weights: states were validated at the budget while learning."""
        return 1.0, space_at(1.0)

    def contests(self, space: RoutingSpace, rival: RoutingSpace) -> list[Contest]:
        """Compare recalls, averaged over all goals and goal by goal.

        Goals whose budget does not pay for the other space's projection are left out.
        """
        theirs: dict[Goal, NDArray[np.float64]] = {}
        for goal in self.goals:
            try:
                theirs[goal] = self._recalls(rival, goal)
            except ValueError:
                continue
        if not theirs:
            return []
        ours = {goal: self._recalls(space, goal) for goal in theirs}
        means = [np.mean(list(each.values()), axis=0) for each in (theirs, ours)]
        contests = [Contest.of_recalls(rival.name, *means)]
        if len(theirs) > 1:
            contests += [
                Contest.of_recalls(rival.name, theirs[goal], ours[goal], goal) for goal in theirs
            ]
        return contests

    def _recalls(self, space: RoutingSpace, goal: Goal) -> NDArray[np.float64]:
        return self.problem.recalls(space, goal, CONFIRMING, self.n_threads)


class RecallAim:
    """A recall@k, reached by beam or slack in the least time, as a typical machine takes it.

    Args:
        problem: graph and queries.
        plain: the space without learning.
        options: how to learn, with a recall.
        clock: the run's time.
    """

    shares: tuple[float, ...] = SHARES

    def __init__(
        self, problem: Problem, plain: RoutingSpace, options: LearnOptions, clock: Clock
    ) -> None:
        assert options.recall is not None
        self.problem, self.recall, (self.k,) = problem, options.recall, options.ks
        self.n_threads = options.n_threads
        searcher = Searcher(problem.graph, plain, problem.base)
        n_used = self._affordable(searcher, clock)
        self.choosing, self.confirming = (
            Validation(
                problem.validation.queries[part][:n_used],
                problem.validation.neighbors[part][:n_used],
            )
            for part in (CHOOSING, CONFIRMING)
        )
        self.n_choosing = len(self.choosing.queries)
        self.n_confirming = len(self.confirming.queries)
        calibrated, taken = timed(
            lambda: calibrate(searcher, self.choosing, self.k, self.recall, self.n_threads)
        )
        self.seconds = RERANKING * taken if plain.is_exact else taken
        self.plain_setting, self.plain_cost = calibrated
        self._known: list[tuple[RoutingSpace, tuple[Setting, float] | None]] = [(plain, calibrated)]
        self.price = self._price(searcher)
        """Additional time per query for each unit of recall@k, without learning."""
        found = self._search(searcher, self.choosing, self.plain_setting)
        rerank = max(self.plain_setting.rerank, round(LEAST_RERANK * self.k))
        n_routing = int(np.ceil(found.n_routing.mean()))
        cost = spent(n_routing, rerank, plain.n_projection, plain.dim, problem.base.dim)
        self.goals: tuple[Goal, ...] = (Goal(int(np.ceil(cost)), rerank, self.k),)
        """What the recall costs without learning, with a rerank of at least 2k."""

    def _affordable(self, searcher: Searcher, clock: Clock) -> int:
        """Queries per half with which all calibrations take CALIBRATION_SHARE of the time."""
        seconds = clock.allowance(CALIBRATION_SHARE)
        if seconds is None:
            return N_KEPT
        probed = self.problem.validation.queries[CHOOSING][:N_PROBED]
        _, taken = timed(lambda: searcher.search(probed, self.k, limits=Limits(ef=PROBED_EF)))
        n_calibrations = RERANKING * (len(SHARES) + 2)
        per_query = N_SEARCHES * n_calibrations * taken / len(probed)
        return max(N_PROBED, min(N_KEPT, int(seconds / max(per_query, 1e-9))))

    def merit(self, start: RoutingSpace) -> float:
        """The time to reach the recall by the space that this target was made for, negated."""
        del start
        return -self.plain_cost

    def choose(self, space_at: Callable[[float], RoutingSpace]) -> tuple[float, RoutingSpace]:
        """The interpolation that reaches the recall at the least cost, on the choosing queries.

        Learned scores lead walks to the nearest neighbours sooner. To stop by beam or slack, a walk
        also needs accurate distances, and the plain space has the best. A space between the two is
        often cheaper than either. The result is 0 if none is cheaper than the plain space.
        """
        best, cheapest, space = 0.0, self.plain_cost, None
        for share in SHARES:
            tried = space_at(share)
            known = self._calibrated(tried)
            if known is not None and known[1] < cheapest:
                best, cheapest, space = share, known[1], tried
        return best, space_at(0.0) if space is None else space

    def contests(self, space: RoutingSpace, rival: RoutingSpace) -> list[Contest]:
        """Compare times at the recall; no contest if the other space does not reach it.

        Settings were calibrated on the choosing queries, so the recall on the confirming queries
        differs a little from the target. The difference is charged at the price of recall.
        """
        theirs, ours = self._charged(rival), self._charged(space)
        if theirs is None:
            return []
        if ours is None:
            return [Contest(rival.name, float(theirs.mean()), np.inf, 1.0)]
        return [Contest.of_costs(rival.name, theirs, ours)]

    def _calibrated(self, space: RoutingSpace) -> tuple[Setting, float] | None:
        """The setting that reaches the recall and its cost; None if no setting does."""
        for known, found in self._known:
            if known is space:
                return found
        searcher = Searcher(self.problem.graph, space, self.problem.base)
        try:
            found = calibrate(searcher, self.choosing, self.k, self.recall, self.n_threads)
        except OutOfReachError:
            found = None
        self._known.append((space, found))
        return found

    def _search(self, searcher: Searcher, queries: Validation, setting: Setting) -> SearchResult:
        return searcher.search(
            queries.queries, self.k, limits=setting.limits, n_threads=self.n_threads
        )

    def _price(self, searcher: Searcher) -> float:
        """Marginal price of recall, between a somewhat lower target and the target."""
        lower = self.recall - LOWER * (1 - self.recall)
        if lower <= 0:
            return 0.0
        setting, cost = calibrate(searcher, self.choosing, self.k, lower, self.n_threads)
        gained = self.plain_setting.recall - setting.recall
        return max(0.0, (self.plain_cost - cost) / gained) if gained > 0 else 0.0

    def _charged(self, space: RoutingSpace) -> NDArray[np.float64] | None:
        """Charged time of each confirming query [n]; None if no setting reaches the recall."""
        known = self._calibrated(space)
        if known is None:
            return None
        searcher = Searcher(self.problem.graph, space, self.problem.base)
        taken, recalls = self._spent(searcher, self.confirming, known[0])
        charged: NDArray[np.float64] = taken - self.price * (recalls - self.recall)
        return charged

    def _spent(
        self, searcher: Searcher, validation: Validation, setting: Setting
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Nanoseconds that each query is expected to take [n], and its recall@k [n]."""
        base = self.problem.base
        found = self._search(searcher, validation, setting)
        queries, neighbors = validation.queries, validation.neighbors
        nearest = base.exact_distances(queries, neighbors[:, : self.k])
        distances = base.exact_distances(queries, found.ids)
        return TYPICAL.each_ns(searcher, found), recall_per_query(distances, nearest, self.k)
