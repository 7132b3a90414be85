"""Report of a run: the learned space compared with others, and whether it is better."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import paired_p_value
from l2route.search.validation import Validation
from l2route.training.options import Goal

CONFIDENCE = 0.99
"""Confidence with which a learned space has to be better, in a one-sided paired test."""


MARGIN = 0.005
"""Largest loss of recall that is accepted at one of several goals."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Recall@k within a budget, on the confirming validation queries."""

    goal: Goal
    plain: float
    """Without learning, by the original vectors or by the start of the same dimension."""
    learned: float
    """By the learned space."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Comparison of the learned space with another one, on the confirming validation queries.

    Compared are recall@k within the budget, or for a target recall the time that a
    query reads to reach it. Of several goals the average has to be better, with confidence, and
    none may have lost more than half a point.
    """

    rival: str
    """Name of the other space."""
    theirs: float
    """Mean recall@k, or mean time per query in nanoseconds, of the other space."""
    ours: float
    """The same of the learned space."""
    p_value: float
    """Probability of a difference this large by chance, if the learned space is no better."""
    goal: Goal | None = None
    """The one of several goals that is compared; None for their average, or a single one."""

    @classmethod
    def of_recalls(
        cls,
        rival: str,
        theirs: NDArray[np.float64],
        ours: NDArray[np.float64],
        goal: Goal | None = None,
    ) -> "Contest":
        """Compare the recall of each query [n]."""
        p_value = paired_p_value(ours - theirs)
        return cls(rival, float(theirs.mean()), float(ours.mean()), p_value, goal)

    @classmethod
    def of_costs(
        cls, rival: str, theirs: NDArray[np.float64], ours: NDArray[np.float64]
    ) -> "Contest":
        """Compare the time that each query is expected to take [n]."""
        return cls(rival, float(theirs.mean()), float(ours.mean()), paired_p_value(theirs - ours))

    @property
    def is_won(self) -> bool:
        """Whether the learned space is better with confidence, or at one goal hardly worse."""
        if self.goal is not None:
            return self.ours >= self.theirs - MARGIN
        return self.p_value <= 1 - CONFIDENCE


@dataclass(frozen=True, slots=True)
class Report:
    """Results of a run. Recalls are measured on validation queries on which nothing was chosen.

    `print` it for a sentence.
    """

    recall: float | None
    """Training target given as recall@k; None if it was a budget."""
    reached: tuple[Reached, ...]
    """Recall@k within each budget that was trained for, without learning and with it."""
    cost: float | None
    """Bytes read per query at the target recall, as a fraction of plain; None for a budget."""
    share: float
    """Interpolation between the initial weights, 0, and the best ones, 1, that was chosen; always 1
    for a budget, unless no step was taken."""
    contests: tuple[Contest, ...]
    """Comparisons with the plain space of the same dimension and with the spaces of the index;
    empty if there was no time for a step."""
    n_queries: int
    """Queries in the log, repeats included."""
    n_distinct: int
    """Distinct queries in the log."""
    n_choosing: int
    """Validation queries on which the best state was chosen."""
    n_confirming: int
    """Validation queries on which spaces were compared."""
    n_steps: int
    """Training steps taken."""
    seconds: float
    """Wall-clock time of the run, set-up included."""
    sharpness: float
    """Inverse temperature of the scores."""
    validation: Validation = field(repr=False, compare=False)
    """Validation queries for an index to keep; not among the facts."""

    @property
    def plain(self) -> float:
        """Recall@k within the budget without learning, averaged over all goals."""
        return float(np.mean([each.plain for each in self.reached]))

    @property
    def learned(self) -> float:
        """Recall@k within the budget of the learned space, averaged over all goals."""
        return float(np.mean([each.learned for each in self.reached]))

    @property
    def is_better(self) -> bool:
        """Whether the space won all contests with a confidence of 99%, as an index requires."""
        return bool(self.contests) and all(contest.is_won for contest in self.contests)

    def facts(self) -> dict[str, Any]:
        """All fields but the validation queries, as plain values."""
        names = [each.name for each in fields(self) if each.name != "validation"]
        names += ["plain", "learned", "is_better"]
        values = {name: getattr(self, name) for name in names}
        listed = {
            name: tuple(asdict(each) for each in values[name]) for name in ("reached", "contests")
        }
        return values | listed

    def __str__(self) -> str:
        verdict = "kept" if self.is_better else f"not kept, since {self._reason()}"
        return f"{self.figures}: {verdict}"

    @property
    def figures(self) -> str:
        """What learning brought, as half a sentence, without the verdict."""
        where = f"on {self.n_confirming:,} validation queries"
        first = self.reached[0]
        if self.cost is not None:
            return (
                f"recall@{first.goal.k} of {self.recall:g} takes {self.cost:.1%} of the time that "
                f"it takes without learning, as expected {where}"
            )
        if len(self.reached) > 1:
            return (
                f"{self._table()}, without learning → with it, at equal distance computations per "
                f"query, {where}"
            )
        return (
            f"recall@{first.goal.k} of {first.plain:.3f} without learning, {first.learned:.3f} "
            f"with it, at {first.goal.budget} distance computations per query, {where}"
        )

    def _table(self) -> str:
        """Recalls of several goals, by k and budget."""
        parts = []
        for k in dict.fromkeys(each.goal.k for each in self.reached):
            cells = ", ".join(
                f"{each.plain:.3f} → {each.learned:.3f} at {each.goal.budget}"
                for each in self.reached
                if each.goal.k == k
            )
            parts.append(f"recall@{k} of {cells}")
        return "; ".join(parts)

    def _reason(self) -> str:
        if not self.contests:
            return "there was no time to learn: give it more minutes"
        lost = next(each for each in self.contests if not each.is_won)
        if (goal := lost.goal) is not None:
            return f"it is worse than the space {lost.rival!r} in recall@{goal.k} at {goal.budget}"
        is_ahead = lost.ours < lost.theirs if self.cost is not None else lost.ours > lost.theirs
        if not is_ahead:
            return f"it is no better than the space {lost.rival!r}"
        return (
            f"{self.n_confirming:,} queries are too few to tell that from chance (p = "
            f"{lost.p_value:.2g} against {lost.rival!r}, {1 - CONFIDENCE:.2g} required); "
            f"the log has {self.n_distinct:,} distinct queries"
        )
