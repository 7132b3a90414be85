"""Files of ids: arrays of whole numbers, or text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.files.atomic import open_regular
from l2route.files.formats import locate, read_array
from l2route.files.parquet import ENDINGS as TABLES

ENDINGS = (".txt", ".npy", ".npz", ".hdf5", ".h5", *TABLES)
"""File name endings that `read_ids` understands."""


def read_ids(source: str | Path, *, may_be_mask: bool = False) -> NDArray[Any]:
    """Read ids, or a boolean for every vector.

    Args:
        source: Path of a text file (.txt) with an id per line, or of an npy, npz or HDF5 file, with
            ``:key`` after the last two, or of a table (.parquet, .arrow, .feather), with
            ``:column``.
        may_be_mask: Whether an array of booleans is accepted.

    Returns:
        Integers or booleans [n].
    """
    path, _ = locate(source)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{path}: expected one of {' '.join(ENDINGS)}, got {ending or 'none'!r}")
    if ending == ".txt":
        return _read_lines(path)
    ids = read_array(source, n_axes=1)
    if ids.dtype.kind == "b" and not may_be_mask:
        raise ValueError(f"{source}: expected ids, got booleans")
    return ids


def _read_lines(path: Path) -> NDArray[np.int64]:
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    with open_regular(path) as file:
        lines = file.read().decode("utf-8-sig", "replace").splitlines()
    limits = np.iinfo(np.int64)
    ids = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            ids.append(int(line))
        except ValueError:
            got = f"{line[:40]!r} in line {number}"
            raise ValueError(f"{path}: expected a whole number per line, got {got}") from None
        if not limits.min <= ids[-1] <= limits.max:
            got = f"{ids[-1]} in line {number}"
            raise ValueError(f"{path}: expected ids that fit in int64, got {got}")
    return np.array(ids, dtype=np.int64)
