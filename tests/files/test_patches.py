"""Laws of saves of changed rows: what is read is what a model of the arrays says."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

from fuzzing import EFFORT
from l2route.files.meta import MAX_PATCHES, META, SCHEMA, Saved
from l2route.files.patches import Layout, Patch, pack, unpack
from l2route.files.storage import LOCK, StaleError, append_patch, read_index, write_index
from saved_content import content, files_in, patch_of, same, saved_twice

KINDS: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
    "vectors": (np.float32, (5,)),
    "codes": (np.uint8, (3, 2)),
    "labels": (np.int64, ()),
    "half": (np.float16, (0,)),
    "flags": (np.bool_, (1,)),
}
"""dtypes of arrays, and the shapes of their rows."""
SEEDS = st.integers(0, 2**32 - 1)


def rows_of(name: str, n: int, rng: np.random.Generator) -> NDArray[Any]:
    """Random rows of an array."""
    dtype, shape = KINDS[name]
    return rng.integers(0, 2 if dtype is np.bool_ else 100, (n, *shape)).astype(dtype)


class SavedArrays(RuleBasedStateMachine):
    """Arrays in a directory beside arrays in memory, which are the model."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.path = Path(self.temporary.name) / "index"
        self.model: dict[str, NDArray[Any]] = {}
        self.step = 0
        self.kept: list[tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]] = []

    def teardown(self) -> None:
        """What was read once stays as it was, whatever was saved later."""
        for read, model in self.kept:
            assert_equal(read, model)
        self.temporary.cleanup()

    @initialize(seed=SEEDS, names=st.sets(st.sampled_from(sorted(KINDS))))
    def start(self, seed: int, names: set[str]) -> None:
        """Save new arrays, some of them without rows, and a single value."""
        self.rewrite(seed, names)

    @rule(seed=SEEDS, names=st.sets(st.sampled_from(sorted(KINDS))))
    def rewrite(self, seed: int, names: set[str]) -> None:
        """Save other arrays whole."""
        rng = np.random.default_rng(seed)
        self.model = {name: rows_of(name, rng.integers(0, 6), rng) for name in sorted(names)}
        self.model["single"] = np.array(seed)
        self.fold()

    @rule()
    def fold(self) -> None:
        """Save the arrays whole."""
        self.step += 1
        self.saved = write_index(self.path, {"step": self.step}, self.model, overwrite=True)
        assert self.saved.n_patches == 0

    @rule(seed=SEEDS, names=st.sets(st.sampled_from(sorted(KINDS))))
    def patch(self, seed: int, names: set[str]) -> None:
        """Change rows of some arrays, let some grow, and save what changed."""
        rng = np.random.default_rng(seed)
        rows, lengths = {}, {}
        for name in sorted(names & self.model.keys()):
            old = self.model[name]
            n_new = int(rng.choice([0, 0, 1, 4]))
            numbers = np.flatnonzero(rng.random(len(old) + n_new) < 0.4)
            numbers = np.union1d(numbers, np.arange(len(old), len(old) + n_new)).astype(np.int64)
            new = np.concatenate([old, rows_of(name, n_new, rng)])
            new[numbers] = rows_of(name, len(numbers), rng)
            self.model[name] = new
            rows[name], lengths[name] = (numbers, new[numbers]), len(new)
        self.step += 1
        self.saved = append_patch(self.saved, {"step": self.step}, Patch(rows, lengths))

    @rule(mmap=st.booleans(), verify=st.booleans())
    def reload(self, mmap: bool, verify: bool) -> None:
        """Read the directory, and go on with what was read."""
        _, arrays, saved = read_index(self.path, mmap=mmap, verify=verify)
        assert saved == self.saved
        self.saved = saved
        self.kept.append((arrays, dict(self.model)))

    @precondition(lambda self: self.saved.should_fold)
    @rule()
    def fold_when_due(self) -> None:
        """Save the arrays whole when the patches ask for it."""
        self.fold()

    @invariant()
    def read_is_model(self) -> None:
        """Arrays and metadata are those of the model; no other file is left."""
        if not hasattr(self, "saved"):
            return
        for mmap in (False, True):
            meta, arrays, _ = read_index(self.path, mmap=mmap)
            assert meta["step"] == self.step
            assert meta["schema"] == SCHEMA
            assert_equal(arrays, self.model)
        assert files_in(self.path) == {META, LOCK} | self.saved.file_names()


def assert_equal(read: dict[str, NDArray[Any]], model: dict[str, NDArray[Any]]) -> None:
    """Arrays are equal, bit for bit."""
    assert read.keys() == model.keys()
    for name, array in model.items():
        assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
        assert read[name].tobytes() == array.tobytes()


