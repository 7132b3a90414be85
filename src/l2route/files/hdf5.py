"""Arrays of HDF5 files, through hard links within one file only."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from l2route.extras import install
from l2route.files.memory import check_room

MAX_INFLATION = 1100
"""Largest size of a dataset for each byte of its file: deflate compresses at most 1032 times."""


def import_h5py() -> ModuleType:
    """The module h5py; if it is not installed, the error says how to."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"HDF5 files need h5py: {install('hdf5')}") from error
    module: ModuleType = h5py
    return module


def find_dataset(path: Path, file: Any, key: str) -> Any:
    """The dataset of a key, which has to be within the file and not larger than it can be.

    Args:
        path: the file, for messages.
        file: the open file.
        key: names of groups and of the dataset, with slashes between.
    """
    h5py = import_h5py()
    dataset = _follow(path, file, key)
    if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external:
        got = "a dataset in other files" if isinstance(dataset, h5py.Dataset) else "a group"
        raise ValueError(f"{path}: expected {key} to be a dataset within the file, got {got}")
    return dataset


def check_inflation(path: Path, dataset: Any) -> None:
    """Refuse a dataset that is larger than its file or the memory can be when decompressed."""
    n_bytes = path.stat().st_size
    if dataset.nbytes > MAX_INFLATION * n_bytes:
        got = f"a file of {n_bytes} bytes"
        raise ValueError(f"{path}: expected {dataset.nbytes} bytes of data, got {got}")
    check_room(path, dataset.nbytes)


def _follow(path: Path, file: Any, key: str) -> Any:
    """The node of a key, through hard links only: other links can lead out of the file."""
    h5py = import_h5py()
    node = file
    for name in filter(None, key.split("/")):
        if not isinstance(node, h5py.Group) or not node.id.links.exists(name.encode()):
            known = ", ".join(file) or "none"
            raise ValueError(f"{path}: expected a key out of {known}, got {key!r}")
        if node.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
            raise ValueError(f"{path}: expected {key} to be within the file, got a link")
        node = node[name]
    return node
