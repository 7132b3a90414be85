"""Laws of `where` and of filters: every kind of them, on every kind of index."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from indexes import DIM, INDEXES, QUERIES, N, built, labelled
from l2route.index import RoutingIndex
from l2route.search.filter import Filter

Mask = NDArray[np.bool_]


def ids_of(index: RoutingIndex) -> NDArray[np.int64]:
    """Ids by row number."""
    return np.arange(len(index)) if index.labels is None else index.labels


def nearest(index: RoutingIndex, passes: Mask, k: int) -> NDArray[np.float32]:
    """Distances of the k nearest rows that pass, by brute force; inf beyond them."""
    every = np.broadcast_to(np.arange(N), (len(QUERIES), N))
    distances = np.where(passes, index.base.exact_distances(QUERIES, every), np.inf)
    return np.sort(distances, axis=1)[:, :k]


@pytest.mark.parametrize("kind", INDEXES)
@pytest.mark.parametrize("share", [0.0, 0.004, 0.1, 0.5, 0.9, 1.0])
def test_exhaustive_search_equals_brute_force(kind: str, share: float) -> None:
    """With the widest beam, answers are the nearest that pass, in every space of every index."""
    index = INDEXES[kind]()
    passes = np.random.default_rng(int(share * 1000)).random(N) < share
    for space in index.spaces:
        found = index.search(QUERIES, 7, ef=N, space=space.name, where=passes)
        np.testing.assert_allclose(found.distances, nearest(index, passes, 7), rtol=1e-4, atol=1e-5)
        answered = found.ids[found.ids != -1]
        assert np.isin(answered, ids_of(index)[passes]).all()


def test_masks_ids_and_filters_are_the_same() -> None:
    """A boolean array, the ids of its rows and filters of both give the same answers."""
    index = labelled()
    passes = np.random.default_rng(1).random(N) < 0.3
    ids = ids_of(index)[passes]
    wanted = index.search(QUERIES, 5, ef=30, where=passes).ids.tolist()
    for where in (ids, ids.tolist(), ids[::-1], index.filter(passes), index.filter(ids)):
        assert index.search(QUERIES, 5, ef=30, where=where).ids.tolist() == wanted
    plan = index.plan(5, ef=30, where=index.filter(ids))
    assert plan(QUERIES).ids.tolist() == wanted


def test_masks_of_an_index_that_has_lived() -> None:
    """A boolean array is over the ids as they are, after vectors were added and deleted."""
    index = labelled()
    index.add(QUERIES)
    index.delete(index.ids[::3])
    passes = np.random.default_rng(2).random(len(index)) < 0.3
    found = index.search(QUERIES, len(index), ef=2 * N, where=passes).ids
    assert all(set(row) - {-1} == set(index.ids[passes].tolist()) for row in found.tolist())
    with pytest.raises(ValueError, match=rf"expected a boolean array \[{len(index)}\], got \[1\]"):
        index.search(QUERIES, where=[True])
    none = RoutingIndex.empty(DIM).search(QUERIES, where=np.zeros(0, dtype=bool))
    assert (none.ids == -1).all()


@given(seed=st.integers(0, 2**32 - 1), steps=st.lists(st.sampled_from("&|~"), max_size=6))
def test_combined_filters_are_numpy_s(seed: int, steps: list[str]) -> None:
    """`&`, `|` and `~` of filters are those of boolean arrays."""
    rng = np.random.default_rng(seed)
    index, state = LABELLED, LABELLED._current.state
    passes = rng.random(N) < rng.random()
    combined = index.filter(passes)
    for step in steps:
        other = rng.random(N) < rng.random()
        if step == "&":
            passes, combined = passes & other, combined & index.filter(other)
        elif step == "|":
            passes, combined = passes | other, index.filter(other) | combined
        else:
            passes, combined = ~passes, ~combined
    bits = np.unpackbits(combined.words(state).view(np.uint8), bitorder="little")[:N]
    assert bits.astype(bool).tolist() == passes.tolist()
    assert combined.count(state) == passes.sum()


LABELLED = labelled()


def test_filters_follow_changes() -> None:
    """A filter made before rows are renumbered or refined passes the same ids after."""
    index = built()
    passes = np.random.default_rng(2).random(N) < 0.2
    kept = index.filter(passes)
    without = ~kept
    before = [index.search(QUERIES, 5, ef=N, where=each).ids.tolist() for each in (kept, without)]
    index.renumber()
    index.refine()
    assert index.labels is not None
    assert (index.labels != np.arange(N)).any()
    for each, wanted in zip((kept, without), before, strict=True):
        assert index.search(QUERIES, 5, ef=N, where=each).ids.tolist() == wanted


@given(seed=st.integers(0, 2**32 - 1), steps=st.lists(st.sampled_from("adurg"), max_size=12))
def test_filters_follow_a_living_index(seed: int, steps: list[str]) -> None:
    """Filters that were used before changes pass the same ids after, in whatever slots they are."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(60, 3)).astype(np.float32)
    index = RoutingIndex.build(vectors, degree=6, ef_construction=20)
    first, second = (rng.choice(60, 25, replace=False) for _ in range(2))
    a, b = index.filter(first), index.filter(second)
    both = {"a": a, "a & b": a & b, "a | b": a | b, "~a": ~a, "b & ~a": b & ~a}
    gone = list[int]()
    for step in steps:
        if step == "a":
            index.add(rng.normal(size=(rng.integers(1, 4), 3)))
        elif step == "g":
            index.add(rng.normal(size=(100, 3)))
        elif step == "r" and gone:
            index.add(rng.normal(size=(1, 3)), [gone.pop()])
        elif step == "u":
            index.update([int(rng.choice(index.ids))], rng.normal(size=(1, 3)))
        elif step == "d" and len(index) > 5:
            gone.append(int(rng.choice(index.ids)))
            index.delete([gone[-1]])
        ids = index.ids
        in_a, in_b = np.isin(ids, first), np.isin(ids, second)
        wanted = [in_a, in_a & in_b, in_a | in_b, ~in_a, in_b & ~in_a]
        for (name, each), passing in zip(both.items(), wanted, strict=True):
            found = index.search(vectors[0], len(ids), ef=len(ids), where=each).ids
            assert sorted(found[found >= 0].tolist()) == sorted(ids[passing].tolist()), name
            assert each.count(index._current.state) == passing.sum()


