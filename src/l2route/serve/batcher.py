"""Batcher: queries of requests that arrive together, searched as one batch.

Worker threads take what waits whenever they are free, so no request waits for others to come. What
was asked for alike is searched in one call, which walks with two queries at a time. Clients take
turns, so that none waits for more than a batch of each other one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.search.calibrate import OutOfReachError
from l2route.search.guarantee import Guarantee
from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.serve.served import Served

LOG = logging.getLogger("l2route.serve")
N_PER_THREAD = 32
"""Queries of a batch for which another thread is used."""
N_PART = 1024
"""Queries of a large request that are searched before others have their turns."""
Rows = NDArray[np.float32]
Queues = OrderedDict[object, deque["_Waiting"]]
"""Requests of a client by what they ask for, the next ones first."""


class QueueFullError(Exception):
    """As many requests wait as may."""


class ClosedError(Exception):
    """The server ends and takes no more requests."""


FOR_ALL = (QueueFullError, ClosedError, OutOfReachError)
"""Errors that requests of a batch have in common: none would be answered alone."""


class Ask(NamedTuple):
    """What is asked for, beside queries and filters; requests with the same are searched as one."""

    k: int
    limits: Limits
    recall: float | None = None
    space: str | None = None
    guarantee: Guarantee | None = None
    cap: int | None = None


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that waits for a worker."""

    rows: Rows
    ask: Ask
    where: NDArray[np.int64] | None
    client: str
    future: asyncio.Future[SearchResult]
    found: list[SearchResult] = field(default_factory=list)
    """Answers to queries that came before `rows` in the request."""

    @property
    def key(self) -> object:
        """The same for requests that are searched as one; filters are not shared."""
        return self.ask if self.where is None else self


