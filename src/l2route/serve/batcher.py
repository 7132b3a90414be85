"""Batcher: queries of requests that arrive together, searched as one batch.

Worker threads take what waits whenever they are free, so no request waits for others to come. What
was asked for alike is searched in one call, which walks with two queries at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.search.guarantee import Guarantee
from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.serve.served import Served

LOG = logging.getLogger("l2route.serve")
N_PER_THREAD = 32
"""Queries of a batch for which another thread is used."""
Rows = NDArray[np.float32]


class QueueFullError(Exception):
    """As many requests wait as may."""


class ClosedError(Exception):
    """The server ends and takes no more requests."""


class Ask(NamedTuple):
    """What is asked for, beside queries and filters; requests with the same are searched as one."""

    k: int
    limits: Limits
    recall: float | None = None
    space: str | None = None
    guarantee: Guarantee | None = None


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that waits for a worker."""

    rows: Rows
    ask: Ask
    where: NDArray[np.int64] | None
    future: asyncio.Future[SearchResult]


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
        self._queues: OrderedDict[object, deque[_Waiting]] = OrderedDict()
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
        self, rows: Rows, ask: Ask, where: NDArray[np.int64] | None = None
    ) -> asyncio.Future[SearchResult]:
        """Queue a search; cancel the future, or let it fail, to give it up.

        Args:
            rows: checked queries [n, dim].
            ask: what is asked for.
            where: ids that may be answers; None for all. Those that the index lacks are none.
        """
        if self._n_waiting >= self._max_queue:
            raise QueueFullError(f"expected at most {self._max_queue} requests to wait, got more")
        waiting = _Waiting(rows, ask, where, self._loop.create_future())
        key = ask if where is None else waiting  # filters are not shared
        with self._changed:
            if self._is_closed:
                raise ClosedError("expected a server that runs, got one that ends")
            self._queues.setdefault(key, deque()).append(waiting)
            self._n_waiting += 1
            self._changed.notify()
        return waiting.future

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
            key, queue = next(iter(self._queues.items()))
            taken = [queue.popleft()]
            n_rows = len(taken[0].rows)
            while queue and n_rows + len(queue[0].rows) <= self._max_batch:
                taken.append(queue.popleft())
                n_rows += len(taken[-1].rows)
            if queue:
                self._queues.move_to_end(key)
            else:
                del self._queues[key]
            self._n_waiting -= len(taken)
        return taken

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        first = batch[0]
        rows = first.rows if len(batch) == 1 else np.concatenate([each.rows for each in batch])
        try:
            result = self._searched(rows, first)
        except Exception as error:
            if len(batch) == 1 or isinstance(error, (QueueFullError, ClosedError)):
                for each in batch:
                    self._call(_fail, each.future, error)
                return
            for each in batch:  # only those at fault get the error
                self._answer([each])
            return
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
    if len(batch) == 1:
        if not batch[0].future.done():
            batch[0].future.set_result(result)
        return
    start = 0
    for each in batch:
        end = start + len(each.rows)
        if not each.future.done():
            each.future.set_result(_part(result, start, end))
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
