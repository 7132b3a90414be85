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
which are few."""
N_CELLS, N_FAR = 256, 32
"""Cells that vectors are divided into, and filters that pass the cells farthest from a query."""
FAR_SHARE = 100
"""Each of these filters is measured on so small a part of the validation queries: the nearest."""
SEED = 0
"""Seed of the filters that settings are measured under."""


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
    asked = replace(plain, target=target)
    own, masks = _at_random(searcher, few, share)
    under = _under(masks, share)
    far, far_masks = _from_afar(searcher, few, share)
    settings = [
        _calibrate_walk(searcher, own, asked, under, n_threads),
        _calibrate_walk(searcher, far, asked, _under(far_masks, share), n_threads),
    ]
    known = [each for each in settings if each is not None]
    if len(known) < len(settings):  # a walk is never faster than a scan
        return replace(plain, share=share, n_work=n, scan_rerank=scan_rerank)
    widest = _widest(known)
    found = searcher.search(
        own.queries, plain.k, limits=widest.limits, filters=under.filters, way=under.way
    )
    n_work = round(float(found.n_work.mean()))
    return replace(widest, target=plain.target, n_work=n_work, scan_rerank=scan_rerank)


def _widest(settings: list[Setting]) -> Setting:
    """The setting whose walks are longest, with the largest rerank and the least recall of all."""
    return replace(
        max(settings, key=lambda each: each.slack or each.ef or 0),
        rerank=max(each.rerank for each in settings),
        recall=min(each.recall for each in settings),
    )


Masks = list[NDArray[np.bool_]]


def _at_random(
    searcher: Searcher, validation: Validation, share: float
) -> tuple[Validation, Masks]:
    """The queries, and one filter for all that passes vectors at random."""
    passes = np.random.default_rng(SEED).random(len(searcher.base.rows)) < share
    return _judged(searcher, validation, [np.arange(len(validation.queries))], [passes]), [passes]


def _from_afar(
    searcher: Searcher, validation: Validation, share: float
) -> tuple[Validation, Masks]:
    """Groups of nearby queries, and for each query a filter that passes what is far from them.

    Vectors belong to the nearest of a few that are drawn. Such cells pass from the farthest on.
    """
    rng, base = np.random.default_rng(SEED), searcher.base
    vectors, queries = base.vectors(), validation.queries
    drawn = rng.choice(len(vectors), min(N_CELLS, len(vectors)), replace=False)
    cells = exact_neighbors(vectors[drawn], vectors, 1, base.metric).ids[:, 0]
    members, masks = [], []
    for centre in rng.choice(len(queries), min(N_FAR, len(queries)), replace=False):
        query = queries[centre : centre + 1]
        order = exact_neighbors(vectors[drawn], query, len(drawn), base.metric).ids[0]
        ranks = np.argsort(np.argsort(order)[cells], kind="stable")
        passes = np.zeros(len(vectors), dtype=np.bool_)
        passes[ranks[len(vectors) - max(1, round(share * len(vectors))) :]] = True
        n_near = -(-len(queries) // FAR_SHARE)
        members.append(exact_neighbors(queries, query, n_near, base.metric).ids[0])
        masks.append(passes)
    own = _judged(searcher, validation, members, masks)
    return own, [mask for mask, each in zip(masks, members, strict=True) for _ in each]


def _judged(
    searcher: Searcher, validation: Validation, members: list[NDArray[np.int64]], masks: Masks
) -> Validation:
    """Groups of queries with their true neighbours among what passes."""
    base, depth, neighbors = searcher.base, validation.neighbors.shape[1], []
    for group, passes in zip(members, masks, strict=True):
        rows = np.flatnonzero(passes)
        queries = validation.queries[group]
        truth = exact_neighbors(base.vectors()[rows], queries, min(depth, len(rows)), base.metric)
        neighbors.append(rows[truth.ids].astype(np.int32))
    shortest = min(each.shape[1] for each in neighbors)
    joined = np.concatenate([each[:, :shortest] for each in neighbors])
    return Validation(validation.queries[np.concatenate(members)], joined)


def _under(masks: Masks, share: float) -> Under:
    """Filters of masks, of which those of neighbouring queries may be the same."""
    cores = {id(mask): _core.Filter(packed(mask), len(mask)) for mask in masks}
    way: Way = "sieve" if share >= _core.SIEVE_SHARE else "look"
    return Under([cores[id(mask)] for mask in masks], way, share)


def _calibrate_walk(
    searcher: Searcher, validation: Validation, asked: Setting, under: Under, n_threads: int
) -> Setting | None:
    """The cheapest walk that reaches a recall under filters; None if none does."""
    try:
        return calibrate(searcher, validation, asked.k, asked.target, n_threads, under)[0]
    except OutOfReachError:
        return None


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
