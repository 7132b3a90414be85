"""Writer: the one thread that changes, saves and reloads the index of a server.

Changes that wait together are made one after another and written into the journal once, before any
of them is acknowledged. The index is saved now and then, which empties the journal.
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

from l2route.files.storage import StaleError
from l2route.serve.batcher import ClosedError, QueueFullError
from l2route.serve.served import Served
from l2route.serve.troubles import Troubles

LOG = logging.getLogger("l2route.serve")
MAX_GROUP = 256
"""Changes that are written together at the most."""
T = TypeVar("T")


class UnsavedError(Exception):
    """Changes were made, and could not be written to disk."""


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
        save_seconds: seconds between saves of an index that has changed.
        follows: whether what others have saved is loaded before a change is made.
        troubles: notes what fails in the background.
    """

    def __init__(
        self,
        served: Served,
        *,
        max_queue: int,
        save_seconds: float,
        follows: bool,
        troubles: Troubles,
    ) -> None:
        self._served, self._max_queue = served, max_queue
        self._save_seconds, self._follows = save_seconds, follows
        self._troubles = troubles
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
        is_over = False
        while not is_over:
            with self._troubles.attempt("writing"):
                group = self._taken(next_save)
                is_over = group is None
                if group:
                    self._do(group)
            if is_over or time.monotonic() >= next_save:
                self._save()
                next_save = time.monotonic() + self._save_seconds

    def _taken(self, next_save: float) -> list[_Task] | None:
        """Return the queued tasks; an empty list if a save is due, None once closed."""
        with self._changed:
            while not self._tasks:
                if self._is_closed:
                    return None
                seconds = next_save - time.monotonic() if self._needs_save else None
                if seconds is not None and seconds <= 0:
                    return []
                self._changed.wait(seconds)
            return [self._tasks.popleft() for _ in range(min(MAX_GROUP, len(self._tasks)))]

    @property
    def _needs_save(self) -> bool:
        return self._served.has_changes or self._served.has_journal

    def _do(self, group: list[_Task]) -> None:
        refusal = self._refusal() if any(task.is_change for task in group) else None
        made: list[tuple[_Task, Any]] = []
        for task in group:
            if task.future.cancelled():
                continue
            try:
                if task.is_change and refusal is not None:
                    raise refusal
                made.append((task, self._done(task)))
            except Exception as error:
                self._call(_fail, task.future, error)
        failure = self._failure_of_commit() if made else None
        for task, result in made:
            if failure is not None and task.is_change:
                self._call(_fail, task.future, failure)
            else:
                self._call(_succeed, task.future, result)

    def _refusal(self) -> Exception | None:
        """Load what others have saved; why changes cannot be made, if they cannot."""
        try:
            if not self._served.is_newer:
                return None
            if not self._follows:
                expected = f"{self._served.path}: expected the save that is served"
                return StaleError(f"{expected}, got a newer one: reload it first")
            self._served.reload()
        except Exception as error:
            return error
        return None

    def _done(self, task: _Task) -> Any:
        if time.monotonic() > task.deadline:
            raise TimeoutError("expected earlier changes to be done in time, got more of them")
        return task.work()

    def _failure_of_commit(self) -> Exception | None:
        """Write what has changed into the journal; why not, if it could not be."""
        try:
            if self._served.has_changes:
                self._served.commit(follows=self._follows)
        except StaleError as error:
            if self._follows:  # it was restored a moment ago: what is here belongs to the past
                with self._troubles.attempt("reload"):
                    self._served.reload()
                return error
            return UnsavedError(f"the change was made in memory, but not saved: {error}")
        except Exception as error:
            self._troubles.note("save", error)
            return UnsavedError(f"the change was made in memory, but not saved: {error}")
        return None

    def _save(self) -> None:
        """Save the index if it has changed; whatever fails, the journal has the changes."""
        with self._troubles.attempt("save"):
            if not self._needs_save:
                return
            try:
                self._served.save(follows=self._follows)
            except StaleError:
                if not self._follows:
                    raise
                self._served.reload()

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
