"""One shard, opened: searches, changes that are saved before they return, newer saves followed."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.errors import LateError
from l2route.cluster.folder import Copy, Folder
from l2route.cluster.lease import Lease, leased
from l2route.cluster.manifest import Manifest, read_mark
from l2route.cluster.moves import Move, read_moves, write_moves
from l2route.data.vectors import normalize
from l2route.files.atomic import locked
from l2route.files.storage import LOCK, StaleError
from l2route.index import RoutingIndex, load
from l2route.search.filter import filter_of_ids
from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.search.validation import CalibrationWarning

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
WIDEST = 4096
"""Beam width of a shard that cannot reach the recall asked of it, or cannot measure it."""
MAX_CHANGED = 0.1
"""Share by which a shard may grow or shrink before settings of its build are not used."""
N_PASSED = 64
"""Versions older than the save in memory that are remembered as such."""
LEASE_WAIT = 60.0
"""Seconds that a change waits for others of its shard."""
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
        self._folder, self._directories = folder, [each.directory for each in manifest.shards]
        place = self._place(number)
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
        self._lease: Lease | None = None  # while the shard is changed
        self.index: RoutingIndex = load(self._copy.path, mmap=mmap)
        """The index that is searched; another one after a newer save was loaded."""
        got = (self.index.dim, self.index.searcher().base.metric)
        if got != (manifest.dim, manifest.metric):
            expected = f"{manifest.dim} dimensions, {manifest.metric}"
            raise ValueError(f"{place}: expected {expected}, got {got[0]} dimensions, {got[1]}")

    def _place(self, number: int) -> Folder:
        """The folder of a shard."""
        return self._folder.sub(self._directories[number])

    @property
    def version(self) -> str:
        """Checksum of the save that is searched."""
        version = self.index.saved_version
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
        index = self.index
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
        index, recall = self.index, asked.recall or 0.0
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

        The save is taken as it is: what another replica has deleted since stays deleted.
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
        if self.index.is_behind:
            self.index = load(self._copy.path, mmap=self._mmap)
        if version is not None and version != self.version:
            self._passed.append(version)  # it was saved before it was asked for

    def holds(self, ids: Ids) -> NDArray[np.bool_]:
        """Whether the shard has each of these ids [n]."""
        return np.isin(ids, self.index.ids)

    def moves(self) -> list[Move]:
        """Moves of ids into this shard that are not done."""
        return read_moves(self._place(self.number), self.number)

    def facts(self) -> dict[str, Any]:
        """Size of the shard as it is now."""
        index = self.index
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
                    self.index.add(vectors, ids)
        return self.version

    def put(
        self, vectors: Floats, ids: Ids, move: Move | None = None, deadline: float = NEVER
    ) -> str:
        """Replace the vectors of ids that the shard has, add the others, and save.

        A move is recorded first; see `end_moves`.

        Returns:
            The version that has them.
        """
        with self._alone(deadline):
            has = self.holds(ids)
            if move is not None:
                self._record(lambda moves: [*moves, move])
            with self._saved():
                if has.any():
                    self.index.update(ids[has], vectors[has])
                if not has.all():
                    self.index.add(vectors[~has], ids[~has])
        return self.version

    def delete(self, ids: Ids, moves: Sequence[Move] | None = None, deadline: float = NEVER) -> str:
        """Delete those of these ids that the shard has, and save.

        Args:
            ids: ids [n], of which the shard may lack some.
            moves: moves into other shards; ids that these do not have on record any more stay.
            deadline: as for `add`.

        Returns:
            The version without them.
        """
        with self._alone(deadline):
            here = ids[self.holds(ids)]
            if moves is not None:
                here = here[self._are_moved(here, moves)]
            if len(here):
                self._record(lambda own: _without(own, {move.token for move in own}, here))
                with self._saved():
                    self.index.delete(here)
        return self.version

    def _are_moved(self, ids: Ids, moves: Sequence[Move]) -> NDArray[np.bool_]:
        """Whether other shards have moves of these ids on record [n]."""
        found = np.zeros(len(ids), dtype=bool)
        for move in (each for each in moves if each.target != self.number):
            for known in read_moves(self._place(move.target), move.target):
                if known.token == move.token:
                    found |= np.isin(ids, move.ids) & np.isin(ids, known.ids)
        return found

    def end_moves(self, moves: Sequence[Move], gone: Ids, deadline: float = NEVER) -> str:
        """Forget moves of ids that no other shard has, or that this one does not have.

        Args:
            moves: moves into this shard.
            gone: ids that were removed from all other shards.
            deadline: as for `add`.
        """
        with self._alone(deadline):
            ids = np.concatenate([move.ids for move in moves])
            done = ids[np.isin(ids, gone) | ~self.holds(ids)]
            self._record(lambda own: _without(own, {move.token for move in moves}, done))
        return self.version

    def _record(self, edit: Callable[[list[Move]], list[Move]]) -> None:
        """Replace the record of moves into this shard, unless another writer has taken over."""
        with nullcontext() if self._lease is None else self._lease.kept():
            before = self.moves()
            after = edit(before)
            if before or after:
                write_moves(self._place(self.number), after)

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
        own, base = self.index.vectors(ids), self.index.searcher().base
        given = normalize(vectors) if base.metric == "cosine" else vectors
        stored = given.astype(base.rows.dtype).astype(np.float32)
        rounding = np.finfo(base.rows.dtype).eps * np.abs(stored)
        return bool((np.abs(own - stored) <= rounding).all())

    @contextmanager
    def _saved(self) -> Iterator[None]:
        """Save what the block changes; after any error memory is as the last save."""
        try:
            yield
            if self._lease is not None:
                with self._lease.kept():
                    pass
            self.index.save(merge=False)
            self._copy.push()
        except BaseException as error:
            # what is in memory must not be searched if it is not saved
            self.is_lost = True
            self._copy.pull()  # of a save that was not pushed
            self.index = load(self._copy.path, mmap=self._mmap)
            self.is_lost = False
            if isinstance(error, (StaleError, TimeoutError)):
                raise LateError(f"shard {self.number}: {error}") from None
            raise

    @contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        """Exclude changes by other replicas where there are locks, and see theirs first."""
        until = min(deadline, time.time() + LEASE_WAIT)
        lease: Any = leased(self._copy.path, until) if self.is_local else nullcontext()
        with ExitStack() as held:
            try:
                taken = held.enter_context(lease)
                held.enter_context(self._turn)
                self._follow(None)
                if taken is not None and taken.overtakes:
                    self._fence(until)
                    taken.overtakes = False
            except TimeoutError as error:
                raise LateError(f"shard {self.number}: {error}") from None
            if time.time() > deadline:
                raise LateError(f"shard {self.number} could not begin the change in time")
            self._lease = taken
            yield

    def _fence(self, until: float) -> None:
        """Save the shard as it is, so that a holder of the lease that was overtaken cannot."""
        with locked(self._copy.path / LOCK, max(0.0, until - time.time())):
            pass  # it may be saving: a save would wait for that beyond any deadline
        while True:
            try:
                self.index.save(merge=False)
            except StaleError:  # it has saved before this
                self._follow(None)
            else:
                return


def _without(moves: Sequence[Move], tokens: set[str], ids: Ids) -> list[Move]:
    """Moves without ids of those that have these tokens."""
    return [
        move._replace(ids=move.ids[~np.isin(move.ids, ids)]) if move.token in tokens else move
        for move in moves
    ]


def _cut(found: SearchResult, k: int) -> SearchResult:
    """A result with k answers per query: the nearest, or none where there are fewer."""
    n, n_found = found.ids.shape
    if n_found == k:
        return found
    ids, distances = np.full((n, k), -1, np.int64), np.full((n, k), np.inf, np.float32)
    n_kept = min(k, n_found)
    ids[:, :n_kept], distances[:, :n_kept] = found.ids[:, :k], found.distances[:, :k]
    return replace(found, ids=ids, distances=distances)
