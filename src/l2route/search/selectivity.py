"""Settings that reach a recall under filters, by the share of the vectors that pass."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.truth import exact_neighbors
from l2route.search.calibrate import RERANKS, OutOfReachError, Under, calibrate
from l2route.search.filter import packed
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher, Way
from l2route.search.setting import Setting
from l2route.search.validation import Validation

BANDS = (_core.SIEVE_SHARE, *(2.0**-power for power in range(1, 31)))
"""Smallest shares of the bands that settings are measured for, descending. Of a band the smallest
share is the hardest, so a setting measured there holds for the band."""
N_QUERIES = 1000
"""Validation queries that settings under filters are measured on: they need true neighbours of
their own."""
FEW = 10
"""A band of at most so many times k vectors is scanned."""
MARGIN = 0.6
"""Share of the missing recall that settings may leave under the filters they are measured under,
since filters that are correlated with the query are harder than those that pass at random."""
SEED = 0
"""Seed of the filters that settings are measured under: vectors pass at random."""


def band_of(share: float) -> float:
    """The smallest share of the band that a share belongs to."""
    return next((band for band in BANDS if share >= band), BANDS[-1])


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
    n, is_coded = len(searcher.base.rows), scan_rerank > 0 or searcher.space.is_exact
    scan_ns = 2 * share * n * _core.scan_ns(routing if is_coded else original)
    walk_ns = plain.n_work * _core.walk_ns(routing)
    if share * n <= FEW * plain.k or scan_ns <= walk_ns:
        return replace(plain, share=share, scan_rerank=scan_rerank)
    passes = np.random.default_rng(SEED).random(n) < share
    setting = _calibrate_walk(
        searcher, few, replace(plain, target=target), passes, share, n_threads
    )
    return replace(setting, target=plain.target, scan_rerank=scan_rerank)


def _calibrate_walk(
    searcher: Searcher,
    validation: Validation,
    plain: Setting,
    passes: NDArray[np.bool_],
    share: float,
    n_threads: int,
) -> Setting:
    """The cheapest walk under a filter; one that is never faster than a scan if none suffices."""
    way: Way = "sieve" if share >= _core.SIEVE_SHARE else "look"
    under = Under([_core.Filter(packed(passes), len(passes))], way, share)
    rows = np.flatnonzero(passes)
    truth = exact_neighbors(
        searcher.base.vectors()[rows],
        validation.queries,
        min(validation.neighbors.shape[1], len(rows)),
        searcher.base.metric,
    )
    own = Validation(validation.queries, rows[truth.ids].astype(np.int32))
    try:
        return calibrate(searcher, own, plain.k, plain.target, n_threads, under)[0]
    except OutOfReachError:
        return replace(plain, share=share, n_work=len(passes))


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
    everything = _core.Filter(None, len(searcher.base.rows), None, len(searcher.base.rows))
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
