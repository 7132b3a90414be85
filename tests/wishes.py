"""Changes by chance that processes are asked for, and the numbers of their vectors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

import numpy as np

from histories import GONE, SAME, Change, History, Value, vector_of, vectors_of

Kind = Literal["add", "update", "delete", "name"]
Source = Literal["add", "choose", "share", "update", "delete", "name"]
SOURCES: tuple[Source, ...] = ("add", "choose", "share", "share", "share", "update", "delete")
"""How a change is drawn, as often as it is: `choose` adds under new ids that the client chooses,
`share` changes some of the ids that all processes change. Servers have no way to `name`."""
SHARED_IDS = (0, 1, 2, 3, -2, -3)
"""Ids that all processes change, and that are deleted and added again."""
MOST_IDS = 3
"""Ids of a change."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A change that a process is asked for."""

    kind: Kind
    ids: list[int] | None
    numbers: list[int]
    names: list[str | None]

    def begun(self, history: History) -> list[Change]:
        """Note that a process is about to be asked for it."""
        ids: Sequence[int | None] = self.ids or [None] * len(self.numbers)
        if self.kind == "delete":
            values = [GONE for _ in ids]
        elif self.kind == "update":
            values = [Value(number, SAME) for number in self.numbers]
        elif self.kind == "name":
            values = [Value(SAME, name) for name in self.names]
        else:
            values = list(map(Value, self.numbers, self.names))
        return history.begin(zip(ids, values, strict=True))

    def arguments(self) -> tuple[Any, ...]:
        """Arguments of the method of a plain process."""
        return {
            "add": (self.ids, self.numbers, self.names),
            "update": (self.ids, self.numbers),
            "delete": (self.ids,),
            "name": (self.ids, self.names),
        }[self.kind]

    def body(self) -> dict[str, Any]:
        """The body of a request."""
        body: dict[str, Any] = {} if self.ids is None else {"ids": self.ids}
        if self.kind != "delete":
            body["vectors"] = vectors_of(self.numbers).tolist()
        if self.kind == "add" and any(self.names):
            body["labels"] = self.names
        return body


class Wishes:
    """Draws changes, and gives every vector a number of its own; any number of threads may.

    Args:
        n: numbers that are in use: those of the first vectors.
    """

    def __init__(self, n: int) -> None:
        self._counter, self._lock = itertools.count(n), Lock()
        self._numbers = {vector_of(number).tobytes(): number for number in range(n)}

    def number_of(self, vector: bytes) -> int | None:
        """The number of a vector; None if nobody was asked to add it."""
        return self._numbers.get(vector)

    def drawn(
        self,
        source: Source,
        held: Sequence[int],
        rng: np.random.Generator,
        shared: Sequence[int] = SHARED_IDS[::2],
    ) -> Wish:
        """Draw a change.

        Args:
            source: how.
            held: ids to choose from that probably have vectors.
            rng: the chance.
            shared: those of SHARED_IDS that probably have vectors.
        """
        n = int(rng.integers(1, MOST_IDS + 1))
        kind: Kind = "add" if source in ("add", "choose") else source  # type: ignore[assignment]
        ids: list[int] | None = None
        if source == "choose":
            ids = [-1000 - number for number in self.fresh(n)]
        elif source == "share":
            kind = ("add", "update", "delete")[int(rng.integers(3))]
            fitting = [id_ for id_ in SHARED_IDS if (id_ in shared) == (kind != "add")]
            ids = rng.permutation(fitting or SHARED_IDS)[:n].tolist()
        elif source == "name" and shared:
            ids = rng.permutation([id_ for id_ in SHARED_IDS if id_ in shared])[:n].tolist()
        elif source != "add":
            ids = rng.choice(np.asarray(held), min(n, len(held)), replace=False).tolist()
        numbers = self.fresh(n if ids is None else len(ids))
        is_named = kind == "name" or rng.random() < 0.5
        return Wish(kind, ids, numbers, [f"n{each}" if is_named else None for each in numbers])

    def fresh(self, n: int) -> list[int]:
        """Numbers that were not given before."""
        with self._lock:
            numbers = list(itertools.islice(self._counter, n))
            self._numbers |= {vector_of(number).tobytes(): number for number in numbers}
        return numbers
