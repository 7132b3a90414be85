"""The search for the cheapest setting that reaches a recall on validation queries."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from l2route.search.guarantee import Goal, Guarantee, check_guarantee
from l2route.search.limits import Limits
from l2route.search.machine import TYPICAL
from l2route.search.ruled import cheapest_rule, pays
from l2route.search.searcher import Searcher
from l2route.search.setting import Setting
from l2route.search.stopping import StoppingRule
from l2route.search.validation import Validation

RERANKS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""Values of rerank to try, as multiples of k."""
N_SMALLER = 3
"""How many of them are smaller than the first to be tried: its cost bounds their walks."""
WIDEST_BEAM = 4096
"""Beams are doubled until they reach the recall or are at least this wide."""
SATURATED = 0.02
"""A search for a width stops if doubling it gains less than this share of the missing recall."""


class OutOfReachError(ValueError):
    """No setting reaches the requested recall."""


def check_recall(recall: float) -> None:
    """Refuse what is no recall."""
    if not 0 < recall <= 1:
        raise ValueError(f"expected a recall in (0, 1], got {recall}")


def calibrate(
    searcher: Searcher,
    validation: Validation,
    k: int,
    target: float,
    n_threads: int = 0,
    guarantee: Guarantee = "mean",
    rule: StoppingRule | None = None,
) -> tuple[Setting, float]:
    """Find the setting that reaches a recall@k in the least time, as a typical machine takes it.

    Args:
        searcher: the searcher to calibrate.
        validation: queries held out from learning, with their true neighbours.
        k: answers per query.
        target: recall@k to reach, in (0, 1].
        n_threads: threads to use; 0 for all cores.
        guarantee: what reaches the recall, the mean of the queries or 95% of them.
        rule: a learned rule, which ends walks if that pays.

    Returns:
        The setting, and the nanoseconds that a query is expected to take.
    """
    check_recall(target)
    depth = validation.neighbors.shape[1]
    if not 1 <= k <= depth:
        expected = f"k in [1, {depth}], the true neighbours kept of each validation query"
        raise ValueError(f"expected {expected}, got {k}")
    goal = Goal.of(target, check_guarantee(guarantee), len(validation.queries))
    found = _Found()
    if searcher.space.origin is not None:
        found = _cheapest(_Slacks, searcher, validation, k, goal, n_threads)
    found = _cheapest(_Beams, searcher, validation, k, goal, n_threads, found)
    cost, setting = found.cost, found.setting
    if setting is None:
        raise OutOfReachError(goal.miss(k, found.best))
    if rule is not None:
        ruled = cheapest_rule(searcher, validation, setting, rule, goal, n_threads)
        plain = (setting, cost)
        if ruled is not None and pays(searcher, validation, plain, ruled, rule, n_threads):
            return ruled
    return setting, cost


def cheapest_beam(
    searcher: Searcher, validation: Validation, k: int, target: float
) -> Setting | None:
    """Find the cheapest setting by beam width; None if none reaches the recall."""
    return _cheapest(_Beams, searcher, validation, k, Goal(target, "mean", target)).setting


def cheapest_slack(
    searcher: Searcher, validation: Validation, k: int, target: float
) -> Setting | None:
    """Find the cheapest setting by slack; None if none reaches the recall."""
    return _cheapest(_Slacks, searcher, validation, k, Goal(target, "mean", target)).setting


class _Found(NamedTuple):
    """The cheapest setting that was found."""

    cost: float = np.inf
    setting: Setting | None = None
    """None if none reaches the goal."""
    best: float = 0.0
    """The best measure of all trials."""


def _cheapest(
    knob: "type[_Trial]",
    searcher: Searcher,
    validation: Validation,
    k: int,
    goal: Goal,
    n_threads: int = 0,
    rival: _Found | None = None,
) -> _Found:
    """The cheapest setting of a knob that reaches the goal, or of another knob if that is cheaper.

    Reranks are tried from the rival's, or from one in the middle, first upwards, then downwards,
    until one is no cheaper.
    """
    cost, chosen, best = rival or _Found()
    floor = 0  # the narrowest width that the rerank tried last allows

    def attempt(rerank: int, at_least: int | None = None, at_most: int | None = None) -> int | None:
        """The narrowest width for a rerank; None if there is none, or another rerank is cheaper."""
        nonlocal cost, chosen, best, floor
        trial = knob(searcher, validation, k, rerank, n_threads, goal)
        floor = trial.ends()[0]
        width = trial.narrowest(goal.needed, at_least, at_most, cost)
        best = max(best, *trial.measures.values())
        if width is None or trial.costs[width] >= cost:
            return None
        cost, chosen = trial.costs[width], trial.setting(width)
        return width

    shares = (0.0,) if searcher.space.is_exact else RERANKS
    reranks = sorted({round(k * share) for share in shares})
    middle = reranks.index(chosen.rerank) if chosen else min(N_SMALLER, len(reranks) - 1)
    width = first = attempt(reranks[middle])
    first_floor = floor
    for rerank in reranks[middle + 1 :]:
        if width is None and chosen is not None:
            break  # a larger rerank costs more than the shorter walk saves
        width = attempt(rerank, at_most=width)
    floor = first_floor
    for rerank in reversed(reranks[:middle]):
        if first is None:
            break  # a smaller rerank does not reach the recall, or costs more
        first = attempt(rerank, at_least=first if first > floor else 0)
    return _Found(cost, chosen, best)


