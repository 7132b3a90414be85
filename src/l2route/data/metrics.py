"""Recall and success of a search, computed from its raw answers and traces.

Smaller distances are nearer (inner products are negated), and a missing answer has the distance
inf. Answers are judged by distance, not by id: of two vertices at the same distance either is
right.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.floating[Any]]
IntArray: TypeAlias = NDArray[np.integer[Any]]

N_ANSWERS = 10
"""Answers per query for which recall is reported: recall@10."""
WORST_SHARE = 0.05
"""Share of queries that count as the worst."""
LOW_RECALL = 0.8
"""Recall@k of a query below which it counts as low."""
TOLERANCE = 1e-5
"""Relative excess of a found distance over the true one up to which they count as equal.

The same float32 distance summed in another order, by another SIMD width or by BLAS, differs by
up to (terms per lane) * 2**-24: 4e-6 for 1,000 dimensions in 16 lanes. The excess is relative to
the true distance plus the median true distance: where terms cancel (an inner product near 0, a
query that is itself in the base) the error follows the size of the vectors, and an absolute
tolerance would be wrong for data of another scale.
"""

_N_SIGNS = 9_999  # draws of signs: p-values down to 1 in 10,000
_MAX_SIGNS = 1 << 22  # signs in memory at once


def recall_at(found_distances: FloatArray, true_distances: FloatArray, k: int) -> float:
    """Share of the k true nearest neighbours among the first k answers: recall@k.

    This is the recall of ann-benchmarks; ties by distance count as found.

    Returns:
        The mean of `recall_per_query`, which has the same arguments; in [0, 1].
    """
    return float(recall_per_query(found_distances, true_distances, k).mean())


def recall_per_query(
    found_distances: FloatArray, true_distances: FloatArray, k: int
) -> NDArray[np.float64]:
    """Share of the first k answers no farther than the k-th true neighbour, for each query.

    Where the base has fewer than k vectors, their number takes the place of k.

    Args:
        found_distances: Distances of the answers in the order given, [n_queries, >= k].
        true_distances: Distances of the true neighbours, [n_queries, >= k]; inf where the base
            has fewer than k vectors.
        k: Number of answers counted.

    Returns:
        One share per query, [n_queries].
    """
    found, truth = _checked(found_distances, true_distances, ("k", k), n_true=k)
    n_exist = np.isfinite(truth[:, :k]).sum(axis=1)  # [n_queries], at least 1
    farthest = np.take_along_axis(truth, n_exist[:, None] - 1, axis=1)[:, 0]  # [n_queries]
    n_right = as_near_as(found[:, :k], farthest, truth).sum(axis=1)
    # Only repeated answers could make this more than 1; they must not lift the mean.
    shares: NDArray[np.float64] = np.minimum(n_right / n_exist, 1.0)
    return shares


@dataclass(frozen=True, slots=True)
class RecallSpread:
    """How recall@k is spread over queries."""

    mean: float
    """Mean of all queries."""
    worst: float
    """Mean of the 5% of queries, at least one, whose recall is lowest."""
    share_low: float
    """Share of queries whose recall is below 0.8."""

    @classmethod
    def of(cls, recalls: NDArray[np.float64]) -> "RecallSpread":
        """Summarise the recall of each query, as `recall_per_query` gives it [n >= 1]."""
        if recalls.ndim != 1 or not len(recalls):
            raise ValueError(f"expected recalls [n >= 1], got {_shape(recalls)}")
        n_worst = max(1, round(WORST_SHARE * len(recalls)))
        worst = np.partition(recalls, n_worst - 1)[:n_worst]
        share_low = float((recalls < LOW_RECALL - 1e-9).mean())
        return cls(float(recalls.mean()), float(worst.mean()), share_low)


def one_recall_at(found_distances: FloatArray, true_distances: FloatArray, r: int) -> float:
    """Share of queries with their nearest neighbour among the first r answers: 1-recall@R.

    The paper calls it Recall@R. For r = 1 it is `recall_at`.

    Args:
        found_distances: Distances of the answers in the order given, [n_queries, >= r].
        true_distances: Distances of the true neighbours, [n_queries, >= 1].
        r: Number of answers counted.

    Returns:
        A number in [0, 1].
    """
    found, truth = _checked(found_distances, true_distances, ("r", r), n_true=1)
    right = as_near_as(found[:, :r], truth[:, 0], truth)  # [n_queries, r]
    return float(right.any(axis=1).mean())


def standard_error(values: NDArray[Any]) -> float:
    """Standard error of the mean of independent values, such as the recall of each query.

    Args:
        values: One number or boolean per query, [n >= 2].

    Returns:
        The sample's standard deviation divided by the square root of n.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) < 2:
        raise ValueError(f"expected values [n >= 2], got {_shape(sample)}")
    return float(sample.std(ddof=1) / np.sqrt(len(sample)))


