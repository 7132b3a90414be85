"""The threshold of a learned stopping rule that reaches a goal on validation queries."""

from bisect import bisect_left
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import RecallSpread, recall_per_query
from l2route.search.guarantee import Goal, Guarantee
from l2route.search.machine import TYPICAL
from l2route.search.searcher import Searcher
from l2route.search.setting import Setting
from l2route.search.stopping import StoppingRule, record
from l2route.search.validation import Validation

POWERS: dict[Guarantee, tuple[float, ...]] = {"mean": (2.0,), "p95": (2.0, 3.0)}
"""Weights of missing neighbours against cost to try. With 1 the mean recall would be bought most
cheaply; with 2 it costs the same within 1%, and a third fewer queries have a low one."""
N_THRESHOLDS = 1000
"""Thresholds to choose from."""
N_MEASURED = 4
"""Thresholds measured by searches, until one reaches the goal."""

FIRST_SHARE = 0.02
"""Share of the queries whose walks may go on, to the level that all begin with, against the rule:
levels before it would be judged for little."""
TAIL_PRICE = 0.02
"""Share of bytes that a rule may cost for a higher recall of the worst queries, under mean."""

Floats = NDArray[np.float64]


def cheapest_rule(
    searcher: Searcher,
    validation: Validation,
    plain: Setting,
    rule: StoppingRule,
    goal: Goal,
    n_threads: int = 0,
) -> tuple[Setting, float] | None:
    """Find the highest threshold of a rule that reaches a goal.

    Walks are recorded once; what a threshold does to them follows. The one that is chosen is then
    measured by a search.

    Args:
        searcher: the searcher to calibrate.
        validation: queries held out from learning, with their true neighbours.
        plain: the setting without the rule, whose rerank is kept.
        rule: the rule.
        goal: what to reach.
        n_threads: threads to use; 0 for all cores.

    Returns:
        The setting, and the nanoseconds that a query is expected to take; None if none reaches it.
    """
    walks = record(searcher, validation.queries, rule.slacks, plain.k, plain.rerank, n_threads)
    recalls = _recalls(searcher, validation, walks.best, plain.k)
    judge = validation.judge_each(searcher.base, plain.k)
    chosen: tuple[Setting, float] | None = None
    for power in POWERS[goal.guarantee]:
        lowest = np.minimum.accumulate(rule.values(walks.features, power), axis=1)
        for threshold in _thresholds(goal, lowest, recalls)[:N_MEASURED]:
            first = int(np.quantile(stop_levels(lowest, threshold), FIRST_SHARE))
            found = searcher.search(
                validation.queries,
                plain.k,
                limits=plain.limits,
                n_threads=n_threads,
                rule=rule.core(float(threshold), power, first),
            )
            each, cost = judge(found.ids), TYPICAL.search_ns(searcher, found)
            if not goal.is_met(goal.measure(each)):
                continue  # a walk is described in single precision, so a few end elsewhere
            tried = replace(plain, threshold=float(threshold), power=power, first_level=first)
            if chosen is None or cost < chosen[1]:
                chosen = replace(tried, recall=float(each.mean())), cost
            break
    return chosen


def pays(
    searcher: Searcher,
    validation: Validation,
    plain: tuple[Setting, float],
    ruled: tuple[Setting, float],
    rule: StoppingRule,
    n_threads: int = 0,
) -> bool:
    """Whether a rule is to end walks: it is cheaper, or lifts the worst queries at hardly a price.

    Args:
        searcher: the searcher.
        validation: queries held out from learning, with their true neighbours.
        plain: the setting without the rule, and its cost.
        ruled: the setting with it, and its cost.
        rule: the rule.
        n_threads: threads to use; 0 for all cores.
    """
    if ruled[1] < plain[1] or plain[0].guarantee != "mean":
        return ruled[1] < plain[1]
    if ruled[1] > (1 + TAIL_PRICE) * plain[1]:
        return False
    judge = validation.judge_each(searcher.base, plain[0].k)
    found = [
        searcher.search(
            validation.queries,
            setting.k,
            limits=setting.limits,
            n_threads=n_threads,
            rule=rule.core_of(setting.threshold, setting.power, setting.first_level),
        )
        for setting, _ in (plain, ruled)
    ]
    before, after = (RecallSpread.of(judge(each.ids)) for each in found)
    return after.worst > before.worst


def stop_levels(lowest: Floats, threshold: float) -> NDArray[np.int64]:
    """The level at which each query's walk ends [n_queries].

    Args:
        lowest: the lowest value of the rule up to each level [n_queries, n_levels].
        threshold: walks end where the value is below, or at the last level.
    """
    is_below = lowest < threshold
    last = lowest.shape[1] - 1
    return np.asarray(np.where(is_below.any(axis=1), is_below.argmax(axis=1), last))


def _thresholds(goal: Goal, lowest: Floats, recalls: Floats) -> Floats:
    """Thresholds to try, from the highest that meets the goal on down; none if none does."""
    falling = np.quantile(lowest, np.linspace(1, 0, N_THRESHOLDS))
    rows = np.arange(len(lowest))

    def is_enough(i: int) -> bool:
        return goal.is_met(goal.measure(recalls[rows, stop_levels(lowest, falling[i])]))

    if not is_enough(N_THRESHOLDS - 1):
        return falling[:0]
    return falling[bisect_left(range(N_THRESHOLDS), True, key=is_enough) :]


def _recalls(searcher: Searcher, validation: Validation, best: NDArray[np.int32], k: int) -> Floats:
    """Recall@k of answers at each level [n_queries, n_levels].

    Args:
        searcher: the searcher.
        validation: the queries.
        best: vertices that would be reranked [n_queries, n_levels, n_best].
        k: answers per query.
    """
    base, queries = searcher.base, validation.queries
    nearest = base.exact_distances(queries, validation.neighbors[:, :k])
    recalls = np.empty(best.shape[:2])
    for level in range(best.shape[1]):
        found = np.sort(base.exact_distances(queries, best[:, level].astype(np.int64)), axis=1)
        recalls[:, level] = recall_per_query(found, nearest, k)
    return recalls
