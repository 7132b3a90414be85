import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from l2route.data.metrics import (
    TOLERANCE,
    RecallSpread,
    first_hops,
    one_recall_at,
    paired_p_value,
    recall_at,
    recall_per_query,
    standard_error,
    success_by_hops,
)

Floats = NDArray[np.float32]
Answers = tuple[Floats, Floats]
Trace = tuple[list[list[tuple[int, int]]], list[int]]

unhurried = settings(deadline=None)  # a busy machine is not a failure


@st.composite
def answers(draw: st.DrawFn) -> Answers:
    """Found and true distances [n, m + 1] of a search among m vectors; inf at the end.

    The distances are small whole numbers, so many are equal and no two nearly equal.
    """
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    distances = draw(arrays(np.float32, (n, m), elements=st.integers(-4, 6).map(float)))
    n_found = draw(st.integers(0, m))
    found = np.full((n, m + 1), np.inf, np.float32)
    found[:, :n_found] = distances[:, draw(st.permutations(range(m)))[:n_found]]
    truth = np.full((n, m + 1), np.inf, np.float32)
    truth[:, :m] = np.sort(distances, axis=1)
    return found, truth


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Visited (vertex, hop) pairs for each query, and the query's target."""
    visit = st.tuples(st.integers(0, 6), st.integers(0, 7))
    walks = draw(st.lists(st.lists(visit, max_size=8), min_size=1, max_size=6))
    targets = draw(st.lists(st.integers(0, 6), min_size=len(walks), max_size=len(walks)))
    return walks, targets


