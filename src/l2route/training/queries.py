"""Splitting a query log so that no validation query, nor a near-duplicate of one, is trained on.

Logs repeat themselves: a few queries are most of the log. Repeats and near-duplicates, whose
answers are the same, are found before the log is split.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric
from l2route.graph.duplicates import Duplicates

MIN_VALIDATION = 400
"""Validation queries to hold out from a short log, but at most a third of it."""
MAX_HELD_OUT = 1 / 3
"""Fraction of the log at which choosing stops: once validation queries and their near-duplicates
are so much of it, no more are chosen. Also the most that may be near-duplicates of one of them: if
more are, they are not held out with it."""
MIN_CHOSEN = 2
"""Validation queries at least: some choose what is learned, others confirm it."""
_MAX_PAIRS = 1 << 24  # pairs of queries whose distances are held at once
_ROUNDING = np.float32(1e-6)  # of squared lengths in float32


@dataclass(frozen=True, slots=True)
class QueryLog:
    """The distinct queries of a log."""

    distinct: NDArray[np.float32]
    """[n_distinct, dim], in the order of their first occurrence."""
    first: NDArray[np.int64]
    """Position of each one's first occurrence, ascending [n_distinct]."""
    counts: NDArray[np.int64]
    """Number of occurrences of each [n_distinct]."""
    order: NDArray[np.int64]
    """A random order of the distinct queries [n_distinct]."""

    @classmethod
    def of(cls, queries: NDArray[np.float32], seed: int) -> "QueryLog":
        """Find the repeats among queries [n, dim]."""
        repeats = Duplicates.of(queries)
        first, counts = repeats.first, np.bincount(repeats.owners)
        order = np.random.default_rng(seed).permutation(len(first))
        return cls(queries[first], first, counts, order)


def n_validation_of(n_distinct: int, at_most: int) -> int:
    """Number of distinct queries to hold out: a tenth, or up to a third of a short log."""
    return max(1, min(at_most, max(n_distinct // 10, min(MIN_VALIDATION, n_distinct // 3))))


def answer_radius(
    queries: NDArray[np.float32], distances: NDArray[np.float32], metric: Metric
) -> NDArray[np.float64]:
    """About how far a query can be moved, in l2, before its answers change.

    That is the distance to the second nearest vector: the nearest may be the query itself. By inner
    product answers depend on the direction, and it is the query's length.

    Args:
        queries: of unit length under cosine [n, dim].
        distances: to their true neighbours, nearest first [n, at least 1].
        metric: l2, ip or cosine.
    """
    if metric == "ip":
        lengths: NDArray[np.float64] = np.linalg.norm(queries.astype(np.float64), axis=1)
        return lengths
    second = distances[:, min(1, distances.shape[1] - 1)].astype(np.float64)
    radii: NDArray[np.float64] = np.sqrt(
        np.maximum(second, 0) * (2.0 if metric == "cosine" else 1.0)
    )
    return radii


def hold_out(
    queries: NDArray[np.float32],
    candidates: NDArray[np.int64],
    radii: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Choose validation queries, and exclude their near-duplicates from training.

    A candidate that is a near-duplicate of a chosen one is not chosen. If more than a third of all
    queries are near-duplicates of a candidate, they are not held out with it: queries to come will
    have them too. As soon as two are chosen and a third of the queries held out, no more are
    chosen: a log of few queries, each with many near-duplicates, has to leave some for training.

    Args:
        queries: distinct queries [n, dim].
        candidates: positions of candidates for validation, in the order in which they are chosen.
        radii: distance within which another query is a near-duplicate of a candidate
            [n_candidates].

    Returns:
        Chosen positions, ascending, and which queries are held out, the chosen included [n].
    """
    centred = queries - queries.mean(axis=0, dtype=np.float64).astype(np.float32)
    squares = np.einsum("nd,nd->n", centred, centred)  # [n]
    # Within rounding counts as near, but with a radius of 0 no other query is near.
    limits = np.where(radii > 0, radii**2 - (1 - _ROUNDING) * squares[candidates], -np.inf)
    held_out = np.zeros(len(queries), dtype=bool)
    chosen: list[int] = []
    step = max(1, _MAX_PAIRS // len(queries))
    for begin in range(0, len(candidates), step):
        block = slice(begin, begin + step)
        scores = centred[candidates[block]] @ (-2 * centred.T)  # [block, n]
        scores += (1 - _ROUNDING) * squares
        is_near = scores <= limits[block, None]
        for position, near in zip(candidates[block].tolist(), is_near, strict=True):
            if held_out[position]:
                continue
            if len(chosen) >= MIN_CHOSEN and held_out.sum() >= MAX_HELD_OUT * len(queries):
                return np.sort(np.array(chosen, dtype=np.int64)), held_out
            chosen.append(position)
            held_out[position] = True
            if near.sum() <= MAX_HELD_OUT * len(queries):
                held_out |= near
    return np.sort(np.array(chosen, dtype=np.int64)), held_out
