"""Changing: the methods of an index that add, delete and replace vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import index as index_of
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.labels import Labels, checked_names
from l2route.data.vectors import as_array, check_lengths, check_vectors, normalize
from l2route.files.leases import lease_ids
from l2route.files.meta import Saved
from l2route.files.progress import Progress, ignore
from l2route.files.storage import is_snapshot
from l2route.search.base import BaseVectors
from l2route.search.codes import check_half
from l2route.search.encode import check_encodes
from l2route.search.searcher import MAX_THREADS
from l2route.state.current import Current
from l2route.state.living import Living

Ids = NDArray[np.int64]
MAX_ID = int(np.iinfo(np.int64).max)
"""The largest id."""
N_NAMED = 5
"""Ids that an error message names."""


class Changing:
    """Vectors by their ids: added, deleted, replaced and read.

    Calls that change an index run one after another. Searches do not wait for them: a search can
    find every vector whose `add` had returned when it began, and answers with none twice and with
    none whose `delete` had returned.
    """

    _current: Current

    def add(
        self,
        vectors: object,
        ids: object = None,
        *,
        names: Iterable[str | None] | None = None,
        n_threads: int = 0,
        progress: Progress | None = None,
    ) -> Ids:
        """Add vectors to the index; if it fails, nothing is added.

        The cost per vector is that of a search with a beam of 300 and of the lists that
        change. The first change after building, loading or learning copies the index once into
        buffers with room, and so does a change for which they are too small.

        Args:
            vectors: [n, dim], or one vector [dim].
            ids: their ids [n], distinct int64 other than −1 that the index does not have. Default:
                the numbers that follow the largest id so far, and that no other process which has
                loaded the index has chosen so.
            names: their names [n], for `names`; None for one without a name.
            n_threads: threads; 0 for all cores. The index is the same for any number.
            progress: called with vectors inserted and in total, after all checks.

        Returns:
            The ids of the vectors [n].
        """
        rows = _checked_vectors(vectors, self._current.state.base)
        given = None if ids is None else checked_ids(ids, len(rows))
        texts = checked_names([None] * len(rows) if names is None else names)
        if len(texts) != len(rows):
            raise ValueError(f"expected {len(rows)} names, one per vector, got {len(texts)}")
        threads, shown = _checked_threads(n_threads), progress or ignore
        if not len(rows):
            return np.zeros(0, dtype=np.int64)
        self._check_encodes()
        with self._current.living(len(rows)) as living:
            chosen = _new_ids(living, given, len(rows), self._current.saved)
            self._current.touch(chosen, moves=True, names=True)
            with _naming(self._current.state.names, chosen, texts):
                living.insert(rows, chosen, replaces=False, n_threads=threads, progress=shown)
        return chosen

    def delete(self, ids: object) -> None:
        """Delete vectors and their names; if an id is unknown or repeated, nothing is deleted.

        Searches that begin from now on do not answer with them. The graph is repaired around them
        when enough have been deleted; their places are then used again.
        """
        wanted = checked_ids(ids)
        if not len(wanted):
            return
        with self._current.living() as living:
            slots = _slots_of(living, wanted)
            self._current.touch(wanted, moves=True, names=True)
            living.delete(slots)
            self._current.state.names.remove(wanted)

    def update(
        self,
        ids: object,
        vectors: object,
        *,
        n_threads: int = 0,
        progress: Progress | None = None,
    ) -> None:
        """Replace vectors; if one of the ids is unknown or repeated, nothing is changed.

        Ids keep their names.
        Vectors that are equal to those that the index has under their ids stay where they are.
        A search that runs meanwhile finds each id once, with the old vector or the new one. So the
        call waits for searches that are running, for up to a second; one that lasts longer may miss
        ids that are replaced.

        Args:
            ids: ids of the index [n], distinct.
            vectors: their new vectors [n, dim].
            n_threads: threads; 0 for all cores.
            progress: called with vectors inserted and in total, after all checks. It must not fork:
                a fork would wait for the update.
        """
        rows = _checked_vectors(vectors, self._current.state.base)
        wanted = checked_ids(ids, len(rows))
        threads, shown = _checked_threads(n_threads), progress or ignore
        if not len(rows):
            return
        self._check_encodes()
        with self._current.living(len(rows)) as living:
            is_new = living.differ(_slots_of(living, wanted), rows)
            if is_new.any():
                rows, wanted = rows[is_new], wanted[is_new]
                self._current.touch(wanted, moves=True)
                living.insert(rows, wanted, replaces=True, n_threads=threads, progress=shown)

    @property
    def names(self) -> Labels:
        """The names of ids, as they are now; `save` keeps them with the index.

        Give names by `add` and `name`. `delete` takes them away, and `save` leaves out names of ids
        that the index does not have.
        """
        return self._current.state.names

    def name(self, labels: Labels) -> None:
        """Give vectors names, in place of those they have; if an id is unknown, nothing changes.

        Args:
            labels: names of ids of the index.
        """
        pairs = list(labels)
        ids = np.array([id_ for id_, _ in pairs], dtype=np.int64)
        with self._current.alone():
            state = self._current.state
            unknown = ids[state.slots_of(ids) < 0] if len(ids) else ids
            if len(unknown):
                raise ValueError(f"expected ids of the index, got {named(unknown)}")
            self._current.touch(ids, names=True)
            state.names.add([name for _, name in pairs], ids)

    def _check_encodes(self) -> None:
        """Refuse spaces into which new vectors cannot be mapped."""
        for searcher in self._current.state.searchers.values():
            if not searcher.space.is_exact:
                check_encodes(searcher.space)

    def compact(self) -> None:
        """Give back the memory of deleted vectors and of buffers with room.

        Neither is needed for speed: places of deleted vectors are used again by new ones. An index
        without vectors stays as it is.
        """
        if not len(self):
            return
        with self._current.changing() as before:
            self._current.swap(before, before)

    def vectors(self, ids: object) -> NDArray[np.float32]:
        """Copies of the vectors with these ids [n, dim]; for cosine they have unit length."""
        wanted = checked_ids(ids, is_distinct=False)
        state = self._current.state
        if state.living is None:
            return state.base.vectors()[state.rows_of(wanted)].copy()
        with state.reading():
            slots = _slots_of(state.living, wanted)
            return state.base.rows[slots, : state.base.dim].astype(np.float32)

    @property
    def saved_version(self) -> str | None:
        """Hash of the meta.json that the last save wrote or the load read; None without one."""
        saved = self._current.saved
        return None if saved is None else saved.version

    @property
    def ids(self) -> Ids:
        """The ids of all vectors, in the order of the rows of `base` [n]."""
        return self._current.state.ids

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids.tolist())

    def __contains__(self, id_: object) -> bool:
        try:
            wanted = np.array([index_of(id_)], dtype=np.int64)  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            return False
        state = self._current.state
        if wanted[0] == -1:
            return False
        if state.living is not None:
            return bool(state.living.store.slots_of(wanted)[0] >= 0)
        if state.labels is None:
            return bool(0 <= wanted[0] < state.graph.n_vertices)
        return bool((state.labels == wanted[0]).any())

    def __len__(self) -> int:
        state = self._current.state
        return state.graph.n_vertices if state.living is None else len(state.living)


@contextmanager
def _naming(labels: Labels, ids: Ids, names: list[str | None]) -> Iterator[None]:
    """Name ids while their vectors are added; if that fails, they have no names."""
    if len(labels) or any(names):  # an id may have the name of a vector of the past
        labels.add(names, ids)
    try:
        yield
    except BaseException:
        labels.remove(ids)
        raise


def checked_ids(ids: object, n: int | None = None, *, is_distinct: bool = True) -> Ids:
    """Ids given by a user as int64 [n].

    Args:
        ids: one id or several.
        n: the required number; None for any.
        is_distinct: whether repeated ids are refused.
    """
    given = np.atleast_1d(as_array("ids", ids))
    if given.dtype.kind not in "iu" and given.size:
        raise ValueError(f"expected integer ids, got dtype {given.dtype}")
    if given.ndim != 1:
        raise ValueError(f"expected ids [n], got shape {list(given.shape)}")
    if n is not None and len(given) != n:
        raise ValueError(f"expected {n} ids, one per vector, got {len(given)}")
    if given.dtype == np.uint64 and len(given) and given.max() > np.iinfo(np.int64).max:
        raise ValueError(f"expected ids that fit in int64, got {given.max()}")
    wanted = np.ascontiguousarray(given, dtype=np.int64)
    if (wanted == -1).any():
        raise ValueError("expected ids other than -1 (no answer), got -1")
    if is_distinct:
        ordered = np.sort(wanted)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(repeated):
            raise ValueError(f"expected distinct ids, got {named(np.unique(repeated))} repeated")
    return wanted


def named(ids: NDArray[Any]) -> str:
    """The first few ids, for an error message."""
    first = ", ".join(map(str, ids[:N_NAMED].tolist()))
    return first if len(ids) <= N_NAMED else f"{first} and {len(ids) - N_NAMED} more"


def _slots_of(living: Living, ids: Ids) -> NDArray[np.int32]:
    slots = living.store.slots_of(ids)
    if len(slots) and slots.min() < 0:
        raise ValueError(f"expected ids of the index, got {named(ids[slots < 0])}")
    return slots


def _new_ids(living: Living, ids: Ids | None, n: int, saved: Saved | None) -> Ids:
    """Ids for n new vectors; refuses those that the index has.

    Ids that nobody chose are leased from the directory of the index, so that no other process that
    has loaded it chooses them too.
    """
    counts = living.counts
    if ids is None:
        first = counts.next_id
        if saved is not None and not is_snapshot(saved.path):
            first = lease_ids(saved.path, first, n)
        if first + n - 1 > MAX_ID:
            got = f"none, and {first + n - 1} would be next"
            raise ValueError(f"expected ids of at most {MAX_ID}, got {got}")
        ids = np.arange(first, first + n, dtype=np.int64)
    slots = living.store.slots_of(ids)
    if (slots >= 0).any():
        raise ValueError(f"expected ids that the index does not have, got {named(ids[slots >= 0])}")
    counts.next_id = max(counts.next_id, int(ids.max()) + 1)
    return ids


def _checked_threads(n_threads: int) -> int:
    if index_of(n_threads) < 0:
        raise ValueError(f"expected n_threads of at least 0, got {n_threads}")
    return min(index_of(n_threads), MAX_THREADS)


def _checked_vectors(vectors: object, base: BaseVectors) -> NDArray[np.float32]:
    """Vectors given by a user as float32 [n, dim], scaled to unit length for cosine."""
    given = as_array("vectors", vectors)
    if given.ndim == 1:
        given = given[None]
    rows = check_vectors("vectors", given, base.dim, may_be_empty=True)
    if base.metric == "cosine":
        return normalize(rows)
    check_lengths("vectors", rows)
    if base.rows.dtype == np.float16:
        check_half(rows)
    return rows
