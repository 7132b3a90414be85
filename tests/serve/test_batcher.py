"""Laws of batches: requests that wait together are searched as one, and answered as if alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.serve.batcher import Ask, Batcher, ClosedError, QueueFullError
from l2route.serve.served import Served
from serving import QUERIES, saved_index

ASK = Ask(3, Limits(ef=32))


class Held:
    """A batcher of one worker, which waits at the first batch until it is let go."""

    def __init__(self, served: Served, **options: Any) -> None:
        self.sizes: list[int] = []
        self.go, self.is_held = threading.Event(), threading.Event()
        chosen = {"n_workers": 1, "max_queue": 100, "max_batch": 16} | options
        self.batcher = Batcher(served, **chosen, on_searched=self._note)

    def _note(self, ask: Ask, rows: Any, result: SearchResult) -> None:
        self.sizes.append(len(rows))
        self.is_held.set()
        assert self.go.wait(20)

    async def hold(self) -> None:
        """Start, and wait until the worker is held by a first query."""
        self.batcher.start()
        await self.batcher.search(QUERIES[:1], Ask(1, Limits()))
        await asyncio.to_thread(self.is_held.wait, 20)
        self.sizes.clear()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A small index."""
    return Served(saved_index(tmp_path_factory.mktemp("serve") / "index.l2r"))


def run(test: Coroutine[Any, Any, None], held: Held) -> None:
    """Run a test, and end its batcher."""

    async def whole() -> None:
        try:
            await test
        finally:
            held.go.set()
            await asyncio.to_thread(held.batcher.close)

    asyncio.run(whole())


def test_requests_that_wait_are_searched_as_one(served: Served) -> None:
    """Single queries that wait go into batches of at most `max_batch`, each with its own answer."""
    held = Held(served)
    expected = served.index.search(QUERIES, k=3, ef=32)

    async def test() -> None:
        await held.hold()
        futures = [held.batcher.search(QUERIES[i : i + 1], ASK) for i in range(40)]
        assert held.batcher.n_waiting == 40
        held.go.set()
        results = await asyncio.gather(*futures)
        assert held.batcher.n_waiting == 0
        for i, result in enumerate(results):
            assert np.array_equal(result.ids, expected.ids[i : i + 1])
            assert np.array_equal(result.distances, expected.distances[i : i + 1])
            assert np.array_equal(result.n_computed, expected.n_computed[i : i + 1])

    run(test(), held)
    assert held.sizes == [16, 16, 8]


def test_batches_of_one_are_not_merged(served: Served) -> None:
    """With `max_batch` 1 every request is searched alone."""
    held = Held(served, max_batch=1)

    async def test() -> None:
        await held.hold()
        futures = [held.batcher.search(QUERIES[i : i + 1], ASK) for i in range(5)]
        held.go.set()
        await asyncio.gather(*futures)

    run(test(), held)
    assert held.sizes == [1] * 5


def test_what_is_asked_differently_is_not_merged(served: Served) -> None:
    """Other limits and filters are searched apart; large requests are not split."""
    held = Held(served)
    where = np.array([1, 2, 3, 5])

    async def test() -> None:
        await held.hold()
        search = held.batcher.search
        futures = [
            search(QUERIES[:2], ASK),
            search(QUERIES[:1], ASK._replace(k=5)),
            search(QUERIES[:1], ASK, where),
            search(QUERIES[2:4], ASK),
            search(QUERIES, ASK._replace(k=7)),
            search(QUERIES[:1], ASK, where),
        ]
        held.go.set()
        found = await asyncio.gather(*futures)
        assert [result.ids.shape for result in found] == [
            (2, 3),
            (1, 5),
            (1, 3),
            (2, 3),
            (40, 7),
            (1, 3),
        ]
        assert set(found[2].ids[0]) <= set(where.tolist())

    run(test(), held)
    assert held.sizes == [4, 1, 1, 40, 1]


def test_only_those_at_fault_fail(served: Served) -> None:
    """A request that the index refuses fails alone; those in its batch are answered."""
    held = Held(served)
    broken = np.full((1, QUERIES.shape[1]), np.nan, dtype=np.float32)

    async def test() -> None:
        await held.hold()
        futures = [
            held.batcher.search(rows, ASK) for rows in (QUERIES[:1], broken, QUERIES[1:2], broken)
        ]
        held.go.set()
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert [isinstance(each, ValueError) for each in found] == [False, True, False, True]
        assert held.batcher.is_alive

    run(test(), held)
    assert held.sizes == [1, 1]


@pytest.mark.parametrize("kind", [ClosedError, QueueFullError])
def test_what_no_search_can_do_is_not_tried_again(
    served: Served, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the index can search nothing at the moment, all requests of a batch learn it at once."""
    held, calls = Held(served), list[int]()

    def search(rows: Any, *_: object, **__: object) -> SearchResult:
        calls.append(len(rows))
        raise kind("not now")

    async def test() -> None:
        await held.hold()
        monkeypatch.setattr(served.index, "search", search)
        futures = [held.batcher.search(QUERIES[i : i + 1], ASK) for i in range(10)]
        held.go.set()
        ends = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(end, kind) for end in ends)
        assert calls == [10]

    run(test(), held)


def test_requests_given_up_are_not_searched(served: Served) -> None:
    """A cancelled request is left out of its batch."""
    held = Held(served)

    async def test() -> None:
        await held.hold()
        futures = [held.batcher.search(QUERIES[i : i + 1], ASK) for i in range(6)]
        for future in futures[::2]:
            future.cancel()
        held.go.set()
        await asyncio.gather(*futures[1::2])

    run(test(), held)
    assert held.sizes == [3]


def test_a_full_queue_refuses(served: Served) -> None:
    """Beyond `max_queue` waiting requests, others are refused at once; then there is room again."""
    held = Held(served, max_queue=3)

    async def test() -> None:
        await held.hold()
        futures = [held.batcher.search(QUERIES[:1], ASK) for _ in range(3)]
        with pytest.raises(QueueFullError, match="at most 3 requests"):
            held.batcher.search(QUERIES[:1], ASK)
        held.go.set()
        await asyncio.gather(*futures)
        await held.batcher.search(QUERIES[:1], ASK)

    run(test(), held)


def test_the_end_finishes_what_waits(served: Served) -> None:
    """Closing answers what waits, and refuses what comes afterwards."""
    held = Held(served)

    async def test() -> None:
        await held.hold()
        futures = [held.batcher.search(QUERIES[i : i + 1], ASK) for i in range(5)]
        closing = asyncio.create_task(asyncio.to_thread(held.batcher.close))
        await asyncio.sleep(0.05)
        with pytest.raises(ClosedError):
            held.batcher.search(QUERIES[:1], ASK)
        held.go.set()
        await closing
        found = await asyncio.gather(*futures)
        assert [len(result.ids) for result in found] == [1] * 5
        assert not held.batcher.is_alive

    run(test(), held)


def test_an_error_while_noting_does_not_end_a_worker(served: Served) -> None:
    """A worker whose counting or logging fails goes on."""

    def fail(*_: object) -> None:
        raise RuntimeError("no room for numbers")

    batcher = Batcher(served, n_workers=1, max_queue=9, max_batch=9, on_searched=fail)

    async def test() -> None:
        batcher.start()
        for _ in range(3):
            assert (await batcher.search(QUERIES[:1], ASK)).ids.shape == (1, 3)
        assert batcher.is_alive
        await asyncio.to_thread(batcher.close)

    asyncio.run(test())
