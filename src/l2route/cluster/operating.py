"""Operating points: the cheapest pair of shards asked and recall within shards for a recall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.manifest import Point
from l2route.cluster.merge import Answer, nearest
from l2route.cluster.router import Kind, Router, chosen_by
from l2route.search.calibrate import OutOfReachError, check_recall

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
INNER = (0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)
"""Recalls within shards that are tried, beside the one that is asked for."""
LEAST_MISSED = 0.2
"""Share of what may be missed in all that may be missed at least within shards: to miss less
costs more than to ask one more shard."""
N_THRESHOLDS = 200
"""Thresholds that are tried."""
Search = Callable[[Floats, int, float], list[Answer]]
"""Answers of every shard to all of some queries, for k and a recall within shards."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Validation queries answered by all shards at one recall within shards.

    What any choice of shards would have found and cost follows without another search.
    """

    inner: float
    ids: NDArray[np.int64]
    """[n_shards, n_queries, k]"""
    distances: Floats
    """[n_shards, n_queries, k]"""
    computed: NDArray[np.float64]
    """Distance computations [n_shards, n_queries]."""

    @classmethod
    def of(cls, inner: float, answers: list[Answer]) -> Trial:
        """Stack the answers of all shards, by number."""
        ordered = sorted(answers, key=lambda each: each.shard)
        return cls(
            inner,
            np.stack([each.ids for each in ordered]),
            np.stack([each.distances for each in ordered]),
            np.stack([each.computed for each in ordered]),
        )

    def found(self, chosen: NDArray[np.bool_]) -> Ids:
        """Ids of the merged answers [n_queries, k] if these shards are asked."""
        k = self.ids.shape[2]
        hidden = ~chosen.T[:, :, None]  # [n_shards, n_queries, 1]
        ids = np.where(hidden, -1, self.ids).transpose(1, 0, 2)
        distances = np.where(hidden, np.inf, self.distances).transpose(1, 0, 2)
        shape = (len(ids), -1)
        return nearest(ids.reshape(shape), distances.reshape(shape).astype(np.float32), k)[0]

    def cost(self, chosen: NDArray[np.bool_]) -> float:
        """Mean distance computations of the shards asked."""
        return float((self.computed * chosen.T).sum(axis=0).mean())


def inner_recalls(target: float) -> list[float]:
    """Recalls within shards that may be the cheapest for a recall in all, ascending."""
    most = 1 - LEAST_MISSED * (1 - target) + 1e-9  # differences are rounded
    return sorted({each for each in INNER if target <= each <= most} | {target})


def find_point(
    router: Router,
    queries: Floats,
    truth: Ids,
    search: Search,
    k: int,
    target: float,
    kind: Kind | None = None,
) -> Point:
    """Find the point that reaches a recall@k on merged answers with the fewest computations.

    Args:
        router: which shards are asked.
        queries: validation queries [n, dim].
        truth: ids of their true neighbours [n, at least k], nearest first.
        search: asks all shards.
        k: answers per query.
        target: recall@k to reach.
        kind: scores to use; by default what the router has.
    """
    check_recall(target)
    if k > truth.shape[1]:
        expected = f"k of at most {truth.shape[1]}, the true neighbours kept of each query"
        raise ValueError(f"expected {expected}, got {k}")
    chosen_kind: Kind = kind or router.kind
    scores = router.scores(queries, chosen_kind)
    best: Point | None = None
    reached = 0.0
    for each in inner_recalls(target):
        trial = Trial.of(each, search(queries, k, each))
        threshold, recall = cheapest_threshold(trial, scores, truth[:, :k], target)
        reached = max(reached, recall)
        if threshold is None:
            continue
        chosen = chosen_by(scores, threshold)
        cost = trial.cost(chosen) + router.cost(chosen_kind)
        if best is None or cost < best.n_computed:
            n_asked = float(chosen.sum(axis=1).mean())
            best = Point(k, target, chosen_kind, threshold, each, recall, n_asked, cost)
        elif cost > 1.2 * best.n_computed:
            break  # a higher recall within shards costs more than fewer shards save
    if best is None:
        raise OutOfReachError(f"expected a recall@{k} of {target:g}, got {reached:.4f} at the most")
    return best


def cheapest_threshold(
    trial: Trial, scores: Floats, truth: Ids, target: float
) -> tuple[float | None, float]:
    """The highest threshold that reaches a recall, by bisection over the scores that there are.

    Returns:
        The threshold, None if all shards together miss the recall; and the recall reached.
    """
    values = np.unique(np.quantile(scores, np.linspace(0, 1, N_THRESHOLDS)))

    def recall_at(threshold: float) -> float:
        return recall_of(trial.found(chosen_by(scores, threshold)), truth)

    recall = recall_at(float(values[0]))
    if recall < target:
        return None, recall
    low, high = 0, len(values)  # values[low] reaches it; values[high], if there is one, does not
    while high - low > 1:
        middle = (low + high) // 2
        found = recall_at(float(values[middle]))
        if found >= target:
            low, recall = middle, found
        else:
            high = middle
    return float(values[low]), recall


def recall_of(found: Ids, truth: Ids) -> float:
    """Mean share of the true neighbours [n, k] among the answers [n, k], by id.

    By id, since shards may store rounded vectors, whose distances are not those of the truth.
    """
    is_one = truth != -1
    hits = (truth[:, :, None] == found[:, None, :]).any(axis=2) & is_one
    return float((hits.sum(axis=1) / np.maximum(is_one.sum(axis=1), 1)).mean())
