"""The journal of an index directory: changes by id that are on disk, and not yet in its arrays.

A file of records, each appended and flushed before the next one. A record says what some ids are
from then on: their vectors and names, or that they are gone. So it may be applied more than once. A
record has a digest of itself and of all records before it, and the first one of the file's name. A
write that was cut off leaves a last record without its end: readers ignore it, and the next writer
removes it.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route.files.atomic import open_regular, size_of, sync
from l2route.files.names import fault_of

NAME = r"journal\.[0-9a-f]{16}\.log"
"""Pattern of the names of journals."""
MAX_RECORD_BYTES = 1 << 30
"""Largest record."""
_MAGIC = b"l2route\x01"
_HEADER = struct.Struct("<8sQ16s8s")  # magic, bytes of the content, digest, check of all that
_DIGEST_BYTES, _CHECK_BYTES = 16, 8
_NO_IDS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Changes:
    """What some ids are from now on."""

    ids: NDArray[np.int64] = field(default_factory=_NO_IDS.copy)
    """Ids that have vectors [n]."""
    vectors: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """Their vectors, as the index stores them [n, dim]."""
    names: list[str | None] = field(default_factory=list)
    """Their names [n]."""
    gone: NDArray[np.int64] = field(default_factory=_NO_IDS.copy)
    """Ids that have no vectors."""

    def __len__(self) -> int:
        return len(self.ids) + len(self.gone)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a journal: all records before it are known."""

    name: str
    """Of the file, which need not exist while it has no record."""
    end: int
    """Bytes before the place."""
    digest: bytes
    """Of the last record before it."""

    @classmethod
    def first(cls, name: str) -> Place:
        """The begin of a journal."""
        return cls(name, 0, blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest())


class ReplacedError(ValueError):
    """A journal does not go on from the place that was read last."""


def read_journal(directory: Path, place: Place) -> tuple[list[Changes], Place]:
    """Read the records behind a place; the file is not trusted.

    Returns:
        The changes in their order, and the place behind them.
    """
    found = []
    for content, after in _records(directory / place.name, place):
        found.append(_unpacked(directory / place.name, content))
        place = after
    return found, place


def append_record(directory: Path, place: Place, changes: Changes) -> Place:
    """Append a record and flush it to disk; if that fails, the journal is as before.

    Other writers have to be excluded. A journal that does not end at the place is refused, except
    for a record that was cut off, which is removed.
    """
    path = directory / place.name
    size = size_of(path) or 0
    if size < place.end or next(_records(path, place), None) is not None:
        raise ReplacedError(f"{path}: expected a journal of {place.end} bytes, got {size}")
    content = _packed(changes)
    if len(content) > MAX_RECORD_BYTES:
        expected = f"expected a record of at most {MAX_RECORD_BYTES} bytes"
        raise ValueError(f"{path}: {expected}, got {len(content)} for {len(changes)} ids")
    record, after = _record(place, content)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        os.ftruncate(file, place.end)
        try:
            _write_at(file, record, place.end)
            os.fsync(file)
        except BaseException:
            os.ftruncate(file, place.end)
            raise
    finally:
        os.close(file)
    if not place.end:
        sync(directory)
    return after


def copy_rest(directory: Path, place: Place, path: Path) -> None:
    """Write the records behind a place into another journal; without any, no file is written."""
    records, target = [], Place.first(path.name)
    for content, _ in _records(directory / place.name, place):
        record, target = _record(target, content)
        records.append(record)
    if records:
        with path.open("wb") as file:
            file.writelines(records)
        sync(path)


