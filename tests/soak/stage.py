"""What the threads of a soak share: the directory, its history, the servers, and when to wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Event

import numpy as np

from changers import SECONDS, DeadError
from histories import History, Value, content_of, vectors_of
from l2route.index import RoutingIndex, load
from sharing import Serving
from soak.figures import Figures
from soak.small_disk import SmallDisk
from wishes import Wishes

N = 300
"""Vectors of the index at first."""
NO_SPACE = ("Errno 28", "No space left")
"""In messages about a disk that is full."""


class Gate:
    """Lets threads work, unless it is closed: then no work has begun that is not done."""

    def __init__(self) -> None:
        self._changed, self._n_inside, self._is_closed = Condition(), 0, False

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Work in an open gate."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._n_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_inside -= 1
                self._changed.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Keep the gate closed; only one thread may do so at a time."""
        with self._changed:
            self._is_closed = True
            is_empty = self._changed.wait_for(lambda: not self._n_inside, 2 * SECONDS)
            assert is_empty, "expected all work to end in time"
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()


@dataclass(eq=False)
class Stage:
    """What the threads share."""

    path: Path
    """The directory of the index."""
    folder: Path
    """For what processes print."""
    disk: SmallDisk
    rate: float
    """Requests a second of each client."""
    figures: Figures = field(default_factory=Figures)
    wishes: Wishes = field(default_factory=lambda: Wishes(N))
    gate: Gate = field(default_factory=Gate)
    is_over: Event = field(default_factory=Event)
    servers: list[Serving] = field(default_factory=list)
    spaces: set[str] = field(default_factory=set)
    """Spaces that acknowledged commands have added."""

    def __post_init__(self) -> None:
        self._is_restoring, self._restored = False, -1.0
        self.history = History({id_: Value(id_) for id_ in range(N)})
        index = RoutingIndex.build(vectors_of(range(N)), degree=8, ef_construction=40)
        index.save(self.path)

    def blame(self, fault: object) -> None:
        """Note that a law does not hold, which ends the soak."""
        self.figures.blame(fault)
        self.is_over.set()

    def one_server(self, rng: np.random.Generator) -> Serving:
        """Any of the servers."""
        servers = self.servers
        return servers[rng.integers(len(servers))]

    def pause(self, begin: float) -> None:
        """Wait until it is time for the next request of a client."""
        self.is_over.wait(max(0.0, begin + 1 / self.rate - time.monotonic()))

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Note that the index is being restored."""
        self._is_restoring = True
        try:
            yield
        finally:
            self._restored = time.monotonic()
            self._is_restoring = False

    def was_restored_since(self, moment: float) -> bool:
        """Whether the index is being restored, or was since then."""
        return self._is_restoring or self._restored >= moment

    def may_fail(self, text: str, since: float) -> bool:
        """Whether an error is one of a disk that was full at some time since then."""
        is_full = any(each in text for each in NO_SPACE) and self.disk.was_full_since(since)
        if is_full:
            self.figures.count("refused: disk full")
        return is_full

    def check(self) -> dict[int, Value]:
        """Load the index: what it holds is possible by its history."""
        begin, spaces = time.monotonic(), set(self.spaces)
        index = load(self.path)
        self.check_content(content := content_of(index, self.wishes.number_of), begin)
        if not spaces <= set(index.space_names):
            self.blame(f"lost: expected spaces {spaces}, got {index.space_names}")
        return content

    def check_content(self, content: dict[int, Value], begin: float) -> None:
        """What was read of the index since then is possible by its history."""
        for fault in self.history.faults(content, begin, time.monotonic()):
            self.blame(fault)
        self.figures.count("checks")


def repeatedly(stage: Stage, work: Callable[[], None]) -> None:
    """Do something until the end; whatever fails is a fault."""
    while not stage.is_over.is_set():
        try:
            work()
        except DeadError:
            stage.figures.count("answers cut off by a kill")
            stage.is_over.wait(0.1)  # until another server has taken its place
        except Exception as error:
            stage.blame(f"{type(error).__name__}: {error}")
            raise
