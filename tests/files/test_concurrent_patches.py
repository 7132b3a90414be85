"""Laws of patches saved while others save and read."""

from __future__ import annotations

import errno
import fcntl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from crash_writers import save_arrays, state_at
from fuzzing import EFFORT
from l2route.files.patches import Patch
from l2route.files.storage import LOCK, StaleError, append_patch, read_index, write_index
from saved_content import change_of, content, files_in, named_files, patch_of, same, saved_twice


def test_no_patch_is_lost(tmp_path: Path) -> None:
    """Writers that read again after a StaleError each count all that they added."""
    write_index(tmp_path, {}, {"counts": np.zeros(3, np.int64)})
    n_each = 15 * EFFORT
    all_have_read = threading.Barrier(3)  # before the first patch: two of them are stale

    def count(which: int) -> int:
        n_added = n_stale = 0
        while n_added < n_each:
            _, arrays, saved = read_index(tmp_path)
            if n_added == n_stale == 0:
                all_have_read.wait()
            row = np.array([which]), arrays["counts"][[which]] + 1
            try:
                append_patch(saved, {}, Patch({"counts": row}))
                n_added += 1
            except StaleError:
                n_stale += 1
        return n_stale

    with ThreadPoolExecutor(3) as pool:
        n_stale = sum(pool.map(count, range(3)))
    assert read_index(tmp_path)[1]["counts"].tolist() == [n_each] * 3
    assert n_stale >= 2
    assert files_in(tmp_path) == named_files(tmp_path)


def test_loading_while_another_patches(tmp_path: Path) -> None:
    """A load during whole saves, patches and folds gives one of the saved states, ever newer."""
    states = save_arrays(tmp_path / "index", 0)
    next(states)
    stop = threading.Event()

    def save_on() -> None:
        while not stop.is_set():
            next(states)

    last = 1
    with ThreadPoolExecutor(1) as pool:
        saver = pool.submit(save_on)
        try:
            trial = 0
            while last < 40 * EFFORT and not saver.done():
                trial += 1
                read = read_index(tmp_path / "index", mmap=trial % 2 == 0, verify=trial % 3 > 0)
                number = read[0]["made_by"]
                assert number >= last
                assert same(read, state_at(number))
                last = number
        finally:
            stop.set()
        saver.result()


def test_readers_keep_what_they_mapped(tmp_path: Path) -> None:
    """A mapped index stays as it was read when patches and whole saves follow."""
    saved = write_index(tmp_path, *content(1), overwrite=True)
    first = read_index(tmp_path, mmap=True)
    append_patch(saved, {"made_by": 2}, patch_of(2))
    second = read_index(tmp_path, mmap=True)
    write_index(tmp_path, *content(3), overwrite=True)
    assert same(first, content(1))
    assert same(second, ({"made_by": 2}, change_of(content(1)[1], patch_of(2))))


def test_patches_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without file locks a patch is saved with a warning, and no file is removed."""

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    saved = saved_twice(tmp_path)
    (tmp_path / f"stray.{'0' * 16}.npy").touch()
    before = files_in(tmp_path)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.warns(UserWarning, match="expected a file system with locks, got none") as warned:
        append_patch(saved, {"made_by": 4}, patch_of(4, n_new=4))
    assert warned[0].filename == __file__
    assert read_index(tmp_path)[0]["made_by"] == 4
    assert files_in(tmp_path) > before
    assert LOCK in before
