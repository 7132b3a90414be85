"""Index directories: meta.json and .npy arrays, replaced atomically, checked when read.

The file name of an array contains the hash of its content. Saving writes new arrays under new
names, then renames a new meta.json over the old one. A crash before that rename leaves the old
index, after it the new one. Files that meta.json does not name are removed by the next save. Saves
to one directory exclude each other with a lock on its file `.lock`; loading needs no lock. On a
file system without locks no file is removed, so that concurrent saves do no harm.

A save states the version that it replaces, and is refused if the directory holds another one.
`append_patch` saves changed rows only: in one more file, which meta.json lists among the patches of
its arrays. `write_index` writes arrays whole, without patches. `append_changes` appends to the
journal that meta.json names. What the journal holds that a save does not know stays in it.
"""

import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from l2route.files.atomic import (
    is_partial,
    locked,
    make_directory,
    replacing,
    sync,
)
from l2route.files.hashing import hash_arrays
from l2route.files.journal import (
    NAME,
    Changes,
    Place,
    ReplacedError,
    append_record,
    copy_rest,
    read_journal,
)
from l2route.files.memory import aligned_zeros
from l2route.files.meta import (
    FORMAT,
    META,
    Descent,
    Header,
    Saved,
    descent_of,
    file_names,
    journal_of,
    read_bytes,
    read_header,
    text_of,
    token_of,
    version_of,
)
from l2route.files.npy import map_npy, write_npy
from l2route.files.patches import Layout, Patch, Rows, pack, unpack

LOCK = ".lock"
"""Locked while saving; empty, and never removed."""
SNAPSHOTS = "snapshots"
"""Directory of the snapshots of an index, in that of the index."""
LOCK_SECONDS = 300.0
"""Seconds that a save waits for another save to the same directory before a TimeoutError."""
_ARRAY_NAME = r"\w+\.[0-9a-f]{16}\.npy"


class StaleError(ValueError):
    """A directory does not hold what was saved to it or read from it last, and cannot be joined."""


@dataclass(frozen=True, slots=True)
class _ArrayFile:
    """An array, and the name and checksum of its file."""

    array: NDArray[Any]
    checksum: str
    name: str

    def described(self) -> dict[str, Any]:
        """The entry of the array in meta.json."""
        return {
            "file": self.name,
            "dtype": self.array.dtype.name,
            "shape": list(self.array.shape),
            "checksum": self.checksum,
        }


def write_index(
    path: Path,
    meta: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    seen: Saved | None = None,
    *,
    is_rebuilt: bool = True,
    overwrite: bool = False,
    held: bool | None = None,
) -> Saved:
    """Write arrays and metadata into a directory, replacing the index in it.

    If it fails, the old index stays and no new file is left.

    Args:
        path: the directory, made if there is none.
        meta: what meta.json shall contain beside the arrays; keys of the format are left out, so
            that what was read can be written.
        arrays: arrays by name.
        seen: what the directory holds; None if it holds no index. If it holds another one, a
            StaleError or a FileExistsError says so.
        is_rebuilt: whether more has changed than vectors and names by their ids.
        overwrite: whether any index may be replaced; changes that others made of it are given up.
        held: what `exclusive` gave the caller; None if it has not locked the directory.
    """
    check_target(path)
    files = {name: _file_of(name, array) for name, array in arrays.items()}
    entries = {name: file.described() for name, file in files.items()}
    layouts = {name: Layout.of(array) for name, array in arrays.items()}
    make_directory(path)
    with _lock(path, held) as is_alone:
        is_new = overwrite or seen is None
        if not is_new:
            assert seen is not None
            _check_current(seen)
        elif not overwrite:
            _check_is_free(path)
        after = Saved(path.absolute(), "", entries, (), layouts, Descent(), None)
        content = text_of(meta, entries, (), after.descent, "")
        before = version_at(path) or ""
        descent = after.descent if seen is None else seen.descent
        descent = descent.after(content, before, is_rebuilt=is_rebuilt, is_replaced=is_new)
        rest = None if is_new or seen is None else _rest(seen)
        return _commit(replace(after, descent=descent), meta, files.values(), rest, is_alone)


def append_patch(
    saved: Saved, meta: Mapping[str, Any], patch: Patch, *, held: bool | None = None
) -> Saved:
    """Save changed rows beside the arrays that are saved already.

    If it fails, the old index stays and no new file is left. If the directory does not hold the
    index `saved` any more, a StaleError says so.

    Args:
        saved: what the directory holds, as the last save or load returned it.
        meta: as for `write_index`; replaces the old metadata.
        patch: the rows that differ from the saved ones.
        held: as for `write_index`.
    """
    packed, parts = pack(patch, saved.layouts)
    file = _file_of("patch", packed)
    new = [(file, {**file.described(), "parts": parts})] if parts else []
    patches = (*saved.patches, *(entry for _, entry in new))
    after = replace(saved, patches=patches, layouts=_resized(saved.layouts, parts))
    _check_current(saved)  # before a lock file is made in a directory that is not an index
    try:
        with _lock(saved.path, held) as is_alone:
            _check_current(saved)
            return _commit(after, meta, [file for file, _ in new], _rest(saved), is_alone)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StaleError(f"{saved.path}: expected the index saved last, got {error}") from error


