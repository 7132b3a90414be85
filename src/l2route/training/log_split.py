"""The split of a query log into queries to learn from and queries to validate with."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.data.truth import Truth, exact_neighbors
from l2route.data.vectors import Metric, as_array, check_lengths, check_vectors, normalize
from l2route.files.progress import Progress
from l2route.search.base import BaseVectors
from l2route.search.validation import DEPTH, N_KEPT, Validation
from l2route.training.options import LearnOptions
from l2route.training.queries import QueryLog, answer_radius, hold_out, n_validation_of

LEAST_DISTINCT = 20
"""Smallest number of distinct queries to learn from."""


@dataclass(frozen=True, slots=True)
class LogSplit:
    """A query log of which some queries are held out.

    `learn` holds out the same queries of the same log with the same seed, or some of them.
    """

    validation: Validation
    """Up to 2,000 of the queries held out, with their true neighbours."""
    train: NDArray[np.float32]
    """Distinct other queries, without near-duplicates of those held out [n_train, dim]."""
    nearest: NDArray[np.int32]
    """Their true neighbours, nearest first [n_train, depth]."""
    spare: NDArray[np.float32]
    """Other queries held out, which neither train nor validate [n_spare, dim]."""


def split_log(
    queries: object,
    base: BaseVectors,
    depth: int,
    *,
    neighbors: NDArray[np.int64] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> LogSplit:
    """Hold out validation queries, and find the true neighbours of all distinct queries.

    Args:
        queries: query log [n_queries, dim].
        base: the vectors.
        depth: true neighbours of each training query.
        neighbors: true neighbours of the queries, row numbers [n_queries, *], nearest first; found
            by an exact search if not given, or if they are fewer than `depth`.
        seed: seed of the split.
        progress: called with queries done and in total.
    """
    log = distinct_queries(queries, base, seed)
    vectors, options = base.vectors(), LearnOptions()
    if neighbors is not None:
        neighbors = checked_neighbors(neighbors, int(log.counts.sum()), 1, len(vectors))
    candidates = log.order[: n_validation_of(len(log.distinct), options.n_validation)]
    truth = exact_neighbors(
        vectors, log.distinct[candidates], min(DEPTH, len(vectors)), base.metric
    )
    held = hold_out_of(log, candidates, truth, base.metric, options.near_duplicate)
    train = np.flatnonzero(~held.is_held_out)
    if neighbors is None or neighbors.shape[1] < depth:
        nearest = exact_neighbors(
            vectors, log.distinct[train], depth, base.metric, progress=progress
        ).ids
    else:
        nearest = neighbors[log.first[train], :depth]
    kept = held.chosen[:N_KEPT]
    validation = Validation(log.distinct[kept], held.truth.ids[:N_KEPT].astype(np.int32))
    spare = log.distinct[held.chosen[N_KEPT:]]
    return LogSplit(validation, log.distinct[train], nearest.astype(np.int32), spare)


def distinct_queries(queries: object, base: BaseVectors, seed: int) -> QueryLog:
    """Check a log [n_queries, dim], and find its distinct queries."""
    checked = check_vectors("queries", queries, base.dim)
    if base.metric != "cosine":
        check_lengths("queries", checked)
    log = QueryLog.of(normalize(checked) if base.metric == "cosine" else checked, seed)
    if len(log.distinct) < LEAST_DISTINCT:
        got = f"{len(log.distinct)} among {len(checked)}"
        raise ValueError(f"expected at least {LEAST_DISTINCT} distinct queries, got {got}")
    return log


def checked_neighbors(
    neighbors: object, n_queries: int, least: int, n_vectors: int
) -> NDArray[np.int64]:
    """Check true neighbours given by a caller, row numbers [n_queries, at least `least`]."""
    ids = as_array("neighbors", neighbors)
    is_matrix = ids.ndim == 2 and len(ids) == n_queries and ids.shape[1] >= least
    if not is_matrix or ids.dtype.kind not in "iu":
        expected = f"neighbors int [{n_queries}, at least {least}]"
        raise ValueError(f"expected {expected}, got {ids.dtype} {list(ids.shape)}")
    if ids.min() < 0 or ids.max() >= n_vectors:
        got = f"{ids.min()}, {ids.max()}"
        raise ValueError(f"expected neighbors in [0, {n_vectors}), got {got}")
    return ids.astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Validation queries of a log, and the queries that are excluded from training for them."""

    chosen: NDArray[np.int64]
    """Positions of the validation queries among the distinct ones, ascending [n_validation]."""
    truth: Truth
    """True neighbours of the validation queries."""
    n_candidates: int
    """Number of distinct queries that they were chosen from."""
    is_held_out: NDArray[np.bool_]
    """Whether a distinct query is excluded from training [n_distinct]."""


def hold_out_of(
    log: QueryLog,
    candidates: NDArray[np.int64],
    truth: Truth,
    metric: Metric,
    near_duplicate: float,
) -> HeldOut:
    """Choose validation queries among candidates.

    Args:
        log: the distinct queries.
        candidates: positions of candidates among them, in the order in which they are chosen.
        truth: true neighbours of the candidates.
        metric: l2, ip or cosine.
        near_duplicate: as in `LearnOptions`.
    """
    radii = answer_radius(log.distinct[candidates], truth.distances, metric)
    chosen, is_held_out = hold_out(log.distinct, candidates, near_duplicate * radii)
    order = np.argsort(candidates)
    places = order[np.searchsorted(candidates, chosen, sorter=order)]
    kept = Truth(truth.ids[places], truth.distances[places])
    return HeldOut(chosen, kept, len(candidates), is_held_out)
