"""Laws of saves that are cut off, or whose disk loses power: the old or the new index."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from failing_disks import PowerCut, VolatileDisk, power_cut, volatile
from l2route.files.storage import append_patch, read_index, write_index
from saved_content import (
    Content,
    change_of,
    content,
    files_in,
    named_files,
    patch_of,
    patched_content,
    same,
    saved_twice,
)


@dataclass(frozen=True)
class Save:
    """A save over an index: what is there before, the save, and what is there after it."""

    prepare: Callable[[Path], object]
    old: Content
    save: Callable[[Path], object]
    new: Content


def save_patch(path: Path) -> None:
    """Save the third patch of an index with two."""
    append_patch(read_index(path)[2], {"made_by": 4}, patch_of(4, n_new=8))


SAVES = {
    "whole": Save(
        lambda path: write_index(path, *content(1), overwrite=True),
        content(1),
        lambda path: write_index(path, *content(2), overwrite=True),
        content(2),
    ),
    "patch": Save(
        saved_twice,
        patched_content(),
        save_patch,
        ({"made_by": 4}, change_of(patched_content()[1], patch_of(4, n_new=8))),
    ),
    "fold": Save(
        saved_twice,
        patched_content(),
        lambda path: write_index(path, *patched_content(), overwrite=True),
        patched_content(),
    ),
}


def cut_saves(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    before: Path | None,
    save: Callable[[Path], object],
) -> Iterator[Path]:
    """Yield directories after a save over `before` was cut off at each of its steps."""
    for n_steps in range(1000):
        path = tmp_path / f"cut{n_steps}"
        if before is not None:
            shutil.copytree(before, path)
        with power_cut(monkeypatch, n_steps) as done:
            try:
                save(path)
            except PowerCut:
                whole = False
            else:
                whole = True
        yield path
        if whole:
            assert set(done) >= {"replace", "fsync", "open", "write"}
            return
    pytest.fail("the save never ends")


@pytest.mark.parametrize("kind", SAVES)
def test_a_save_cut_off_leaves_the_old_or_the_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """A save cut off at any step leaves the old or the new index; the next save tidies up."""
    case = SAVES[kind]
    case.prepare(tmp_path / "old")
    became_new = []
    for path in cut_saves(monkeypatch, tmp_path, tmp_path / "old", case.save):
        read = read_index(path)
        assert same(read, case.old) or same(read, case.new)
        became_new.append(same(read, case.new))
        write_index(path, *content(3), overwrite=True)
        assert same(read_index(path), content(3))
        assert files_in(path) == named_files(path)
    assert became_new == sorted(became_new)
    assert became_new[0] == (kind == "fold")  # which changes files, not what they hold
    assert became_new[-1]


def test_a_first_save_cut_off_leaves_nothing_or_the_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A first save cut off at any step leaves no index or the new one; the next save works."""
    new = content(2)
    for path in cut_saves(
        monkeypatch, tmp_path, None, lambda path: write_index(path, *new, overwrite=True)
    ):
        with suppress(FileNotFoundError):
            assert same(read_index(path), new)
        write_index(path, *new, overwrite=True)
        assert same(read_index(path), new)
        assert files_in(path) == named_files(path)


@pytest.mark.parametrize("kind", SAVES)
def test_a_power_loss_leaves_the_old_or_the_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """If only what was flushed is on the disk, it is the old or the new index.

    It is the new one when the save has returned.
    """
    case = SAVES[kind]
    case.prepare(tmp_path / "index")
    n_states = 0

    def check(disk: VolatileDisk, allowed: tuple[Content, ...] = (case.old, case.new)) -> None:
        nonlocal n_states
        for files in disk.possible():
            left = tmp_path / f"left{n_states}"
            left.mkdir()
            for name, data in files.items():
                (left / name).write_bytes(data)
            assert any(same(read_index(left), each) for each in allowed)
            n_states += 1

    with volatile(monkeypatch, tmp_path / "index", check) as disk:
        case.save(tmp_path / "index")
        check(disk, (case.new,))
    assert n_states > 8


def test_a_new_directory_is_flushed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A first save flushes the entries of all directories that it made."""
    flushed, fsync = [], os.fsync

    def recorded(descriptor: int) -> None:
        flushed.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    write_index(tmp_path / "a" / "b" / "index", *content(1), overwrite=True)
    for above in (tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "index"):
        assert above.stat().st_ino in flushed
