"""Changes of a sharded index: each vector in the shard of its nearest centroid, saved there."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.asking import Call
from l2route.cluster.partition import Partition

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Ask = Callable[[dict[int, Call], float], dict[int, Any]]
"""Asks shards, within some seconds; all of them have to answer."""


class Changes:
    """Changes one after another, and the saves of shards that searches have to know.

    Args:
        n_shards: number of shards.
        partition: which shard a vector belongs to.
        ask: asks shards.
    """

    def __init__(self, n_shards: int, partition: Partition, ask: Ask) -> None:
        self._n_shards, self._partition, self._ask = n_shards, partition, ask
        self._turn, self._versions = Lock(), dict[int, str]()

    def version(self, shard: int) -> str | None:
        """The save of a shard by the last change; None if there was none."""
        return self._versions.get(shard)

    def add(self, rows: Floats, ids: Ids | None, seconds: float) -> Ids:
        """Add vectors under new ids; see `Cluster.add`."""
        with self._turn:
            shards = self._partition.assign(rows)
            new = self._new_ids(len(rows), seconds) if ids is None else ids
            if ids is not None and len(rows):
                self._check_new(new, shards, seconds)
            self._put("add", rows, new, shards, seconds)
        return new

    def update(self, ids: Ids, rows: Floats, seconds: float) -> None:
        """Give ids new vectors; see `Cluster.update`.

        A vector that moves is in both shards for a moment: a search finds the nearer of them.
        """
        with self._turn:
            holds = self._known(ids, seconds)
            shards = self._partition.assign(rows)
            self._put("put", rows, ids, shards, seconds)
            holds[shards, np.arange(len(ids))] = False
            self._remove(ids, holds, seconds)

    def delete(self, ids: Ids, seconds: float) -> None:
        """Delete vectors; see `Cluster.delete`."""
        with self._turn:
            self._remove(ids, self._known(ids, seconds), seconds)

    def _put(
        self, method: str, rows: Floats, ids: Ids, shards: NDArray[np.int32], seconds: float
    ) -> None:
        calls = {}
        for shard in np.unique(shards).tolist():
            here = shards == shard
            arguments = (rows[here], ids[here], self.version(shard))
            calls[shard] = Call(method, "change", arguments, sticky=True)
        self._versions |= self._ask(calls, seconds)

    def _remove(self, ids: Ids, holds: NDArray[np.bool_], seconds: float) -> None:
        calls = {
            shard: Call("delete", "change", (ids[has], self.version(shard)), sticky=True)
            for shard, has in enumerate(holds)
            if has.any()
        }
        self._versions |= self._ask(calls, seconds)

    def _known(self, ids: Ids, seconds: float) -> NDArray[np.bool_]:
        """Which shards have which of these ids [n_shards, n]; refuses ids that none has."""
        holds = self._holders(ids, seconds)
        unknown = ids[~holds.any(axis=0)]
        if len(unknown):
            raise ValueError(f"expected ids of the index, got {unknown[:3].tolist()}")
        return holds

    def _holders(self, ids: Ids, seconds: float) -> NDArray[np.bool_]:
        """Which shards have which of these ids [n_shards, n]."""
        numbers = range(self._n_shards)
        calls = {s: Call("holds", "status", (ids, self.version(s))) for s in numbers}
        found = self._ask(calls, seconds)
        return np.stack([found[shard] for shard in numbers])

    def _check_new(self, ids: Ids, shards: NDArray[np.int32], seconds: float) -> None:
        """Refuse ids that another shard has; the shard itself knows a call that is repeated."""
        holds = self._holders(ids, seconds)
        holds[shards, np.arange(len(ids))] = False
        if holds.any():
            known = ids[holds.any(axis=0)][:3].tolist()
            raise ValueError(f"expected ids that the index does not have, got {known}")

    def _new_ids(self, n: int, seconds: float) -> Ids:
        """The n ids after the largest that there is."""
        calls = {s: Call("facts", "status", (self.version(s),)) for s in range(self._n_shards)}
        found = self._ask(calls, seconds)
        highest = max([-1, *(each["highest_id"] for each in found.values())])
        return np.arange(highest + 1, highest + 1 + n, dtype=np.int64)
