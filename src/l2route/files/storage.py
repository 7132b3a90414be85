"""Index directories: meta.json and .npy arrays, replaced atomically, checked when read.

The file name of an array contains the hash of its content. Saving writes new arrays under new
names, then renames a new meta.json over the old one. A crash before that rename leaves the old
index, after it the new one. Files that meta.json does not name are removed by the next save. Saves
to one directory exclude each other with a lock on its file `.lock`; loading needs no lock. On a
file system without locks no file is removed, so that concurrent saves do no harm.
"""

import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from l2route.files.atomic import is_partial, locked, open_regular, replacing, sync
from l2route.files.hashing import hash_arrays
from l2route.files.memory import aligned_zeros
from l2route.files.npy import map_npy, write_npy

META = "meta.json"
LOCK = ".lock"
"""Locked while saving; empty, and never removed."""
LOCK_SECONDS = 300.0
"""Seconds that a save waits for another save to the same directory before a TimeoutError."""
FORMAT = "l2route-index"
SCHEMA = 1
"""Incremented when older versions would misread an index."""
_ARRAY_NAME = r"\w+\.[0-9a-f]{16}\.npy"


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


def write_index(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays and metadata into a directory, replacing the index in it.

    If it fails, the old index stays and no new file is left.
    """
    check_target(path)
    files = {name: _file_of(name, array) for name, array in arrays.items()}
    entries = {name: file.described() for name, file in files.items()}
    header = {"format": FORMAT, "schema": SCHEMA, **meta, "arrays": entries}
    text = (json.dumps(header, indent=2) + "\n").encode()
    path.mkdir(parents=True, exist_ok=True)
    with locked(path / LOCK, LOCK_SECONDS) as is_alone:
        if is_alone:
            with _tidying(path, {file.name for file in files.values()}):
                _write_files(path, files.values(), text)
        else:
            message = f"{path}: expected a file system with locks, got none: old files are kept"
            warnings.warn(message, stacklevel=2)
            _write_files(path, files.values(), text)


def check_target(path: Path) -> None:
    """Refuse a directory that holds other files than an index."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path}: expected a directory or nothing, got a file")
    files = path.iterdir() if path.is_dir() else ()
    others = sorted(file.name for file in files if file.name != LOCK and not _is_ours(file))
    if others and not _is_index(path):
        raise ValueError(f"{path}: expected an index or an empty directory, got {others[0]} in it")


def _is_index(path: Path) -> bool:
    try:
        return bool(json.loads(_read_bytes(path / META))["format"] == FORMAT)
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
        meta, _ = _read_meta(directory / META)
        return {str(entry["file"]) for entry in meta["arrays"].values()}
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
        re.fullmatch(_ARRAY_NAME, file.name)
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
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read an index that `write_index` wrote.

    Args:
        path: the index's directory.
        mmap: map the arrays instead of reading them.
        verify: compare every array with its checksum, which reads all of it.

    Returns:
        The content of meta.json, and the arrays by name.
    """
    meta, version = _read_meta(path / META)
    while True:
        try:
            arrays = {
                name: _read_array(path, name, entry, mmap=mmap, verify=verify)
                for name, entry in meta["arrays"].items()
            }
            return meta, arrays
        except FileNotFoundError as error:
            before = version
            meta, version = _read_meta(path / META)
            if version == before and not os.path.exists(error.filename):
                raise  # no other save has replaced the index meanwhile


def _read_bytes(path: Path) -> bytes:
    with open_regular(path) as stream:
        return stream.read()


def _read_meta(path: Path) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The content of meta.json, and the identity of the file that was read."""
    try:
        with open_regular(path) as stream:
            status, text = os.fstat(stream.fileno()), stream.read()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"{path.parent}: expected an index directory, got no {META}"
        ) from None
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        got = meta.get("format") if isinstance(meta, dict) else type(meta).__name__
        raise ValueError(f"{path}: expected format {FORMAT}, got {got!r}")
    if meta.get("schema") != SCHEMA:
        raise ValueError(f"{path}: expected schema {SCHEMA}, got {meta.get('schema')!r}")
    if not isinstance(meta.get("arrays"), dict):
        raise ValueError(f"{path}: expected a table of arrays, got {meta.get('arrays')!r}")
    return meta, (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)


def _read_array(
    directory: Path, name: str, entry: object, *, mmap: bool, verify: bool
) -> NDArray[Any]:
    if not isinstance(entry, dict):
        raise ValueError(f"{directory / META}: expected a description of {name}, got {entry!r}")
    file = entry.get("file")
    if not isinstance(file, str) or Path(file).name != file or "\0" in file:
        raise ValueError(f"{directory / META}: expected a plain file name for {name}, got {file!r}")
    path = directory / file
    try:
        array = map_npy(path)
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
    return array if mmap else _in_memory(array)


def _in_memory(array: NDArray[Any]) -> NDArray[Any]:
    copy = aligned_zeros(array.shape, array.dtype.type)
    copy[...] = array
    return copy
