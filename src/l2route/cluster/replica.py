"""Replica: one copy of one shard, in a process of its own.

The class knows nothing of Ray, which makes an actor of it. A shard is opened when it is first
needed, and again after a failure: a replica whose files are damaged says so in every answer, and
serves again when they are mended.
"""

from __future__ import annotations

import os
import time
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.errors import ShardError
from l2route.cluster.folder import Folder
from l2route.cluster.manifest import Manifest
from l2route.cluster.shard import Asked, OpenShard

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


class Found(NamedTuple):
    """What a replica found, as it is sent back."""

    ids: Ids
    distances: Floats
    counts: NDArray[np.int32]
    computed: NDArray[np.float64]
    seconds: float
    """Time that the search took in the replica."""


class Replica:
    """A copy of a shard that answers calls from other processes.

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

    def _opened(self, version: str | None = None) -> OpenShard:
        """The shard, opened if it is not, with the save of a change that it has to know."""
        shard = self._shard
        if shard is not None and version in (None, shard.version):
            return shard
        with self._opening:
            try:
                if self._shard is None:
                    manifest = Manifest.read(self._folder)
                    self._shard = OpenShard(self._folder, manifest, self._number, mmap=self._mmap)
                elif version not in (None, self._shard.version):
                    self._shard.follow(version)
            except Exception as error:  # whatever is wrong with the files
                message = f"shard {self._number} cannot be opened: {error}"
                raise ShardError(message) from None  # a cause may not survive the way back
            return self._shard

    def ready(self) -> dict[str, Any]:
        """Open the shard, and say what it has and where it is."""
        return self._opened().facts() | {"pid": os.getpid()}

    def search(self, queries: Floats, asked: Asked, version: str | None = None) -> Found:
        """Answer queries [n, dim], from a save that is not older than a version."""
        began = time.perf_counter()
        found = self._opened(version).search(queries, asked, self._n_threads)
        seconds = time.perf_counter() - began
        return Found(found.ids, found.distances, found.counts, found.n_computed, seconds)

    def holds(self, ids: Ids, version: str | None = None) -> NDArray[np.bool_]:
        """Whether the shard has each of these ids [n]."""
        return self._opened(version).holds(ids)

    def facts(self, version: str | None = None) -> dict[str, Any]:
        """Size of the shard as it is now."""
        return self._opened(version).facts()

    def add(self, vectors: Floats, ids: Ids, version: str | None = None) -> str:
        """Add vectors, and save; see `OpenShard.add`."""
        return self._opened(version).add(vectors, ids)

    def put(self, vectors: Floats, ids: Ids, version: str | None = None) -> str:
        """Add vectors or replace those of their ids, and save; see `OpenShard.put`."""
        return self._opened(version).put(vectors, ids)

    def delete(self, ids: Ids, version: str | None = None) -> str:
        """Delete those ids that the shard has, and save; see `OpenShard.delete`."""
        return self._opened(version).delete(ids)