def test_what_is_saved_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """After any sequence of whole saves, patches and loads the directory holds the model."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # for speed
    run_state_machine_as_test(
        SavedArrays,
        settings=settings(max_examples=40 * EFFORT, stateful_step_count=15, deadline=None),
    )


def test_a_patch_costs_what_changed(tmp_path: Path) -> None:
    """A patch writes one file of the changed rows, and no array again."""
    before = write_index(tmp_path, *content(1, 2000), overwrite=True)
    files = {name: (tmp_path / name).stat() for name in files_in(tmp_path) - {META, LOCK}}
    numbers = np.array([3, 1999])
    patch = Patch({"vectors": (numbers, np.ones((2, 16), np.float32))})
    after = append_patch(before, {"made_by": 1}, patch)
    (new,) = files_in(tmp_path) - {META, LOCK} - files.keys()
    assert (tmp_path / new).stat().st_size < 400
    assert after.n_patch_bytes == 64 + 128
    for name, status in files.items():
        assert (tmp_path / name).stat().st_mtime_ns == status.st_mtime_ns


def test_metadata_alone_needs_no_patch(tmp_path: Path) -> None:
    """A patch without rows replaces the metadata, and the index stays one without patches."""
    before = write_index(tmp_path, *content(1), overwrite=True)
    empty = np.empty(0, np.int64), np.empty((0, 16), np.float32)
    after = append_patch(before, {"made_by": 2}, Patch({"vectors": empty}))
    assert after.n_patches == 0
    assert same(read_index(tmp_path), ({"made_by": 2}, content(1)[1]))
    assert json.loads((tmp_path / META).read_text())["schema"] == SCHEMA


def test_patched_arrays_stay_mapped_unless_they_grow(tmp_path: Path) -> None:
    """A patched array is mapped copy-on-write; one that has grown is in memory and aligned."""
    saved_twice(tmp_path)
    on_disk = {name: (tmp_path / name).read_bytes() for name in files_in(tmp_path)}
    arrays = read_index(tmp_path, mmap=True)[1]
    for name in ("neighbors", "shared"):
        assert isinstance(arrays[name], np.memmap)
        assert not arrays[name].flags.writeable
    assert not isinstance(arrays["vectors"], np.memmap)
    assert all(array.ctypes.data % 64 == 0 for array in arrays.values())
    assert {name: (tmp_path / name).read_bytes() for name in files_in(tmp_path)} == on_disk


def test_patches_are_folded_when_they_are_many_or_large(tmp_path: Path) -> None:
    """An index asks for a whole save after MAX_PATCHES patches, or half of its bytes."""
    meta, arrays = content(1, 2000)
    saved = write_index(tmp_path, meta, arrays, overwrite=True)
    assert not saved.should_fold
    one = Patch({"neighbors": (np.array([0]), np.zeros((1, 4), np.int32))})
    for n_patches in range(1, MAX_PATCHES + 1):
        saved = append_patch(saved, meta, one)
        assert saved.n_patches == n_patches
        assert saved.should_fold == (n_patches == MAX_PATCHES)
    saved = write_index(tmp_path, meta, arrays, overwrite=True)
    assert saved.n_base_bytes == sum(array.nbytes for array in arrays.values()) == 160_040
    for n_rows, should_fold in ((1100, False), (12, True)):  # of 72 bytes each
        rows = np.arange(n_rows), np.zeros((n_rows, 16), np.float32)
        saved = append_patch(saved, meta, Patch({"vectors": rows}))
        assert saved.should_fold == should_fold


def other_save(path: Path) -> None:
    """Another process saves."""
    write_index(path, *content(2), overwrite=True)


def other_patch(path: Path) -> None:
    """Another process saves a change."""
    append_patch(read_index(path)[2], {"made_by": 5}, patch_of(5))


def no_meta(path: Path) -> None:
    """Somebody removes meta.json."""
    (path / META).unlink()


def no_array(path: Path) -> None:
    """Somebody removes an array."""
    next(path.glob("vectors.*")).unlink()


def another_directory(path: Path) -> None:
    """Somebody puts other files there."""
    shutil.rmtree(path)
    path.mkdir()
    (path / "precious").touch()


def a_file(path: Path) -> None:
    """Somebody puts a file there."""
    shutil.rmtree(path)
    path.touch()


@pytest.mark.parametrize(
    "change", [other_save, other_patch, no_meta, no_array, another_directory, a_file, shutil.rmtree]
)
def test_a_patch_of_another_index_is_refused(tmp_path: Path, change: Any) -> None:
    """A directory that does not hold the index saved last is a StaleError, and stays as it is."""
    path = tmp_path / "index"
    saved = write_index(path, *content(1), overwrite=True)
    change(path)
    before = files_in(path) if path.is_dir() else path.exists()
    with pytest.raises(StaleError, match=r"index: expected version [0-9a-f]{16} of the index, got"):
        append_patch(saved, {"made_by": 3}, patch_of(3))
    assert (files_in(path) if path.is_dir() else path.exists()) == before


def test_an_equal_index_is_another_one(tmp_path: Path) -> None:
    """An index that was replaced by others, the last of them equal, is not patched."""
    saved = write_index(tmp_path, *content(1), overwrite=True)
    write_index(tmp_path, *content(2), overwrite=True)
    write_index(tmp_path, *content(1), overwrite=True)
    with pytest.raises(StaleError, match=r"got [0-9a-f]{16}"):
        append_patch(saved, {"made_by": 3}, patch_of(3))
    assert same(read_index(tmp_path), content(1))


LAYOUTS = {
    "a": Layout(np.dtype(np.float32), (4, 2)),
    "b": Layout(np.dtype(np.int64), (4,)),
    "single": Layout(np.dtype(np.int64), ()),
}


def patch_rows(numbers: Any, length: int | None = None, name: str = "a", **kind: Any) -> Patch:
    """A patch of one array with these row numbers."""
    contents = np.zeros((len(numbers), kind.get("width", 2)), kind.get("dtype", np.float32))
    lengths = {} if length is None else {name: length}
    return Patch({name: (np.asarray(numbers, kind.get("number", np.int64)), contents)}, lengths)


BAD_PATCHES = {
    "unknown": (patch_rows([0], name="c"), "expected an array among .*, got c"),
    "unknown length": (Patch({}, {"c": 3}), "expected an array among .*, got c"),
    "no rows": (Patch({}, {"single": 3}), "expected an array with rows, got the single value"),
    "shrunk": (patch_rows([0], 3), "expected a to keep its 4 rows, got 3"),
    "grown": (patch_rows([0], 6), "expected every new row of a from 4 on, got 0 of 2"),
    "grown by none": (Patch({}, {"a": 5}), "expected every new row of a from 4 on, got 0 of 1"),
    "grown by half": (patch_rows([1, 5], 6), "every new row of a from 4 on, got 1 of 2"),
    "too high": (patch_rows([1, 4]), r"row numbers of a in \[0, 4\), got 1 to 4"),
    "negative": (patch_rows([-1, 2]), r"row numbers of a in \[0, 4\), got -1 to 2"),
    "twice": (patch_rows([1, 1]), "expected ascending row numbers of a, got 1 before 1"),
    "unsorted": (patch_rows([2, 1]), "expected ascending row numbers of a, got 2 before 1"),
    "width": (patch_rows([1], width=3), r"rows of a float32 \[1, 2\], got float32 \[1, 3\]"),
    "dtype": (patch_rows([1], dtype=np.float64), r"float32 \[1, 2\], got float64 \[1, 2\]"),
    "numbers": (patch_rows([1], number=np.int32), r"row numbers of a int64 \[\*\], got int32"),
}


@pytest.mark.parametrize("fault", BAD_PATCHES)
def test_wrong_patches_are_not_written(tmp_path: Path, fault: str) -> None:
    """A patch that does not fit its arrays is a ValueError, and nothing is written."""
    patch, message = BAD_PATCHES[fault]
    arrays = {name: np.zeros(each.shape, each.dtype) for name, each in LAYOUTS.items()}
    saved = write_index(tmp_path, {}, arrays)
    before = files_in(tmp_path)
    with pytest.raises(ValueError, match=message):
        append_patch(saved, {}, patch)
    assert files_in(tmp_path) == before


def test_packed_rows_are_little_endian() -> None:
    """The bytes of a patch: numbers, contents, each padded to 64 bytes, in the order of names."""
    rows = {
        "b": (np.array([1, 3]), np.array([258, -1])),
        "a": (np.array([2]), np.array([[1.0, 2.0]], np.float32)),
    }
    packed, parts = pack(Patch(rows), LAYOUTS)
    assert parts == {"a": {"rows": 1, "length": 4}, "b": {"rows": 2, "length": 4}}
    blocks = ["02" + "00" * 7, "0000803f00000040"]
    blocks += ["01" + "00" * 7 + "03" + "00" * 7, "0201" + "00" * 6 + "ff" * 8]
    assert packed.tobytes().hex() == "".join(block.ljust(128, "0") for block in blocks)
    unpacked = unpack(packed, parts, LAYOUTS)
    assert unpacked.keys() == rows.keys()
    for name, (numbers, contents) in rows.items():
        np.testing.assert_array_equal(unpacked[name][0], numbers)
        np.testing.assert_array_equal(unpacked[name][1], contents)


def test_what_is_saved_can_be_copied(tmp_path: Path) -> None:
    """The record of a save is plain data: equal after a load, and independent of the directory."""
    saved = saved_twice(tmp_path)
    assert isinstance(saved, Saved)
    assert saved.path.is_absolute()
    assert read_index(tmp_path)[2] == saved
