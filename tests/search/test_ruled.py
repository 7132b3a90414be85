"""Laws of calibrated rules: they reach their goal, and are used only if that pays."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2route.index import RoutingIndex
from l2route.search.calibrate import OutOfReachError, calibrate
from l2route.search.guarantee import Goal, Guarantee
from l2route.search.ruled import cheapest_rule, pays, stop_levels
from l2route.search.searcher import Searcher
from l2route.search.stopping import StoppingRule, learn_rule
from l2route.search.validation import Validation

DIM, K = 16, 10
RNG = np.random.default_rng(3)
WIDTHS = RNG.uniform(0.3, 2.0, size=(3600, 1))  # some queries are easy, some are hard
POINTS = (RNG.normal(size=(3600, DIM)) * WIDTHS).astype(np.float32)
BASE, LOG, VALIDATION = POINTS[:2000], POINTS[2000:3200], POINTS[3200:]


@cache
def made() -> tuple[Searcher, Validation, StoppingRule]:
    """A searcher by codes, validation queries, and a rule from a log."""
    index = RoutingIndex.build(BASE, degree=8, ef_construction=40)
    index.compress("int8")
    index.validate_with(VALIDATION)
    assert index.validation is not None
    return index.searcher(), index.validation, learn_rule(index.searcher(), LOG, K)


@pytest.mark.parametrize("guarantee", ["mean", "p95"])
@pytest.mark.parametrize("target", [0.8, 0.9])
def test_a_rule_reaches_its_goal(guarantee: Guarantee, target: float) -> None:
    """Validation queries reach the goal by a search with the setting found."""
    searcher, validation, rule = made()
    goal = Goal.of(target, guarantee, len(validation.queries))
    plain, cost = calibrate(searcher, validation, K, target, guarantee=guarantee)
    assert plain.threshold is None
    assert plain.guarantee == guarantee
    ruled = cheapest_rule(searcher, validation, plain, rule, goal)
    assert ruled is not None
    setting = ruled[0]
    assert setting.plain.limits == plain.limits
    found = searcher.search(
        validation.queries,
        K,
        limits=setting.limits,
        rule=rule.core_of(setting.threshold, setting.power, setting.first_level),
    )
    recalls = validation.judge_each(searcher.base, K)(found.ids)
    assert goal.is_met(goal.measure(recalls))
    assert recalls.mean() == pytest.approx(setting.recall)
    chosen, least = calibrate(searcher, validation, K, target, guarantee=guarantee, rule=rule)
    assert (chosen.threshold is not None) == pays(searcher, validation, (plain, cost), ruled, rule)
    assert least <= 1.02 * cost


def test_goals_out_of_reach_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recall that too few queries can reach is refused with the share that can."""
    searcher, validation, rule = made()
    few = Validation(validation.queries, np.full_like(validation.neighbors[:, :1], 0))
    with pytest.raises(ValueError, match="k in"):
        calibrate(searcher, few, K, 0.9, guarantee="p95", rule=rule)
    monkeypatch.setattr("l2route.search.calibrate.RERANKS", (1.0,))  # codes alone are not exact
    with pytest.raises(OutOfReachError, match=r"of the validation queries can reach, got 1\.0"):
        calibrate(searcher, validation, K, 1.0, guarantee="p95")


@given(
    st.lists(st.lists(st.floats(-9, 9), min_size=5, max_size=5), min_size=1, max_size=9),
    st.floats(-10, 10),
)
def test_stop_levels_are_those_of_the_twin(values: list[list[float]], threshold: float) -> None:
    """A walk ends at the first level below the threshold, or at the last."""
    lowest = np.minimum.accumulate(np.array(values), axis=1)
    expected = [
        next((level for level, value in enumerate(row) if value < threshold), len(row) - 1)
        for row in values
    ]
    assert stop_levels(lowest, threshold).tolist() == expected
