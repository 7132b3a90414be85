"""One shard, opened: searches, changes that are saved before they return, newer saves followed."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.errors import LateError
from l2route.cluster.folder import Copy, Folder
from l2route.cluster.manifest import Manifest, read_mark
from l2route.data.vectors import normalize
from l2route.files.atomic import locked
from l2route.search.filter import filter_of_ids
from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.search.validation import CalibrationWarning
from l2route.serve.served import Served

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
WIDEST = 4096
"""Beam width of a shard that cannot reach the recall asked of it, or cannot measure it."""
MAX_CHANGED = 0.1
"""Share by which a shard may grow or shrink before settings of its build are not used."""
N_PASSED = 64
"""Versions older than the save in memory that are remembered as such."""
LOCK = ".change.lock"
"""Locked while a shard is changed, so that replicas change it one after another."""
LOCK_SECONDS = 60.0
NEVER = float("inf")
"""Deadline of a change that nobody gives up."""


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
        self._n_built = manifest.shards[number].n_vectors
        self._turn = RLock()  # held by what changes the copy or loads it
        self._passed: deque[str] = deque(maxlen=N_PASSED)
        self.is_lost = False
        """Whether memory holds a change that is not saved and could not be taken back."""
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

    @property
    def is_local(self) -> bool:
        """Whether the files of the shard are used in place."""
        return self._copy.folder.is_local

    def search(self, queries: Floats, asked: Asked, n_threads: int = 1) -> SearchResult:
        """Answer queries [n, dim] from this shard alone.

        A recall that the shard cannot measure or reach is searched for by a setting of the build
        for as many answers and as high a recall, if there is one, or by the widest beam.
        """
        where = None if asked.where is None else filter_of_ids(asked.where)
        index = self._served.index
        if asked.recall is None:
            limits = asked.limits._asdict()
            return index.search(queries, asked.k, where=where, n_threads=n_threads, **limits)
        k = max(1, min(asked.k, len(index)))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)  # the build said so
                # what is wrong with queries is no error here, but in the search
                plan = index.plan(k, where=where, recall=asked.recall, n_threads=n_threads)
        except ValueError:  # out of reach, or there are too few or no validation queries
            return _cut(self._search_unmeasured(queries, asked, where, n_threads), asked.k)
        return _cut(plan(queries), asked.k)

    def _search_unmeasured(
        self, queries: Floats, asked: Asked, where: Any, n_threads: int
    ) -> SearchResult:
        index, recall = self._served.index, asked.recall or 0.0
        is_as_built = abs(len(index) - self._n_built) <= MAX_CHANGED * self._n_built
        space = index.searcher().space.name
        able = [
            each
            for each in index.settings
            if (each.space, each.share, each.threshold) == (space, 1.0, None)
            and each.k >= asked.k
            and each.target >= recall
        ]
        if where is None and able and is_as_built:
            best = min(able, key=lambda each: (each.target, each.k))
            limits = best.limits._asdict()
            return index.search(queries, best.k, n_threads=n_threads, **limits)
        return index.search(queries, asked.k, where=where, ef=WIDEST, n_threads=n_threads)

    def lacks(self, version: str | None) -> bool:
        """Whether a save may be newer than the one that is searched."""
        return version is not None and version != self.version and version not in self._passed

    def follow(self, version: str | None = None) -> str:
        """Load the newer save if this is not the version that is needed, and return the version.

        The save is taken as it is. `Served.reload` would make this replica's own changes again, and
        bring back what another replica has deleted since.
        """
        with self._turn:
            self._follow(version)
            return self.version

    def follow_if_free(self) -> None:
        """Load the newer save if there is one, unless this copy is being changed or loaded."""
        if self._turn.acquire(blocking=False):
            try:
                self._follow(None)
            finally:
                self._turn.release()

    def _follow(self, version: str | None) -> None:
        if version is not None and version == self.version:
            return
        self._copy.pull()
        if self._served.is_newer:
            self._served = Served(self._copy.path, mmap=self._mmap)
        if version is not None and version != self.version:
            self._passed.append(version)  # it was saved before it was asked for

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

    def add(self, vectors: Floats, ids: Ids, deadline: float = NEVER) -> str:
        """Add vectors, and save; if all are there already, as after a retry, nothing is done.

        Returns:
            The version that has them.
        """
        with self._alone(deadline):
            has = self.holds(ids)
            if has.any() and not self._has_all(vectors, ids, has):
                known = ids[has][:3].tolist()
                raise ValueError(f"expected ids that the index does not have, got {known}")
            if not has.all():
                with self._saved():
                    self._served.add(vectors, ids, None)
        return self.version

    def put(self, vectors: Floats, ids: Ids, deadline: float = NEVER) -> str:
        """Replace the vectors of ids that the shard has, add the others, and save.

        Returns:
            The version that has them.
        """
        with self._alone(deadline):
            has = self.holds(ids)
            with self._saved():
                if has.any():
                    self._served.update(ids[has], vectors[has])
                if not has.all():
                    self._served.add(vectors[~has], ids[~has], None)
        return self.version

    def delete(self, ids: Ids, deadline: float = NEVER) -> str:
        """Delete those of these ids that the shard has, and save.

        Returns:
            The version without them.
        """
        with self._alone(deadline):
            here = ids[self.holds(ids)]
            if len(here):
                with self._saved():
                    self._served.delete(here)
        return self.version

    def settle(self, deadline: float = NEVER) -> str:
        """Wait until changes that have begun have ended, here and in other replicas.

        Returns:
            The version after them.
        """
        with self._alone(deadline):
            return self.version

    def _has_all(self, vectors: Floats, ids: Ids, has: NDArray[np.bool_]) -> bool:
        """Whether the shard has just these vectors: a call may be repeated after a fault."""
        if not has.all():
            return False
        own, base = self._served.index.vectors(ids), self._served.index.searcher().base
        given = normalize(vectors) if base.metric == "cosine" else vectors
        stored = given.astype(base.rows.dtype).astype(np.float32)
        rounding = np.finfo(base.rows.dtype).eps * np.abs(stored)
        return bool((np.abs(own - stored) <= rounding).all())

    @contextmanager
    def _saved(self) -> Iterator[None]:
        """Save what the block changes; after any error memory is as the last save."""
        try:
            yield
            self._served.save()
            self._copy.push()
        except BaseException:
            # what is in memory must not be searched if it is not saved
            self.is_lost = True
            self._copy.pull()  # of a save that was not pushed
            self._served = Served(self._copy.path, mmap=self._mmap)
            self.is_lost = False
            raise

    @contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        """Exclude changes by other replicas where there are locks, and see theirs first."""
        path = self._copy.path / LOCK
        seconds = min(LOCK_SECONDS, max(0.0, deadline - time.time()))
        lock: Any = locked(path, seconds) if self.is_local else nullcontext()
        with ExitStack() as held:
            try:
                held.enter_context(lock)
            except TimeoutError as error:
                raise LateError(f"shard {self.number}: {error}") from None
            held.enter_context(self._turn)
            self._follow(None)
            if time.time() > deadline:
                raise LateError(f"shard {self.number} could not begin the change in time")
            yield


def _cut(found: SearchResult, k: int) -> SearchResult:
    """A result with k answers per query: the nearest, or none where there are fewer."""
    n, n_found = found.ids.shape
    if n_found == k:
        return found
    ids, distances = np.full((n, k), -1, np.int64), np.full((n, k), np.inf, np.float32)
    n_kept = min(k, n_found)
    ids[:, :n_kept], distances[:, :n_kept] = found.ids[:, :k], found.distances[:, :k]
    return replace(found, ids=ids, distances=distances)
