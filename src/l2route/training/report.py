"""What a run came to: the learned space against those that were there, and the verdict."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import paired_p_value

CONFIDENCE = 0.99
"""With which a learned space has to be better, in a one-sided paired test, to be kept."""


@dataclass(frozen=True, slots=True)
class Contest:
    """The learned space against another one, on the validation queries that confirm.

    Compared are recalls@k at the budget that was learned for, or for a target recall the bytes of
    vectors that a query reads to reach it.
    """

    rival: str
    """Name of the other space."""
    theirs: float
    ours: float
    p_value: float
    """How likely chance alone is to make the learned space look so much better, or more so."""

    @classmethod
    def of_recalls(
        cls, rival: str, theirs: NDArray[np.float64], ours: NDArray[np.float64]
    ) -> "Contest":
        """Compare the recall of each query [n]."""
        return cls(rival, float(theirs.mean()), float(ours.mean()), paired_p_value(ours - theirs))

    @classmethod
    def of_costs(
        cls, rival: str, theirs: NDArray[np.float64], ours: NDArray[np.float64]
    ) -> "Contest":
        """Compare what each query costs [n]."""
        return cls(rival, float(theirs.mean()), float(ours.mean()), paired_p_value(theirs - ours))

    @property
    def is_won(self) -> bool:
        """Whether the learned space is better with the confidence that is required."""
        return self.p_value <= 1 - CONFIDENCE


@dataclass(frozen=True, slots=True)
class Report:
    """What learning came to. Recalls are of validation queries that chose nothing.

    `print` it for a sentence.
    """

    k: int
    """Recalls are recall@k."""
    recall: float | None
    """Target recall@k that was learned for; None if it was a budget."""
    budget: int
    """Distance computations per query that were learned for, in all."""
    rerank: int
    """Of the budget, true distances at the end."""
    plain: float
    """Recall@k within the budget without learning: of the original vectors, or of PCA of the same
    dimension."""
    learned: float
    """Recall@k within the budget of what was learned."""
    cost: float | None
    """For a target recall: bytes of vectors that a query reads to reach it, as a share of those
    without learning."""
    share: float
    """How far the space is from the start of learning, 0, to its best state, 1; less than 1 only
    for a target recall."""
    contests: tuple[Contest, ...]
    """The learned space against the plain one of its dimension and against what the index had; none
    if there was no time for a step."""
    n_queries: int
    """Queries in the log, repeats included."""
    n_distinct: int
    """Distinct queries in the log."""
    n_choosing: int
    """Validation queries that the best state was chosen on."""
    n_confirming: int
    """Validation queries that contests were decided on."""
    n_steps: int
    seconds: float
    sharpness: float

    @property
    def is_better(self) -> bool:
        """Whether all contests were won, with a confidence of 99%; only then an index keeps it."""
        return bool(self.contests) and all(contest.is_won for contest in self.contests)

    def facts(self) -> dict[str, Any]:
        """All of it in plain values."""
        return asdict(self) | {"is_better": self.is_better}

    def __str__(self) -> str:
        verdict = "kept" if self.is_better else f"not kept, since {self._reason()}"
        return f"{self._figures()}: {verdict}"

    def _figures(self) -> str:
        where = f"on {self.n_confirming:,} validation queries"
        if self.cost is not None:
            return (
                f"recall@{self.k} of {self.recall:g} reads {self.cost:.1%} of the bytes that it "
                f"reads without learning, {where}"
            )
        return (
            f"recall@{self.k} of {self.plain:.3f} without learning, {self.learned:.3f} with it, "
            f"at {self.budget} distance computations per query, {where}"
        )

    def _reason(self) -> str:
        if not self.contests:
            return "there was no time to learn: give it more minutes"
        lost = next(each for each in self.contests if not each.is_won)
        is_ahead = lost.ours < lost.theirs if self.cost is not None else lost.ours > lost.theirs
        if not is_ahead:
            return f"it is no better than the space {lost.rival!r}"
        return (
            f"{self.n_confirming:,} queries are too few to tell that from chance (p = "
            f"{lost.p_value:.2g} against {lost.rival!r}, {1 - CONFIDENCE:.2g} required); "
            f"the log has {self.n_distinct:,} distinct queries"
        )
