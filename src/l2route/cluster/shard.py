"""One shard, opened: searches, changes that are saved before they return, newer saves followed."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.folder import Copy, Folder
from l2route.cluster.manifest import Manifest, read_mark
from l2route.files.atomic import locked
from l2route.search.calibrate import OutOfReachError
from l2route.search.filter import filter_of_ids
from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.search.validation import CalibrationWarning
from l2route.serve.served import Served

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
WIDEST = 4096
"""Beam width of a shard that cannot reach the recall asked of it."""
LOCK = ".change.lock"
"""Locked while a shard is changed, so that replicas change it one after another."""
LOCK_SECONDS = 60.0


class Asked(NamedTuple):
    """What a shard is asked for, beside queries."""

    k: int
    limits: Limits = Limits()
    recall: float | None = None
    """Recall@k to search for within the shard, in place of limits."""
    where: Ids | None = None
    """Ids that may be answers; None for all."""


class OpenShard:
    """A shard of a sharded index, loaded and checked.

    Args:
        folder: the folder of the sharded index.
        manifest: its manifest.
        number: which shard.
        mmap: map the arrays instead of reading them.
    """

    def __init__(
        self, folder: Folder, manifest: Manifest, number: int, *, mmap: bool = False
    ) -> None:
        place = folder.sub(manifest.shards[number].directory)
        read_mark(place, manifest.build, number)
        self.number = number
        self._copy = Copy(place)
        self._copy.pull()
        self._mmap = mmap
        self._served = Served(self._copy.path, mmap=mmap)
        got = (self._served.index.dim, self._served.index.searcher().base.metric)
        if got != (manifest.dim, manifest.metric):
            expected = f"{manifest.dim} dimensions, {manifest.metric}"
            raise ValueError(f"{place}: expected {expected}, got {got[0]} dimensions, {got[1]}")

    @property
    def index(self) -> Any:
        """The index, a `RoutingIndex`."""
        return self._served.index

    @property
    def version(self) -> str:
        """Checksum of the save that is searched."""
        version = self._served.index.saved_version
        assert version is not None  # it was loaded
        return version

    def search(self, queries: Floats, asked: Asked, n_threads: int = 1) -> SearchResult:
        """Answer queries [n, dim] from this shard alone."""
        where = None if asked.where is None else filter_of_ids(asked.where)
        index = self._served.index
        if asked.recall is None:
            limits = asked.limits._asdict()
            return index.search(queries, asked.k, where=where, n_threads=n_threads, **limits)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)  # the build said so
                return index.search(
                    queries, asked.k, where=where, recall=asked.recall, n_threads=n_threads
                )
        except OutOfReachError:
            return index.search(queries, asked.k, where=where, ef=WIDEST, n_threads=n_threads)

    def follow(self, version: str | None = None) -> str:
        """Load the newer save if this is not the version that is needed, and return the version.

        The save is taken as it is. `Served.reload` would make this replica's own changes again, and
        bring back what another replica has deleted since.
        """
        if version is None or version != self.version:
            self._copy.pull()
            if self._served.is_newer:
                self._served = Served(self._copy.path, mmap=self._mmap)
        return self.version

    def holds(self, ids: Ids) -> NDArray[np.bool_]:
        """Whether the shard has each of these ids [n]."""
        return np.isin(ids, self._served.index.ids)

    def facts(self) -> dict[str, Any]:
        """Size of the shard as it is now."""
        index = self._served.index
        ids = index.ids
        return {
            "n_vectors": len(index),
            "n_bytes": index.n_bytes,
            "lowest_id": int(ids.min()) if len(ids) else 0,
            "highest_id": int(ids.max()) if len(ids) else 0,
            "version": self.version,
        }

    def add(self, vectors: Floats, ids: Ids) -> str:
        """Add vectors, and save; if all are there already, as after a retry, nothing is done.

        Returns:
            The version that has them.
        """
        with self._alone():
            has = self.holds(ids)
            if has.any() and not self._has_all(vectors, ids, has):
                known = ids[has][:3].tolist()
                raise ValueError(f"expected ids that the index does not have, got {known}")
            if not has.all():
                self._served.add(vectors, ids, None)
                self._save()
        return self.version

    def put(self, vectors: Floats, ids: Ids) -> str:
        """Replace the vectors of ids that the shard has, add the others, and save.

        Returns:
            The version that has them.
        """
        with self._alone():
            has = self.holds(ids)
            if has.any():
                self._served.update(ids[has], vectors[has])
            if not has.all():
                self._served.add(vectors[~has], ids[~has], None)
            self._save()
        return self.version

    def delete(self, ids: Ids) -> str:
        """Delete those of these ids that the shard has, and save.

        Returns:
            The version without them.
        """
        with self._alone():
            here = ids[self.holds(ids)]
            if len(here):
                self._served.delete(here)
                self._save()
        return self.version

    def _has_all(self, vectors: Floats, ids: Ids, has: NDArray[np.bool_]) -> bool:
        """Whether the shard has just these vectors: a call may be repeated after a fault."""
        if not has.all():
            return False
        own = self._served.index.vectors(ids)
        given = vectors
        if self._served.index.searcher().base.metric == "cosine":
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            given = vectors / np.maximum(lengths, 1e-30)
        return bool(np.allclose(own, given, rtol=1e-2, atol=1e-3 * np.abs(own).max()))

    def _save(self) -> None:
        try:
            self._served.save()
            self._copy.push()
        except BaseException:
            # what is in memory must not be searched if it is not saved: back to the last save
            self._served = Served(self._copy.path, mmap=self._mmap)
            raise

    def _alone(self) -> Any:
        """Exclude changes by other replicas where there are locks, and see theirs first."""
        return _Turn(self)


class _Turn:
    """The right to change a shard, on its newest save."""

    def __init__(self, shard: OpenShard) -> None:
        self._shard = shard
        local = shard._copy.folder.is_local
        path = shard._copy.path / LOCK
        self._lock: Any = locked(path, LOCK_SECONDS) if local else nullcontext()

    def __enter__(self) -> None:
        self._lock.__enter__()
        self._shard.follow()

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)
