"""Readers and writers of fvecs, bvecs, ivecs, fbin, u8bin, i8bin, npy, npz, HDF5 and Parquet files.

A source is a path; a file that holds several arrays takes a key after a colon, as in
``sift.hdf5:train``, and a table the name of a column, as in ``words.parquet:embedding``. Files are
not trusted: any fault is a ``ValueError`` that names the file, and nothing is unpickled. Only
regular files are read. Links and datasets of an HDF5 file that lead to other files are refused.
HDF5 is as safe as libhdf5, which forged links can send into an endless loop: open HDF5 files only
from sources that you trust.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from l2route.files.atomic import open_regular, replacing, size_of
from l2route.files.finite import first_nonfinite_row
from l2route.files.hdf5 import check_inflation, find_dataset, import_h5py
from l2route.files.memory import check_room
from l2route.files.npy import bytes_in, check_size, map_npy, naming, read_npy_header, write_npy
from l2route.files.parquet import ENDINGS as TABLES
from l2route.files.parquet import read_column, read_column_names, write_column
from l2route.files.query_log import SUFFIX as _LOG
from l2route.files.query_log import read_query_log

_F4, _I4 = np.dtype("<f4"), np.dtype("<i4")
_U1, _I1 = np.dtype("u1"), np.dtype("i1")
_VECS: dict[str, np.dtype[Any]] = {".fvecs": _F4, ".bvecs": _U1, ".ivecs": _I4}
_BINS: dict[str, np.dtype[Any]] = {".fbin": _F4, ".u8bin": _U1, ".i8bin": _I1}
_HDF5 = (".hdf5", ".h5")

SUFFIXES: tuple[str, ...] = (*_VECS, *_BINS, ".npy", ".npz", *_HDF5, *TABLES)
"""File name endings that `read_array` and `write_array` understand. Logs of queries that a server
wrote (.log) are read too, with the files that were rotated."""

_MAX_DIM = 1_000_000  # a larger dimension means that the bytes are not a header
_POINTER = b"version https://git-lfs"  # what Git LFS leaves in place of a file
_CHUNK_VALUES = 1 << 20  # values (or bytes) handled at a time, to bound memory


def read_array(source: str | Path, *, mmap: bool = False, n_axes: int = 2) -> NDArray[Any]:
    """Read one array of numbers, in the data type of the file.

    Args:
        source: Path, with ``:key`` after an npz (optional for a single array) or HDF5 file, or
            ``:column`` after a Parquet, Arrow or Feather file (optional for a single column).
        mmap: Map the file instead of reading it, where the format allows (not npz, HDF5, tables).
        n_axes: 2 for vectors; 1 for integers or booleans in an npy, npz, HDF5 file or table.

    Returns:
        Array [n, d] of finite numbers, or [n] of integers or booleans.
    """
    path, key = locate(source)
    _check_file(path, (*SUFFIXES, _LOG))
    suffix = path.suffix.lower()
    if suffix in _VECS:
        array = _map_vecs(path, _VECS[suffix])
    elif suffix == _LOG:
        array = read_query_log(path)
    elif suffix in _BINS:
        array = _map_bin(path, _BINS[suffix])
    elif suffix == ".npy":
        array = map_npy(path)
    elif suffix == ".npz":
        array = _read_npz_array(path, key)
    elif suffix in TABLES:
        array = read_column(path, key, n_axes)
    else:
        array = _read_hdf5_array(path, key, n_axes)
    _check_layout(path, array.shape, array.dtype, n_axes)
    _check_finite(path, array)
    if isinstance(array, np.memmap) and not mmap:
        return np.array(array, order="C")
    return array


def map_array(source: str | Path) -> NDArray[Any]:
    """Map vectors without reading them: whoever reads rows has to check that they are finite.

    Args:
        source: Path of a npy, fvecs, bvecs, fbin, u8bin or i8bin file.

    Returns:
        Array [n, d] in the data type of the file.
    """
    path = Path(source)
    mapped = (*_VECS, *_BINS, ".npy")
    _check_file(path, mapped)
    suffix = path.suffix.lower()
    if suffix in _VECS:
        array = _map_vecs(path, _VECS[suffix])
    else:
        array = _map_bin(path, _BINS[suffix]) if suffix in _BINS else map_npy(path)
    _check_layout(path, array.shape, array.dtype)
    return array


def write_array(target: str | Path, array: ArrayLike) -> None:
    """Write one 2-D array of numbers, replacing the file as a whole.

    Floats may be rounded to the float type of the format; other values must fit exactly.

    Args:
        target: Path, with ``:key`` after an npz (default ``array``) or HDF5 file, or ``:column``
            after a Parquet, Arrow or Feather file (default ``vectors``).
        array: Array [n, d] of finite numbers.
    """
    path, key = locate(target)
    suffix = _check_suffix(path)
    values = np.asarray(array)
    _check_layout(path, values.shape, values.dtype)
    _check_finite(path, values)
    if suffix == ".npz":
        write_npz(path, {key or "array": values})
    elif suffix in TABLES:
        write_column(path, key or "vectors", values)
    elif suffix in _HDF5:
        if key is None:
            raise ValueError(f"{path}: expected a key, as in {path.name}:train, got none")
        write_hdf5(path, {key: values}, {})
    else:
        with replacing(path) as temporary, temporary.open("wb") as file:
            _write_stream(file, path, suffix, values)


def read_npz(path: str | Path) -> dict[str, NDArray[Any]]:
    """Read every array of an npz file, of any shape, without unpickling.

    Args:
        path: An npz file.

    Returns:
        Arrays by name.
    """
    path = Path(path)
    _check_file(path)
    with _open_npz(path) as archive:
        return {name: _read_member(path, archive, name) for name in _npz_keys(archive)}


def write_npz(path: str | Path, arrays: Mapping[str, ArrayLike]) -> None:
    """Write arrays to an npz file, uncompressed, replacing it as a whole.

    Args:
        path: The npz file.
        arrays: Arrays by name.
    """
    with replacing(Path(path)) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)


def write_hdf5(
    path: str | Path, arrays: Mapping[str, ArrayLike], attributes: Mapping[str, str | int]
) -> None:
    """Write arrays and attributes to an HDF5 file, replacing it as a whole.

    Args:
        path: The HDF5 file.
        arrays: Arrays by name.
        attributes: Attributes of the file by name.
    """
    h5py = import_h5py()
    with replacing(Path(path)) as temporary, h5py.File(temporary, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=np.asarray(array))
        file.attrs.update(attributes)


def read_attributes(path: str | Path) -> dict[str, str]:
    """Read the attributes of an HDF5 file as text.

    Args:
        path: An HDF5 file.

    Returns:
        Values by name.
    """
    path = Path(path)
    _check_file(path)
    h5py = import_h5py()
    with naming(path, "an HDF5 file"), h5py.File(path, "r") as file:
        return {str(name): _as_text(value) for name, value in file.attrs.items()}


def list_keys(path: str | Path) -> tuple[str, ...]:
    """List the names of the arrays in an npz or HDF5 file, or of the columns of a table.

    Args:
        path: The file.

    Returns:
        Names, in the order of the file.
    """
    path = Path(path)
    _check_file(path)
    if path.suffix.lower() == ".npz":
        with _open_npz(path) as archive:
            return _npz_keys(archive)
    if path.suffix.lower() in TABLES:
        return read_column_names(path)
    h5py = import_h5py()
    with naming(path, "an HDF5 file"), h5py.File(path, "r") as file:
        return tuple(str(name) for name in file)


def locate(source: str | Path) -> tuple[Path, str | None]:
    """The path of a source, and its key if it has one."""
    match = re.fullmatch(r"(.+):([^:]+)", str(source))
    holds_several = match and Path(match[1]).suffix.lower() in (".npz", *_HDF5, *TABLES)
    if match and holds_several and not Path(source).exists():
        return Path(match[1]), match[2]
    return Path(source), None


def _check_file(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    n_bytes = size_of(path)
    _check_suffix(path, suffixes)
    if n_bytes == 0 and path.suffix.lower() != _LOG:  # the current file of a log may be new
        raise ValueError(f"{path}: expected vectors, got an empty file")
    with open_regular(path) as file:
        if file.read(len(_POINTER)) == _POINTER:
            got = "a pointer of Git LFS: `git lfs pull` brings the file"
            raise ValueError(f"{path}: expected vectors, got {got}")


def _check_suffix(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> str:
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise ValueError(f"{path}: expected one of {' '.join(suffixes)}, got {suffix or 'none'!r}")
    return suffix


def _check_layout(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], n_axes: int = 2
) -> None:
    if len(shape) != n_axes:
        axes = "[n]" if n_axes == 1 else "[n, d]"
        raise ValueError(f"{path}: expected an array {axes}, got shape {list(shape)}")
    if dtype.kind not in ("iub" if n_axes == 1 else "fiu"):
        expected = "integers or booleans" if n_axes == 1 else "real numbers"
        raise ValueError(f"{path}: expected {expected}, got dtype {dtype}")
    if n_axes == 2 and (0 in shape or shape[1] > _MAX_DIM):
        expected = f"at least one row, and 1 to {_MAX_DIM} dimensions"
        raise ValueError(f"{path}: expected {expected}, got shape {list(shape)}")


def _check_finite(path: Path, array: NDArray[Any]) -> None:
    row = first_nonfinite_row(array)
    if row is not None:
        raise ValueError(f"{path}: expected finite numbers, got NaN or inf in row {row}")


def _map_vecs(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    with open_regular(path) as file:
        size, dim = bytes_in(file), int.from_bytes(file.read(4), "little", signed=True)
        if size < 4 or not 0 < dim <= _MAX_DIM:
            raise ValueError(f"{path}: expected a dimension from 1 to {_MAX_DIM}, got {dim}")
        record = _vecs_record(dtype, dim)
        if size % record.itemsize:
            expected = f"rows of {record.itemsize} bytes (dimension {dim})"
            got = f"{size} bytes: truncated or mixed rows"
            raise ValueError(f"{path}: expected {expected}, got {got}")
        records = np.memmap(file, record, mode="r")
    for start in range(0, len(records), _CHUNK_VALUES):
        dims = records["dim"][start : start + _CHUNK_VALUES]
        if (dims != dim).any():
            row = int(np.argmax(dims != dim))
            raise ValueError(
                f"{path}: expected dimension {dim} in every row, "
                f"got {int(dims[row])} in row {start + row}"
            )
    rows: NDArray[Any] = records["row"]
    return rows


def _vecs_record(dtype: np.dtype[Any], dim: int) -> np.dtype[Any]:
    return np.dtype([("dim", "<i4"), ("row", dtype, (dim,))])


def _map_bin(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    with open_regular(path) as file:
        header = file.read(8)
        if len(header) < 8:
            raise ValueError(f"{path}: expected a header of 8 bytes, got {len(header)}: truncated")
        shape = int.from_bytes(header[:4], "little"), int.from_bytes(header[4:], "little")
        _check_layout(path, shape, dtype)
        check_size(path, math.prod(shape) * dtype.itemsize, bytes_in(file) - 8)
        return np.memmap(file, dtype, mode="r", offset=8, shape=shape)


@contextmanager
def _open_npz(path: Path) -> Iterator[zipfile.ZipFile]:
    with (
        open_regular(path) as file,
        naming(path, "an npz file"),
        zipfile.ZipFile(file) as archive,
    ):
        yield archive


def _npz_keys(archive: zipfile.ZipFile) -> tuple[str, ...]:
    return tuple(name[:-4] for name in archive.namelist() if name.endswith(".npy"))


def _read_npz_array(path: Path, key: str | None) -> NDArray[Any]:
    with _open_npz(path) as archive:
        keys = _npz_keys(archive)
        if key is None and len(keys) == 1:
            key = keys[0]
        if key is None or key not in keys:
            got = "none" if key is None else repr(key)
            raise ValueError(f"{path}: expected a key out of {_names_in(keys)}, got {got}")
        return _read_member(path, archive, key)


def _names_in(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _read_member(path: Path, archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as stream:
        shape, order, dtype = read_npy_header(stream)
        n_bytes = math.prod(shape) * dtype.itemsize
        check_room(path, min(n_bytes, archive.getinfo(f"{name}.npy").file_size))
        data = bytearray()
        while len(data) <= n_bytes and (chunk := stream.read(_CHUNK_VALUES)):
            data += chunk  # grows with the file, not with the size that the header claims
    check_size(path, n_bytes, len(data))
    return np.frombuffer(data, dtype).reshape(shape, order=order)


def _as_text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _read_hdf5_array(path: Path, key: str | None, n_axes: int) -> NDArray[Any]:
    h5py = import_h5py()
    with naming(path, "an HDF5 file"), h5py.File(path, "r") as file:
        if key is None:
            raise ValueError(f"{path}: expected a key out of {_names_in(file)}, got none")
        dataset = find_dataset(path, file, key)
        _check_layout(path, dataset.shape or (), dataset.dtype, n_axes)
        check_inflation(path, dataset)
        return np.asarray(dataset[()])


def _write_stream(file: IO[bytes], path: Path, suffix: str, values: NDArray[Any]) -> None:
    if suffix == ".npy":
        write_npy(file, values)
        return
    n, dim = values.shape
    dtype = _VECS[suffix] if suffix in _VECS else _BINS[suffix]
    if suffix in _BINS:
        file.write(np.array([n, dim], "<u4").tobytes())
    n_rows = max(1, _CHUNK_VALUES // dim)
    for start in range(0, n, n_rows):
        rows = _cast(path, values[start : start + n_rows], dtype)
        if suffix in _VECS:
            records = np.empty(len(rows), _vecs_record(dtype, dim))
            records["dim"], records["row"] = dim, rows
            rows = records
        file.write(rows.tobytes())


def _cast(path: Path, rows: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        cast = rows.astype(dtype)
    rounded = rows.dtype.kind == "f" and cast.dtype.kind == "f" and np.isfinite(cast).all()
    if not rounded and not np.array_equal(cast, rows):
        raise ValueError(
            f"{path}: expected values that fit {cast.dtype}, got others of {rows.dtype}"
        )
    return cast