def renew(saved: Saved) -> Saved:
    """Give what a directory holds another version, which a late writer of the old one notices."""
    with exclusive(saved.path) as is_alone:
        _check_current(saved)
        meta = read_header(saved.path / META).meta
        return _commit(saved, meta, (), _rest(saved), is_alone)


def replace_by(kept: Saved, source: Path, held: bool) -> Saved:
    """Make a directory hold another index, whose arrays are there already.

    Args:
        kept: the index, its path that of the directory.
        source: the directory of its meta.json and journal.
        held: what `exclusive` gave the caller.
    """
    meta, before = read_header(source / META).meta, version_at(kept.path) or ""
    text = read_bytes(source / META)
    descent = kept.descent.after(text, before, is_rebuilt=True, is_replaced=True)
    rest = None if kept.journal is None else (source, kept.journal)
    return _commit(replace(kept, descent=descent), meta, (), rest, held)


def append_changes(saved: Saved, changes: Changes, *, held: bool | None = None) -> Saved:
    """Append changes to the journal of an index; when it returns, they survive a crash.

    If the directory does not hold the index `saved` with all of its journal, a StaleError says so.
    """
    assert saved.journal is not None
    with _lock(saved.path, held):
        _check_current(saved, has_files=False)
        try:
            return replace(saved, journal=append_record(saved.path, saved.journal, changes))
        except ReplacedError as error:
            raise StaleError(str(error)) from error


def changes_since(saved: Saved) -> tuple[list[Changes], Saved]:
    """The changes of the journal that are not known, and what the directory then holds.

    If the directory does not hold the index `saved` any more, a StaleError says so.
    """
    if saved.journal is None:
        _check_current(saved, has_files=False)
        return [], saved
    try:
        found, journal = read_journal(saved.path, saved.journal)
    except ReplacedError as error:
        _check_current(saved, has_files=False)
        if not saved.journal.end:
            raise  # it is damaged: to read it again would not help
        raise StaleError(str(error)) from error
    _check_current(saved, has_files=False)  # a journal goes when another save takes its place
    return found, replace(saved, journal=journal)


def is_behind(saved: Saved) -> bool:
    """Whether the directory holds another save, or changes that are not known."""
    if version_at(saved.path) is None:
        return False  # no index that could be loaded; a save makes one
    try:
        return bool(changes_since(saved)[0])
    except StaleError:
        return True


@contextmanager
def exclusive(path: Path) -> Iterator[bool]:
    """Exclude other saves to a directory, which exists; yield whether there are locks.

    A snapshot is refused: it stays as it is.
    """
    if is_snapshot(path):
        expected = f"{path}: expected the directory of an index"
        raise ValueError(f"{expected}, got a snapshot of one: save elsewhere, or restore it")
    with locked(path / LOCK, LOCK_SECONDS) as is_alone:
        if not is_alone:
            message = f"{path}: expected a file system with locks, got none: old files are kept"
            warnings.warn(message, stacklevel=4)
        yield is_alone


def is_snapshot(path: Path) -> bool:
    """Whether a directory is a snapshot of an index."""
    whole = path.resolve()
    return whole.parent.name == SNAPSHOTS and (whole.parent.parent / META).exists()


def _lock(path: Path, held: bool | None) -> AbstractContextManager[bool]:
    """The lock of a directory, unless the caller holds it."""
    return exclusive(path) if held is None else nullcontext(held)


def _commit(
    after: Saved,
    meta: Mapping[str, Any],
    files: Iterable[_ArrayFile],
    rest: tuple[Path, Place] | None,
    is_alone: bool,
) -> Saved:
    """Write files and a new meta.json; the lock is held.

    Args:
        after: what the directory shall hold; its version and journal are those before.
        meta: what meta.json shall contain beside that.
        files: files that may be missing.
        rest: the directory of a journal, and how much of it is in these files; None for all.
        is_alone: whether other saves are excluded; otherwise no file is removed.
    """
    path, before = after.path, version_at(after.path) or ""
    content = text_of(meta, after.entries, after.patches, after.descent, "")
    name = f"journal.{token_of(content, before)}.log"
    text = text_of(meta, after.entries, after.patches, after.descent, name)
    after = replace(after, version=version_of(text), journal=Place.first(name))
    with _tidying(path, after.file_names() | {name}) if is_alone else nullcontext():
        if rest is not None:
            copy_rest(*rest, path / name)
        _write_files(path, files, text)
    return after


