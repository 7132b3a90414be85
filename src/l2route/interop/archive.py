"""Archives: documents and their index in one directory, of which a crash leaves the old or the new.

`documents.jsonl` has a header, then a line for each document: its id in the index, its name and its
record. The header names the directory of the index. A record belongs to its id for ever, so lines
of ids that the index does not have do no harm. There are two ways to save:

* Into the directory of the last save: first a documents.jsonl with the documents of the last save
  and of this one, then the index, which writes what changed. Either index finds its documents.
* Into a new directory, if another process has saved meanwhile, or nobody has: first the index, then
  the documents.jsonl that names it. The old index is removed at the end.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from l2route.data.vectors import METRICS, Metric
from l2route.files.atomic import locked, make_directory, replacing
from l2route.files.hashing import hash_arrays
from l2route.files.meta import read_bytes
from l2route.index import RoutingIndex, load

Record = dict[str, Any]
"""What is kept of a document; it is not changed."""

DOCUMENTS = "documents.jsonl"
FORMAT, SCHEMA = "l2route-documents", 1
LOCK, LOCK_SECONDS = ".lock", 300.0
_INDEX_NAME = re.compile(r"index-[0-9a-f]{16}")
_N_TRIES = 3  # reads, if another process saves meanwhile
_PLAIN = (str, int, float, bool, type(None))


class Entry(NamedTuple):
    """A document: its id as the user has it, and its record."""

    name: str
    record: Record


@dataclass(frozen=True, slots=True)
class Archive:
    """Documents of a directory."""

    path: Path
    kind: str
    """The class that can read the records."""
    metric: Metric
    entries: dict[int, Entry]
    """By the ids of the index."""
    index_name: str | None = None
    """The directory of the index; None if there is none."""
    version: str = ""
    """Hash of documents.jsonl; empty for one that is not written yet."""


def write_archive(archive: Archive, index: RoutingIndex | None, last: Archive | None) -> Archive:
    """Write documents and their index; return the archive with what is known after that.

    Args:
        archive: the documents.
        index: their index; None if there is none.
        last: what was written or read last; None if nothing was.
    """
    lines = {id_: _line(id_, entry) for id_, entry in archive.entries.items()}
    make_directory(archive.path)
    with locked(archive.path / LOCK, LOCK_SECONDS):
        found = _version_of(archive.path)
        follows = last is not None and last.path == archive.path and last.version == found
        has_place = index is not None and index.saved_version is not None  # or it is a new one
        if follows and has_place and last is not None and last.index_name is not None:
            assert index is not None
            old = {id_: _line(id_, entry) for id_, entry in last.entries.items()}
            archive = replace(archive, index_name=last.index_name)
            version = _write(archive, list((old | lines).values()))
            index.save(archive.path / last.index_name)
            return replace(archive, version=version)
        name = None if index is None else f"index-{secrets.token_hex(8)}"
        archive = replace(archive, index_name=name)
        if index is not None and name is not None:
            index.save(archive.path / name)
        version = _write(archive, list(lines.values()))
        _remove_others(archive)
    return replace(archive, version=version)


def read_archive(path: Path, kind: str) -> tuple[Archive, RoutingIndex | None]:
    """Read documents and their index.

    Args:
        path: the directory.
        kind: the class that can read the records.
    """
    for left in reversed(range(_N_TRIES)):
        archive = _read(path)
        if archive.kind != kind:
            raise ValueError(f"{path}: expected documents of {kind}, got those of {archive.kind}")
        if archive.index_name is None:
            return archive, None
        try:
            index = load(path / archive.index_name)
        except FileNotFoundError:
            if left:
                continue
            raise
        ids = index.ids.tolist()
        missing = [id_ for id_ in ids if id_ not in archive.entries]
        if not missing:
            return replace(archive, entries={id_: archive.entries[id_] for id_ in ids}), index
    raise ValueError(
        f"{path}: expected a document for each vector of the index, got none for {len(missing)} of "
        f"{len(ids)}: files of different saves are mixed"
    )


def _line(id_: int, entry: Entry) -> str:
    """A line of documents.jsonl."""
    fault = _fault_of(entry.record)
    if fault is not None:
        raise ValueError(
            f"expected documents of dicts with text keys, lists, texts, numbers, booleans and None "
            f"to save, got {fault} in document {entry.name!r}"
        )
    return json.dumps([id_, *entry])


def _fault_of(value: object) -> str | None:
    """What JSON would not keep as it is, apart from tuples, which become lists."""
    if isinstance(value, dict):
        keys = [key for key in value if not isinstance(key, str)]
        if keys:
            return f"the key {keys[0]!r}"
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_fault_of, value)), None)
    if isinstance(value, _PLAIN) and not isinstance(value, np.generic):
        return None
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")


def _write(archive: Archive, lines: list[str]) -> str:
    """Replace documents.jsonl; return its version."""
    body = "".join(f"{line}\n" for line in lines).encode()
    header = {
        "format": FORMAT,
        "schema": SCHEMA,
        "kind": archive.kind,
        "metric": archive.metric,
        "index": archive.index_name,
        "checksum": _hash(body),
    }
    first = (json.dumps(header) + "\n").encode()
    with replacing(archive.path / DOCUMENTS) as beside:
        beside.write_bytes(first + body)
    return _hash(first)


def _read(path: Path) -> Archive:
    """Read and check documents.jsonl."""
    file = path / DOCUMENTS
    first, _, body = read_bytes(file).partition(b"\n")
    try:
        header = json.loads(first)
        known = header["format"] == FORMAT and header["schema"] == SCHEMA
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{file}: expected documents of l2route, got another file") from None
    if not known:
        got = f"{header['format']!r}, schema {header['schema']!r}"
        raise ValueError(f"{file}: expected {FORMAT!r}, schema {SCHEMA}, got {got}")
    if header.get("checksum") != _hash(body):
        raise ValueError(f"{file}: expected the content of its checksum, got a damaged file")
    name = header.get("index")
    is_known = name is None or _INDEX_NAME.fullmatch(str(name)) is not None
    if header.get("metric") not in METRICS or not is_known:
        raise ValueError(f"{file}: expected a metric and an index directory, got {header}")
    try:
        entries = dict(map(_parsed, body.splitlines()))
    except (ValueError, TypeError):
        raise ValueError(f"{file}: expected [id, name, record] in each line, got others") from None
    version = _hash(first + b"\n")
    return Archive(path, str(header.get("kind")), header["metric"], entries, name, version)


def _parsed(line: bytes) -> tuple[int, Entry]:
    """The id and the document of a line."""
    id_, name, record = json.loads(line)
    return int(id_), Entry(str(name), dict(record))


def _version_of(path: Path) -> str | None:
    """The version of the documents in a directory; None if there are none."""
    try:
        with (path / DOCUMENTS).open("rb") as stream:
            return _hash(stream.readline())
    except FileNotFoundError:
        return None


def _remove_others(archive: Archive) -> None:
    """Remove the indexes that documents.jsonl does not name."""
    for each in archive.path.iterdir():
        if _INDEX_NAME.fullmatch(each.name) and each.name != archive.index_name:
            shutil.rmtree(each, ignore_errors=True)


def _hash(content: bytes) -> str:
    return hash_arrays("", np.frombuffer(content, np.uint8))
