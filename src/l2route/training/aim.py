"""What learning aims at: the best recall within a budget, or a recall at the least cost."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import recall_per_query
from l2route.search.calibrate import OutOfReachError, calibrate
from l2route.search.limits import Limits, spent
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher
from l2route.search.setting import Setting
from l2route.search.space import RoutingSpace
from l2route.search.validation import N_KEPT, Validation
from l2route.training.clock import Clock, timed
from l2route.training.options import LearnOptions
from l2route.training.problem import CHOOSING, CONFIRMING, Problem
from l2route.training.report import Contest

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Ways from the start of learning to its end that are tried."""
LEAST_RERANK = 2.0
"""True distances of learned walks, in neighbours that are to be found."""
CALIBRATION_SHARE = 0.4
"""Share of a run's time for finding settings that reach the recall."""
N_SEARCHES, RERANKING = 20, 4
"""Searches of a calibration, and how many times more where answers are reranked; to the order."""
N_PROBED, PROBED_EF = 100, 100
"""Queries and beam width that tell how long a search takes; fewer queries are not asked."""
LOWER = 0.25
"""How much lower a target tells what recall costs, as a share of what the target leaves to find."""


class Aim(Protocol):
    """What learning aims at; chooses and judges what was learned."""

    options: LearnOptions
    """How to learn, with budget and rerank."""
    seconds: float
    """Time that choosing takes at the end of a run, for each share that is tried."""
    shares: tuple[float, ...]
    """Ways from the start of learning to its end that are tried."""
    n_choosing: int
    """Validation queries that choose."""
    n_confirming: int
    """Validation queries that contests are decided on."""

    def choose(self, space_at: Callable[[float], RoutingSpace]) -> tuple[float, RoutingSpace]:
        """How far to go from the start of learning to its end, and the space that is there."""

    def contest(self, space: RoutingSpace, rival: RoutingSpace) -> Contest | None:
        """Hold a space against another one, on the queries that confirm; None if that cannot."""


class BudgetAim:
    """The highest recall@k within a budget of distance computations.

    Args:
        problem: what is to be learned.
        options: how to learn.
    """

    seconds = 0.0
    shares: tuple[float, ...] = (1.0,)

    def __init__(self, problem: Problem, options: LearnOptions) -> None:
        self.problem, self.options = problem, options
        self.n_choosing, self.n_confirming = (
            len(problem.nearest[part]) for part in (CHOOSING, CONFIRMING)
        )

    def choose(self, space_at: Callable[[float], RoutingSpace]) -> tuple[float, RoutingSpace]:
        """All of the way: states were validated at the budget as they came."""
        return 1.0, space_at(1.0)

    def contest(self, space: RoutingSpace, rival: RoutingSpace) -> Contest | None:
        """Compare recalls; None for a rival whose projection the budget does not pay for."""
        try:
            theirs = self.problem.recalls(rival, self.options, CONFIRMING)
        except ValueError:
            return None
        ours = self.problem.recalls(space, self.options, CONFIRMING)
        return Contest.of_recalls(rival.name, theirs, ours)


