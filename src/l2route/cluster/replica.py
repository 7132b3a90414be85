"""Replica: one copy of one shard, in a process of its own.

The class knows nothing of Ray, which makes an actor of it. A shard is opened when it is first
needed, and again after a failure: a replica whose files are damaged says so in every answer, and
serves again when they are mended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.errors import ShardError
from l2route.cluster.folder import Folder
from l2route.cluster.manifest import Manifest
from l2route.cluster.moves import Held, Move
from l2route.cluster.shard import NEVER, Asked, OpenShard

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
LOOK_SECONDS = 0.1
"""Seconds between two looks for a newer save in a directory of the machine."""
REMOTE_LOOK_SECONDS = 1.0
"""The same where each look is a request to a store."""


class Found(NamedTuple):
    """What a replica found, as it is sent back."""

    ids: Ids
    distances: Floats
    counts: NDArray[np.int32]
    computed: NDArray[np.float64]
    seconds: float
    """Time that the search took in the replica."""
    n_vectors: int
    """Vectors of the shard."""


class Changed(NamedTuple):
    """A shard after a change."""

    version: str
    """Its save, which has the change."""
    n_vectors: int
    """Its vectors."""


class Replica:
    """A copy of a shard that answers calls from other processes.

    A call that names a version is answered from that save or a newer one. Searches that name none
    may be answered from a save that was replaced up to `LOOK_SECONDS` ago (`REMOTE_LOOK_SECONDS` in
    a store), and while the newer one is loaded or cannot be read. `holds` and `facts` are exact.
    A change is not begun after its deadline, in seconds since the epoch, which may pass while the
    call waits for another: the caller has given it up.

    Args:
        url: folder of the sharded index.
        number: which shard.
        n_threads: threads of a search.
        mmap: map the arrays instead of reading them.
    """

    def __init__(self, url: str, number: int, n_threads: int = 1, mmap: bool = False) -> None:
        self._folder, self._number = Folder(url), number
        self._n_threads, self._mmap = n_threads, mmap
        self._opening = Lock()
        self._shard: OpenShard | None = None
        self._looked = 0.0  # when a newer save was last looked for

    def _opened(self, version: str | None = None, *, is_exact: bool = False) -> OpenShard:
        """The shard, opened if it is not, with the save of a change that it has to know."""
        try:
            shard = self._shard
            if shard is None or shard.is_lost:
                return self._open()
            if is_exact or shard.lacks(version):
                shard.follow(None if is_exact else version)
                return shard
        except Exception as error:  # whatever is wrong with the files
            message = f"shard {self._number} cannot be opened: {error}"
            raise ShardError(message) from None  # a cause may not survive the way back
        self._look(shard)
        return shard

    def _open(self) -> OpenShard:
        with self._opening:
            if self._shard is None or self._shard.is_lost:
                self._looked = time.monotonic()
                manifest = Manifest.read(self._folder)
                self._shard = OpenShard(self._folder, manifest, self._number, mmap=self._mmap)
            return self._shard

    def _look(self, shard: OpenShard) -> None:
        """Follow the changes of other callers, now and then."""
        now = time.monotonic()
        if now - self._looked < (LOOK_SECONDS if shard.is_local else REMOTE_LOOK_SECONDS):
            return
        self._looked = now
        with suppress(Exception):  # the last save is served on; exact calls say what is wrong
            shard.follow_if_free()

    def ready(self) -> dict[str, Any]:
        """Open the shard; say what it has, where it is, and which moves into it are not done."""
        shard = self._opened()
        return shard.facts() | {"pid": os.getpid(), "moves": shard.moves()}

    def search(self, queries: Floats, asked: Asked, version: str | None = None) -> Found:
        """Answer queries [n, dim], from a save that is not older than a version."""
        began = time.perf_counter()
        shard = self._opened(version)
        found = shard.search(queries, asked, self._n_threads)
        seconds = time.perf_counter() - began
        counted = found.counts, found.n_computed, seconds, len(shard.index)
        return Found(found.ids, found.distances, *counted)

    def holds(self, ids: Ids, version: str | None = None) -> Held:
        """Whether the shard has each of these ids [n], and moves of them into it."""
        shard = self._opened(version, is_exact=True)
        mask = shard.holds(ids)  # before the moves: an id that is here without one has stayed
        found = [each._replace(ids=np.intersect1d(each.ids, ids)) for each in shard.moves()]
        return Held(mask, [each for each in found if len(each.ids)])

    def facts(self, version: str | None = None) -> dict[str, Any]:
        """Size of the shard as it is now."""
        return self._opened(version, is_exact=True).facts()

    def add(
        self, vectors: Floats, ids: Ids, version: str | None = None, deadline: float = NEVER
    ) -> Changed:
        """Add vectors, and save; see `OpenShard.add`."""
        return self._changed(version, lambda shard: shard.add(vectors, ids, deadline))

    def put(
        self,
        vectors: Floats,
        ids: Ids,
        move: Move | None,
        version: str | None = None,
        deadline: float = NEVER,
    ) -> Changed:
        """Add vectors or replace those of their ids, and save; see `OpenShard.put`."""
        return self._changed(version, lambda shard: shard.put(vectors, ids, move, deadline))

    def delete(
        self,
        ids: Ids,
        moves: Sequence[Move] | None,
        version: str | None = None,
        deadline: float = NEVER,
    ) -> Changed:
        """Delete those ids that the shard has, and save; see `OpenShard.delete`."""
        return self._changed(version, lambda shard: shard.delete(ids, moves, deadline))

    def end_moves(
        self,
        moves: Sequence[Move],
        gone: Ids,
        version: str | None = None,
        deadline: float = NEVER,
    ) -> Changed:
        """Forget moves that are done; see `OpenShard.end_moves`."""
        return self._changed(version, lambda shard: shard.end_moves(moves, gone, deadline))

    def settle(self, version: str | None = None, deadline: float = NEVER) -> Changed:
        """Wait for changes that have begun; see `OpenShard.settle`."""
        return self._changed(version, lambda shard: shard.settle(deadline))

    def _changed(self, version: str | None, change: Callable[[OpenShard], str]) -> Changed:
        shard = self._opened(version)
        return Changed(change(shard), len(shard.index))
