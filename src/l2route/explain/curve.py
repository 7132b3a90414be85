"""Curve: recall against cost of an index, measured on its validation queries."""

from dataclasses import dataclass
from operator import index as index_of
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.search.limits import DEFAULT_BUDGET, Limits
from l2route.search.searcher import Searcher
from l2route.search.setting import SettingKey
from l2route.search.validation import Validation
from l2route.state.state import IndexState

WIDEST = 1024
"""Widest beam that is measured."""
STEP = 1.5
"""Each beam is so many times as wide as the one before."""
ENOUGH = 0.995
"""Recall@k at which no wider beam is measured."""


@dataclass(frozen=True, slots=True)
class Point:
    """One search setting of an index."""

    limits: Limits
    n_computed: float
    """Mean distance computations per query, in units of the original dimension."""
    recall: float
    """Mean recall@k."""
    target: float | None = None
    """The recall@k that the setting was chosen for; None for a point of the curve itself."""

    def to_dict(self) -> dict[str, Any]:
        """All values as plain ones, for JSON."""
        limits = {name: value for name, value in self.limits._asdict().items() if value is not None}
        return {
            "limits": limits,
            "n_computed": self.n_computed,
            "recall": self.recall,
            "target": self.target,
        }


@dataclass(frozen=True, slots=True)
class Curve:
    """Recall@k against distance computations in one space."""

    space: str
    """Name of the space."""
    k: int
    """Answers per query."""
    n_queries: int
    """Validation queries that it was measured on."""
    points: tuple[Point, ...]
    """By beam width, the narrowest first."""
    chosen: tuple[Point, ...]
    """The settings that `recall=` uses, as far as they are known, by their targets."""

    def to_dict(self) -> dict[str, Any]:
        """All values as plain ones, for JSON."""
        return {
            "space": self.space,
            "k": self.k,
            "n_queries": self.n_queries,
            "points": [point.to_dict() for point in self.points],
            "chosen": [point.to_dict() for point in self.chosen],
        }


def measure_curve(state: IndexState, searcher: Searcher, k: int, n_queries: int) -> Curve:
    """Measure recall@k by beam width, and that of the settings known.

    What is reranked is as in the first of these settings, or else as the space has it.

    Args:
        state: an index whose validation queries have the true neighbours of now.
        searcher: a searcher of it.
        k: answers per query.
        n_queries: number of validation queries, the first ones.
    """
    k, n_queries = index_of(k), index_of(n_queries)
    validation = _checked(state.validation, k, n_queries)
    settings = sorted(
        (each for each in state.settings.values() if _is_of(each.key, searcher, k)),
        key=lambda each: each.target,
    )
    judge = validation.judge(searcher.base, k)

    def measured(
        limits: Limits, target: float | None = None, rule: _core.StopRule | None = None
    ) -> Point:
        with state.reading():
            found = searcher.search(validation.queries, k, limits=limits, rule=rule)
        return Point(limits, float(found.n_computed.mean()), judge(found.ids), target)

    rerank = None
    if searcher.reranks:
        usual = searcher.space.default_rerank(k, DEFAULT_BUDGET)
        rerank = settings[0].rerank if settings else usual
    points: list[Point] = []
    for width in _widths(max(k, rerank or 0)).tolist():
        points.append(measured(Limits(ef=width, rerank=rerank)))
        if points[-1].recall >= ENOUGH or width >= len(searcher.base.rows):
            break
    chosen = tuple(measured(each.limits, each.target, state.rule_of(each)) for each in settings)
    return Curve(searcher.space.name, k, len(validation.queries), tuple(points), chosen)


def _checked(validation: Validation | None, k: int, n_queries: int) -> Validation:
    """The first of the validation queries."""
    if validation is None:
        raise ValueError(
            "expected validation queries to measure recall on, got none: "
            "call learn or validate_with first"
        )
    depth = validation.neighbors.shape[1]
    if not 1 <= k <= depth:
        expected = f"k in [1, {depth}], the true neighbours kept of each validation query"
        raise ValueError(f"expected {expected}, got {k}")
    if n_queries < 1:
        raise ValueError(f"expected n_queries of at least 1, got {n_queries}")
    return Validation(validation.queries[:n_queries], validation.neighbors[:n_queries])


def _is_of(key: SettingKey, searcher: Searcher, k: int) -> bool:
    """Whether a setting is of this space and k, for searches without a filter."""
    space, setting_k, _, share, guarantee = key
    return (space, setting_k, share, guarantee) == (searcher.space.name, k, 1.0, "mean")


def _widths(narrowest: int) -> NDArray[np.int64]:
    """Beam widths to measure, ascending."""
    n_steps = int(np.log(max(WIDEST / narrowest, 1.0)) / np.log(STEP)) + 1
    return np.unique(np.rint(narrowest * STEP ** np.arange(n_steps + 1)).astype(np.int64))
