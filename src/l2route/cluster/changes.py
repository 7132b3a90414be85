"""Changes of a sharded index: each vector in the shard of its nearest centroid, saved there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.asking import Call
from l2route.cluster.errors import PartialError, QueueFullError
from l2route.cluster.partition import Partition

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Ask = Callable[[dict[int, Call], float], dict[int, Any]]
"""Asks shards, within some seconds; all of them have to answer."""
STATUS_HEDGE = 1.0
"""Seconds after which a second replica is asked what ids a shard has."""


class Changes:
    """Changes one after another, and the saves of shards that searches have to know.

    A shard that does not answer in time may still make the change: it has begun it, or will until
    the deadline that every change carries. The next change waits until that is settled.

    Args:
        n_shards: number of shards.
        partition: which shard a vector belongs to.
        ask: asks shards.
    """

    def __init__(self, n_shards: int, partition: Partition, ask: Ask) -> None:
        self._n_shards, self._partition, self._ask = n_shards, partition, ask
        self._turn, self._versions = Lock(), dict[int, str]()
        self._unsettled = set[int]()
        self._perhaps_deleted = np.empty(0, dtype=np.int64)  # by deletes that failed
        self._next_id = 0  # ids below were chosen for vectors that may have been added

    def version(self, shard: int) -> str | None:
        """The save of a shard by the last change; None if there was none."""
        return self._versions.get(shard)

    def add(self, rows: Floats, ids: Ids | None, seconds: float) -> Ids:
        """Add vectors under new ids; see `Cluster.add`."""
        with self._alone(seconds) as until:
            shards = self._partition.assign(rows)
            new = self._new_ids(len(rows), until) if ids is None else ids
            if ids is not None and len(rows):
                self._check_new(new, shards, until)
            try:
                self._put("add", rows, new, shards, until)
            except PartialError as error:
                again = "" if ids is not None else f" with the ids {new[0]} to {new[-1]}"
                message = f"{error}; some vectors may have been added, so repeat it{again}"
                raise PartialError(message, new) from None
        return new

    def update(self, ids: Ids, rows: Floats, seconds: float) -> None:
        """Give ids new vectors; see `Cluster.update`.

        A vector that moves is in both shards for a moment: a search finds the nearer of them.
        """
        with self._alone(seconds) as until:
            holds = self._known(ids, until)
            shards = self._partition.assign(rows)
            self._put("put", rows, ids, shards, until)
            holds[shards, np.arange(len(ids))] = False
            self._remove(ids, holds, until)

    def delete(self, ids: Ids, seconds: float) -> None:
        """Delete vectors; see `Cluster.delete`."""
        with self._alone(seconds) as until:
            holds = self._known(ids, until)
            self._perhaps_deleted = np.union1d(self._perhaps_deleted, ids)
            self._remove(ids, holds, until)
            self._perhaps_deleted = np.setdiff1d(self._perhaps_deleted, ids)

    @contextmanager
    def _alone(self, seconds: float) -> Iterator[float]:
        """Wait for the changes before, also for those that may still be made.

        Yields:
            The moment until which the change has time.
        """
        until = time.monotonic() + seconds
        if not self._turn.acquire(timeout=seconds):
            raise QueueFullError(f"expected room for a change within {seconds:g} s, got none")
        try:
            if self._unsettled:
                self._change("settle", dict.fromkeys(self._unsettled, ()), until)
            yield until
        finally:
            self._turn.release()

    def _put(
        self, method: str, rows: Floats, ids: Ids, shards: NDArray[np.int32], until: float
    ) -> None:
        wanted = {shard: shards == shard for shard in np.unique(shards).tolist()}
        self._change(method, {s: (rows[here], ids[here]) for s, here in wanted.items()}, until)

    def _remove(self, ids: Ids, holds: NDArray[np.bool_], until: float) -> None:
        given = {shard: (ids[has],) for shard, has in enumerate(holds) if has.any()}
        self._change("delete", given, until)

    def _change(self, method: str, given: dict[int, tuple[Any, ...]], until: float) -> None:
        """Call a method of shards that changes them, and remember their saves."""
        seconds = _left(until)
        deadline = time.time() + seconds
        calls = {
            shard: Call(method, "change", (*each, self.version(shard), deadline), sticky=True)
            for shard, each in given.items()
        }
        self._unsettled |= calls.keys()
        self._versions |= self._ask(calls, seconds)
        self._unsettled -= calls.keys()

    def _known(self, ids: Ids, until: float) -> NDArray[np.bool_]:
        """Which shards have which of these ids [n_shards, n]; refuses ids that none has."""
        holds = self._holders(ids, until)
        unknown = ids[~holds.any(axis=0) & ~np.isin(ids, self._perhaps_deleted)]
        if len(unknown):
            raise ValueError(f"expected ids of the index, got {unknown[:3].tolist()}")
        return holds

    def _holders(self, ids: Ids, until: float) -> NDArray[np.bool_]:
        """Which shards have which of these ids [n_shards, n]."""
        return np.stack(self._status("holds", (ids,), until))

    def _check_new(self, ids: Ids, shards: NDArray[np.int32], until: float) -> None:
        """Refuse ids that another shard has; the shard itself knows a call that is repeated."""
        holds = self._holders(ids, until)
        holds[shards, np.arange(len(ids))] = False
        if holds.any():
            known = ids[holds.any(axis=0)][:3].tolist()
            raise ValueError(f"expected ids that the index does not have, got {known}")

    def _new_ids(self, n: int, until: float) -> Ids:
        """The n ids after the largest that there is, and after those chosen before."""
        highest = [each["highest_id"] for each in self._status("facts", (), until)]
        first = max([self._next_id, *(each + 1 for each in highest)])
        self._next_id = first + n
        return np.arange(first, first + n, dtype=np.int64)

    def _status(self, method: str, given: tuple[Any, ...], until: float) -> list[Any]:
        """What each shard says about itself, after the changes before."""
        calls = {
            shard: Call(method, "status", (*given, self.version(shard)), STATUS_HEDGE)
            for shard in range(self._n_shards)
        }
        found = self._ask(calls, _left(until))
        return [found[shard] for shard in range(self._n_shards)]


def _left(until: float) -> float:
    return max(0.001, until - time.monotonic())
