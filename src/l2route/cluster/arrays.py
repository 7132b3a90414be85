"""Arrays beside a manifest: npy files whose names have the hash of their content."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.folder import Folder
from l2route.files.hashing import hash_arrays
from l2route.files.npy import naming, read_npy_header, write_npy

Array = NDArray[Any]


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
    stream = io.BytesIO(folder.read(entry["file"]))
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
