"""Laws of the merge: nearest first, ties by id, no id twice, as by a plain sort."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route.cluster.merge import Answer, merge, nearest

PAIRS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), min_size=0, max_size=12)


def plain(pairs: list[tuple[int, int]], k: int) -> list[tuple[int, float]]:
    """The k nearest by a sort, each id once; padded."""
    best: dict[int, int] = {}
    for id_, distance in pairs:
        best[id_] = min(distance, best.get(id_, distance))
    ordered = sorted((distance, id_) for id_, distance in best.items())[:k]
    found = [(id_, float(distance)) for distance, id_ in ordered]
    return found + [(-1, np.inf)] * (k - len(found))


@given(PAIRS, st.integers(1, 6))
def test_nearest_is_a_plain_sort(pairs: list[tuple[int, int]], k: int) -> None:
    """The k nearest are those of a plain sort by distance, then id, without repeats."""
    padded = pairs + [(-1, 10**9)] * (k + 12 - len(pairs))
    ids = np.array([[id_ for id_, _ in padded]], dtype=np.int64)
    distances = np.array([[d if i != -1 else np.inf for i, d in padded]], dtype=np.float32)
    found_ids, found = nearest(ids, distances, k)
    assert list(zip(found_ids[0].tolist(), found[0].tolist(), strict=True)) == plain(pairs, k)


def answer(shard: int, queries: list[int], ids: list[list[int]], k: int = 2) -> Answer:
    """An answer of a shard whose distances are the ids."""
    found = np.array(ids, dtype=np.int64).reshape(len(queries), k)
    distances = np.where(found < 0, np.inf, found).astype(np.float32)
    n = len(queries)
    ones: NDArray[np.int32] = np.ones((4, n), dtype=np.int32)
    return Answer(shard, np.array(queries), found, distances, ones, np.full(n, 5.0))


def test_costs_and_shards_are_added_up() -> None:
    """Each query has the answers, counts and costs of the shards that it asked."""
    merged = merge(
        [answer(0, [0, 2], [[4, 9], [1, -1]]), answer(1, [0], [[3, 5]])],
        3,
        2,
        dim=8,
        router_cost=7.0,
    )
    assert merged.ids.tolist() == [[3, 4], [-1, -1], [1, -1]]
    assert merged.n_asked.tolist() == [2, 0, 1]
    assert merged.n_computed.tolist() == [17.0, 7.0, 12.0]
    assert merged.n_routing.tolist() == [2, 0, 1]
    assert merged.coverage == 1.0
    assert merged.missing == ()


def test_the_order_of_answers_does_not_matter() -> None:
    """Answers that come in another order give the same result."""
    answers = [answer(s, [0, 1], [[s, 9 - s], [s + 3, s + 4]]) for s in range(4)]
    first, second = merge(answers, 2, 2, 8), merge(answers[::-1], 2, 2, 8)
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.n_computed, second.n_computed)
