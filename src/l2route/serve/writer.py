"""Writer: the one thread that changes, saves and reloads the index of a server.

Changes that wait together are made one after another and saved once, before any of them is
acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Any, TypeVar

from l2route.serve.batcher import ClosedError, QueueFullError
from l2route.serve.served import Served

LOG = logging.getLogger("l2route.serve")
MAX_GROUP = 256
"""Changes that are saved together at the most."""
T = TypeVar("T")


class StaleError(Exception):
    """The directory holds a newer save, which the server was told not to load by itself."""


class UnsavedError(Exception):
    """Changes were made, and could not be saved."""


@dataclass(slots=True, eq=False)
class _Task:
    """Work that waits for the writer."""

    work: Callable[[], Any]
    is_change: bool
    deadline: float
    future: asyncio.Future[Any]


class Writer:
    """Runs work that changes the index, in a thread of its own.

    Args:
        served: the index.
        max_queue: changes that may wait.
        save_seconds: seconds between saves; 0 to save before changes are acknowledged.
        follows: whether a newer save is loaded before a change is made.
        on_failure: called with the name of work that failed in the background.
    """

    def __init__(
        self,
        served: Served,
        *,
        max_queue: int,
        save_seconds: float,
        follows: bool,
        on_failure: Callable[[str], None],
    ) -> None:
        self._served, self._max_queue = served, max_queue
        self._save_seconds, self._follows = save_seconds, follows
        self._on_failure = on_failure
        self._changed = Condition()
        self._tasks: deque[_Task] = deque()
        self._is_closed = True
        self._thread: Thread | None = None

    @property
    def n_waiting(self) -> int:
        """Changes that wait."""
        return len(self._tasks)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def saves_at_once(self) -> bool:
        """Whether changes are saved before they are acknowledged."""
        return self._save_seconds == 0

    def start(self) -> None:
        """Start the thread; it answers to the event loop that calls this."""
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._thread = Thread(target=self._run, name="l2route-writer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish what waits, save what has changed, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def change(self, work: Callable[[], T], timeout: float) -> asyncio.Future[T]:
        """Queue a change; its future is done when the change is made, and saved unless put off.

        Args:
            work: changes the index; runs in the writer's thread.
            timeout: seconds to wait for other changes; a change that has begun is finished.
        """
        return self._queued(work, True, timeout)

    def call(self, work: Callable[[], T], timeout: float) -> asyncio.Future[T]:
        """Queue work that is not a change, such as a reload."""
        return self._queued(work, False, timeout)

    def _queued(self, work: Callable[[], T], is_change: bool, timeout: float) -> asyncio.Future[T]:
        if len(self._tasks) >= self._max_queue:
            raise QueueFullError(f"expected at most {self._max_queue} changes to wait, got more")
        future: asyncio.Future[T] = self._loop.create_future()
        with self._changed:
            if self._is_closed:
                raise ClosedError("expected a server that runs, got one that ends")
            self._tasks.append(_Task(work, is_change, time.monotonic() + timeout, future))
            self._changed.notify()
        return future

    def _run(self) -> None:
        next_save = time.monotonic() + self._save_seconds
        while (group := self._taken(next_save)) is not None:
            self._do(group)
            if not self.saves_at_once and time.monotonic() >= next_save:
                self._save_in_background()
                next_save = time.monotonic() + self._save_seconds
        self._save_in_background()

    def _taken(self, next_save: float) -> list[_Task] | None:
        """Take all tasks that wait; none when it is time to save, None if the writer is closed."""
        with self._changed:
            while not self._tasks:
                if self._is_closed:
                    return None
                if self.saves_at_once:
                    self._changed.wait()
                elif not self._changed.wait(max(0.0, next_save - time.monotonic())):
                    return []
            return [self._tasks.popleft() for _ in range(min(MAX_GROUP, len(self._tasks)))]

    def _do(self, group: list[_Task]) -> None:
        made: list[tuple[_Task, Any]] = []
        for task in group:
            if task.future.cancelled():
                continue
            try:
                made.append((task, self._done(task)))
            except Exception as error:
                self._call(_fail, task.future, error)
        if self.saves_at_once and made and self._served.has_changes:
            try:
                self._served.save()
            except Exception as error:
                self._on_failure("save")
                LOG.exception("changes could not be saved")
                failed = UnsavedError(f"the change was made in memory, but not saved: {error}")
                for task, _ in made:
                    self._call(_fail, task.future, failed)
                return
        for task, result in made:
            self._call(_succeed, task.future, result)

    def _done(self, task: _Task) -> Any:
        if time.monotonic() > task.deadline:
            raise TimeoutError("expected earlier changes to be done in time, got more of them")
        if task.is_change and self._served.is_newer:
            if not self._follows:
                expected = f"{self._served.path}: expected the save that is served"
                raise StaleError(f"{expected}, got a newer one: reload it first")
            self._served.reload()
        return task.work()

    def _save_in_background(self) -> None:
        if not self._served.has_changes:
            return
        try:
            if self._follows:
                self._served.reload()
            self._served.save()
        except Exception:
            self._on_failure("save")
            LOG.exception("changes could not be saved")

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function in the event loop, unless that has ended."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            LOG.warning("a change was made after the end of the server")


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _succeed(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)
