"""Settings that reach a recall under filters, by the share of the vectors that pass.

Walks through what does not pass need none of their own: with the setting of searches without a
filter they reached its recall under all filters that were measured (decision 27).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.vectors import Metric, normalize
from l2route.search.calibrate import RERANKS, SATURATED, WIDEST_BEAM
from l2route.search.filter import packed
from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher, Way
from l2route.search.setting import Setting
from l2route.search.validation import Validation

BANDS = tuple(2.0**-power for power in range(1, 31))
"""Smallest shares of the bands that settings are measured for, descending. Settings are
measured at both ends: slacks must be larger where more pass at random, but also where few do far
away."""
N_QUERIES = 500
"""Validation queries that settings under filters are measured on: they need true neighbours of
their own."""
FEW = 10
"""A band of at most so many times k vectors is scanned."""
ALMOST_ALL = 0.95
"""Largest share that passes at random: above it, filters hardly matter."""
MARGIN = 0.6
"""Share of the missing recall that settings may leave under the filters they are measured under,
which are few."""
N_CELLS, N_FAR = 256, 32
"""Cells that vectors are divided into, and filters that pass the cells farthest from a query."""
FAR_SHARE = 100
"""Each of these filters is measured on so small a part of the validation queries: the nearest."""
WIDER, NARROWEST_STEP = 1.3, 1.04
"""Walks are widened by the first factor until they suffice, then narrowed to the second."""
FIRST_SLACK, WIDEST_SLACK = 0.03, 1.0
"""Slack to begin with where searches without a filter have none, and the last to try."""
BLOCK = 2**16
"""Vectors that are compared with the cells at a time."""
SEED = 0
"""Seed of the filters that settings are measured under."""


def band_of(share: float) -> float:
    """The smallest share of the band that a share belongs to."""
    power = 1 - math.frexp(share)[1]  # of the largest power of two that is at most the share
    return BANDS[min(max(power, 1), len(BANDS)) - 1] if share > 0 else BANDS[-1]


def calibrate_filtered(
    searcher: Searcher, validation: Validation, plain: Setting, share: float, n_threads: int = 0
) -> Setting:
    """Find the setting that reaches a recall under filters that pass a share of the vectors.

    Where a scan of twice as many is faster than a walk without filter, walks are not measured:
    every filter of the band will be scanned.

    Args:
        searcher: the searcher to calibrate.
        validation: queries held out from learning.
        plain: the setting for searches without filter.
        share: one of `BANDS`.
        n_threads: threads to use; 0 for all cores.
    """
    few = Validation(validation.queries[:N_QUERIES], validation.neighbors[:N_QUERIES])
    target = 1 - MARGIN * (1 - plain.target)
    scan_rerank = _scan_rerank(searcher, few, plain.k, target, n_threads)
    routing, original = searcher.space.rows[0].nbytes, searcher.base.rows[0].nbytes
    n = int(_used(searcher).sum())
    is_coded = scan_rerank > 0 or searcher.space.is_exact
    scan_ns = 2 * share * n * _core.scan_ns(routing if is_coded else original)
    walk_ns = plain.n_work * _core.walk_ns(routing)
    if share * n <= FEW * plain.k or scan_ns <= walk_ns:
        return replace(plain, share=share, scan_rerank=scan_rerank)
    trials = [
        _at_random(searcher, few, plain.k, min(2 * share, ALMOST_ALL), n_threads),
        _from_afar(searcher, validation, plain.k, share, n_threads),
    ]
    asked = replace(plain, share=share, scan_rerank=scan_rerank)
    found = _narrowest(trials, searcher.space.origin is not None, asked, target)
    if found is None:  # a walk is never faster than a scan
        return replace(asked, n_work=n)
    fewest = _filter(_drawn(searcher, share))
    walks = searcher.search(
        few.queries, plain.k, limits=found.limits, n_threads=n_threads, filters=[fewest], way="look"
    )
    return replace(found, n_work=round(float(walks.n_work.mean())))


class _Trial:
    """Queries under filters, with their true neighbours among what passes."""

    def __init__(
        self,
        searcher: Searcher,
        queries: NDArray[np.float32],
        filters: Sequence[_core.Filter],
        k: int,
        n_threads: int,
    ) -> None:
        self._searcher, self._queries, self._filters = searcher, queries, filters
        self._k, self._n_threads = k, n_threads
        nearest = self._search(Limits(ef=k), "scan").ids.astype(np.int32)
        self._judge = Validation(queries, nearest).judge(searcher.base, k)

    def recall(self, limits: Limits) -> float:
        """Recall@k of walks on what passes."""
        return self._judge(self._search(limits, "look").ids)

    def _search(self, limits: Limits, way: Way) -> SearchResult:
        return self._searcher.search(
            self._queries,
            self._k,
            limits=limits,
            n_threads=self._n_threads,
            filters=self._filters,
            way=way,
        )


def _at_random(
    searcher: Searcher, validation: Validation, k: int, share: float, n_threads: int
) -> _Trial:
    """Queries under one filter that passes vectors at random."""
    passes = _filter(_drawn(searcher, share))
    return _Trial(searcher, validation.queries, [passes], k, n_threads)


def _from_afar(
    searcher: Searcher, validation: Validation, k: int, share: float, n_threads: int
) -> _Trial:
    """Groups of nearby queries, each under a filter that passes what is far from them.

    Vectors belong to the nearest of a few that are drawn. Such cells pass from the farthest on.
    """
    rng, base, queries = np.random.default_rng(SEED), searcher.base, validation.queries
    rows = np.flatnonzero(_used(searcher))
    middles = base.vectors()[rng.choice(rows, min(N_CELLS, len(rows)), replace=False)]
    blocks = [rows[first : first + BLOCK] for first in range(0, len(rows), BLOCK)]
    cells = np.concatenate(
        [_nearness(base.vectors()[block], middles, base.metric).argmax(axis=1) for block in blocks]
    )
    members, filters = [], []
    for centre in rng.choice(len(queries), min(N_FAR, len(queries)), replace=False):
        query = queries[centre : centre + 1]
        order = np.argsort(_nearness(query, middles, base.metric)[0])  # farthest first
        ranked = rows[np.argsort(np.argsort(order)[cells], kind="stable")]
        passes = np.zeros(len(base.rows), dtype=np.bool_)
        passes[ranked[: max(1, round(share * len(rows)))]] = True
        near = np.argsort(-_nearness(query, queries, base.metric)[0])
        members.append(near[: -(-len(queries) // FAR_SHARE)])
        filters += [_filter(passes)] * len(members[-1])
    return _Trial(searcher, queries[np.concatenate(members)], filters, k, n_threads)


def _used(searcher: Searcher) -> NDArray[np.bool_]:
    """Which rows have vectors; all but those of a living index."""
    if searcher.store is None:
        return np.ones(len(searcher.base.rows), dtype=np.bool_)
    return np.asarray(searcher.store.labels() != -1)


def _drawn(searcher: Searcher, share: float) -> NDArray[np.bool_]:
    """Which vectors pass at random."""
    used = _used(searcher)
    return used & (np.random.default_rng(SEED).random(len(used)) < share)


def _filter(passes: NDArray[np.bool_]) -> _core.Filter:
    return _core.Filter(packed(passes), len(passes))


def _nearness(
    a: NDArray[np.float32], b: NDArray[np.float32], metric: Metric
) -> NDArray[np.float32]:
    """What grows as the distance from rows of a to rows of b becomes less [len(a), len(b)]."""
    if metric == "cosine":
        b = normalize(b)
    products: NDArray[np.float32] = a @ b.T
    return products - 0.5 * (b * b).sum(axis=1) if metric == "l2" else products


def _narrowest(
    trials: Sequence[_Trial], has_slack: bool, asked: Setting, target: float
) -> Setting | None:
    """The narrowest walk that reaches a recall in all trials; None if none does.

    Args:
        trials: queries under filters.
        has_slack: whether walks end by slack; otherwise by beam width.
        asked: the setting to begin with.
        target: the recall@k.
    """
    first = (asked.slack or FIRST_SLACK) if has_slack else float(asked.ef or asked.k)
    rerank = max(asked.rerank, asked.scan_rerank)
    for more in (1, 2, 4) if rerank else (1,):

        def measured(width: float, rerank: int = more * rerank) -> Setting:
            ef, slack = (None, round(width, 4)) if has_slack else (math.ceil(width), None)
            tried = replace(asked, ef=ef, slack=slack, rerank=rerank)
            return replace(tried, recall=min(trial.recall(tried.limits) for trial in trials))

        found = _widened(measured, first, WIDEST_SLACK if has_slack else WIDEST_BEAM, target)
        if found is not None:
            return found
    return None


def _widened(
    measured: Callable[[float], Setting], first: float, widest: float, target: float
) -> Setting | None:
    """The narrowest width from the first on that reaches a recall; None if it saturates below."""
    low, width, before = first, first, -math.inf
    while (setting := measured(width)).recall < target:
        is_saturated = setting.recall - before < SATURATED * (target - setting.recall)
        if width >= widest or is_saturated:
            return None
        low, width, before = width, width * WIDER, setting.recall
    while width / low > NARROWEST_STEP:
        middle = math.sqrt(low * width)
        narrower = measured(middle)
        if narrower.recall < target:
            low = middle
        else:
            width, setting = middle, narrower
    return setting


def _scan_rerank(
    searcher: Searcher, validation: Validation, k: int, target: float, n_threads: int
) -> int:
    """The fewest vertices to rerank after a scan of all routing vectors that reach a recall.

    Returns:
        Their number; 0 if none of those tried suffices, or if scores are true distances.
    """
    if searcher.space.is_exact:
        return 0
    judge = validation.judge(searcher.base, k)
    everything = _filter(_used(searcher))
    for rerank in sorted({round(k * share) for share in RERANKS}):
        found = searcher.search(
            validation.queries,
            k,
            limits=Limits(ef=k),
            n_threads=n_threads,
            filters=[everything],
            way="scan",
            scan_rerank=rerank,
        )
        if judge(found.ids) >= target:
            return rerank
    return 0
