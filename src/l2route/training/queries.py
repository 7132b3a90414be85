"""A query log, cut so that no query is validated that was learned from, not even nearly.

Logs repeat themselves: a few queries are most of the log. Repeats are found before the log is cut,
and so are near-duplicates, whose answers are the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric
from l2route.graph.duplicates import Duplicates

MIN_VALIDATION = 400
"""Validation queries that a short log is cut for, though never more than a third of it."""
MAX_HELD_OUT = 1 / 3
"""Share of the log that validation queries and their near-duplicates may take."""
_MAX_PAIRS = 1 << 24  # pairs of queries whose distances are held at once
_ROUNDING = np.float32(1e-6)  # of squared lengths in float32


@dataclass(frozen=True, slots=True)
class QueryLog:
    """The distinct queries of a log."""

    distinct: NDArray[np.float32]
    """[n_distinct, dim], in the order in which they are first asked."""
    first: NDArray[np.int64]
    """Where each is first asked, ascending [n_distinct]."""
    counts: NDArray[np.int64]
    """How often each is asked [n_distinct]."""
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
    """How many of so many distinct queries validate: a tenth, or what a short log can spare."""
    return max(1, min(at_most, max(n_distinct // 10, min(MIN_VALIDATION, n_distinct // 3))))


def answer_radius(
    queries: NDArray[np.float32], distances: NDArray[np.float32], metric: Metric
) -> NDArray[np.float64]:
    """How far a query can be moved, in l2, before its answers are others; to the order of it.

    That is the distance of the second nearest vector: the nearest may be the query itself. By inner
    product, answers change with the direction: the query's length.

    Args:
        queries: as the metric sees them, of unit length under cosine [n, dim].
        distances: of their true neighbours, nearest first [n, at least 1].
        metric: how they are measured.
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
    """Choose validation queries, and which queries may not be learned from because of them.

    A candidate near to one chosen before it is not chosen. No more are chosen once a third of the
    queries are held out: a log of few queries, each in many spellings, has to be learned from too.

    Args:
        queries: distinct queries [n, dim].
        candidates: positions of those that may validate, in the order in which they are chosen.
        radii: distance within which another query counts as a candidate's near-duplicate
            [n_candidates].

    Returns:
        Positions chosen, ascending, and what is held out, those included [n].
    """
    centred = queries - queries.mean(axis=0, dtype=np.float64).astype(np.float32)
    squares = np.einsum("nd,nd->n", centred, centred)  # [n]
    # What is lost to rounding counts as near, except for a radius of 0: nobody else is near then.
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
            if chosen and held_out.sum() >= MAX_HELD_OUT * len(queries):
                return np.sort(np.array(chosen, dtype=np.int64)), held_out
            chosen.append(position)
            held_out |= near
            held_out[position] = True
    return np.sort(np.array(chosen, dtype=np.int64)), held_out
