"""Labels: names of ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import index as index_of
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.name_search import Segment, find
from l2route.data.vectors import as_array
from l2route.files.names import MAX_NAME_BYTES, fault_of, read_names, write_names

Ids = NDArray[np.int64]
_TO_LISTS = ("to_pylist", "to_list", "tolist")  # of Arrow, of pandas and polars, of numpy
_N_NAMED = 3  # names or ids that an error message lists


class Labels:
    """Names of ids: an id has one name or none, and several ids may have the same name.

    A name is any text that is not empty, of at most 65,536 bytes in UTF-8, without NUL. Any number
    of threads may read while another one changes names: a reader sees each name before or after the
    change.

    Iteration gives pairs of id and name, in the order in which the ids were first named. ``in``
    takes a name, or an id.

    >>> words = Labels.of(["apple", "pear", "Apple pie"])
    >>> words.ids(["pear"]), words.names([0, 7]), words.search("app")
    (array([1]), ['apple', None], [(0, 'apple'), (2, 'Apple pie')])
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._changed: set[int] | None = None  # since `take_changes`; None before the first
        self._ids: dict[str, tuple[int, ...]] | None  # made when it is first needed
        self._segments: tuple[Segment, ...]
        self._pending: dict[int, str]  # names that are in no segment yet
        self.renew_locks()

    def renew_locks(self) -> None:
        """Make the lock anew, unlocked, and what a change may have left half done."""
        self._lock = Lock()
        self._ids, self._segments, self._pending = None, (), dict(self._names)

    @classmethod
    def of(cls, names: Iterable[str | None], ids: object = None) -> Labels:
        """Name ids.

        Args:
            names: names [n]; None or an empty one leaves its id without a name.
            ids: their ids [n], distinct int64 other than −1; by default 0 to n − 1.
        """
        texts = checked_names(names)
        labels = cls()
        labels.add(texts, np.arange(len(texts)) if ids is None else ids)
        return labels

    @classmethod
    def read(cls, path: str | Path) -> Labels:
        """Read a file of names.

        Args:
            path: a .txt with a name per line, whose line numbers from 0 are the ids; a .tsv with
                an id, a tab and a name per line; or a column of a table, as in ``a.parquet:name``,
                whose row numbers are the ids. See `l2route.files.names`.
        """
        names, ids = read_names(path)
        try:
            return cls.of(names, ids)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def write(self, path: str | Path) -> None:
        """Write a text file of names, replacing it as a whole: see `read`.

        Args:
            path: a .tsv; or a .txt, if ids are numbers from 0 with few gaps and names have no line
                breaks.
        """
        pairs = list(self)
        write_names(path, [id_ for id_, _ in pairs], [name for _, name in pairs])

    def add(self, names: Iterable[str | None], ids: object) -> None:
        """Name ids; if one is wrong, nothing is changed.

        Args:
            names: names [n], which replace those that the ids have; None or an empty one leaves its
                id without a name.
            ids: their ids [n], distinct int64 other than −1.
        """
        texts = checked_names(names)
        chosen = _checked_ids(ids)
        if len(texts) != len(chosen):
            raise ValueError(f"expected a name for each of {len(chosen)} ids, got {len(texts)}")
        if len(set(chosen)) != len(chosen):
            repeated = [id_ for id_, count in Counter(chosen).items() if count > 1]
            raise ValueError(f"expected distinct ids, got {_listed(repeated)} repeated")
        pairs = zip(chosen, texts, strict=True)
        with self._lock:
            if not self._names and self._changed is None and not self._segments:  # all are new
                self._names = {id_: name for id_, name in pairs if name is not None}
                self._pending, self._ids = dict(self._names), None
            for id_, name in pairs:
                self._set(id_, name)

    def remove(self, ids: object) -> None:
        """Take the names of ids away; ids without a name are ignored."""
        with self._lock:
            for id_ in _checked_ids(ids):
                self._set(id_, None)

    def names(self, ids: object) -> list[str | None]:
        """The names of ids [n]; None for an id without a name, −1 included."""
        known = self._names
        return [known.get(id_) for id_ in _checked_ids(ids, may_be_missing=True)]

    def ids(self, names: Iterable[str]) -> Ids:
        """The ids of names [n]; a name that no id or several ids have is refused.

        Args:
            names: names, spelled exactly as they were given.
        """
        known = self._by_name()
        texts = checked_names(names)
        found = [() if name is None else known.get(name, ()) for name in texts]
        unknown = [name or "" for name, ids in zip(texts, found, strict=True) if not ids]
        if unknown:
            raise ValueError(f"expected names that there are, got {_listed(unknown)}")
        several = {str(name): ids for name, ids in zip(texts, found, strict=True) if len(ids) > 1}
        if several:
            name, ids = next(iter(several.items()))
            got = f"{name!r} of ids {_listed(ids)}"
            raise ValueError(f"expected names of one id each, got {got}")
        return np.array([ids[0] for ids in found], dtype=np.int64)

    def search(self, text: str, most: int = 10) -> list[tuple[int, str]]:
        """Find names by a part of them; upper and lower case are the same.

        The whole of the names is scanned: that takes some milliseconds for a million.

        Args:
            text: the part.
            most: largest number of names.

        Returns:
            Ids and names: those that equal the text, then those that begin with it, then those that
            contain it; among these, names that were given earlier come first.
        """
        if not isinstance(text, str):
            raise ValueError(f"expected a text to search for, got {text!r}")
        if index_of(most) < 0:
            raise ValueError(f"expected at least 0 names, got most={most}")
        return find(self._searchable(), self._names, text, index_of(most))

    def take_changes(self) -> set[int] | None:
        """Ids whose names have changed since the last call; None if this is the first."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return changed

    def note_changes(self, ids: set[int] | None) -> None:
        """Give back what `take_changes` returned, because it could not be used."""
        with self._lock:
            if ids is None or self._changed is None:
                self._changed = None
            else:
                self._changed |= ids

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        with self._lock:
            pairs = list(self._names.items())
        return iter(pairs)

    def __contains__(self, name_or_id: object) -> bool:
        if isinstance(name_or_id, str):
            return name_or_id in self._by_name()
        try:
            return index_of(name_or_id) in self._names  # type: ignore[arg-type]
        except TypeError:
            return False

    def __repr__(self) -> str:
        return f"<Labels: {len(self):,} names>"

    def __reduce__(self) -> tuple[Any, ...]:
        pairs = list(self)
        return Labels.of, ([name for _, name in pairs], np.array([id_ for id_, _ in pairs], "i8"))

    def _set(self, id_: int, name: str | None) -> None:
        """Name an id, or take its name away; the lock is held."""
        before = self._names.get(id_)
        if before == name:
            return
        if self._changed is not None:
            self._changed.add(id_)
        if self._ids is not None and before is not None:
            others = tuple(other for other in self._ids[before] if other != id_)
            if others:
                self._ids[before] = others
            else:
                del self._ids[before]
        if name is None:
            del self._names[id_]
            self._pending.pop(id_, None)
            return
        self._names[id_] = name
        self._pending[id_] = name
        if self._ids is not None:
            self._ids[name] = (*self._ids.get(name, ()), id_)

    def _by_name(self) -> dict[str, tuple[int, ...]]:
        """The ids of every name."""
        known = self._ids
        if known is None:
            with self._lock:
                known = {}
                for id_, name in self._names.items():
                    known[name] = (*known.get(name, ()), id_)
                self._ids = known
        return known

    def _searchable(self) -> tuple[Segment, ...]:
        """Segments that hold all names."""
        if not self._pending:
            return self._segments
        with self._lock:
            pending = self._pending
            if not pending:
                return self._segments
            segments = [*self._segments, Segment.of(list(pending), list(pending.values()))]
            if sum(map(len, segments)) > 2 * len(self._names):  # most are of the past
                segments = [Segment.of(list(self._names), list(self._names.values()))]
            while len(segments) > 1 and 2 * len(segments[-1]) >= len(segments[-2]):
                last = segments.pop()
                segments[-1] = segments[-1].joined_with(last)
            self._segments = tuple(segments)
            self._pending = {}  # after the segments: others read both without the lock
            return self._segments


def checked_names(names: Iterable[str | None]) -> list[str | None]:
    """Names given by a user, as a list; None for an empty one.

    Args:
        names: texts and None, in a list, an array or a column.
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise ValueError(f"expected a list of names, got {names!r}")
    listed = next((getattr(names, way) for way in _TO_LISTS if hasattr(names, way)), None)
    texts: list[str | None] = []
    for at, name in enumerate(names if listed is None else listed()):
        if name is not None and not isinstance(name, str) and not _is_missing(name):
            raise ValueError(f"expected names that are texts or None, got {name!r} at {at}")
        text = str(name) if isinstance(name, str) else ""
        if text and (fault := fault_of(text)):
            expected = f"names of at most {MAX_NAME_BYTES:,} bytes without NUL"
            raise ValueError(f"expected {expected}, got {fault} at {at}")
        texts.append(text or None)
    return texts


def _is_missing(value: object) -> bool:
    """Whether a value stands for none in a column of pandas: NaN or NA."""
    is_nan = isinstance(value, float) and value != value
    return is_nan or type(value).__name__ == "NAType"


def _checked_ids(ids: object, *, may_be_missing: bool = False) -> list[int]:
    """Ids given by a user, as integers of Python."""
    given = np.atleast_1d(as_array("ids", ids))
    if given.size and (given.dtype.kind not in "iu" or given.ndim != 1):
        raise ValueError(f"expected integer ids [n], got {given.dtype} {list(given.shape)}")
    if given.dtype == np.uint64 and given.size and given.max() > np.iinfo(np.int64).max:
        raise ValueError(f"expected ids that fit in int64, got {given.max()}")
    if not may_be_missing and (given == -1).any():
        raise ValueError("expected ids other than -1 (no answer), got -1")
    chosen: list[int] = given.tolist()
    return chosen


def _listed(items: Sequence[object]) -> str:
    """The first few of some items, for an error message."""
    first = ", ".join(map(repr, items[:_N_NAMED]))
    return first if len(items) <= _N_NAMED else f"{first} and {len(items) - _N_NAMED} more"