def paired_p_value(gains: NDArray[Any], seed: int = 0) -> float:
    """P-value of the gain of one method over another, by a one-sided randomisation test.

    Under the null hypothesis neither method is better, and the gain on each query is equally
    likely to have the opposite sign.

    Args:
        gains: Gain of one method over the other on each query, [n].
        seed: Seed of the random signs.

    Returns:
        Share of random signs with a total gain at least as large, in (0, 1]; 1 if all gains
        are 0.
    """
    sample = np.asarray(gains, dtype=np.float64)
    if sample.ndim != 1 or not np.isfinite(sample).all():
        raise ValueError(f"expected finite gains [n], got {_shape(sample)}")
    nonzero = sample[sample != 0]
    rng = np.random.default_rng(seed)
    total = nonzero.sum()
    threshold = total * (1 - 1e-12) if total > 0 else total  # sums are rounded
    n_as_large = 0
    for n_drawn in _parts(_N_SIGNS, max(1, _MAX_SIGNS // max(1, len(nonzero)))):
        signs = rng.integers(0, 2, size=(n_drawn, len(nonzero)), dtype=np.int8) * 2 - 1
        n_as_large += int((signs @ nonzero >= threshold).sum())
    return (1 + n_as_large) / (1 + _N_SIGNS)


def _parts(total: int, largest: int) -> Iterator[int]:
    for begin in range(0, total, largest):
        yield min(largest, total - begin)


def success_by_hops(first: IntArray, max_hops: int) -> NDArray[np.float64]:
    """Share of queries whose target has been visited within h hops (the paper's Figure 4).

    Args:
        first: Hop in which each query visited its target, negative for never, as `first_hops`
            gives it, [n_queries >= 1].
        max_hops: The largest h.

    Returns:
        The share for h = 0, ..., max_hops; it never falls, [max_hops + 1].
    """
    if max_hops < 0:
        raise ValueError(f"expected max_hops >= 0, got {max_hops}")
    if len(first) < 1:
        raise ValueError("expected first [n >= 1], got [0]")
    n_reached = np.bincount(first[(first >= 0) & (first <= max_hops)], minlength=max_hops + 1)
    return np.cumsum(n_reached) / len(first)


def first_hops(
    offsets: IntArray, vertices: IntArray, hops: IntArray, targets: IntArray
) -> NDArray[np.int64]:
    """Hop in which each query visited its target, −1 for never.

    Args:
        offsets: Query q visited the vertices from offsets[q] up to offsets[q + 1],
            [n_queries + 1].
        vertices: Vertices of all queries in the order visited, [n_visited].
        hops: Hop in which each was visited, 0 for entry vertices, [n_visited].
        targets: Target vertex of each query, [n_queries].

    Returns:
        One hop per query, [n_queries].
    """
    bounds, visited, hop_of, wanted = _checked_trace(offsets, vertices, hops, targets)
    query_of = np.repeat(np.arange(len(wanted)), np.diff(bounds))  # [n_visited]
    hit = visited == wanted[query_of]  # [n_visited]
    never = np.iinfo(np.int64).max
    first = np.full(len(wanted), never)
    np.minimum.at(first, query_of[hit], hop_of[hit])
    return np.where(first == never, -1, first)


def as_near_as(
    found: NDArray[np.float64], limits: NDArray[np.float64], truth: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Mark the answers no farther than their query's limit, up to rounding.

    Args:
        found: Distances of answers, [n_queries, n_answers].
        limits: One distance per query, [n_queries]. It is finite, so a missing answer (distance
            inf) is never marked.
        truth: Distances of true neighbours, [n_queries, n_true]: the scale of rounding errors.

    Returns:
        A boolean per answer, [n_queries, n_answers].
    """
    typical = float(np.median(np.abs(truth[np.isfinite(truth)])))
    reach = limits + TOLERANCE * (np.abs(limits) + typical)
    return found <= reach[:, None]


def _checked(
    found_distances: FloatArray, true_distances: FloatArray, depth: tuple[str, int], n_true: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both as float64, the truth with ascending rows; refuse wrong shapes and values."""
    name, n_found = depth
    if n_found < 1:
        raise ValueError(f"expected {name} >= 1, got {n_found}")
    found = np.asarray(found_distances, dtype=np.float64)
    truth = np.asarray(true_distances, dtype=np.float64)
    _check_matrix("found_distances", found, n_found)
    _check_matrix("true_distances", truth, n_true)
    if len(found) != len(truth):
        raise ValueError(
            f"expected as many rows in found_distances as in true_distances, "
            f"got {_shape(found)} and {_shape(truth)}"
        )
    truth = np.sort(truth, axis=1)
    n_without = int((~np.isfinite(truth[:, 0])).sum())
    if n_without:
        raise ValueError(
            f"expected a finite true nearest distance for each query, "
            f"got {n_without} queries without one"
        )
    return found, truth


def _check_matrix(name: str, array: NDArray[np.float64], n_columns: int) -> None:
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < n_columns:
        raise ValueError(f"expected {name} [n >= 1, >= {n_columns}], got {_shape(array)}")
    n_bad = int((np.isnan(array) | np.isneginf(array)).sum())
    if n_bad:
        raise ValueError(f"expected {name} without NaN or -inf, got {n_bad} of them")


def _checked_trace(
    offsets: IntArray, vertices: IntArray, hops: IntArray, targets: IntArray
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the four arrays of a trace as int64; refuse those that do not fit together."""
    wanted = _natural("targets", targets)
    if len(wanted) < 1:
        raise ValueError("expected targets [n >= 1], got [0]")
    visited = _natural("vertices", vertices)
    hop_of = _natural("hops", hops, len(visited))
    bounds = _natural("offsets", offsets, len(wanted) + 1)
    if bounds[0] != 0 or bounds[-1] != len(visited) or (np.diff(bounds) < 0).any():
        raise ValueError(
            f"expected offsets rising from 0 to {len(visited)}, "
            f"got from {bounds[0]} to {bounds[-1]}"
            f"{' with a decrease between' if (np.diff(bounds) < 0).any() else ''}"
        )
    return bounds, visited, hop_of, wanted


def _natural(name: str, values: IntArray, length: int | None = None) -> NDArray[np.int64]:
    """Return a vector of integers >= 0 as int64: differences of unsigned offsets would wrap."""
    array = np.asarray(values)
    if array.ndim != 1 or (length is not None and len(array) != length):
        raise ValueError(
            f"expected {name} [{'n' if length is None else length}], got {_shape(array)}"
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"expected {name} of an integer type, got {array.dtype}")
    if array.size and array.min() < 0:
        raise ValueError(f"expected {name} >= 0, got {array.min()}")
    return array.astype(np.int64, copy=False)


def _shape(array: NDArray[Any]) -> str:
    return str(list(array.shape))
