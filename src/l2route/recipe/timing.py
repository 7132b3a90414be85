"""Whether a step of a build is kept: by the time that validation queries take, in turns."""

from dataclasses import dataclass, replace
from functools import partial

from l2route.index import RoutingIndex
from l2route.recipe.outcome import Cost, Decision, Step
from l2route.recipe.steps import Recipe
from l2route.search.calibrate import OutOfReachError
from l2route.search.setting import Setting
from l2route.state.timing import LEAST_SPEEDUP, speedup


@dataclass(frozen=True, slots=True)
class Timed:
    """What validation queries say of a step, both sides at the recall and on one thread."""

    speedup: float | None
    """Queries a second after the step as a multiple of those before; None if only one side reaches
    the recall."""
    is_reached: bool = True
    """Whether the recall is reached after the step."""

    @property
    def is_kept(self) -> bool:
        """Whether the step stays: the recall is reached, and not by slower searches."""
        is_slower = self.speedup is not None and self.speedup < LEAST_SPEEDUP
        return self.is_reached and not is_slower

    @property
    def decision(self) -> Decision:
        """The same in words."""
        return "kept" if self.is_kept else "not kept"

    def __str__(self) -> str:
        if self.speedup is not None:
            return f"{self.speedup:.2f} times as fast: {self.decision}"
        side = "with" if self.is_reached else "without"
        return f"only {side} it the recall is reached: {self.decision}"


def compare(before: RoutingIndex, after: RoutingIndex, recipe: Recipe) -> Timed:
    """Time two indexes against each other, each with its own setting for the recall.

    Args:
        before: the index before a step, with validation queries.
        after: the index after it.
        recipe: the recall, and answers per query.
    """
    if not _reaches(after, recipe):
        return Timed(None, is_reached=False)
    if not _reaches(before, recipe):
        return Timed(None)
    assert after.validation is not None
    queries = after.validation.queries
    plans = [each.plan(recipe.k, recall=recipe.recall, n_threads=1) for each in (before, after)]
    return Timed(speedup(*(partial(plan, queries) for plan in plans)))


def with_setting(index: RoutingIndex, setting: Setting) -> RoutingIndex:
    """The same index without learned rules, that searches with a setting measured before."""
    same = RoutingIndex(index.base, index.graph, index.spaces[1:], None, index.validation)
    same.keep(setting)
    return same


class Chain:
    """Costs of the steps of a build, of which each is timed in turns with the one before.

    Speeds that were measured minutes apart say as much about the machine as about the steps.

    Args:
        recipe: the recall, and answers per query.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._last: tuple[RoutingIndex | None, Cost] | None = None

    def after(
        self,
        step: Step,
        index: RoutingIndex | None,
        cost: Cost | None,
        ratio: float | None = None,
    ) -> Cost | None:
        """The cost after a step, with its time as a multiple of that before.

        Args:
            step: the step.
            index: the index after it, with validation queries; None if it cannot be searched.
            cost: what was measured of it alone; None if the recall is not reached.
            ratio: the speed as a multiple of that before, if the step was timed to decide on it.
        """
        last = self._last
        if cost is None or last is None:
            self._last = None if cost is None else (index, cost)
            return cost
        if step.decision != "kept":
            return last[1]
        if ratio is None and index is not None and last[0] is not None:
            ratio = compare(last[0], index, self._recipe).speedup
        if ratio is not None:
            cost = replace(cost, microseconds=last[1].microseconds / ratio)
        self._last = (index, cost)
        return cost


def _reaches(index: RoutingIndex, recipe: Recipe) -> bool:
    try:
        index.setting(recipe.recall, recipe.k, n_threads=recipe.n_threads)
    except OutOfReachError:
        return False
    return True