def _records(path: Path, place: Place) -> Iterator[tuple[bytes, Place]]:
    """Contents of the whole records behind a place, and the places behind them."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        if place.end:
            raise ReplacedError(f"{path}: expected a journal, got no file") from None
        return
    with file:
        size = os.fstat(file.fileno()).st_size
        if size < place.end:
            raise ReplacedError(f"{path}: expected at least {place.end} bytes, got {size}")
        file.seek(place.end)
        while head := file.read(_HEADER.size):
            n_bytes = _size_in(head)
            content = b"" if n_bytes is None else file.read(min(n_bytes, size))
            after = None if n_bytes is None else _behind(place, content)
            if after is None or len(content) != n_bytes or head != _head(content, after.digest):
                file.seek(place.end + 1)
                _check_is_cut_off(path, place, file.read())
                return
            yield content, after
            place = after


def _check_is_cut_off(path: Path, place: Place, rest: bytes) -> None:
    """Refuse a broken record that others follow: it is damaged, not cut off."""
    at = rest.find(_MAGIC)
    while at >= 0:
        if _size_in(rest[at : at + _HEADER.size]) is not None:
            expected = f"{path}: expected an intact journal"
            raise ReplacedError(f"{expected}, got another record at byte {place.end}")
        at = rest.find(_MAGIC, at + 1)


def _record(place: Place, content: bytes) -> tuple[bytes, Place]:
    """A record with this content behind a place, and the place behind it."""
    after = _behind(place, content)
    return _head(content, after.digest) + content, after


def _behind(place: Place, content: bytes) -> Place:
    digest = blake2b(place.digest + content, digest_size=_DIGEST_BYTES).digest()
    return Place(place.name, place.end + _HEADER.size + len(content), digest)


def _head(content: bytes, digest: bytes) -> bytes:
    bare = _HEADER.pack(_MAGIC, len(content), digest, b"")[:-_CHECK_BYTES]
    return bare + _check(bare)


def _check(bare: bytes) -> bytes:
    return blake2b(bare, digest_size=_CHECK_BYTES).digest()


def _size_in(head: bytes) -> int | None:
    """Bytes of the content behind a header; None if it is not intact."""
    if len(head) != _HEADER.size or _check(head[:-_CHECK_BYTES]) != head[-_CHECK_BYTES:]:
        return None
    magic, n_bytes, _, _ = _HEADER.unpack(head)
    return int(n_bytes) if magic == _MAGIC and n_bytes <= MAX_RECORD_BYTES else None


def _packed(changes: Changes) -> bytes:
    """Sizes and names as a line of JSON, then ids, vectors, and ids that are gone."""
    shape = [len(changes.ids), changes.vectors.shape[1], len(changes.gone)]
    names = changes.names if any(changes.names) else None
    line = json.dumps({"shape": shape, "names": names}).encode() + b"\n"
    arrays = ((changes.ids, "<i8"), (changes.vectors, "<f4"), (changes.gone, "<i8"))
    return line + b"".join(np.ascontiguousarray(a, dtype=kind).tobytes() for a, kind in arrays)


def _unpacked(path: Path, content: bytes) -> Changes:
    """The inverse of `_packed`."""
    line, _, rest = content.partition(b"\n")
    try:
        said = json.loads(line)
        n, dim, n_gone = (int(size) for size in said["shape"])
        names = said["names"] or [None] * n
        if min(n, dim, n_gone) < 0 or len(rest) != 8 * n + 4 * n * dim + 8 * n_gone:
            raise ValueError(f"expected arrays of {n}, {dim} and {n_gone}, got {len(rest)} bytes")
        _check_names(names, n)
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError) as error:
        raise ValueError(f"{path}: expected changes of an index, got {error}") from None
    ids = np.frombuffer(rest, "<i8", n)
    vectors = np.frombuffer(rest, "<f4", n * dim, 8 * n).reshape(n, dim)
    gone = np.frombuffer(rest, "<i8", n_gone, 8 * n + 4 * n * dim)
    return Changes(ids, vectors, names, gone)


def _check_names(names: object, n: int) -> None:
    if not isinstance(names, list) or len(names) != n:
        raise ValueError(f"expected {n} names, got {names!r:.40}")
    for name in names:
        if name is not None and (not isinstance(name, str) or fault_of(name)):
            raise ValueError(f"expected names, got {name!r:.40}")


def _write_at(file: int, content: bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        n_written = os.pwrite(file, view, at)
        view, at = view[n_written:], at + n_written
