"""Small index directories, and checks of their content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.files.leases import LEASES
from l2route.files.meta import Saved, file_names
from l2route.files.patches import Patch
from l2route.files.storage import LOCK, META, append_patch, read_index, write_index

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


def same(read: tuple[dict[str, Any], dict[str, NDArray[Any]], Saved], expected: Content) -> bool:
    """Whether what was read has the expected arrays and metadata."""
    (a_meta, a_arrays, _), (b_meta, b_arrays) = read, expected
    return (
        a_meta["made_by"] == b_meta["made_by"]
        and a_arrays.keys() == b_arrays.keys()
        and all(np.array_equal(a_arrays[name], b_arrays[name]) for name in a_arrays)
    )


def saved(path: Path, seed: int = 1) -> dict[str, Any]:
    """Write a small index and return its meta.json."""
    write_index(path, *content(seed), overwrite=True)
    meta: dict[str, Any] = json.loads((path / META).read_text())
    return meta


def patch_of(seed: int, n: int = 20, n_new: int = 0) -> Patch:
    """A patch of a small index of n rows: vectors and neighbours of some, and new vectors."""
    rng = np.random.default_rng(seed)
    some = np.flatnonzero(rng.random(n) < 0.3)
    numbers = np.concatenate([some, np.arange(n, n + n_new)])
    vectors = rng.normal(size=(len(numbers), 16)).astype(np.float32)
    neighbors = rng.integers(0, n, (len(some), 4), dtype=np.int32)
    rows = {"vectors": (numbers, vectors), "neighbors": (some, neighbors)}
    return Patch(rows, {"vectors": n + n_new})


def change_of(arrays: dict[str, NDArray[Any]], patch: Patch) -> dict[str, NDArray[Any]]:
    """Copies of arrays after a patch."""
    changed = {}
    for name, array in arrays.items():
        numbers, contents = patch.rows.get(name, ([], array[:0]))
        new = np.zeros((patch.lengths.get(name, len(array)), *array.shape[1:]), array.dtype)
        new[: len(array)] = array
        for number, row in zip(numbers, contents, strict=True):
            new[number] = row
        changed[name] = new
    return changed


def patched_content() -> Content:
    """What `saved_twice` writes."""
    return {"made_by": 3}, change_of(change_of(content(1)[1], patch_of(2)), patch_of(3, n_new=4))


def saved_twice(path: Path) -> Saved:
    """Write a small index, and two patches of it."""
    saved = append_patch(
        write_index(path, *content(1), overwrite=True), {"made_by": 2}, patch_of(2)
    )
    return append_patch(saved, {"made_by": 3}, patch_of(3, n_new=4))


def named_files(path: Path) -> set[str]:
    """Names of the files of an index according to its meta.json, of the lock and of leases."""
    meta = json.loads((path / META).read_text())
    maybe = {name for name in (LEASES, meta["journal"]) if (path / name).exists()}
    return {META, LOCK, *file_names(meta["arrays"], meta["patches"]), *maybe}


def files_in(path: Path) -> set[str]:
    """Names of the files in a directory."""
    return {file.name for file in path.iterdir()}


def assert_is_one_of(path: Path, seeds: tuple[int, ...]) -> None:
    """A directory holds an intact index of one of the seeds, and no other files."""
    read = read_index(path)
    assert any(same(read, content(seed)) for seed in seeds)
    assert files_in(path) == named_files(path)
