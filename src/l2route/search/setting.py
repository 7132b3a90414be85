"""Settings that reach a recall, and what smaller vectors cost."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from l2route.search.searcher import Searcher
from l2route.search.validation import Validation

LOSS_K, LOSS_EF = 10, 64
"""Answers and beam width at which the loss of compression is measured."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Limits that reach a recall, and what they reached when they were chosen."""

    space: str
    k: int
    target: float
    """Recall@k asked for."""
    rerank: int
    recall: float
    """Recall@k on the validation queries."""
    ef: int | None = None
    slack: float | None = None

    def __post_init__(self) -> None:
        widths = [each for each in (self.ef, self.slack) if each is not None]
        if self.k < 1 or self.rerank < 0 or len(widths) != 1 or not 0 <= widths[0] < np.inf:
            raise ValueError(f"expected a setting that can be searched with, got {self}")

    @property
    def limits(self) -> dict[str, Any]:
        """What to search with."""
        return {"ef": self.ef, "slack": self.slack, "rerank": self.rerank or None}


@dataclass(frozen=True, slots=True)
class Loss:
    """What smaller routing vectors cost: recall@k on validation queries at one beam width."""

    space: str
    k: int
    ef: int
    before: float
    after: float

    @classmethod
    def of(cls, before: Searcher, after: Searcher, validation: Validation) -> "Loss":
        """Measure it."""
        k = min(LOSS_K, validation.neighbors.shape[1])
        recall = validation.judge(before.base, k)
        recalls = [
            recall(searcher.search(validation.queries, k, ef=LOSS_EF).ids)
            for searcher in (before, after)
        ]
        return cls(after.space.name, k, LOSS_EF, *recalls)
