"""Guarantees: what a recall that is asked for means, over all queries or for most of them."""

from dataclasses import dataclass
from itertools import count
from math import exp, lgamma, log, log1p
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Guarantee = Literal["mean", "p95"]
"""mean: the mean recall@k of queries reaches the target; p95: that of 95% of the queries does."""
GUARANTEES: tuple[Guarantee, ...] = get_args(Guarantee)
SHARE_SHORT = 0.05
"""Share of queries that may miss the target under p95."""
CONFIDENCE = 0.95
"""Confidence that no more of other queries miss it, given those it was measured on."""
ROUNDING = 1e-9


def check_guarantee(guarantee: str) -> Guarantee:
    """The guarantee, if there is one of this name."""
    for known in GUARANTEES:
        if guarantee == known:
            return known
    raise ValueError(f"expected a guarantee of {', '.join(GUARANTEES)}, got {guarantee!r}")


@dataclass(frozen=True, slots=True)
class Goal:
    """What the recalls of validation queries have to reach."""

    target: float
    """Requested recall@k."""
    guarantee: Guarantee
    needed: float
    """The mean recall, or the share of the queries that reach the target."""

    @classmethod
    def of(cls, target: float, guarantee: Guarantee, n_queries: int) -> "Goal":
        """The goal for a number of validation queries."""
        if guarantee == "mean":
            return cls(target, guarantee, target)
        n_short = most_short(n_queries)
        if n_short < 0:
            least = next(n for n in count(1) if most_short(n) >= 0)
            expected = f"at least {least} validation queries for the guarantee p95"
            raise ValueError(f"expected {expected}, got {n_queries}")
        return cls(target, guarantee, 1 - n_short / n_queries)

    def measure(self, recalls: NDArray[np.float64]) -> float:
        """What is compared with `needed`, of the recall of each query [n]."""
        if self.guarantee == "mean":
            return float(recalls.mean())
        return float((recalls >= self.target - ROUNDING).mean())

    def is_met(self, measured: float) -> bool:
        """Whether a measure is enough."""
        return measured >= self.needed - ROUNDING

    def miss(self, k: int, best: float) -> str:
        """Why no setting reaches the goal, of which the best was measured."""
        if self.guarantee == "mean":
            return (
                f"expected a recall@{k} of at most {best:.4f}, the highest measured, "
                f"got {self.target}"
            )
        return (
            f"expected a recall@{k} that {self.needed:.1%} of the validation queries can reach, "
            f"got {self.target}, which at most {best:.1%} reach"
        )


def most_short(n: int) -> int:
    """Most of n queries that may miss the target, so that with confidence few of all do.

    The largest m such that m or fewer of n would miss it with a probability of at most
    1 − CONFIDENCE if the share of all that do were SHARE_SHORT; −1 if there is none.
    """
    total, m = 0.0, -1
    while m + 1 <= n:
        ways = lgamma(n + 1) - lgamma(m + 2) - lgamma(n - m)
        total += exp(ways + (m + 1) * log(SHARE_SHORT) + (n - m - 1) * log1p(-SHARE_SHORT))
        if total > 1 - CONFIDENCE:
            break
        m += 1
    return m
