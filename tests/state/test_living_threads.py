"""A living index under several threads: one changes it, others search."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from l2route.index import RoutingIndex
from living import check_structure

DIM = 8
N = 120
N_ROUNDS = 25
RNG = np.random.default_rng(0)
LASTING = RNG.standard_normal((N, DIM)).astype(np.float32)
QUERIES = RNG.standard_normal((4, DIM)).astype(np.float32)


class Bounds:
    """Ids that a search must find, and those that it must not find, at any moment."""

    def __init__(self, ids: range) -> None:
        self.lock = threading.Lock()
        self.certain, self.gone = set(ids), set[int]()

    def now(self) -> tuple[frozenset[int], frozenset[int]]:
        """Both sets as they are."""
        with self.lock:
            return frozenset(self.certain), frozenset(self.gone)

    def add(self, ids: list[int]) -> None:
        """Ids that are added are certain."""
        with self.lock:
            self.certain.update(ids)

    def leave(self, ids: list[int]) -> None:
        """Ids that are about to be deleted are not certain."""
        with self.lock:
            self.certain.difference_update(ids)

    def delete(self, ids: list[int]) -> None:
        """Ids that are deleted are gone."""
        with self.lock:
            self.gone.update(ids)


def change(index: RoutingIndex, bounds: Bounds, may_grow: bool) -> None:
    """Add, replace and delete vectors, round after round."""
    rng = np.random.default_rng(1)
    passing: list[int] = []
    for step in range(N_ROUNDS):
        ids = list(range(1000 + 100 * step, 1000 + 100 * step + (40 if may_grow else 5)))
        vectors = rng.standard_normal((len(ids), DIM)).astype(np.float32)
        index.add(vectors, ids, n_threads=1)
        bounds.add(ids)
        passing += ids
        moved = rng.permutation(passing)[:3].tolist()
        index.update(moved, rng.standard_normal((3, DIM)).astype(np.float32), n_threads=1)
        if len(passing) > 60 and not may_grow:
            gone, passing = passing[:30], passing[30:]
            bounds.leave(gone)
            index.delete(gone)
            bounds.delete(gone)


def watch(index: RoutingIndex, bounds: Bounds, done: threading.Event) -> int:
    """Search until the changes are done; return the number of searches."""
    n = 0
    while not done.is_set() or n < 3:
        certain, gone = bounds.now()
        k = len(index) + 200
        found = index.search(QUERIES, k, ef=2 * k, n_threads=1)
        still, _ = bounds.now()
        for ids in found.ids:
            answers = ids[ids != -1].tolist()
            assert len(set(answers)) == len(answers), "an id comes twice"
            missing = (certain & still) - set(answers)
            assert not missing, f"{sorted(missing)[:5]} are not found"
            wrong = gone & set(answers)
            assert not wrong, f"{sorted(wrong)[:5]} were deleted before"
        n += 1
    return n


@pytest.mark.parametrize("may_grow", [False, True])
@pytest.mark.parametrize("compression", [None, "int8"])
def test_threads_search_while_another_changes(compression: str | None, may_grow: bool) -> None:
    """A search finds what was added before it began, nothing twice, nothing deleted before."""
    index = RoutingIndex.build(LASTING, degree=8)
    if compression is not None:
        index.compress(compression)
    bounds, done = Bounds(range(N)), threading.Event()
    with ThreadPoolExecutor(3) as pool:
        watchers = [pool.submit(watch, index, bounds, done) for _ in range(2)]
        try:
            change(index, bounds, may_grow)
        finally:
            done.set()
        assert all(watcher.result() >= 3 for watcher in watchers)
    check_structure(index)


def test_threads_read_while_another_changes() -> None:
    """Vectors, ids, lengths, filters, plans and streams can be read at any time."""
    index = RoutingIndex.build(LASTING, degree=8)
    done = threading.Event()
    some = index.filter(np.arange(0, N, 2))
    plan = index.plan(5, ef=20, where=some, n_threads=1)

    def read() -> int:
        n = 0
        while not done.is_set() or n < 3:
            np.testing.assert_array_equal(index.vectors(np.arange(N)), LASTING)
            assert {*range(N)} <= {*index}
            assert len(index) >= N
            assert 3 in index
            assert (plan(QUERIES).ids % 2 == 0).all()
            ids, _ = next(index.stream(QUERIES[0]))
            assert len(set(ids.tolist())) == len(ids)
            n += 1
        return n

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            change(index, Bounds(range(N)), may_grow=False)
        finally:
            done.set()
        assert all(reader.result() >= 3 for reader in readers)


def test_two_threads_change_one_after_another() -> None:
    """Changes of several threads are all done."""
    index = RoutingIndex.empty(DIM)

    def add(first: int) -> None:
        for step in range(40):
            index.add(QUERIES[:1] * (step + 1), [first + step], n_threads=1)
            if step % 3 == 0:
                index.delete([first + step])

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(add, 1000 * i) for i in range(3)]:
            future.result()
    kept = {1000 * i + step for i in range(3) for step in range(40) if step % 3}
    assert set(index) == kept
    assert set(index.search(QUERIES[0], 100, ef=200).ids[0].tolist()) - {-1} == kept
