"""How the tasks of a build are run: one after another, or by Ray."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from l2route.cluster.errors import ClusterWarning
from l2route.cluster.rays import Address, connected

Work = Callable[..., Any]
SHARE_OF_STORE = 0.5
"""Share of a node's object store that may be taken by what is sent along with tasks."""


class Task(NamedTuple):
    """A call of a function, in this process or in another."""

    name: str
    """What it does, for messages: "shard 3"."""
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Needs:
    """What a task takes of a machine."""

    cpus: float = 1.0
    """Cores."""
    n_bytes: int = 0
    """Memory while it runs; 0 if that is not known."""
    n_sent: int = 0
    """Bytes that are sent along with it, and are kept until it is done."""


class Done(NamedTuple):
    """The end of a task: its result, or why it failed each time."""

    task: Task
    result: Any
    error: str | None


class Runner(Protocol):
    """Runs tasks, and tries again those that fail."""

    def run(self, work: Work, tasks: Iterable[Task], needs: Needs) -> Iterator[Done]:
        """Run a function for every task; results come in the order in which they are done."""


class LocalRunner:
    """Runs tasks in this process, one after another.

    Args:
        n_tries: how often a task is tried.
    """

    def __init__(self, n_tries: int = 2) -> None:
        self._n_tries = n_tries

    def run(self, work: Work, tasks: Iterable[Task], needs: Needs) -> Iterator[Done]:
        """Run the tasks in order."""
        for task in tasks:
            yield self._done(work, task)

    def _done(self, work: Work, task: Task) -> Done:
        error = ""
        for _ in range(self._n_tries):
            try:
                return Done(task, work(*task.arguments), None)
            except Exception as failure:  # whatever it is, other tasks go on
                error = f"{type(failure).__name__}: {failure}"
        return Done(task, None, error)


class RayRunner:
    """Runs tasks on a Ray cluster.

    A task whose process or node is gone is run again by Ray; one that raises an error, too.

    Args:
        address: of a Ray cluster; None for one that this process has, or a new local one.
        n_tries: how often a task is tried.
        n_waiting: tasks that are submitted before others are done, at the most.
    """

    def __init__(self, address: Address = None, n_tries: int = 3, n_waiting: int = 64) -> None:
        self._ray = connected(address)
        self._n_tries, self._n_waiting = n_tries, n_waiting

    def check_cores(self, cpus: float) -> None:
        """Warn of tasks of more cores than any node has: they wait until a larger one joins."""
        most = max(self._on_nodes("CPU"))
        if cpus > most:
            expected = f"expected cpus of at most {most:g}, the cores of the largest node"
            message = f"{expected}, got {cpus:g}: shards wait for a larger one"
            warnings.warn(message, ClusterWarning, stacklevel=2)

    def run(self, work: Work, tasks: Iterable[Task], needs: Needs) -> Iterator[Done]:
        """Run the tasks side by side, as far as there are cores and memory for them."""
        memory = min(needs.n_bytes, int(max(self._on_nodes("memory"))))  # more is nowhere
        remote = self._ray.remote(work).options(
            num_cpus=needs.cpus,
            memory=memory or None,
            max_retries=self._n_tries - 1,
            retry_exceptions=True,
        )
        n_waiting = self._n_waiting
        if needs.n_sent:
            room = min(self._on_nodes("object_store_memory")) * SHARE_OF_STORE
            n_waiting = max(1, min(n_waiting, int(room / needs.n_sent)))
        waiting: dict[Any, Task] = {}
        for task in tasks:
            while len(waiting) >= n_waiting:
                yield self._next(waiting)
            waiting[remote.remote(*task.arguments)] = task
        while waiting:
            yield self._next(waiting)

    def _on_nodes(self, resource: str) -> list[float]:
        """How much of a resource each node has."""
        nodes = [each["Resources"] for each in self._ray.nodes() if each["Alive"]]
        return [float(each.get(resource, 0)) for each in nodes] or [0.0]

    def _next(self, waiting: dict[Any, Task]) -> Done:
        (ready,), _ = self._ray.wait(list(waiting), num_returns=1)
        task = waiting.pop(ready)
        try:
            return Done(task, self._ray.get(ready), None)
        except self._ray.exceptions.RayTaskError as failure:
            cause = failure.cause
            return Done(task, None, f"{type(cause).__name__}: {cause}")
        except self._ray.exceptions.RayError as failure:
            return Done(task, None, " ".join(str(failure).split())[:300])


def run_all(
    runner: Runner,
    work: Work,
    tasks: Iterable[Task],
    needs: Needs,
    on_done: Callable[[Done], None],
) -> None:
    """Run all tasks to their end; afterwards, an error names those that failed."""
    failed = []
    for done in runner.run(work, tasks, needs):
        if done.error is None:
            on_done(done)
        else:
            failed.append(f"{done.task.name} ({done.error})")
    if failed:
        raise BuildError(f"expected all tasks to succeed, got errors of {'; '.join(failed)}")


class BuildError(RuntimeError):
    """Tasks of a build failed every time; what is done is kept for the next try."""


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return round(time.perf_counter() - self._start, 3)