class RecallAim:
    """A recall@k of walks that end by themselves, at the fewest bytes read.

    Args:
        problem: what is to be learned.
        plain: the space that reaches the recall without learning.
        options: how to learn, with a recall.
        clock: the run's time.
    """

    shares: tuple[float, ...] = SHARES

    def __init__(
        self, problem: Problem, plain: RoutingSpace, options: LearnOptions, clock: Clock
    ) -> None:
        assert options.recall is not None
        self.problem, self.recall, self.k = problem, options.recall, options.k
        self.n_threads = options.n_threads
        searcher = Searcher(problem.graph, plain, problem.base)
        n_asked = self._affordable(searcher, clock)
        self.choosing, self.confirming = (
            Validation(
                problem.validation.queries[part][:n_asked],
                problem.validation.neighbors[part][:n_asked],
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
        """Bytes that a query reads more for each unit of recall@k, without learning."""
        found = self._search(searcher, self.choosing, self.plain_setting)
        rerank = max(self.plain_setting.rerank, round(LEAST_RERANK * self.k))
        n_routing = int(np.ceil(found.n_routing.mean()))
        cost = spent(n_routing, rerank, plain.n_projection, plain.dim, problem.base.dim)
        self.options = replace(options, budget=int(np.ceil(cost)), rerank=rerank)
        """How to learn: for what the recall costs without."""

    def _affordable(self, searcher: Searcher, clock: Clock) -> int:
        """Queries that are asked in each half, so that calibrations take a share of the time."""
        seconds = clock.allowance(CALIBRATION_SHARE)
        if seconds is None:
            return N_KEPT
        probed = self.problem.validation.queries[CHOOSING][:N_PROBED]
        _, taken = timed(lambda: searcher.search(probed, self.k, limits=Limits(ef=PROBED_EF)))
        n_calibrations = RERANKING * (len(SHARES) + 2)
        per_query = N_SEARCHES * n_calibrations * taken / len(probed)
        return max(N_PROBED, min(N_KEPT, int(seconds / max(per_query, 1e-9))))

    def choose(self, space_at: Callable[[float], RoutingSpace]) -> tuple[float, RoutingSpace]:
        """The share that reaches the recall at the least cost, on the queries that choose.

        Learning is for the way to the nearest. Walks that end when nothing near is left have to
        tell distances too, which the plain space does best: some way between is better than both.
        None of it where nothing is cheaper than the plain space.
        """
        best, cheapest, space = 0.0, self.plain_cost, None
        for share in SHARES:
            tried = space_at(share)
            known = self._calibrated(tried)
            if known is not None and known[1] < cheapest:
                best, cheapest, space = share, known[1], tried
        return best, space_at(0.0) if space is None else space

    def contest(self, space: RoutingSpace, rival: RoutingSpace) -> Contest | None:
        """Compare bytes read at the recall; None for a rival that does not reach it.

        Both search with the settings found on the queries that choose, so that neither reaches the
        recall to the last digit on others: what a query finds more or less is charged at the price
        of recall.
        """
        theirs, ours = self._charged(rival), self._charged(space)
        if theirs is None:
            return None
        if ours is None:
            return Contest(rival.name, float(theirs.mean()), np.inf, 1.0)
        return Contest.of_costs(rival.name, theirs, ours)

    def _calibrated(self, space: RoutingSpace) -> tuple[Setting, float] | None:
        """The setting that reaches the recall, and its cost; None if it is out of reach."""
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
        """What the last bit of recall costs: from a target somewhat lower to the one asked for."""
        lower = self.recall - LOWER * (1 - self.recall)
        if lower <= 0:
            return 0.0
        setting, cost = calibrate(searcher, self.choosing, self.k, lower, self.n_threads)
        gained = self.plain_setting.recall - setting.recall
        return max(0.0, (self.plain_cost - cost) / gained) if gained > 0 else 0.0

    def _charged(self, space: RoutingSpace) -> NDArray[np.float64] | None:
        """What each query that confirms costs in a space; None if the recall is out of reach."""
        known = self._calibrated(space)
        if known is None:
            return None
        searcher = Searcher(self.problem.graph, space, self.problem.base)
        n_bytes, recalls = self._spent(searcher, self.confirming, known[0])
        charged: NDArray[np.float64] = n_bytes - self.price * (recalls - self.recall)
        return charged

    def _spent(
        self, searcher: Searcher, asked: Validation, setting: Setting
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bytes of vectors that each query reads, and its recall@k [n] twice."""
        base = self.problem.base
        found = self._search(searcher, asked, setting)
        routed = found.n_routing * float(searcher.space.rows[0].nbytes)
        reranked = found.n_rerank * float(base.rows[0].nbytes)
        nearest = base.exact_distances(asked.queries, asked.neighbors[:, : self.k])
        distances = base.exact_distances(asked.queries, found.ids)
        return routed + reranked, recall_per_query(distances, nearest, self.k)