def as_csr(walks: list[list[tuple[int, int]]]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Offsets, vertices and hops as arrays of unsigned integers."""
    offsets = np.cumsum([0, *map(len, walks)]).astype(np.uint64)
    visits = np.array([visit for walk in walks for visit in walk], np.uint32).reshape(-1, 2)
    return offsets, visits[:, 0], visits[:, 1]


def slow_one_recall(found: Floats, truth: Floats, r: int) -> float:
    """1-recall@R of whole-number distances, by a loop."""
    n_right = 0
    for answer, neighbours in zip(found.tolist(), truth.tolist(), strict=True):
        n_right += any(distance <= min(neighbours) for distance in answer[:r])
    return n_right / len(found)


def slow_recall(found: Floats, truth: Floats, k: int) -> float:
    """Recall@k of whole-number distances, by a loop."""
    shares: list[float] = []
    for answer, neighbours in zip(found.tolist(), truth.tolist(), strict=True):
        existing = [distance for distance in sorted(neighbours)[:k] if distance < np.inf]
        n_right = sum(distance <= existing[-1] for distance in answer[:k])
        shares.append(n_right / len(existing))
    return sum(shares) / len(shares)


def slow_success(
    walks: list[list[tuple[int, int]]], targets: list[int], max_hops: int
) -> list[float]:
    """Success for each number of hops, by a loop."""
    shares = []
    for limit in range(max_hops + 1):
        n_reached = 0
        for walk, target in zip(walks, targets, strict=True):
            n_reached += any(vertex == target and hop <= limit for vertex, hop in walk)
        shares.append(n_reached / len(walks))
    return shares


@unhurried
@given(answers())
def test_recalls_agree_with_their_slow_twins(case: Answers) -> None:
    """Both recalls equal a count in a loop over the queries, also for k beyond the base."""
    found, truth = case
    for depth in range(1, found.shape[1] + 1):
        for fast, slow in ((recall_at, slow_recall), (one_recall_at, slow_one_recall)):
            assert fast(found, truth, depth) == pytest.approx(slow(found, truth, depth))


@unhurried
@given(answers())
def test_recall_at_1_is_one_recall_at_1(case: Answers) -> None:
    """recall@1 and 1-recall@1 are equal."""
    assert recall_at(*case, 1) == one_recall_at(*case, 1)


@unhurried
@given(answers())
def test_recall_is_a_share_that_grows_with_r(case: Answers) -> None:
    """Recall lies in [0, 1], and 1-recall@R never falls as R grows."""
    found, truth = case
    depths = range(1, found.shape[1] + 1)
    recalls = [one_recall_at(found, truth, r) for r in depths]
    assert recalls == sorted(recalls)
    assert all(0 <= recall <= 1 for recall in recalls)
    assert all(0 <= recall_at(found, truth, k) <= 1 for k in depths)


@unhurried
@given(answers())
def test_exact_answers_have_recall_one(case: Answers) -> None:
    """True neighbours as answers have recall 1 at every k."""
    _, truth = case
    for depth in range(1, truth.shape[1] + 1):
        assert recall_at(truth, truth, depth) == 1.0
        assert one_recall_at(truth, truth, depth) == 1.0


@unhurried
@given(answers(), st.randoms(use_true_random=False))
def test_order_of_queries_does_not_matter(case: Answers, random: Any) -> None:
    """Permuting the queries permutes their recalls and keeps the mean."""
    found, truth = case
    order = list(range(len(found)))
    random.shuffle(order)
    np.testing.assert_array_equal(
        recall_per_query(found[order], truth[order], 2), recall_per_query(found, truth, 2)[order]
    )
    assert one_recall_at(found[order], truth[order], 2) == one_recall_at(found, truth, 2)


@unhurried
@given(answers())
def test_order_of_the_truth_does_not_matter(case: Answers) -> None:
    """True distances may be in any order."""
    found, truth = case
    assert one_recall_at(found, truth[:, ::-1], 2) == one_recall_at(found, truth, 2)
    assert recall_at(found, truth[:, ::-1], 2) == recall_at(found, truth, 2)


def test_either_of_two_equally_near_vertices_is_right() -> None:
    """An answer as near as the k-th true neighbour counts, whichever vertex it is."""
    truth = np.array([[1.0, 2.0, 2.0, 2.0]])
    assert recall_at(np.array([[1.0, 2.0]]), truth, 2) == 1.0
    assert one_recall_at(np.array([[2.0, 2.0]]), truth, 2) == 0.0


@pytest.mark.parametrize("scale", [1e-8, 1.0, -1.0, 1e8])
def test_rounding_is_forgiven_at_any_scale(scale: float) -> None:
    """A distance off by float32 rounding counts, one off by more does not, at any scale."""
    truth = scale * np.array([[3.0], [5.0]])
    assert recall_at(truth + 0.5 * TOLERANCE * abs(scale), truth, 1) == 1.0
    assert recall_at(truth + 20 * TOLERANCE * abs(scale), truth, 1) == 0.0


def test_rounding_is_forgiven_around_zero() -> None:
    """A base vector as a query may be found at a distance that is 0 up to rounding."""
    truth = np.array([[0.0, 4.0], [3.0, 4.0]])
    assert recall_at(np.array([[1e-6], [3.0]]), truth, 1) == 1.0


def test_missing_answers_never_count() -> None:
    """An answer at distance inf never counts, even where the true distance is inf."""
    found = np.full((2, 3), np.inf)
    truth = np.array([[1.0, np.inf, np.inf], [1.0, 2.0, np.inf]])
    assert recall_at(found, truth, 3) == 0.0
    assert one_recall_at(found, truth, 3) == 0.0


def test_small_base_is_measured_by_what_it_has() -> None:
    """In a base of two vectors, one vector found for k = 10 is a recall of one half."""
    found, truth = np.full((1, 10), np.inf), np.full((1, 10), np.inf)
    truth[0, :2] = [1.0, 2.0]
    found[0, 0] = 2.0
    assert recall_at(found, truth, 10) == 0.5


def test_repeated_answers_do_not_pass_one() -> None:
    """Repeated answers never raise the recall of a query above 1."""
    truth = np.array([[1.0, np.inf, np.inf]])
    np.testing.assert_array_equal(recall_per_query(np.ones((1, 3)), truth, 3), [1.0])


@pytest.mark.parametrize("measure", [one_recall_at, recall_at])
@pytest.mark.parametrize(
    ("found", "truth", "depth", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 3)), 0, "expected [rk] >= 1, got 0"),
        (np.ones((2, 3)), np.ones((2, 9)), 4, r"found_distances \[n >= 1, >= 4\], got \[2, 3\]"),
        (np.ones(3), np.ones((3, 1)), 1, r"found_distances \[n >= 1, >= 1\], got \[3\]"),
        (np.ones((0, 3)), np.ones((0, 3)), 1, r"found_distances \[n >= 1, >= 1\], got \[0, 3\]"),
        (np.ones((2, 3)), np.ones((2, 0)), 1, r"true_distances \[n >= 1, >= 1\], got \[2, 0\]"),
        (np.ones((2, 3)), np.ones((1, 3)), 1, r"got \[2, 3\] and \[1, 3\]"),
        (np.full((1, 2), np.nan), np.ones((1, 2)), 1, "found_distances without NaN or -inf, got 2"),
        (np.full((1, 2), -np.inf), np.ones((1, 2)), 1, "without NaN or -inf, got 2"),
        (np.ones((1, 2)), np.full((1, 2), np.nan), 1, "true_distances without NaN or -inf, got 2"),
        (np.ones((1, 2)), np.full((1, 2), np.inf), 1, "nearest distance for each query, got 1"),
    ],
)
def test_bad_distances_are_refused(
    measure: Callable[..., float],
    found: NDArray[Any],
    truth: NDArray[Any],
    depth: int,
    message: str,
) -> None:
    """Distances of a wrong shape or value are refused with what was expected and found."""
    with pytest.raises(ValueError, match=message):
        measure(found, truth, depth)


def test_truth_must_be_deep_enough() -> None:
    """For recall@k fewer than k true distances per query are refused."""
    with pytest.raises(ValueError, match=r"true_distances \[n >= 1, >= 3\], got \[1, 2\]"):
        recall_at(np.ones((1, 3)), np.ones((1, 2)), 3)


def test_standard_error_is_that_of_a_mean() -> None:
    """For booleans with mean p it is sqrt(p (1 - p) / (n - 1)); for equal values it is 0."""
    right = np.array([True, False, False, True, True])
    assert standard_error(right) == pytest.approx(np.sqrt(0.6 * 0.4 / 4))
    assert standard_error(np.ones(7)) == 0.0


def test_standard_error_needs_two_values() -> None:
    """One value is refused."""
    with pytest.raises(ValueError, match=r"expected values \[n >= 2\], got \[1\]"):
        standard_error(np.ones(1))


@unhurried
@given(traces(), st.integers(0, 9))
def test_success_agrees_with_its_slow_twin(case: Trace, max_hops: int) -> None:
    """Success by hops equals a count in a loop over queries and hops."""
    walks, targets = case
    fast = success_by_hops(first_hops(*as_csr(walks), np.array(targets)), max_hops)
    np.testing.assert_allclose(fast, slow_success(walks, targets, max_hops))


@unhurried
@given(traces(), st.integers(0, 9))
def test_success_is_a_share_that_never_falls(case: Trace, max_hops: int) -> None:
    """Success never falls with hops, and has max_hops + 1 values in [0, 1]."""
    walks, targets = case
    curve = success_by_hops(first_hops(*as_csr(walks), np.array(targets)), max_hops)
    assert curve.shape == (max_hops + 1,)
    assert (np.diff(curve) >= 0).all()
    assert ((curve >= 0) & (curve <= 1)).all()


def test_success_by_hand() -> None:
    """Success counts a target from the hop in which it is first visited."""
    trace = as_csr([[(5, 0)], [(5, 0), (1, 1), (2, 2)], [(5, 0), (3, 1)]])
    first = first_hops(*trace, np.array([5, 2, 9]))
    np.testing.assert_array_equal(first, [0, 2, -1])
    np.testing.assert_allclose(success_by_hops(first, 3), [1 / 3, 1 / 3, 2 / 3, 2 / 3])


def test_success_needs_a_query_and_a_hop() -> None:
    """No queries, or a negative number of hops, are refused."""
    with pytest.raises(ValueError, match="expected max_hops >= 0, got -1"):
        success_by_hops(np.zeros(1, int), -1)
    with pytest.raises(ValueError, match=r"expected first \[n >= 1\], got \[0\]"):
        success_by_hops(np.zeros(0, int), 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": np.array([0, 3])}, r"expected offsets \[3\], got \[2\]"),
        ({"offsets": np.array([0, 1, 2])}, "expected offsets rising from 0 to 3, got from 0 to 2"),
        ({"offsets": np.array([1, 1, 3])}, "expected offsets rising from 0 to 3, got from 1 to 3"),
        ({"offsets": np.array([0, 4, 3])}, "got from 0 to 3 with a decrease between"),
        ({"hops": np.zeros(2, int)}, r"expected hops \[3\], got \[2\]"),
        ({"hops": np.array([0, -1, 0])}, "expected hops >= 0, got -1"),
        ({"vertices": np.zeros((3, 1), int)}, r"expected vertices \[n\], got \[3, 1\]"),
        ({"targets": np.array([0.0, 1.0])}, "expected targets of an integer type, got float64"),
        ({"targets": np.array([0, -1])}, "expected targets >= 0, got -1"),
        ({"targets": np.zeros(0, int)}, r"expected targets \[n >= 1\], got \[0\]"),
    ],
)
def test_bad_traces_are_refused(change: dict[str, Any], message: str) -> None:
    """A trace with inconsistent arrays is refused with what was expected and found."""
    trace: dict[str, Any] = {
        "offsets": np.array([0, 1, 3]),
        "vertices": np.array([4, 4, 2]),
        "hops": np.array([0, 0, 1]),
        "targets": np.array([4, 2]),
    }
    with pytest.raises(ValueError, match=message):
        first_hops(**{**trace, **change})


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_a_p_value_counts_the_signs_that_do_as_well(gains: list[int]) -> None:
    """The p-value agrees with all combinations of signs, up to the error of 10,000 draws."""
    sample = np.array(gains, dtype=float) / 4
    signs = np.array(list(itertools.product((-1, 1), repeat=len(sample))))
    expected = ((signs * sample).sum(axis=1) >= sample.sum() - 1e-9).mean()
    assert paired_p_value(sample) == pytest.approx(expected, abs=0.025)


def test_p_values_of_nothing_and_of_much() -> None:
    """The p-value is 1 without a difference, and 1 in 10,000 for many gains."""
    assert paired_p_value(np.zeros(100)) == 1
    assert paired_p_value(np.zeros(0)) == 1
    assert paired_p_value(np.ones(5000)) == pytest.approx(1e-4)
    assert paired_p_value(-np.ones(50)) == 1
    assert paired_p_value(np.ones(3)) == pytest.approx(1 / 8, abs=0.02)
    with pytest.raises(ValueError, match="expected finite gains"):
        paired_p_value(np.array([np.nan]))


@given(st.lists(st.sampled_from([i / 10 for i in range(11)]), min_size=1, max_size=99))
def test_a_spread_is_that_of_sorted_recalls(recalls: list[float]) -> None:
    """The worst are the first twentieth of the sorted recalls; low ones are below 0.8."""
    spread = RecallSpread.of(np.array(recalls))
    n_worst = max(1, round(len(recalls) / 20))
    assert spread.mean == pytest.approx(np.mean(recalls))
    assert spread.worst == pytest.approx(np.mean(sorted(recalls)[:n_worst]))
    assert spread.share_low == pytest.approx(np.mean([each in (0, *LOW) for each in recalls]))


LOW = tuple(i / 10 for i in range(1, 8))


def test_a_spread_of_nothing_is_refused() -> None:
    """There is no spread without recalls."""
    with pytest.raises(ValueError, match=r"recalls \[n >= 1\]"):
        RecallSpread.of(np.zeros(0))
