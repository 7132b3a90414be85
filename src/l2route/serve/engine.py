"""Engine: the parts of a server that answer requests, and what they have in common."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import numpy as np
from fastapi import HTTPException
from numpy.typing import NDArray

from l2route.files.query_log import QueryLog
from l2route.files.storage import StaleError
from l2route.index import RoutingIndex
from l2route.search.calibrate import OutOfReachError
from l2route.search.result import SearchResult
from l2route.search.validation import DEPTH
from l2route.serve.batcher import Ask, Batcher, ClosedError, QueueFullError, Rows
from l2route.serve.connections import Connections
from l2route.serve.gate import Room
from l2route.serve.metrics import Metrics
from l2route.serve.options import ServeOptions
from l2route.serve.served import ReloadError, Served
from l2route.serve.troubles import Troubles
from l2route.serve.writer import UnsavedError, Writer

LOG = logging.getLogger("l2route.serve")
RECALLS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999, 1.0)
"""Recalls that are measured; others are rounded up to them."""
UNREACHED_SECONDS = 60.0
"""Seconds until a recall that was out of reach is measured again."""
WARM_K = 10
"""Answers for which the default recall is measured when a server starts."""
RETRY = {"Retry-After": "1"}
T = TypeVar("T")


class Engine:
    """Searches, changes, metrics and the log of a server.

    It opens the log, and measures the default recall if that was not done yet.

    Args:
        served: the index.
        options: limits, time-outs and what is logged.
    """

    def __init__(self, served: Served, options: ServeOptions) -> None:
        self.served, self.options = served, options
        self.connections = Connections(options.max_connections, options.timeout)
        self.room = Room(options.timeout)
        self.batcher = Batcher(
            served,
            n_workers=options.n_threads,
            max_queue=options.max_queue,
            max_batch=options.max_batch,
            on_searched=self._note,
        )
        self.troubles = Troubles(lambda work: self.metrics.failures.labels(work).inc())
        self.writer = Writer(
            served,
            max_queue=options.max_queue,
            save_seconds=options.save_seconds,
            follows=options.reload,
            troubles=self.troubles,
        )
        self.metrics = Metrics(
            served, lambda: self.batcher.n_waiting, lambda: self.writer.n_waiting
        )
        self._log = self._opened_log()
        if options.recall is not None:
            served.index.setting(options.recall, WARM_K)
        self._unreached: dict[Ask, tuple[float, str]] = {}  # until when, and why
        self._watching: asyncio.Task[None] | None = None
        self.is_ready = False

    async def start(self) -> None:
        """Start the threads."""
        self.batcher.start()
        self.writer.start()
        if self.options.reload:
            self._watching = asyncio.create_task(self._watch())
        self.is_ready = True

    async def close(self) -> None:
        """Finish what was taken, save what has changed, and end the threads.

        Whatever fails of it, the rest is done.
        """
        self.is_ready = False
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        for end in (
            self.batcher.close,
            self.writer.close,
            *([self._log.close] if self._log else []),
        ):
            with self.troubles.attempt("closing"):
                await asyncio.to_thread(end)

    async def search(
        self, rows: Rows, ask: Ask, where: NDArray[np.int64] | None = None, client: str = ""
    ) -> SearchResult:
        """Answer checked queries [n, dim] of a client within the time that a request has."""
        asked, options = self._measurable(ask), self.options
        cap = min(options.max_budget, options.max_work // max(1, len(rows)))
        try:
            future = self.batcher.search(rows, asked._replace(cap=cap), where, client)
            timer = asyncio.get_running_loop().call_later(self.options.timeout, _expire, future)
            try:  # by hand, as `asyncio.timeout` takes several times as long
                return first_answers(await future, ask.k)
            finally:
                timer.cancel()
        except TimeoutError:
            self.metrics.rejected.labels("timeout").inc()
            expected = f"expected an answer within {self.options.timeout:g} s, got none"
            raise HTTPException(503, expected, headers=RETRY) from None
        except (QueueFullError, ClosedError, ValueError) as error:
            if isinstance(error, OutOfReachError):
                self._unreached[asked] = time.monotonic() + UNREACHED_SECONDS, str(error)
            raise self._refusal(error) from None

    async def change(self, work: Callable[[], T]) -> T:
        """Make a change; when it returns, the change is made, and saved unless that is put off."""
        return await self._written(lambda: self.writer.change(work, self.options.timeout))

    async def call(self, work: Callable[[], T]) -> T:
        """Run other work in the thread that makes changes."""
        return await self._written(lambda: self.writer.call(work, self.options.timeout))

    async def _written(self, begin: Callable[[], asyncio.Future[T]]) -> T:
        try:
            return await begin()
        except (
            QueueFullError,
            ClosedError,
            StaleError,
            ReloadError,
            UnsavedError,
            TimeoutError,
            ValueError,
            OSError,
        ) as error:
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> HTTPException:
        """The answer to a request that was refused."""
        if isinstance(error, QueueFullError):
            self.metrics.rejected.labels("queue").inc()
            return HTTPException(429, str(error), headers=RETRY)
        if isinstance(error, (StaleError, ReloadError)):
            return HTTPException(409, str(error))
        if isinstance(error, ValueError):
            return HTTPException(422, str(error))
        return HTTPException(503, str(error), headers=RETRY)

    def _opened_log(self) -> QueryLog | None:
        options = self.options
        if options.log_queries is None:
            return None
        return QueryLog(
            options.log_queries,
            self.served.index.dim,
            sample=options.log_sample,
            max_bytes=int(options.log_mb * 1e6),
            n_files=options.log_files,
        )

    def _measurable(self, ask: Ask) -> Ask:
        """What is asked for with a recall that may be measured, and that may be in reach."""
        if ask.recall is None:
            return ask
        asked = rounded(ask, self.served.index, self.options.recall)
        until, reason = self._unreached.get(asked, (0.0, ""))
        if time.monotonic() < until:
            raise HTTPException(422, reason)
        self._unreached.pop(asked, None)
        return asked

    def _note(self, ask: Ask, rows: Rows, result: SearchResult) -> None:
        """Count a search, and log its queries; called by workers."""
        metrics = self.metrics
        metrics.batches.observe(len(rows))
        metrics.queries.labels(limit_of(ask)).inc(len(rows))
        metrics.scored.inc(int(result.n_routing.sum()) + int(result.n_rerank.sum()))
        if self._log is not None:
            with self.troubles.attempt("log"):
                metrics.logged.inc(self._log.append(rows))

    async def _watch(self) -> None:
        """Serve what other processes save as it comes."""
        while True:
            await asyncio.sleep(self.options.reload_seconds)
            with self.troubles.attempt("reload"):
                if await asyncio.to_thread(lambda: self.served.is_newer):
                    await self.writer.call(self.served.reload, self.options.timeout)


def _expire(future: asyncio.Future[SearchResult]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def rounded(ask: Ask, index: RoutingIndex, usual: float | None) -> Ask:
    """A search by recall with a setting that the index has, or with one of a few stricter ones.

    The recall is rounded up to one of `RECALLS`, k to 1, 2 or 5 times a power of ten, so that only
    so many settings are ever measured and kept, whatever is asked for.

    Args:
        ask: what is asked for.
        index: the index.
        usual: recall that is measured as it is; None for none.
    """
    assert ask.recall is not None
    wanted = ask.recall, ask.k, ask.space or index.space_names[-1], ask.guarantee or "mean", 1.0
    recall = min(each for each in (*RECALLS, usual or 1.0) if each >= ask.recall)
    power = 10 ** (len(str(ask.k)) - 1)
    k = next(each * power for each in (1, 2, 5, 10) if each * power >= ask.k)
    k = min(k, max(ask.k, getattr(index, "depth", min(DEPTH, len(index)))))
    if (recall, k) == wanted[:2] or any(
        (each.target, each.k, each.space, each.guarantee, each.share) == wanted
        for each in index.settings
    ):
        return ask
    return ask._replace(recall=recall, k=k)


def first_answers(result: SearchResult, k: int) -> SearchResult:
    """The k nearest of the answers."""
    if result.ids.shape[1] <= k:
        return result
    return replace(result, ids=result.ids[:, :k], distances=result.distances[:, :k])


def limit_of(ask: Ask) -> str:
    """What ends the walks of a search, as a label of metrics."""
    if ask.recall is not None:
        return f"recall {ask.recall:g}"
    budget, ef, slack, _ = ask.limits
    if slack is not None:
        return "slack"
    if ef is not None:
        return "ef"
    return "default" if budget is None else "budget"
