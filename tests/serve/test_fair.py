"""Laws of fairness: a client that asks much delays others by no more than a batch."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from fastapi.testclient import TestClient

from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.serve.app import app_of
from l2route.serve.batcher import N_PART, Ask, Batcher, QueueFullError
from l2route.serve.engine import Engine
from l2route.serve.options import ServeOptions
from l2route.serve.served import Served
from serving import QUERIES, saved_index

ASK = Ask(1, Limits())
QUERY = np.zeros((1, 4), np.float32)
GREEDY, OTHER = "192.0.2.1", "192.0.2.2"


class SlowIndex:
    """An index that answers no batch before it is let go."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []
        """k and number of queries of each batch."""
        self.go, self.is_held = threading.Event(), threading.Event()

    def search(self, rows: Any, k: int, **_: object) -> SearchResult:
        """Answer with the first number of each query."""
        self.is_held.set()
        assert self.go.wait(20)
        self.taken.append((k, len(rows)))
        ids = np.repeat(rows[:, :1].astype("i8"), k, axis=1)
        return SearchResult(ids, ids.astype("f4"), np.zeros((4, len(rows)), "i4"), 0, 4, 4)


def ends_of(
    *groups: tuple[str, list[Ask]], large: int = 0, **options: Any
) -> tuple[SlowIndex, list[Any]]:
    """Let clients ask one after another while the only worker is busy; what became of it.

    Args:
        groups: clients, and what each asks for with one query.
        large: queries of a request that comes before all of these; 0 for none.
        options: of the batcher.
    """
    index = SlowIndex()
    chosen = {"n_workers": 1, "max_queue": 2000, "max_batch": 16} | options
    served = cast(Served, SimpleNamespace(index=index))
    batcher = Batcher(served, **chosen, on_searched=lambda *_: None)

    async def run() -> list[Any]:
        batcher.start()
        first = batcher.search(QUERY, Ask(99, Limits()))
        await asyncio.to_thread(index.is_held.wait, 20)
        futures: list[asyncio.Future[Any]] = [first]
        ends: list[Any] = []
        if large:
            rows = np.arange(large, dtype="f4")[:, None].repeat(4, axis=1)
            futures.append(batcher.search(rows, Ask(7, Limits()), client=GREEDY))
        for client, asks in groups:
            for ask in asks:
                try:
                    futures.append(batcher.search(QUERY, ask, client=client))
                except QueueFullError as error:
                    ends.append(error)
        index.go.set()
        ends += await asyncio.gather(*futures[1:], return_exceptions=True)
        await first
        await asyncio.to_thread(batcher.close)
        return ends

    ends = asyncio.run(run())
    assert index.taken.pop(0) == (99, 1)
    assert batcher.n_waiting == 0
    return index, ends


@pytest.mark.parametrize("n_kinds", [1, 3, 1000])
def test_one_client_does_not_delay_another(n_kinds: int) -> None:
    """A single search waits for one batch of a client with a thousand, alike or different."""
    many = [Ask(100 + i % n_kinds, Limits()) for i in range(1000)]
    index, ends = ends_of((GREEDY, many), (OTHER, [ASK]))
    assert (1, 1) in index.taken[:2]
    assert sum(n for _, n in index.taken) == len(ends) == 1001


def test_clients_that_ask_alike_share_batches() -> None:
    """What several clients ask for alike is searched as one batch, in turns if it is too much."""
    index, _ = ends_of(*((f"192.0.2.{i}", [ASK]) for i in range(40)))
    assert index.taken == [(1, 16), (1, 16), (1, 8)]


def test_a_full_queue_has_room_for_those_who_ask_little() -> None:
    """In a full queue, the last request of who has most gives way to one of who has fewer."""
    _, ends = ends_of((GREEDY, [ASK] * 30), (OTHER, [ASK] * 3), max_queue=10)
    refused = [isinstance(end, QueueFullError) for end in ends]
    assert refused == [True] * 20 + [False] * 7 + [True] * 3 + [False] * 3


def test_nobody_gets_more_than_a_share_of_a_full_queue() -> None:
    """Clients that fill a queue together have the same number of requests in it."""
    _, ends = ends_of((GREEDY, [ASK] * 10), (OTHER, [ASK] * 10), max_queue=10)
    assert sum(isinstance(end, SearchResult) for end in ends) == 10
    n_refused_at_once = 5
    of_greedy = ends[n_refused_at_once : n_refused_at_once + 10]
    assert sum(isinstance(end, SearchResult) for end in of_greedy) == 5


def test_a_large_request_is_no_obstacle() -> None:
    """A request of many queries is searched in parts, between which others have their turns.

    Its answers are those of one search.
    """
    n = 5 * N_PART + 3
    index, (whole, one) = ends_of((OTHER, [ASK]), large=n)
    assert index.taken == [(7, N_PART), (1, 1), *[(7, N_PART)] * 4, (7, 3)]
    assert np.array_equal(whole.ids, np.arange(n)[:, None].repeat(7, axis=1))
    assert np.array_equal(whole.distances, whole.ids.astype("f4"))
    assert (whole.counts.shape, one.ids.shape) == ((4, n), (1, 1))


def test_the_end_of_a_large_request_shares_a_batch() -> None:
    """What is left of a large request is searched with what others ask for alike."""
    index, (whole, one) = ends_of((OTHER, [Ask(7, Limits())]), large=N_PART + 2)
    assert index.taken == [(7, N_PART), (7, 3)]
    assert (len(whole.ids), len(one.ids)) == (N_PART + 2, 1)
    assert np.array_equal(whole.ids[:, 0], np.arange(N_PART + 2))


def test_clients_are_known_by_their_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its port and its headers, a client is the address of its connection."""
    engine, clients = Engine(Served(saved_index(tmp_path / "index.l2r")), ServeOptions()), set()
    search = engine.batcher.search

    def noted(rows: Any, ask: Ask, where: Any, client: str) -> Any:
        clients.add(client)
        return search(rows, ask, where, client)

    monkeypatch.setattr(engine.batcher, "search", noted)
    app, body = app_of(engine), {"queries": QUERIES[0].tolist()}
    with TestClient(app, base_url="http://localhost", client=(GREEDY, 50000)) as client:
        for headers in ({}, {"x-forwarded-for": OTHER}):
            assert client.post("/search", json=body, headers=headers).status_code == 200
    assert clients == {GREEDY}
