"""Forks: a process is not copied in the middle of a change in place.

A forked process has the memory of its parent but only one of its threads. A change that another
thread was making would stay half done, and the locks it held would stay locked. So a fork waits
until the step of every change in place is over, no other step begins before the fork has happened,
and the child makes its locks anew.
"""

import os
from _thread import LockType
from threading import Lock
from typing import Protocol
from weakref import WeakSet


class Locking(Protocol):
    """An object with locks."""

    def renew_locks(self) -> None:
        """Make all locks anew, unlocked."""


class Step:
    """A lock that is held during every step of a change in place; forks wait for it."""

    def __init__(self) -> None:
        self.lock = Lock()
        with _GATE:
            _STEPS.add(self)

    def __enter__(self) -> None:
        with _GATE:
            self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


_GATE = Lock()
"""Held while a step begins, and by a fork from before it waits for steps: none begins meanwhile."""
_STEPS: WeakSet[Step] = WeakSet()
_LOCKING: WeakSet[Locking] = WeakSet()
_HELD: list[LockType] = []


def renew_in_children(locking: Locking) -> None:
    """Make the locks of an object anew in every forked process."""
    _LOCKING.add(locking)


def _hold() -> None:
    _take(_GATE)
    for step in list(_STEPS):
        _take(step.lock)


def _take(lock: LockType) -> None:
    lock.acquire()
    _HELD.append(lock)


def _release() -> None:
    while _HELD:
        _HELD.pop().release()


def _start_anew() -> None:
    _release()
    for locking in list(_LOCKING):
        locking.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_start_anew)
