"""Small index directories, and checks of their content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.files.storage import LOCK, META, read_index, write_index

Content = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""Metadata and arrays of an index."""


def content(seed: int, n: int = 20) -> Content:
    """Metadata and arrays of a small index; the array "shared" is the same for all seeds."""
    rng = np.random.default_rng(seed)
    return {"made_by": seed}, {
        "vectors": rng.normal(size=(n, 16)).astype(np.float32),
        "neighbors": rng.integers(0, n, (n, 4), dtype=np.int32),
        "shared": np.arange(5, dtype=np.int64),
    }


def same(a: Content, b: Content) -> bool:
    """Whether two contents have equal arrays and metadata."""
    (a_meta, a_arrays), (b_meta, b_arrays) = a, b
    return (
        a_meta["made_by"] == b_meta["made_by"]
        and a_arrays.keys() == b_arrays.keys()
        and all(np.array_equal(a_arrays[name], b_arrays[name]) for name in a_arrays)
    )


def saved(path: Path, seed: int = 1) -> dict[str, Any]:
    """Write a small index and return its meta.json."""
    write_index(path, *content(seed))
    meta: dict[str, Any] = json.loads((path / META).read_text())
    return meta


def named_files(path: Path) -> set[str]:
    """Names of the files of an index according to its meta.json, and of the lock."""
    meta = json.loads((path / META).read_text())
    return {META, LOCK, *(entry["file"] for entry in meta["arrays"].values())}


def files_in(path: Path) -> set[str]:
    """Names of the files in a directory."""
    return {file.name for file in path.iterdir()}


def assert_is_one_of(path: Path, seeds: tuple[int, ...]) -> None:
    """A directory holds an intact index of one of the seeds, and no other files."""
    read = read_index(path)
    assert any(same(read, content(seed)) for seed in seeds)
    assert files_in(path) == named_files(path)
