"""Laws of guarantees."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2route.search.guarantee import Goal, check_guarantee, most_short


@given(st.integers(0, 300))
def test_most_short_is_the_binomial_bound(n: int) -> None:
    """The number allowed is the largest whose exact binomial tail is at most 5%."""
    p = Fraction(1, 20)

    def tail(m: int) -> Fraction:
        return sum((comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(m + 1)), Fraction(0))

    m = most_short(n)
    assert m == -1 or tail(m) <= Fraction(1, 20)
    assert tail(m + 1) > Fraction(1, 20) or m == n


def test_bounds_known() -> None:
    """Of 2,000 queries 83 may miss a recall, of 59 none, and 58 cannot show anything."""
    assert (most_short(2000), most_short(59), most_short(58)) == (83, 0, -1)


def test_goals() -> None:
    """A mean is compared with the target; p95 counts the queries that reach it."""
    recalls = np.array([1.0, 0.9, 0.9, 0.5])
    assert Goal.of(0.8, "mean", 4).is_met(Goal.of(0.8, "mean", 4).measure(recalls))
    goal = Goal.of(0.9, "p95", 100)
    assert goal.measure(recalls) == 0.75
    assert goal.needed == pytest.approx(1 - most_short(100) / 100)
    assert "75.0%" in goal.miss(10, 0.75)


def test_few_queries_have_no_p95() -> None:
    """With too few validation queries p95 is refused, with how many it takes."""
    with pytest.raises(ValueError, match="at least 59 validation queries"):
        Goal.of(0.9, "p95", 20)


def test_unknown_guarantees_are_refused() -> None:
    """Only mean and p95 are known."""
    with pytest.raises(ValueError, match="mean, p95, got 'p99'"):
        check_guarantee("p99")
