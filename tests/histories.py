"""What may be in an index that several processes change, by what each of them was told.

A change of an id begins when a process is asked for it, and ends when it is acknowledged. If its
process was killed before, it may have been made or not, but not later than the end of the process.
The vector of an id, and its name, are those of a change that no acknowledged change of them has
followed, where one change follows another if it began after the other had ended. So two changes at
the same time may come in either order, and nothing else is left open.

Vectors are numbers: that of a number is random, and no number is given to two changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from l2route.index import RoutingIndex

DIM = 8
SAME = "*"
"""Number or name of what a change leaves as it is."""
Field = Literal["number", "name"]
Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Value:
    """What an id is, or what a change makes of it."""

    number: int | str | None
    """Of its vector; None if it has none."""
    name: str | None = None

    def has(self, name: Field) -> bool:
        """Whether a change makes something of a field."""
        return bool(getattr(self, name) != SAME)


GONE = Value(None)
Content = Mapping[int, Value]
"""What an index holds: values by id."""


@dataclass(slots=True, eq=False)
class Change:
    """A change of an id; `id_` is None until the process says which it has chosen."""

    id_: int | None
    value: Value
    begin: float = -math.inf
    end: float = math.inf
    is_made: bool = False
    """Whether it was acknowledged, or seen."""

    def followed_by(self, other: Change) -> bool:
        """Whether another change has certainly come later."""
        return other.is_made and other.begin > self.end


@dataclass(slots=True)
class _Register:
    """The changes of a field of one id."""

    name: Field
    changes: list[Change]

    def possible(self, at: float = math.inf) -> list[Change]:
        """Changes of which the field may be the result, by what was known at a time."""
        known = [each for each in self.changes if each.is_made and each.end <= at]
        return [each for each in self.changes if not any(map(each.followed_by, known))]

    def see(self, value: Value, begin: float, end: float) -> bool:
        """Note what the id was found to be in a span of time; False if it may not be that."""
        possible, found = self.possible(begin), getattr(value, self.name)
        seen = [each for each in possible if getattr(each.value, self.name) == found]
        others = [each for each in possible if each not in seen]
        if len(seen) == 1:
            seen[0].is_made, seen[0].end = True, min(seen[0].end, end)
        # a change that had ended before, and was not seen, is not made later
        self.changes = seen + [each for each in others if each.end >= begin]
        return bool(seen)

    def is_over(self, at: float) -> bool:
        """Whether the id has been gone since before a time, whatever may have happened."""
        return all(each.value == GONE and each.is_made and each.end < at for each in self.changes)


class _Id:
    """The changes of one id."""

    def __init__(self, value: Value) -> None:
        first = Change(None, value, end=-math.inf, is_made=True)
        self.number, self.name = _Register("number", [first]), _Register("name", [first])

    def add(self, change: Change) -> None:
        """Note a change."""
        for register in (self.number, self.name):
            if change.value.has(register.name):
                register.changes.append(change)

    def remove(self, change: Change) -> None:
        """Forget a change that was not made."""
        for register in (self.number, self.name):
            register.changes = [each for each in register.changes if each is not change]

    def faults(self, value: Value, begin: float, end: float) -> list[str]:
        """Note what the id was found to be in a span of time; what may not be so."""
        faults = []
        for register in (self.number, self.name):
            possible = register.possible(begin)
            is_gone = value.number is None or any(each.value == GONE for each in possible)
            if register.name == "name" and is_gone:
                continue  # nobody says which name a vector has that was gone for some time
            if not register.see(value, begin, end):
                found = getattr(value, register.name)
                expected = [getattr(each.value, register.name) for each in possible]
                what = "lost" if found is None else "undone"
                faults.append(f"{what}: expected {register.name} in {expected}, got {found}")
        return faults


class History:
    """All changes of an index; any number of threads may share it.

    Args:
        content: what the index holds at first.
    """

    def __init__(self, content: Content) -> None:
        self._lock, self._ids = Lock(), {id_: _Id(value) for id_, value in content.items()}
        self._unplaced: list[Change] = []  # additions whose id was not told yet
        self._given: dict[int, Change] = {}  # by ids that nobody chose
        self.n_made = 0

    def begin(self, values: Iterable[tuple[int | None, Value]]) -> list[Change]:
        """Note changes that a process is about to be asked for."""
        with self._lock:
            changes = [Change(id_, value, time.monotonic()) for id_, value in values]
            for change in changes:
                self._place(change)
        return changes

    def place(self, changes: Sequence[Change], ids: Sequence[int]) -> None:
        """Note the ids that a process has chosen for its additions."""
        with self._lock:
            for change, id_ in zip(changes, ids, strict=True):
                if change.id_ is None:
                    self._unplaced.remove(change)
                    change.id_ = id_
                    other = self._given.get(id_)
                    assert other is None, f"expected an id of its own, got {id_} of {other}"
                    self._given[id_] = change
                    self._place(change)
                assert change.id_ == id_, f"expected id {change.id_}, got {id_}"

    def acknowledge(self, changes: Sequence[Change]) -> None:
        """Note that changes are made, whatever happens."""
        with self._lock:
            for change in changes:
                change.is_made, change.end = True, min(change.end, time.monotonic())
            self.n_made += len(changes)

    def refuse(self, changes: Sequence[Change]) -> None:
        """Note that changes are not made."""
        with self._lock:
            for change in changes:
                if change.id_ is None:
                    self._unplaced.remove(change)
                    continue
                self._known(change.id_).remove(change)
                self._drop_given([change])

    def give_up(self, changes: Sequence[Change]) -> None:
        """Note that the process of changes has ended: they are made by now, or never."""
        with self._lock:
            for change in changes:
                change.end = min(change.end, time.monotonic())
            self._drop_given(each for each in changes if not each.is_made)

    def restore(self, content: Content, begin: float, *, is_made: bool = True) -> None:
        """Note that the index was made what it had been: what was done before that is undone.

        Args:
            content: what the index had been.
            begin: when somebody was asked for that.
            is_made: whether it was acknowledged; otherwise it may have been made.
        """
        with self._lock:
            now = time.monotonic()
            if is_made:
                self._drop_given([each for each in self._given.values() if each.end < begin])
                self._unplaced = [each for each in self._unplaced if each.end >= begin]
            for id_ in self._ids.keys() | content.keys():
                self._known(id_).add(Change(id_, content.get(id_, GONE), begin, now, is_made))

    def ids(self) -> list[int]:
        """Ids that have a vector, or may have one."""
        with self._lock:
            return sorted(id_ for id_, each in self._ids.items() if _may_be_held(each))

    def faults(self, content: Content, begin: float, end: float) -> list[str]:
        """Note what was found in the index in a span of time; return what may not be so."""
        with self._lock:
            faults = _repeated(content)
            for id_, value in content.items():
                self._adopt(id_, value)
            self._unplaced = [each for each in self._unplaced if each.end >= begin]
            for id_, known in sorted(self._ids.items()):
                found = known.faults(content.get(id_, GONE), begin, end)
                faults += [f"id {id_} {fault}" for fault in found]
                if known.number.is_over(begin):
                    del self._ids[id_]
        return faults

    def _adopt(self, id_: int, value: Value) -> None:
        """Give an id that was not known to an addition that was never answered."""
        self._known(id_)
        for change in self._unplaced:
            if change.value == value:
                self._unplaced.remove(change)
                change.id_ = id_
                self._given[id_] = change
                self._place(change)
                return

    def _drop_given(self, changes: Iterable[Change]) -> None:
        """Allow that ids are given once more, to others than these changes."""
        for change in changes:
            if change.id_ is not None and self._given.get(change.id_) is change:
                del self._given[change.id_]

    def _place(self, change: Change) -> None:
        if change.id_ is None:
            self._unplaced.append(change)
        else:
            self._known(change.id_).add(change)

    def _known(self, id_: int) -> _Id:
        return self._ids.setdefault(id_, _Id(GONE))


def _may_be_held(known: _Id) -> bool:
    return any(each.value.number is not None for each in known.number.possible())


def _repeated(content: Content) -> list[str]:
    """Vectors that an index has twice."""
    seen: dict[int | str | None, int] = {}
    faults = []
    for id_, value in content.items():
        if value.number in seen:
            faults.append(f"twice: ids {seen[value.number]} and {id_} have vector {value.number}")
        seen[value.number] = id_
    return faults


@cache
def vector_of(number: int) -> Vectors:
    """The vector of a number."""
    row = np.random.default_rng(number).normal(size=DIM).astype(np.float32)
    row.flags.writeable = False
    return row


def vectors_of(numbers: Iterable[int]) -> Vectors:
    """The vectors of numbers [n, DIM]."""
    return np.array([vector_of(number) for number in numbers], np.float32).reshape(-1, DIM)


def content_of(index: RoutingIndex, number_of: Callable[[bytes], int | None]) -> dict[int, Value]:
    """What an index holds.

    Args:
        index: the index, whose vectors are those of numbers.
        number_of: the number of a vector's bytes; None if it has none.
    """
    ids = index.ids
    rows, names = index.vectors(ids), index.names.names(ids)
    numbers = [number_of(row.tobytes()) for row in rows]
    wrong = [id_ for id_, number in zip(ids.tolist(), numbers, strict=True) if number is None]
    assert not wrong, f"expected vectors that were added, got others of {wrong}"
    values = map(Value, numbers, names)
    return dict(zip(ids.tolist(), values, strict=True))
