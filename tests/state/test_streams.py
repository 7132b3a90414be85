"""Laws of streams and of searches within a radius: against brute force, on every kind of index."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from indexes import DIM, INDEXES, QUERIES, N, built, labelled
from l2route.index import RoutingIndex

LABELLED = labelled()


def distances_of(index: RoutingIndex) -> NDArray[np.float32]:
    """True distances of all rows to all queries."""
    every = np.broadcast_to(np.arange(N), (len(QUERIES), N))
    return index.base.exact_distances(QUERIES, every)


def ids_of(index: RoutingIndex) -> NDArray[np.int64]:
    """Ids by row number."""
    return np.arange(N) if index.labels is None else index.labels


@pytest.mark.parametrize("kind", INDEXES)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_streams_end_with_everything(kind: str, share: float) -> None:
    """A stream has every id that passes once, with its true distance, in sorted pages."""
    index = INDEXES[kind]()
    passes = np.random.default_rng(5).random(N) < share
    true = distances_of(index)[0]
    for space in index.spaces:
        pages = list(index.stream(QUERIES[0], page=7, space=space.name, where=passes))
        assert all(len(ids) == 7 for ids, _ in pages[:-1])
        assert all((np.diff(distances) >= 0).all() for _, distances in pages)
        found = np.concatenate([np.zeros(0, dtype=np.int64), *(ids for ids, _ in pages)])
        assert sorted(found.tolist()) == sorted(ids_of(index)[passes].tolist())
        got = np.concatenate([np.zeros(0), *(distances for _, distances in pages)])
        np.testing.assert_allclose(got, true[index.rows_of(found)], rtol=1e-4, atol=1e-5)


@given(seed=st.integers(0, 2**32 - 1), page=st.integers(1, 50), share=st.floats(0, 1))
def test_exhaustive_streams_are_sorted(seed: int, page: int, share: float) -> None:
    """With a beam as wide as the index, pages one after another are the exhaustive search."""
    rng = np.random.default_rng(seed)
    passes, query = rng.random(N) < share, rng.normal(size=DIM).astype(np.float32)
    pages = list(LABELLED.stream(query, page=page, where=passes, ef=N))
    n = int(passes.sum())
    assert sum(len(ids) for ids, _ in pages) == n
    if n:
        wanted = LABELLED.search(query, n, ef=N, where=passes)
        assert np.concatenate([ids for ids, _ in pages]).tolist() == wanted.ids[0].tolist()
        got = np.concatenate([distances for _, distances in pages])
        np.testing.assert_array_equal(got, wanted.distances[0])


def test_first_page_is_as_good_as_a_search() -> None:
    """The first page of a stream is no worse than a search with the same beam."""
    index = built()
    for query in QUERIES:
        _, distances = next(index.stream(query, page=10, ef=30))
        assert (distances <= index.search(query, 10, ef=30).distances[0]).all()


def test_streams_are_independent_of_changes() -> None:
    """A stream goes on over the index as it was, and after its end it stays at its end."""
    index = built()
    undisturbed = [ids.tolist() for ids, _ in index.stream(QUERIES[0], page=50)]
    stream = index.stream(QUERIES[0], page=50)
    got = [next(stream)[0].tolist()]
    index.renumber()
    got += [ids.tolist() for ids, _ in stream]
    assert got == undisturbed
    assert next(stream, None) is None


def test_threads_share_a_stream() -> None:
    """Threads that take pages of one stream get every id once."""
    stream = LABELLED.stream(QUERIES[0], page=3)

    def take(_: int) -> list[int]:
        return [int(each) for ids, _ in stream for each in ids]

    with ThreadPoolExecutor(4) as pool:
        found = [each for part in pool.map(take, range(4)) for each in part]
    assert sorted(found) == sorted(ids_of(LABELLED).tolist())


@pytest.mark.parametrize("kind", INDEXES)
@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_exhaustive_radius_equals_brute_force(kind: str, share: float) -> None:
    """With the widest beam, answers are all within the radius that pass, nearest first."""
    index = INDEXES[kind]()
    passes = np.random.default_rng(6).random(N) < share
    true = distances_of(index)
    radius = (np.quantile(true, 0.1) + np.nextafter(np.quantile(true, 0.1), np.inf)) / 2
    for space in index.spaces:
        found = index.search_radius(QUERIES, radius, ef=2 * N, space=space.name, where=passes)
        assert found.offsets[0] == 0
        assert found.offsets[-1] == len(found.ids) == len(found.distances)
        for i, distances in enumerate(true):
            ids, got = found.of(i)
            inside = passes & (distances <= radius)
            doubtful = np.abs(distances - radius) < 1e-4
            missing = np.setdiff1d(ids_of(index)[inside & ~doubtful], ids)
            assert len(missing) == 0
            assert (passes & (inside | doubtful))[index.rows_of(ids)].all()
            assert (np.diff(got) >= 0).all()
            np.testing.assert_allclose(got, distances[index.rows_of(ids)], rtol=1e-4, atol=1e-5)


def test_narrow_radius_search_is_nearly_complete() -> None:
    """With the default beam nearly all within the radius are found, and no distance exceeds it."""
    index = built(degree=16)
    true = distances_of(index)
    radii = np.quantile(true, 0.05, axis=1)
    found = index.search_radius(QUERIES, radii)
    n_inside = (true <= radii[:, None]).sum(axis=1)
    assert (np.diff(found.offsets) <= n_inside + 1).all()
    assert len(found.ids) >= 0.98 * n_inside.sum()  # 0.999 at seed 0
    assert (found.distances <= np.repeat(radii, np.diff(found.offsets)) * (1 + 1e-5)).all()


def test_nothing_is_within_a_small_radius() -> None:
    """Queries without answers have empty parts; no queries have no parts."""
    found = LABELLED.search_radius(QUERIES, -1.0)
    assert found.offsets.tolist() == [0] * (len(QUERIES) + 1)
    assert found.of(3)[0].tolist() == []
    assert LABELLED.search_radius(np.zeros((0, DIM)), 1.0).offsets.tolist() == [0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": [1.0, 2.0]}, r"expected a radius, or 40, one per query, got float64 \[2\]"),
        ({"radius": "far"}, "expected a radius, or 40, one per query, got"),
        ({"radius": np.nan}, "expected a radius, got NaN"),
        ({"radius": 1.0, "ef": 0}, "expected ef of at least 1, got 0"),
        ({"radius": 1.0, "n_threads": -1}, "expected n_threads of at least 0, got -1"),
        ({"radius": 1.0, "where": [[3], [13]]}, "expected one filter or 40, one per query, got 2"),
    ],
)
def test_wrong_radius_searches_are_refused(options: dict[str, Any], message: str) -> None:
    """Wrong radii, beams and filters are refused with what was given."""
    with pytest.raises(ValueError, match=message):
        LABELLED.search_radius(QUERIES, **options)


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        (QUERIES, {}, rf"expected one query \[{DIM}\], got 40"),
        (QUERIES[0, :5], {}, rf"expected queries \[\*, {DIM}\], got \[\*, 5\]"),
        (QUERIES[0], {"page": 0}, "expected a page of at least 1, got 0"),
        (QUERIES[0], {"where": [[3], [13]]}, "expected one filter, got 2"),
    ],
)
def test_wrong_streams_are_refused(query: Any, options: dict[str, Any], message: str) -> None:
    """Wrong queries, pages and filters are refused with what was given."""
    with pytest.raises(ValueError, match=message):
        LABELLED.stream(query, **options)
