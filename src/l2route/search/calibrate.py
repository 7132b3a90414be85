"""Which setting reaches a recall, measured on queries that an index keeps for it."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher
from l2route.search.setting import Setting
from l2route.search.validation import Validation

RERANKS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""True distances that are tried, in answers asked for."""
WIDEST_BEAM = 4096
"""Beam beyond which a recall counts as out of reach."""
SATURATED = 0.02
"""Share of the missing recall that a beam of twice the width must bring for a wider one to be
tried."""


class OutOfReachError(ValueError):
    """No setting reaches the recall that was asked for."""


def calibrate(
    searcher: Searcher, validation: Validation, k: int, target: float, n_threads: int = 0
) -> tuple[Setting, float]:
    """The setting that reads the fewest bytes of vectors among those that reach a recall@k.

    Args:
        searcher: what is to search.
        validation: queries that it did not learn from.
        k: answers per query.
        target: recall@k to reach, in (0, 1].
        n_threads: threads to use; 0 for all cores.

    Returns:
        The setting, and the bytes that a query then reads.
    """
    if not 0 < target <= 1:
        raise ValueError(f"expected a recall in (0, 1], got {target}")
    depth = validation.neighbors.shape[1]
    if not 1 <= k <= depth:
        raise ValueError(f"expected k in [1, {depth}], which the index keeps, got {k}")
    kinds: list[type[_Trial]] = [_Beams]
    if searcher.space.origin is not None:
        kinds.append(_Slacks)
    tries = [_cheapest(kind, searcher, validation, k, target, n_threads) for kind in kinds]
    reached = [(cost, setting) for cost, setting, _ in tries if setting is not None]
    if not reached:
        best = max(best for _, _, best in tries)
        expected = f"a recall@{k} in reach, which is up to {best:.4f}"
        raise OutOfReachError(f"expected {expected}, got {target}")
    cost, setting = min(reached, key=lambda pair: pair[0])
    return setting, cost


def cheapest_beam(
    searcher: Searcher, validation: Validation, k: int, target: float
) -> Setting | None:
    """The cheapest setting by beam width; None if none reaches the recall."""
    return _cheapest(_Beams, searcher, validation, k, target, 0)[1]


def cheapest_slack(
    searcher: Searcher, validation: Validation, k: int, target: float
) -> Setting | None:
    """The cheapest setting by slack; None if none reaches the recall."""
    return _cheapest(_Slacks, searcher, validation, k, target, 0)[1]


def _cheapest(
    kind: "type[_Trial]",
    searcher: Searcher,
    validation: Validation,
    k: int,
    target: float,
    n_threads: int,
) -> tuple[float, Setting | None, float]:
    """The cheapest setting of a kind with its cost, and the best recall that was met."""
    cost, chosen, best = np.inf, None, 0.0
    known: int | None = None
    reranks = sorted({round(k * share) for share in RERANKS}) if searcher.reranks else [0]
    for rerank in reranks:
        trial = kind(searcher, validation, k, rerank, n_threads)
        width = trial.narrowest(target, known)
        best = max(best, *trial.recalls.values())
        if width is None:
            continue
        if trial.costs[width] >= cost:
            break  # more of them cost more than the shorter walk saves
        cost, known = trial.costs[width], width
        chosen = Setting(
            searcher.space.name, k, target, rerank, trial.recalls[width], **trial.limit(width)
        )
    return cost, chosen, best


class _Trial(ABC):
    """Walks of several lengths with as many true distances; how long is a whole number, a width."""

    def __init__(
        self, searcher: Searcher, validation: Validation, k: int, rerank: int, n_threads: int
    ) -> None:
        self.searcher, self.queries, self.n_threads = searcher, validation.queries, n_threads
        self.k, self.rerank = k, rerank
        self.judge = validation.judge(searcher.base, k)
        self.recalls: dict[int, float] = {}
        self.costs: dict[int, float] = {}

    @abstractmethod
    def limit(self, width: int) -> dict[str, Any]:
        """What a width is to a search."""

    @abstractmethod
    def ends(self) -> tuple[int, int, int]:
        """The narrowest, the first to try and the widest."""

    def narrowest(self, target: float, known: int | None) -> int | None:
        """The narrowest width that reaches a recall; None if none does.

        Args:
            target: the recall.
            known: a width that reached it with fewer true distances, if there is one.
        """
        floor, first, _ = self.ends()
        if known is not None:
            low, high = self._narrow(floor, max(floor, known), target)
        else:
            widest = self._widen(first, target)
            if widest is None:
                return None
            low, high = (floor if widest == first else widest // 2), widest
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._recall(middle) >= target else (middle, high)
        if self._recall(low) >= target:
            high = low
        self._recall(high)  # its cost is asked for
        return high

    def _widen(self, width: int, target: float) -> int | None:
        """The first width to reach a recall, twice the one before each time."""
        before: float | None = None
        while (recall := self._recall(width)) < target:
            is_saturated = before is not None and recall - before < SATURATED * (target - recall)
            if width >= self.ends()[2] or is_saturated:
                return None
            before, width = recall, 2 * width
        return width

    def _narrow(self, floor: int, width: int, target: float) -> tuple[int, int]:
        """Two widths around the narrowest that reaches a recall, down from one that does.

        The first steps are short: a few more true distances make a walk a little shorter.
        """
        high, step = width, max(1, width // 16)
        low = max(floor, high - step)
        while low > floor and self._recall(low) >= target:
            high, step = low, 2 * step
            low = max(floor, high - step)
        return low, high

    def _recall(self, width: int) -> float:
        if width not in self.recalls:
            found = self.searcher.search(
                self.queries,
                self.k,
                rerank=self.rerank or None,
                n_threads=self.n_threads,
                **self.limit(width),
            )
            self.recalls[width] = self.judge(found.ids)
            self.costs[width] = self._bytes_read(found)
        return self.recalls[width]

    def _bytes_read(self, found: SearchResult) -> float:
        routed = found.n_routing.mean() * self.searcher.space.rows[0].nbytes
        return float(routed + found.n_rerank.mean() * self.searcher.base.rows[0].nbytes)


class _Beams(_Trial):
    """Widths are beam widths."""

    def limit(self, width: int) -> dict[str, Any]:
        """The beam."""
        return {"ef": width}

    def ends(self) -> tuple[int, int, int]:
        """A beam holds the answers and what is reranked."""
        narrowest = max(self.k, self.rerank)
        return narrowest, narrowest, WIDEST_BEAM


class _Slacks(_Trial):
    """Widths are slacks, in thousandths."""

    def limit(self, width: int) -> dict[str, Any]:
        """The slack."""
        return {"slack": width / 1000}

    def ends(self) -> tuple[int, int, int]:
        """From none; twice as far is everywhere."""
        return 0, 32, 1000