def _rest(saved: Saved) -> tuple[Path, Place] | None:
    return None if saved.journal is None else (saved.path, saved.journal)


def version_at(path: Path) -> str | None:
    """The version of the index in a directory; None if there is none, "damaged" if unreadable."""
    try:
        return version_of(read_bytes(path / META))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return "damaged"


def _check_is_free(path: Path) -> None:
    """Refuse a directory with an index."""
    if version_at(path) is not None:
        expected = f"{path}: expected a directory without an index, or overwrite=True (--force)"
        raise FileExistsError(f"{expected}, got an index that this one does not come from")


def _check_current(saved: Saved, *, has_files: bool = True) -> None:
    """Refuse a directory that does not hold this index."""
    expected = f"{saved.path}: expected version {saved.version[:16]} of the index, got"
    version = version_at(saved.path)
    if version is None:
        raise StaleError(f"{expected} no {META}")
    if version != saved.version:
        raise StaleError(f"{expected} {version[:16]}")
    for name in sorted(saved.file_names()) if has_files else ():
        if not (saved.path / name).is_file():
            raise StaleError(f"{expected} no {name}")


def _resized(
    layouts: Mapping[str, Layout], parts: Mapping[str, Mapping[str, int]]
) -> dict[str, Layout]:
    """Layouts of arrays after a patch with these parts."""
    return dict(layouts) | {
        name: layouts[name].resized(part["length"]) for name, part in parts.items()
    }