def test_masks_of_a_living_index_are_over_its_ids() -> None:
    """A boolean array is over `ids`, also after vectors were added, deleted and replaced."""
    rng = np.random.default_rng(6)
    index = RoutingIndex.build(rng.normal(size=(80, 3)), degree=6, ef_construction=20)
    index.add(rng.normal(size=(50, 3)))
    index.delete(np.arange(10, 40))
    index.update([3, 90], rng.normal(size=(2, 3)))
    index.add(rng.normal(size=(7, 3)))
    mask = rng.random(len(index)) < 0.4
    found = index.search(np.zeros(3), len(index), ef=len(index), where=mask).ids[0]
    assert sorted(found[found >= 0].tolist()) == sorted(index.ids[mask].tolist())
    with pytest.raises(ValueError, match=r"expected a boolean array \[107\], got \[108\]"):
        index.search(np.zeros(3), 5, where=np.ones(108, dtype=bool))


def test_filters_of_each_query() -> None:
    """A list of filters, masks and ids has one for each query."""
    index = LABELLED
    masks = np.random.default_rng(3).random((3, N)) < 0.2
    where: list[Any] = [masks[0], index.filter(masks[1]), ids_of(index)[masks[2]]]
    found = index.search(QUERIES[:3], 5, ef=30, where=where)
    for i in range(3):
        alone = index.search(QUERIES[i], 5, ef=30, where=masks[i])
        assert found.ids[i].tolist() == alone.ids[0].tolist()


def test_filters_are_shared_by_threads() -> None:
    """Threads that use one filter while the index changes all get answers that pass."""
    index = built()
    passes = np.random.default_rng(4).random(N) < 0.4
    shared = ~index.filter(~passes)
    wanted = index.search(QUERIES, 5, ef=N, where=shared).ids.tolist()

    def search(_: int) -> bool:
        return index.search(QUERIES, 5, ef=N, where=shared, n_threads=1).ids.tolist() == wanted

    with ThreadPoolExecutor(4) as pool:
        same = pool.map(search, range(40))
        for _ in range(5):
            index.renumber()
        assert all(same)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (np.ones(7, dtype=bool), rf"expected a boolean array \[{N}\], got \[7\]"),
        (np.ones((2, N), dtype=bool), rf"or an array of ids, got shape \[2, {N}\]"),
        (np.ones(N), "expected a filter of booleans or integer ids, got dtype float64"),
        ([3, N], f"expected ids of the index, got {N}"),
        ([-1], "expected ids of the index, got -1"),
        (np.array([2**63], dtype=np.uint64), f"expected ids of the index, got {2**63}"),
        ("even", r"a boolean array over rows or an array of ids, got shape \[\]"),
        ([[1], [2]], r"expected one filter or 40, one per query, got 2"),
    ],
)
def test_wrong_filters_are_refused(where: object, message: str) -> None:
    """Arrays of a wrong length or type, unknown ids and a wrong number of filters are refused."""
    with pytest.raises(ValueError, match=message):
        built().search(QUERIES, where=where)


def test_filters_combine_with_filters_only() -> None:
    """A filter and an array are not combined silently."""
    passes: Any = [True] * N
    some: Filter = LABELLED.filter(passes)
    for combine in (lambda: some & passes, lambda: some | passes):
        with pytest.raises(TypeError, match="unsupported operand"):
            combine()


def test_nothing_passes_an_empty_filter() -> None:
    """Where nobody passes, answers are −1 at infinity; more than all are those that pass."""
    index = LABELLED
    nobody = index.search(QUERIES, 3, where=[])
    assert (nobody.ids == -1).all()
    assert np.isinf(nobody.distances).all()
    all_of_them = index.search(QUERIES, N + 5, ef=N, where=~index.filter([]))
    assert ((all_of_them.ids != -1).sum(axis=1) == N).all()
