"""Arrays beside a manifest: npy files whose names have the hash of their content."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.folder import Folder, checked_name
from l2route.files.hashing import hash_arrays
from l2route.files.npy import naming, read_npy_header, write_npy

Array = NDArray[Any]
MAX_HEADER_BYTES = 1 << 16
"""Longest header of a npy file."""


def write_array(folder: Folder, name: str, array: Array) -> dict[str, Any]:
    """Write an array into a folder, and return its entry in the manifest."""
    checksum = hash_arrays("", array)
    file = f"{name}.{checksum[:16]}.npy"
    if not folder.has(file):
        stream = io.BytesIO()
        write_npy(stream, array)
        folder.replace(file, stream.getvalue())
    kind = {"dtype": array.dtype.name, "shape": list(array.shape)}
    return {"file": file, **kind, "checksum": checksum}


def read_array(folder: Folder, entry: object) -> Array:
    """Read an array, and compare it with its entry in the manifest."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("file"), str):
        raise ValueError(f"{folder}: expected a description of an array, got {entry!r}")
    place = f"{folder}/{entry['file']}"
    with naming(Path(place), "an array of its entry"):
        most = math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize + MAX_HEADER_BYTES
    stream = io.BytesIO(_content(folder, entry["file"], most))
    with naming(Path(place), "a npy file"):
        shape, order, dtype = read_npy_header(stream)
        data = stream.read()
        n_bytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if len(data) != n_bytes or dtype.kind not in "fiu":
            raise ValueError(f"expected {n_bytes} bytes of numbers, got {len(data)}")
        array = np.frombuffer(data, dtype).reshape(shape, order=order)
    got, expected = (array.dtype.name, list(array.shape)), (entry.get("dtype"), entry.get("shape"))
    if got != expected or not array.flags.c_contiguous:
        raise ValueError(f"{place}: expected {expected[0]} {expected[1]}, got {got[0]} {got[1]}")
    if (checksum := hash_arrays("", array)) != entry.get("checksum"):
        raise ValueError(f"{place}: expected checksum {entry.get('checksum')}, got {checksum}")
    return array


def _content(folder: Folder, name: str, most: int) -> bytes:
    """The content of a file; one of this machine is not read if it is too long."""
    if folder.is_local and (size := (folder.path / checked_name(name)).stat().st_size) > most:
        raise ValueError(f"{folder}/{name}: expected at most {most} bytes, got {size}")
    return folder.read_all(name)