def check_target(path: Path) -> None:
    """Refuse a directory that holds other files than an index."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path}: expected a directory or nothing, got a file")
    files = path.iterdir() if path.is_dir() else ()
    others = sorted(file.name for file in files if file.name != LOCK and not _is_ours(file))
    if others and not _is_index(path):
        raise ValueError(f"{path}: expected an index or an empty directory, got {others[0]} in it")


def check_index_target(path: Path, *, force: bool) -> None:
    """Refuse, before any work, a directory that `write_index` would refuse.

    Args:
        path: the directory.
        force: whether any index there may be replaced.
    """
    check_target(path)
    if not force:
        _check_is_free(path)


def _is_index(path: Path) -> bool:
    try:
        return bool(json.loads(read_bytes(path / META))["format"] == FORMAT)
    except (ValueError, TypeError, LookupError, OSError, RecursionError):
        return False


def _file_of(name: str, array: NDArray[Any]) -> _ArrayFile:
    checksum = hash_arrays("", array)
    return _ArrayFile(array, checksum, f"{name}.{checksum[:16]}.npy")


def _write_files(directory: Path, files: Iterable[_ArrayFile], meta: bytes) -> None:
    for file in files:
        path = directory / file.name
        if _holds(path, file.checksum):
            continue
        with (
            replacing(path, sync_directory=False) as temporary,
            temporary.open("wb") as stream,
        ):
            write_npy(stream, file.array)
    sync(directory)  # the arrays are on disk before the meta.json that names them
    with replacing(directory / META) as temporary, temporary.open("wb") as stream:
        stream.write(meta)


@contextmanager
def _tidying(directory: Path, needed: set[str]) -> Iterator[None]:
    """Remove files that meta.json does not name: before a save, to free space, and after it.

    Args:
        directory: the directory of the index, locked.
        needed: names of the files of the new index.
    """
    named = _named_files(directory)
    if named is not None:
        _remove_strays(directory, named | needed)
    before = set(os.listdir(directory))
    try:
        yield
    except BaseException:
        with suppress(OSError):  # this error would hide why the save failed
            named = _named_files(directory)
            _remove_strays(directory, before if named is None else named)
        raise
    _remove_strays(directory, needed)


def _named_files(directory: Path) -> set[str] | None:
    """Files that meta.json names; an empty set without a meta.json, None if it is damaged."""
    try:
        meta = read_header(directory / META).meta
        return file_names(meta["arrays"], meta.get("patches", ())) | {meta.get("journal", META)}
    except FileNotFoundError:
        return set()
    except (ValueError, TypeError, LookupError, OSError):
        return None


def _remove_strays(directory: Path, used: set[str]) -> None:
    for file in directory.iterdir():
        if file.name not in used and _is_ours(file):
            with suppress(OSError):  # it may belong to another user, and does no harm
                file.unlink()


def _is_ours(file: Path) -> bool:
    """Whether a file has a name that saves use for arrays or temporary files."""
    by_name = (
        re.fullmatch(rf"{_ARRAY_NAME}|{NAME}", file.name)
        or is_partial(file.name, of=rf"meta\.json|{_ARRAY_NAME}")
        or re.fullmatch(r"(\w+\.[0-9a-f]{16}|meta)\.partial", file.name)  # by version 0.1
    )
    return bool(by_name) and (file.is_symlink() or not file.is_dir())


def _holds(file: Path, checksum: str) -> bool:
    """Whether a file is an intact array with this checksum."""
    try:
        return hash_arrays("", map_npy(file)) == checksum
    except (OSError, ValueError):
        return False


def read_index(
    path: Path, *, mmap: bool = False, verify: bool = True
) -> tuple[dict[str, Any], dict[str, NDArray[Any]], Saved]:
    """Read an index that `write_index` and `append_patch` wrote.

    Args:
        path: the index's directory.
        mmap: map the arrays instead of reading them; those with patches are mapped too, unless
            they have grown, and keep the changed pages in memory.
        verify: compare every file with its checksum, which reads all of it.

    Returns:
        The content of meta.json, the arrays by name, and what the directory holds.
    """
    header = read_header(path / META)
    while True:
        try:
            arrays, saved = _read_content(path, header, mmap=mmap, verify=verify)
            return header.meta, arrays, saved
        except FileNotFoundError as error:
            before = header.identity
            header = read_header(path / META)
            if header.identity == before and not os.path.exists(error.filename):
                raise  # no other save has replaced the index meanwhile


def _read_content(
    path: Path, header: Header, *, mmap: bool, verify: bool
) -> tuple[dict[str, NDArray[Any]], Saved]:
    """The arrays of an index with its patches, and what the directory holds."""
    entries, patches = header.meta["arrays"], tuple(header.meta.get("patches", ()))
    changed = {name for patch in patches for name in patch["parts"]}
    arrays = {
        name: _read_array(path, name, entry, verify=verify, copy_on_write=name in changed)
        for name, entry in entries.items()
    }
    layouts = {name: Layout.of(array) for name, array in arrays.items()}
    changes: dict[str, list[Rows]] = {name: [] for name in arrays}
    for entry in patches:
        packed = _read_array(path, "a patch", entry, verify=verify)
        try:
            unpacked = unpack(packed, entry["parts"], layouts)
        except ValueError as error:
            raise ValueError(f"{path / entry['file']}: {error}") from None
        layouts = _resized(layouts, entry["parts"])
        for name, rows in unpacked.items():
            changes[name].append(rows)
    patched = {
        name: _patched(array, changes[name], layouts[name].shape, mmap=mmap)
        for name, array in arrays.items()
    }
    descent, journal = descent_of(header.meta), journal_of(header.meta)
    place = path.absolute()
    return patched, Saved(place, header.version, entries, patches, layouts, descent, journal)


def _patched(
    array: NDArray[Any], changes: Sequence[Rows], shape: tuple[int, ...], *, mmap: bool
) -> NDArray[Any]:
    """A mapped array with its changes; mapped as before, or in memory."""
    is_mapped = mmap and array.shape == shape
    patched = array if is_mapped else aligned_zeros(shape, array.dtype.type)
    if not is_mapped:
        old = patched if array.shape == shape else patched[: len(array)]
        old[...] = array
    for numbers, contents in changes:
        patched[numbers] = contents
    if is_mapped:
        patched.flags.writeable = False
    return patched


def _read_array(
    directory: Path, name: str, entry: object, *, verify: bool, copy_on_write: bool = False
) -> NDArray[Any]:
    """Map an array and compare it with its entry in meta.json."""
    if not isinstance(entry, dict):
        raise ValueError(f"{directory / META}: expected a description of {name}, got {entry!r}")
    file = entry.get("file")
    if not isinstance(file, str) or Path(file).name != file or "\0" in file:
        raise ValueError(f"{directory / META}: expected a plain file name for {name}, got {file!r}")
    path = directory / file
    try:
        array = map_npy(path, copy_on_write=copy_on_write)
    except FileNotFoundError:
        raise
    except (OSError, UnicodeError) as error:  # an impossible file name, such as one too long
        raise ValueError(f"{path}: expected an array file, got {error}") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{path}: expected an array of numbers, got {array.dtype}")
    got = (array.dtype.name, list(array.shape))
    expected = (entry.get("dtype"), entry.get("shape"))
    if got != expected or not array.flags.c_contiguous or not array.flags.aligned:
        raise ValueError(f"{path}: expected {expected[0]} {expected[1]}, got {got[0]} {got[1]}")
    if verify and (checksum := hash_arrays("", array)) != entry.get("checksum"):
        raise ValueError(f"{path}: expected checksum {entry.get('checksum')}, got {checksum}")
    return array
