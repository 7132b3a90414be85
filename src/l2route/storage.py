"""Index directories: meta.json and .npy arrays, written whole or not at all, read with distrust.

An array's file name holds its content's hash. Saving writes new arrays under new names, then
renames a new meta.json over the old one: that rename is the moment the save happens. A crash before
it leaves the old index, after it the new one; files that no meta.json names are removed by the next
save.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.memory import aligned_zeros

META = "meta.json"
FORMAT = "l2route-index"
SCHEMA = 1
"""Raised when a reader of an older version would misread what is written."""


def write_index(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays and what is said of them into a directory, replacing the index in it."""
    check_target(path)
    path.mkdir(parents=True, exist_ok=True)
    described = {name: _write_array(path, name, array) for name, array in arrays.items()}
    header = {"format": FORMAT, "schema": SCHEMA, **meta, "arrays": described}
    _replace(path / META, (json.dumps(header, indent=2) + "\n").encode())
    _remove_strays(path, {entry["file"] for entry in described.values()})


def check_target(path: Path) -> None:
    """Refuse to write an index over anything that is not one."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path}: expected a directory or nothing, got a file")
    if not path.is_dir() or all(_is_ours(file.name) for file in path.iterdir()):
        return
    try:
        is_index = json.loads((path / META).read_bytes())["format"] == FORMAT
    except (ValueError, TypeError, LookupError, OSError, RecursionError):
        is_index = False
    if not is_index:
        raise ValueError(f"{path}: expected an index or an empty directory, got something else")


def _write_array(directory: Path, name: str, array: NDArray[Any]) -> dict[str, Any]:
    checksum = _checksum(array)
    file = directory / f"{name}.{checksum[:16]}.npy"
    if not _holds(file, checksum):
        temporary = file.with_suffix(".partial")
        with temporary.open("wb") as stream:
            np.lib.format.write_array(stream, array, allow_pickle=False)
            os.fsync(stream.fileno())
        os.replace(temporary, file)
    return {
        "file": file.name,
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "checksum": checksum,
    }


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".partial")
    with temporary.open("wb") as stream:
        stream.write(content)
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _remove_strays(directory: Path, used: set[str]) -> None:
    for file in directory.iterdir():
        if _is_ours(file.name) and file.name not in used:
            file.unlink()


def _is_ours(file: str) -> bool:
    """Whether a save makes files of such a name, beside meta.json."""
    return re.fullmatch(r"(\w+\.[0-9a-f]{16}\.(npy|partial))|meta\.partial", file) is not None


def _holds(file: Path, checksum: str) -> bool:
    try:
        return _checksum(np.lib.format.open_memmap(file, mode="r")) == checksum
    except (OSError, ValueError):
        return False


def _checksum(array: NDArray[Any]) -> str:
    """Hash of an array's type, shape and content."""
    digest = hashlib.blake2b(f"{array.dtype.str} {array.shape}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def read_index(
    path: Path, *, mmap: bool = False, verify: bool = True
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `write_index` wrote.

    Args:
        path: the index's directory.
        mmap: map the arrays instead of reading them.
        verify: compare every array with its checksum, which reads all of it.

    Returns:
        What is said of the index, and its arrays by name.
    """
    meta = _read_meta(path / META)
    while True:
        try:
            arrays = {
                name: _read_array(path, name, entry, mmap=mmap, verify=verify)
                for name, entry in meta["arrays"].items()
            }
            return meta, arrays
        except FileNotFoundError:
            before, meta = meta, _read_meta(path / META)
            if meta == before:
                raise  # and not replaced meanwhile by another save


def _read_meta(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent}: expected an index directory with {META}")
    try:
        meta = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ValueError(f"{path}: expected an {FORMAT}, got something else")
    if meta.get("schema") != SCHEMA:
        raise ValueError(f"{path}: expected schema {SCHEMA}, got {meta.get('schema')!r}")
    if not isinstance(meta.get("arrays"), dict):
        raise ValueError(f"{path}: expected a table of arrays, got {meta.get('arrays')!r}")
    return meta


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
        array = np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        raise
    except Exception as error:  # numpy's header parser raises many kinds on damaged files
        raise ValueError(f"{path}: expected an array file, got {error}") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{path}: expected an array of numbers, got {array.dtype}")
    got = (array.dtype.name, list(array.shape))
    expected = (entry.get("dtype"), entry.get("shape"))
    if got != expected or not array.flags.c_contiguous or not array.flags.aligned:
        raise ValueError(f"{path}: expected {expected[0]} {expected[1]}, got {got[0]} {got[1]}")
    if verify and _checksum(array) != entry.get("checksum"):
        raise ValueError(f"{path}: expected checksum {entry.get('checksum')}, got another")
    return array if mmap else _in_memory(array)


def _in_memory(array: NDArray[Any]) -> NDArray[Any]:
    copy = aligned_zeros(array.shape, array.dtype.type)
    copy[...] = array
    return copy