class Batcher:
    """Searches for requests in worker threads.

    Args:
        served: the index.
        n_workers: worker threads.
        max_queue: requests that may wait.
        max_batch: queries of several requests that are searched as one batch.
        on_searched: called by a worker with what was asked, its queries and the result.
    """

    def __init__(
        self,
        served: Served,
        *,
        n_workers: int,
        max_queue: int,
        max_batch: int,
        on_searched: Callable[[Ask, Rows, SearchResult], None],
    ) -> None:
        self._served, self._n_workers = served, n_workers
        self._max_queue, self._max_batch = max_queue, max_batch
        self._on_searched = on_searched
        self._changed = Condition()
        self._queues: OrderedDict[str, Queues] = OrderedDict()  # of clients, the next one first
        self._n_of: Counter[str] = Counter()  # requests of each client
        self._n_waiting = 0
        self._is_closed = True
        self._workers: list[Thread] = []

    @property
    def n_waiting(self) -> int:
        """Requests that wait for a worker."""
        return self._n_waiting

    @property
    def is_alive(self) -> bool:
        """Whether all workers run."""
        return bool(self._workers) and all(worker.is_alive() for worker in self._workers)

    def start(self) -> None:
        """Start the workers; they answer to the event loop that calls this."""
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        names = (f"l2route-search-{i}" for i in range(self._n_workers))
        self._workers = [Thread(target=self._work, name=name, daemon=True) for name in names]
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Let the workers finish what waits, and wait until they end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    def search(
        self,
        rows: Rows,
        ask: Ask,
        where: NDArray[np.int64] | None = None,
        client: str = "",
    ) -> asyncio.Future[SearchResult]:
        """Queue a search; cancel the future, or let it fail, to give it up.

        If the queue is full, the last request of the client that has most of it gives way.

        Args:
            rows: checked queries [n, dim].
            ask: what is asked for.
            where: ids that may be answers; None for all. Those that the index lacks are none.
            client: who asks.
        """
        waiting = _Waiting(rows, ask, where, client, self._loop.create_future())
        with self._changed:
            if self._is_closed:
                raise ClosedError("expected a server that runs, got one that ends")
            if self._n_waiting >= self._max_queue:
                self._make_room(client)
            self._queue_of(waiting).append(waiting)
        return waiting.future

    def _queue_of(self, waiting: _Waiting) -> deque[_Waiting]:
        """The queue that a request is about to be put into; a worker is told."""
        self._count(waiting.client, 1)
        self._changed.notify()
        queues = self._queues.setdefault(waiting.client, OrderedDict())
        return queues.setdefault(waiting.key, deque())

    def _make_room(self, client: str) -> None:
        """Refuse the last request of the client that has most, or else the one that comes."""
        full = QueueFullError(f"expected at most {self._max_queue} requests to wait, got more")
        greediest, n = self._n_of.most_common(1)[0]
        if n <= self._n_of[client] + 1:
            raise full
        key = next(reversed(self._queues[greediest]))
        _fail(self._pop(greediest, key, last=True).future, full)

    def _pop(self, client: str, key: object, *, last: bool = False) -> _Waiting:
        """Take the first or the last request of a client with a key out of the queue."""
        queues = self._queues[client]
        found = queues[key].pop() if last else queues[key].popleft()
        if not queues[key]:
            del queues[key]
        if not queues:
            del self._queues[client]
        self._count(client, -1)
        return found

    def _count(self, client: str, n: int) -> None:
        self._n_waiting += n
        self._n_of[client] += n
        if not self._n_of[client]:
            del self._n_of[client]

    def _work(self) -> None:
        while batch := self._taken():
            asked = [each for each in batch if not each.future.done()]  # given up, or too late
            if asked:
                self._answer(asked)

    def _taken(self) -> list[_Waiting]:
        """Take requests that can be searched as one; none if the batcher is closed."""
        with self._changed:
            while not self._queues:
                if self._is_closed:
                    return []
                self._changed.wait()
            client = next(iter(self._queues))
            key = next(iter(self._queues[client]))
            taken = [self._pop(client, key)]
            room = self._max_batch - len(taken[0].rows)
            for other in [client, *self._queues]:
                queues = self._queues.get(other, OrderedDict())
                while room > 0 and key in queues:
                    room -= len(queues[key][0].rows)
                    if room >= 0:
                        taken.append(self._pop(other, key))
            if client in self._queues:
                self._queues.move_to_end(client)
                if key in self._queues[client]:
                    self._queues[client].move_to_end(key)
        return taken

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        first, n_part = batch[0], max(N_PART, self._max_batch)
        rows = first.rows if len(batch) == 1 else np.concatenate([each.rows for each in batch])
        rows, left = rows[:n_part], rows[n_part:]  # left of a request that is alone
        try:
            result = self._searched(rows, first)
        except Exception as error:
            if len(batch) == 1 or isinstance(error, FOR_ALL):
                for each in batch:
                    self._call(_fail, each.future, error)
                return
            for each in batch:  # only those at fault get the error
                self._answer([each])
            return
        if len(left):
            first.rows = left
            first.found.append(result)
            with self._changed:
                self._queue_of(first).appendleft(first)
        else:
            self._call(_answer_all, batch, result)
        try:
            self._on_searched(first.ask, rows, result)
        except Exception:  # counting and logging must not end a worker
            LOG.exception("what was searched could not be noted")

    def _searched(self, rows: Rows, first: _Waiting) -> SearchResult:
        ask, where = first.ask, first.where
        n_threads = max(1, min(self._n_workers, len(rows) // N_PER_THREAD))
        return self._served.index.search(
            rows,
            ask.k,
            where=None if where is None else self._served.filter(where),
            budget=ask.limits.budget,
            ef=ask.limits.ef,
            slack=ask.limits.slack,
            rerank=ask.limits.rerank,
            recall=ask.recall,
            guarantee=ask.guarantee,
            space=ask.space,
            n_threads=n_threads,
            cap=ask.cap,
        )

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function in the event loop, unless that has ended."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            LOG.warning("an answer came after the end of the server")


def _fail(future: asyncio.Future[SearchResult], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _answer_all(batch: Sequence[_Waiting], result: SearchResult) -> None:
    start = 0
    for each in batch:
        end = start + len(each.rows)
        if not each.future.done():
            part = result if len(batch) == 1 else _part(result, start, end)
            each.future.set_result(_joined([*each.found, part]))
        start = end


def _part(result: SearchResult, start: int, end: int) -> SearchResult:
    """The answers to some of the queries."""
    return SearchResult(
        result.ids[start:end],
        result.distances[start:end],
        result.counts[:, start:end],
        result.n_projection,
        result.routing_dim,
        result.dim,
    )


def _joined(parts: Sequence[SearchResult]) -> SearchResult:
    """The answers to all queries of a request."""
    last = parts[-1]
    if len(parts) == 1:
        return last
    return SearchResult(
        np.concatenate([each.ids for each in parts]),
        np.concatenate([each.distances for each in parts]),
        np.concatenate([each.counts for each in parts], axis=1),
        last.n_projection,
        last.routing_dim,
        last.dim,
    )
