"""Changes of a sharded index: each vector in the shard of its nearest centroid, saved there."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.asking import Call
from l2route.cluster.errors import PartialError, QueueFullError
from l2route.cluster.folder import Folder
from l2route.cluster.moves import Held, Move
from l2route.cluster.partition import Partition
from l2route.files.leases import lease_ids
from l2route.state.changing import MAX_ID

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Ask = Callable[[dict[int, Call], float], dict[int, Any]]
"""Asks shards, within some seconds; all of them have to answer."""
STATUS_HEDGE = 1.0
"""Seconds after which a second replica is asked what ids a shard has."""
FINISH_SECONDS = 1.0
"""Seconds that a change spends on moves of other ids that were not finished."""
PAUSE_SECONDS = 30.0
"""Seconds until that is tried again if it failed."""
RANDOM_IDS = 1 << 53
"""Ids by chance are below this: clients that read JSON have no larger whole numbers."""
NO_IDS = np.empty(0, dtype=np.int64)


class Changes:
    """Changes one after another, and the saves of shards that searches have to know.

    A shard that does not answer in time may still make the change: it has begun it, or will until
    the deadline that every change carries. The next change of the same ids waits until that is
    settled; others do not.

    Args:
        n_shards: number of shards.
        partition: which shard a vector belongs to.
        ask: asks shards.
        folder: the folder of the sharded index.
    """

    def __init__(self, n_shards: int, partition: Partition, ask: Ask, folder: Folder) -> None:
        self._n_shards, self._partition, self._ask = n_shards, partition, ask
        self._folder, self._next_id = folder, -1  # not known before ids are chosen
        self._turn, self._versions = Lock(), dict[int, str]()
        self._unsettled = dict[int, Ids]()  # ids of changes that shards may still make
        self._perhaps_deleted = NO_IDS  # by deletes that failed
        self._moving, self._finish_at = NO_IDS, 0.0  # ids of moves that are not done

    def version(self, shard: int) -> str | None:
        """The save of a shard by the last change; None if there was none."""
        return self._versions.get(shard)

    def add(self, rows: Floats, ids: Ids | None, seconds: float) -> Ids:
        """Add vectors under new ids; see `Cluster.add`."""
        with self._alone(seconds, NO_IDS if ids is None else ids) as until:
            shards = self._partition.assign(rows)
            new = self._new_ids(len(rows), until) if ids is None else ids
            if ids is not None and len(rows):
                self._check_new(new, shards, until)
            try:
                given = _by_shard(shards, rows, new)
                self._change("add", given, new, until)
            except PartialError as error:
                again = "" if ids is not None else f" with the ids {new[0]} to {new[-1]}"
                message = f"{error}; some vectors may have been added, so repeat it{again}"
                raise PartialError(message, new) from None
        return new

    def update(self, ids: Ids, rows: Floats, seconds: float) -> None:
        """Give ids new vectors; see `Cluster.update`.

        A vector that moves is in both shards for a moment: a search finds the nearer of them.
        """
        with self._alone(seconds, ids) as until:
            holds = self._known(ids, until)
            shards = self._partition.assign(rows)
            holds[shards, np.arange(len(ids))] = False
            is_moved, token = holds.any(axis=0), secrets.token_hex(8)
            moves = {
                shard: Move(shard, token, ids[is_moved & (shards == shard)])
                for shard in np.unique(shards[is_moved]).tolist()
            }
            self._moving = np.union1d(self._moving, ids[is_moved])
            given = _by_shard(shards, rows, ids)
            put = {shard: (*each, moves.get(shard)) for shard, each in given.items()}
            self._change("put", put, ids, until)
            self._end_moves(list(moves.values()), ids, holds, until)
            self._moving = np.setdiff1d(self._moving, ids)

    def delete(self, ids: Ids, seconds: float) -> None:
        """Delete vectors; see `Cluster.delete`."""
        with self._alone(seconds, ids) as until:
            holds = self._known(ids, until)
            self._perhaps_deleted = np.union1d(self._perhaps_deleted, ids)
            self._remove(ids, holds, None, until)
            self._perhaps_deleted = np.setdiff1d(self._perhaps_deleted, ids)

    def finish(self, moves: list[Move], seconds: float) -> None:
        """Finish moves that were left by a fault; if that fails, later changes try again."""
        if moves:
            with suppress(PartialError, QueueFullError), self._alone(seconds, NO_IDS) as until:
                self._moving = np.union1d(self._moving, _ids_of(moves))
                self._holders(self._moving, until)

    @contextmanager
    def _alone(self, seconds: float, ids: Ids) -> Iterator[float]:
        """Wait for the changes before, also for those of these ids that may still be made.

        Yields:
            The moment until which the change has time.
        """
        until = time.monotonic() + seconds
        if not self._turn.acquire(timeout=seconds):
            raise QueueFullError(f"expected room for a change within {seconds:g} s, got none")
        try:
            self._settle(ids, until)
            if len(self._moving) and time.monotonic() >= self._finish_at:
                self._finish_at = time.monotonic() + PAUSE_SECONDS
                with suppress(PartialError):
                    self._holders(self._moving, min(until, time.monotonic() + FINISH_SECONDS))
                    self._moving, self._finish_at = NO_IDS, 0.0
            yield until
        finally:
            self._turn.release()

    def _settle(self, ids: Ids, until: float) -> None:
        """Wait until shards do not make an earlier change of these ids any more."""
        shards = [shard for shard, own in self._unsettled.items() if np.isin(ids, own).any()]
        self._change("settle", dict.fromkeys(shards, ()), NO_IDS, until)

    def _remove(
        self, ids: Ids, holds: NDArray[np.bool_], moves: list[Move] | None, until: float
    ) -> None:
        given = {shard: (ids[has], moves) for shard, has in enumerate(holds) if has.any()}
        self._change("delete", given, ids, until)

    def _end_moves(
        self, moves: list[Move], ids: Ids, holds: NDArray[np.bool_], until: float
    ) -> None:
        """Remove ids where they were before they were moved, and then the record of that.

        Args:
            moves: the moves.
            ids: ids that are nowhere else afterwards, if they have arrived [n].
            holds: where they are to be removed [n_shards, n].
            until: the moment until which there is time.
        """
        self._remove(ids, holds, moves, until)
        targets = {move.target: [m for m in moves if m.target == move.target] for move in moves}
        given = {target: (own, ids) for target, own in targets.items()}
        self._change("end_moves", given, NO_IDS, until)

    def _change(
        self, method: str, given: dict[int, tuple[Any, ...]], ids: Ids, until: float
    ) -> None:
        """Call a method of shards that changes them, and remember their saves.

        Until they have answered, another change of these ids has to settle them first.
        """
        if not given:
            return
        seconds = _left(until)
        deadline = time.time() + seconds
        calls = {
            shard: Call(method, "change", (*each, self.version(shard), deadline), sticky=True)
            for shard, each in given.items()
        }
        for shard in calls:
            self._unsettled[shard] = np.union1d(self._unsettled.get(shard, NO_IDS), ids)
        changed = self._ask(calls, seconds)
        self._versions |= {shard: each.version for shard, each in changed.items()}
        for shard in calls:
            del self._unsettled[shard]

    def _known(self, ids: Ids, until: float) -> NDArray[np.bool_]:
        """Which shards have which of these ids [n_shards, n]; refuses ids that none has."""
        holds = self._holders(ids, until)
        unknown = ids[~holds.any(axis=0) & ~np.isin(ids, self._perhaps_deleted)]
        if len(unknown):
            raise ValueError(f"expected ids of the index, got {unknown[:3].tolist()}")
        return holds

    def _holders(self, ids: Ids, until: float) -> NDArray[np.bool_]:
        """Which shards have which of these ids [n_shards, n], when moves of them are done."""
        found: list[Held] = self._status("holds", (ids,), until)
        moves = [move for each in found for move in each.moves]
        if moves:
            self._moving = np.union1d(self._moving, _ids_of(moves))
            holds = np.stack([each.mask for each in found])
            at = np.full(len(ids), -1)
            for move in reversed(moves):  # of several, all callers choose the same one
                at[holds[move.target] & np.isin(ids, move.ids)] = move.target
            arrived = at >= 0  # the others stay where they are
            holds[at[arrived], np.flatnonzero(arrived)] = False
            self._end_moves(moves, ids[arrived], holds[:, arrived], until)
            found = self._status("holds", (ids,), until)
        return np.stack([each.mask for each in found])

    def _check_new(self, ids: Ids, shards: NDArray[np.int32], until: float) -> None:
        """Refuse ids that another shard has, and let others choose none of them.

        The shard itself knows a call that is repeated.
        """
        holds = self._holders(ids, until)
        holds[shards, np.arange(len(ids))] = False
        if holds.any():
            known = ids[holds.any(axis=0)][:3].tolist()
            raise ValueError(f"expected ids that the index does not have, got {known}")
        if self._folder.is_local:
            lease_ids(self._folder.path, max(0, int(ids.max()) + 1), 0)

    def _new_ids(self, n: int, until: float) -> Ids:
        """Ids [n] in a row that nobody else chooses.

        They follow the largest in a directory of this machine. Where there are no locks they are by
        chance.
        """
        if not self._folder.is_local:
            while True:
                first = secrets.randbelow(RANDOM_IDS - n)
                ids = np.arange(first, first + n, dtype=np.int64)
                if not self._holders(ids, until).any():
                    return ids
        if self._next_id < 0:
            highest = [each["highest_id"] for each in self._status("facts", (), until)]
            self._next_id = max(0, *(each + 1 for each in highest))
        first = lease_ids(self._folder.path, self._next_id, n)
        if first + n - 1 > MAX_ID:
            raise ValueError(f"expected ids of at most {MAX_ID}, got {first + n - 1} as the next")
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


def _by_shard(shards: NDArray[np.int32], rows: Floats, ids: Ids) -> dict[int, tuple[Floats, Ids]]:
    """Vectors and their ids by the shard that they belong to."""
    wanted = {shard: shards == shard for shard in np.unique(shards).tolist()}
    return {shard: (rows[here], ids[here]) for shard, here in wanted.items()}


def _ids_of(moves: list[Move]) -> Ids:
    return np.unique(np.concatenate([NO_IDS, *(move.ids for move in moves)]))


def _left(until: float) -> float:
    return max(0.001, until - time.monotonic())