class _Trial(ABC):
    """Memoised recall and cost of one knob at a fixed rerank, by width.

    A knob is a limit of walks, beam width or slack. Its width is a whole number; walks are longer
    at larger widths.
    """

    def __init__(
        self,
        searcher: Searcher,
        validation: Validation,
        k: int,
        rerank: int,
        n_threads: int,
        goal: Goal,
    ) -> None:
        self.goal = goal
        self.searcher, self.queries, self.n_threads = searcher, validation.queries, n_threads
        self.k, self.rerank = k, rerank
        self.judge = validation.judge_each(searcher.base, k)
        self.measures: dict[int, float] = {}
        self.recalls: dict[int, float] = {}
        self.costs: dict[int, float] = {}
        self.work: dict[int, int] = {}

    @abstractmethod
    def limits(self, width: int) -> Limits:
        """Limits of a search with this width."""

    def setting(self, width: int) -> Setting:
        """The setting with a width that was measured."""
        limits = self.limits(width)
        return Setting(
            self.searcher.space.name,
            self.k,
            self.goal.target,
            self.rerank,
            self.recalls[width],
            ef=limits.ef,
            slack=limits.slack,
            n_work=self.work[width],
            guarantee=self.goal.guarantee,
        )

    @abstractmethod
    def ends(self) -> tuple[int, int, int]:
        """The narrowest width, the first to try and the widest."""

    def narrowest(
        self, target: float, at_least: int | None, at_most: int | None, bound: float
    ) -> int | None:
        """The narrowest width that reaches a goal; None if none does, or none cheaply enough.

        Args:
            target: what is needed of the goal's measure.
            at_least: the narrowest width for a larger rerank; None if it is not known.
            at_most: a width that reaches it with a smaller rerank; None if there is none.
            bound: cost at which a search for a width gives up.
        """
        floor, first, _ = self.ends()
        if at_most is not None:
            low, high = self._narrow(floor, max(floor, at_most), target)
        else:
            if at_least is not None:
                floor = first = max(floor, at_least)
            widest = self._widen(first, target, bound)
            if widest is None:
                return None
            low, high = (floor if widest == first else widest // 2), widest
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._measure(middle) >= target else (middle, high)
        if self._measure(low) >= target:
            high = low
        self._measure(high)  # fills `costs`
        return high

    def _widen(self, width: int, target: float, bound: float) -> int | None:
        """Double a width until it reaches a recall; None if it saturates below, or costs much."""
        before: float | None = None
        while (recall := self._measure(width)) < target:
            is_saturated = before is not None and recall - before < SATURATED * (target - recall)
            if width >= self.ends()[2] or is_saturated or self.costs[width] >= bound:
                return None
            before, width = recall, max(1, 2 * width)
        return width

    def _narrow(self, floor: int, width: int, target: float) -> tuple[int, int]:
        """Bounds on the narrowest width that reaches a recall, from a width that does.

        Steps start short, since a slightly larger rerank shortens walks only slightly.
        """
        high, step = width, max(1, width // 16)
        low = max(floor, high - step)
        while low > floor and self._measure(low) >= target:
            high, step = low, 2 * step
            low = max(floor, high - step)
        return low, high

    def _measure(self, width: int) -> float:
        if width not in self.measures:
            found = self.searcher.search(
                self.queries, self.k, limits=self.limits(width), n_threads=self.n_threads
            )
            recalls = self.judge(found.ids)
            self.measures[width] = self.goal.measure(recalls)
            self.recalls[width] = float(recalls.mean())
            self.costs[width] = TYPICAL.search_ns(self.searcher, found)
            self.work[width] = round(float(found.n_work.mean()))
        return self.measures[width]


class _Beams(_Trial):
    """Widths are beam widths."""

    def limits(self, width: int) -> Limits:
        """A beam and the rerank."""
        return Limits(ef=width, rerank=self.rerank)

    def ends(self) -> tuple[int, int, int]:
        """From the narrowest beam that holds the answers and the vertices to rerank."""
        narrowest = max(self.k, self.rerank)
        return narrowest, narrowest, WIDEST_BEAM


class _Slacks(_Trial):
    """Widths are slacks, in thousandths."""

    def limits(self, width: int) -> Limits:
        """A slack and the rerank."""
        return Limits(slack=width / 1000, rerank=self.rerank)

    def ends(self) -> tuple[int, int, int]:
        """From 0 to 1, at which a walk goes twice as far as the k-th best."""
        return 0, 32, 1000
