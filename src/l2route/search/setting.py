"""Settings that reach a recall, and the loss of recall by compression."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from l2route.search.guarantee import check_guarantee
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.validation import Validation

SettingKey = tuple[str, int, float, float, str]
"""Space, k, recall, share and guarantee of a setting."""
LARGEST = 1e30
"""Largest number in a learned rule."""
LOSS_K, LOSS_EF = 10, 64
"""Answers per query and beam width at which the loss of compression is measured."""


@dataclass(frozen=True)  # without slots, so that `limits` can be cached
class Setting:
    """Limits that reach a recall in one space, by beam width or by slack."""

    space: str
    """Name of the routing space."""
    k: int
    """Answers per query."""
    target: float
    """Requested recall@k."""
    rerank: int
    """True distances at the end; 0 where routing scores are true distances."""
    recall: float
    """Recall@k measured on the validation queries."""
    ef: int | None = None
    """Beam width; None if there is a slack."""
    slack: float | None = None
    """Slack; None if there is a beam width."""
    share: float = 1.0
    """Smallest share of the vectors that pass the filters it is for; 1 for searches without."""
    scan_rerank: int = 0
    """True distances after a scan of the routing vectors that pass; 0 to scan the original ones."""
    n_work: int = 0
    """Mean `SearchResult.n_work` of walks; 0 if it was not measured."""
    guarantee: str = "mean"
    """Whether the mean recall of the queries reaches the target, or that of 95% of them (p95)."""
    threshold: float | None = None
    """Threshold of the learned rule that ends walks without a filter; None if ef or slack does."""
    power: float = 0.0
    """Weight of missing neighbours against cost in the learned rule."""
    first_level: int = 0
    """The rule's level that walks begin with."""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"expected a setting with k of at least 1, got {self.k}")
        if not 0 < self.share <= 1:
            raise ValueError(f"expected a setting with a share in (0, 1], got {self.share}")
        if min(self.scan_rerank, self.n_work) < 0:
            got = f"{self.scan_rerank} and {self.n_work}"
            raise ValueError(f"expected scan_rerank and n_work of at least 0, got {got}")
        check_guarantee(self.guarantee)
        if not abs(self.threshold or 0) <= LARGEST or not 0 <= self.power <= LARGEST:
            got = f"{self.threshold} and {self.power}"
            raise ValueError(f"expected a finite threshold and a power of at least 0, got {got}")
        if self.first_level < 0:
            raise ValueError(f"expected a first level of at least 0, got {self.first_level}")
        if self.rerank < 0:
            raise ValueError(f"expected a setting with rerank of at least 0, got {self.rerank}")
        widths = [width for width in (self.ef, self.slack) if width is not None]
        if len(widths) != 1:
            got = f"ef {self.ef} and slack {self.slack}"
            raise ValueError(f"expected a setting with either ef or slack, got {got}")
        if not 0 <= widths[0] < np.inf:
            raise ValueError(
                f"expected a setting with a finite ef or slack of at least 0, got {widths[0]}"
            )

    @property
    def key(self) -> "SettingKey":
        """What the setting is for."""
        return self.space, self.k, self.target, self.share, self.guarantee

    @property
    def plain(self) -> "Setting":
        """The setting without a learned rule, as searches under filters need it."""
        return replace(self, threshold=None, power=0.0, first_level=0)

    @cached_property
    def limits(self) -> Limits:
        """Limits to search with, unless a learned rule ends walks."""
        return Limits(None, self.ef, self.slack, self.rerank)


@dataclass(frozen=True, slots=True)
class Loss:
    """Recall@k on validation queries before and after compression."""

    space: str
    """Name of the compressed space."""
    k: int
    """Answers per query."""
    ef: int
    """Beam width."""
    before: float
    """Recall@k of the source space."""
    after: float
    """Recall@k of the compressed space."""

    @classmethod
    def of(cls, before: Searcher, after: Searcher, validation: Validation) -> "Loss":
        """Measure the recall of two searchers on the validation queries."""
        k = min(LOSS_K, validation.neighbors.shape[1])
        recall = validation.judge(before.base, k)
        recalls = [
            recall(searcher.search(validation.queries, k, limits=Limits(ef=LOSS_EF)).ids)
            for searcher in (before, after)
        ]
        return cls(after.space.name, k, LOSS_EF, *recalls)
