"""Snapshots: what an index directory held, kept under a name, and brought back.

A snapshot is an index directory itself, `snapshots/NAME` within that of the index. Its arrays are
hard links, so it takes no room until the index has others, and its journal is a copy. It is never
changed: it can be copied with any tool while the index lives on, and loaded like any index.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from l2route.files.atomic import make_directory, replacing, sync
from l2route.files.journal import copy_rest
from l2route.files.meta import META, Saved, read_bytes, read_header, version_of
from l2route.files.storage import SNAPSHOTS, exclusive, read_index, replace_by

_NAME = r"\w[\w.-]{0,127}"
_NO_LINKS = (errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EMLINK, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An index as it was."""

    name: str
    path: Path
    """Its directory, which `load` reads."""
    version: str
    """Hash of its meta.json."""
    created: datetime
    """When it was taken."""
    n_bytes: int
    """Bytes of its files; those that the index still has take no room."""


def take_snapshot(path: Path, name: str | None = None, keep: int | None = None) -> Snapshot:
    """Keep what an index directory holds now.

    Args:
        path: the directory.
        name: letters, digits, `_`, `-` and `.`; by default the time.
        keep: number of snapshots to keep, this one included; the oldest of the others are removed.
    """
    now = datetime.now(UTC)
    chosen = now.strftime("%Y-%m-%dT%H-%M-%S.%fZ") if name is None else _checked(name)
    if keep is not None and keep < 1:
        raise ValueError(f"expected at least 1 snapshot to keep, got {keep}")
    target = path / SNAPSHOTS / chosen
    read_header(path / META)  # before anything is made in a directory that is no index
    make_directory(path / SNAPSHOTS)
    with exclusive(path), _made_whole(target) as beside:
        saved = read_index(path, mmap=True, verify=False)[2]
        for each in sorted(saved.file_names()):
            _link(path / each, beside / each)
        if saved.journal is not None:
            copy_rest(path, saved.journal, beside / saved.journal.name)
        _link(path / META, beside / META)
    for old in [] if keep is None else list_snapshots(path)[:-keep]:
        remove_snapshot(path, old.name)
    return _snapshot(target)


def restore_snapshot(path: Path, name: str) -> Saved:
    """Make an index directory hold a snapshot again; servers of it follow.

    Whatever it held is gone unless a snapshot has it, also what others have not saved yet.
    """
    source = _existing(path, name)
    _, _, saved = read_index(source, mmap=True)  # a damaged one does not take its place
    with exclusive(path) as held:
        for each in sorted(saved.file_names()):
            with replacing(path / each, sync_directory=False) as beside:  # one there may be damaged
                _link(source / each, beside)
        return replace_by(replace(saved, path=path.absolute()), source, held)


def list_snapshots(path: Path) -> list[Snapshot]:
    """The snapshots of an index directory, oldest first."""
    folder = path / SNAPSHOTS
    if not folder.is_dir():
        return []
    found = [_snapshot(each) for each in folder.iterdir() if (each / META).is_file()]
    known = [each for each in found if re.fullmatch(_NAME, each.name)]
    return sorted(known, key=lambda each: (each.created, each.name))


def remove_snapshot(path: Path, name: str) -> None:
    """Remove a snapshot."""
    source = _existing(path, name)
    gone = source.with_name(f".{name}.{secrets.token_hex(8)}.partial")
    os.replace(source, gone)  # at once, whatever a crash leaves of it
    shutil.rmtree(gone)


def _existing(path: Path, name: str) -> Path:
    source = path / SNAPSHOTS / _checked(name)
    if not source.is_dir():
        known = ", ".join(each.name for each in list_snapshots(path)) or "none"
        raise FileNotFoundError(f"{path}: expected a snapshot among {known}, got {name}")
    return source


def _checked(name: str) -> str:
    if not re.fullmatch(_NAME, name, re.ASCII):
        expected = "a name of letters, digits, _, - and . that begins with a letter or digit"
        raise ValueError(f"expected {expected}, got {name!r}")
    return name


def _snapshot(path: Path) -> Snapshot:
    created = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    n_bytes = sum(each.stat().st_size for each in path.iterdir())
    return Snapshot(path.name, path, version_of(read_bytes(path / META)), created, n_bytes)


@contextmanager
def _made_whole(target: Path) -> Iterator[Path]:
    """Yield a directory that gets its name when it is whole and on disk; remove what is left."""
    for each in target.parent.glob(".*.partial"):  # of processes that were killed
        shutil.rmtree(each, ignore_errors=True)
    if target.exists():
        raise FileExistsError(f"{target}: expected a name that no snapshot has, got one")
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    beside.mkdir()
    try:
        yield beside
        sync(beside)
        os.replace(beside, target)
        sync(target.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    """Give a file that never changes another name, or copy it where there are no hard links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)
        sync(target)
