"""Documents: records under string ids, with vectors in an index."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from pathlib import Path
from threading import Lock, RLock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import check_metric, check_vectors, normalize
from l2route.files.require import require
from l2route.index import RoutingIndex
from l2route.interop.archive import Archive, Entry, Record, read_archive, write_archive
from l2route.search.filter import Filter, filter_of_ids
from l2route.search.result import SearchResult

Passes = Callable[[str, Record], bool]
"""Whether a document may be an answer, by its id and its record."""

EF = 128
"""Default beam width."""
EXACT_SIZE = 1000
"""Vectors up to which a search looks at all of them."""
MAX_JUMP_BITS = 40
"""A store begins its ids up to 2**40 after the last one: see `Documents`."""
_N_TRIES = 8  # searches, if documents found were deleted before they were looked up
_N_FILTERS = 32  # prepared filters that are kept


class Found(NamedTuple):
    """An answer of a search."""

    name: str
    record: Record
    distance: float
    """As in `SearchResult.distances`."""
    vector: NDArray[np.float32]
    """[dim]; empty unless it was asked for."""


class _Prepared(NamedTuple):
    """A filter, as documents of one version pass it."""

    version: int
    of_ids: Filter
    n_documents: int


class Documents:
    """Records with vectors, which any number of threads may change, read and search.

    An id of the index stands for one record and one vector for ever: a document that is put again
    with another text or vector gets a new id. So after a crash the ids of the index alone say which
    records belong to it (decision 34). Ids begin at a random number, and again after each load, so
    that two processes do not give the same id to different documents.

    Args:
        metric: l2, ip or cosine.
    """

    def __init__(self, metric: str = "cosine") -> None:
        self.metric = check_metric(metric)
        self._start(None, {})

    def _start(self, index: RoutingIndex | None, entries: dict[int, Entry]) -> None:
        """Begin with these documents; of those with one name the newest counts."""
        self._changing = RLock()  # held by changes and saves
        self._listing = Lock()  # held for a moment: while entries change or are copied
        self._index = index  # None until the dimension is known
        self._entries = entries
        self._ids = {entries[id_].name: id_ for id_ in sorted(entries)}
        self._version = 0
        self._filters: dict[str, _Prepared] = {}
        self._next_id = max(entries, default=0) + 1 + secrets.randbits(MAX_JUMP_BITS)
        self._saved: Archive | None = None
        stale = sorted(set(entries) - set(self._ids.values()))
        if index is not None and stale:  # versions that an interrupted `put` did not delete
            index.delete(stale)
            self._unlist(stale)

    def __getstate__(self) -> tuple[str, RoutingIndex | None, dict[int, Entry]]:
        with self._changing:
            return self.metric, copy(self._index), dict(self._entries)

    def __setstate__(self, state: tuple[str, RoutingIndex | None, dict[int, Entry]]) -> None:
        self.metric = check_metric(state[0])
        self._start(*state[1:])

    @property
    def index(self) -> RoutingIndex | None:
        """The index; None as long as there never was a document."""
        return self._index

    def __len__(self) -> int:
        return len(self._ids)

    def put(self, names: Sequence[str], vectors: object, records: Sequence[Record]) -> None:
        """Add documents, or replace those that there are; if it fails, nothing is changed.

        Of a name that is given several times the last counts. A document that is put again as it
        is costs a comparison.

        Args:
            names: string ids [n].
            vectors: [n, dim].
            records: [n]; they must not be changed afterwards.
        """
        require(len(records) == len(names), f"{len(names)} records", len(records))
        if not names:
            return
        rows = check_vectors("embeddings", vectors, None if self._index is None else self.dim)
        require(len(rows) == len(names), f"{len(names)} embeddings", len(rows))
        last = {name: at for at, name in enumerate(names)}
        with self._changing:
            same = self._unchanged(last, rows, records)
            places = [at for name, at in last.items() if name not in same]
            if places:
                self._insert([Entry(names[at], records[at]) for at in places], rows[places])

    def _unchanged(
        self, places: dict[str, int], rows: NDArray[np.float32], records: Sequence[Record]
    ) -> set[str]:
        """Names of the documents that are there with the same vectors and records.

        Args:
            places: the places of the names in the other two.
            rows: vectors [n, dim].
            records: [n].
        """
        known = {
            name: at
            for name, at in places.items()
            if name in self._ids and self._entries[self._ids[name]].record == records[at]
        }
        if self._index is None or not known:
            return set()
        given = rows[list(known.values())]
        if self.metric == "cosine":
            given = normalize(given)
        is_same = (self._index.vectors([self._ids[name] for name in known]) == given).all(axis=1)
        return {name for name, same in zip(known, is_same, strict=True) if same}

    def _insert(self, entries: list[Entry], rows: NDArray[np.float32]) -> None:
        """Add entries under new ids, and delete those that had their names."""
        ids = np.arange(self._next_id, self._next_id + len(entries), dtype=np.int64)
        self._next_id += len(entries)
        new = dict(zip(ids.tolist(), entries, strict=True))
        old = [self._ids[entry.name] for entry in entries if entry.name in self._ids]
        self._list(new)  # before a search can find them
        try:
            if self._index is None:
                self._index = RoutingIndex.build(rows, self.metric, ids=ids)
            else:
                self._index.add(rows, ids)
                self._replace(self._index, old, ids.tolist())
        except BaseException:
            self._unlist(list(new))
            raise
        with self._listing:
            for id_ in old:
                del self._entries[id_]
            self._ids.update((entry.name, id_) for id_, entry in new.items())
            self._version += 1

    @staticmethod
    def _replace(index: RoutingIndex, old: list[int], new: list[int]) -> None:
        """Delete old vectors, or if that fails the new ones."""
        try:
            index.delete(old)
        except BaseException:
            index.delete(new)
            raise

    def _list(self, entries: dict[int, Entry]) -> None:
        with self._listing:
            self._entries.update(entries)
            self._version += 1

    def _unlist(self, ids: list[int]) -> None:
        with self._listing:
            for id_ in ids:
                del self._entries[id_]
            self._version += 1

    def remove(self, names: Iterable[str]) -> int:
        """Delete documents; unknown names are left out. Returns how many were deleted."""
        with self._changing:
            known = {name: self._ids[name] for name in names if name in self._ids}
            if self._index is None or not known:
                return 0
            self._index.delete(list(known.values()))
            with self._listing:  # after the vectors: what a search finds has a record until then
                for name, id_ in known.items():
                    del self._ids[name], self._entries[id_]
                self._version += 1
        return len(known)

    def clear(self) -> None:
        """Delete all documents; those put next may have vectors of another dimension."""
        with self._changing, self._listing:
            self._index, self._entries, self._ids = None, {}, {}
            self._version += 1
            self._filters = {}

    @property
    def dim(self) -> int:
        """Dimension of the vectors; 0 as long as it is not known."""
        return 0 if self._index is None else self._index.dim

    def get(self, names: Iterable[str]) -> list[Entry]:
        """The documents of these names, without those that there are not."""
        with self._listing:
            ids = [self._ids[name] for name in names if name in self._ids]
            return [self._entries[id_] for id_ in ids]

    def entries(self) -> list[Entry]:
        """All documents."""
        with self._listing:
            return [self._entries[id_] for id_ in self._ids.values()]

    def search(
        self,
        vector: object,
        k: int,
        *,
        passes: Passes | None = None,
        key: str | None = None,
        ef: int | None = None,
        recall: float | None = None,
        with_vectors: bool = False,
    ) -> list[Found]:
        """Find the k nearest documents, nearest first; all if there are fewer.

        Args:
            vector: [dim].
            k: answers.
            passes: which documents may be answers; by default all. It is asked about each.
            key: text that says what `passes` tests. With it the answers of `passes` are kept until
                documents change.
            ef: beam width, by default 128; not used up to 1,000 documents, of which all are seen.
            recall: recall to reach, in place of ef: see `RoutingIndex.setting`.
            with_vectors: whether to answer with vectors too.
        """
        require(k >= 1, "k of at least 1", k)
        require(ef is None or recall is None, "ef or recall, not both", (ef, recall))
        query = np.asarray(vector, dtype=np.float32)
        require(query.ndim == 1, "one embedding [dim]", list(query.shape))
        found: list[Found] = []
        for attempt in range(_N_TRIES):
            index = self._index
            n = 0 if index is None else len(index)
            if index is None or not n:
                return []
            where = None if passes is None else self._filter(passes, key)
            n_asked = min(k if attempt == 0 else 2 * k, n)  # a document may be there twice
            width = n if n <= EXACT_SIZE else max(n_asked, ef or EF)
            answers = index.search(
                query,
                n_asked,
                where=None if where is None else where.of_ids,
                ef=None if recall is not None else width,
                recall=recall,
                n_threads=1,
            )
            found = self._looked_up(index, answers, with_vectors)[:k]
            if len(found) >= min(k, len(self) if where is None else where.n_documents):
                break
        return found

    def _looked_up(
        self, index: RoutingIndex, answers: SearchResult, with_vectors: bool
    ) -> list[Found]:
        """Answers with their records; without those that are deleted or replaced meanwhile."""
        ids = answers.ids[0][answers.ids[0] != -1]
        vectors = _vectors(index, ids) if with_vectors else np.zeros((len(ids), 0), np.float32)
        with self._listing:
            known = [(self._entries.get(id_), id_) for id_ in ids.tolist()]
            last: dict[str, int] = {}  # the newest id of each name, of those found
            for entry, id_ in known:
                if entry is not None:
                    last[entry.name] = max(id_, last.get(entry.name, id_))
        rows = zip(known, answers.distances[0], vectors, strict=False)  # none without vectors
        return [
            Found(*entry, float(distance), row)
            for (entry, id_), distance, row in rows
            if entry is not None and last[entry.name] == id_
        ]

    def _filter(self, passes: Passes, key: str | None) -> _Prepared:
        with self._listing:
            version = self._version
            known = None if key is None else self._filters.get(key)
            if known is not None and known.version == version:
                return known
            entries = list(self._entries.items())
        passed = {id_: entry.name for id_, entry in entries if passes(*entry)}
        ids = np.sort(np.array(list(passed), dtype=np.int64))
        made = _Prepared(version, filter_of_ids(ids), len(set(passed.values())))
        if key is not None:
            with self._listing:
                self._filters.pop(key, None)
                if len(self._filters) >= _N_FILTERS:
                    del self._filters[next(iter(self._filters))]  # the oldest
                self._filters[key] = made
        return made

    def save(self, path: Path, kind: str) -> None:
        """Write all documents into a directory; after a crash it has the old or the new ones.

        Args:
            path: the directory.
            kind: the class that can read the records.
        """
        with self._changing:
            entries = {id_: self._entries[id_] for id_ in self._ids.values()}
            archive = Archive(path.absolute(), kind, self.metric, entries)
            self._saved = write_archive(archive, self._index, self._saved)

    @classmethod
    def load(cls, path: Path, kind: str) -> Documents:
        """Read documents that `save` wrote."""
        archive, index = read_archive(path.absolute(), kind)
        documents = cls(archive.metric)
        documents._start(index, dict(archive.entries))
        documents._saved = archive
        return documents


def _vectors(index: RoutingIndex, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """The vectors of answers [n, dim]; none if one of them is deleted by now."""
    try:
        return index.vectors(ids)
    except ValueError:
        return np.zeros((0, index.dim), dtype=np.float32)
