"""Laws of failing saves: the old index stays, and no files are left."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from failing_disks import failing
from l2route.files.storage import LOCK, META, append_patch, read_index, write_index
from saved_content import (
    assert_is_one_of,
    change_of,
    content,
    files_in,
    named_files,
    patch_of,
    same,
    saved,
)


def save_patch(path: Path) -> None:
    """Save a change of the index `content(1)`."""
    append_patch(read_index(path)[2], {"made_by": 2}, patch_of(2))


SAVES = {
    "first": (lambda path: write_index(path, *content(2), overwrite=True), content(2)),
    "whole": (lambda path: write_index(path, *content(2), overwrite=True), content(2)),
    "patch": (save_patch, ({"made_by": 2}, change_of(content(1)[1], patch_of(2)))),
}
"""Saves, the first over nothing and others over `content(1)`, and what they save."""


@pytest.mark.parametrize("kind", SAVES)
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr
)
def test_a_save_that_fails_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, kind: str
) -> None:
    """If any step of a save fails, the error is raised and the old or the new index is intact.

    No other file is left, unless the removal of a file failed, and the next save works.
    """
    save, new = SAVES[kind]
    is_first = kind == "first"
    for n_steps in range(1000):
        path = tmp_path / str(n_steps)
        if not is_first:
            saved(path, 1)
        whole = True
        with failing(monkeypatch, n_steps, error) as done:
            try:
                save(path)
            except type(error) as caught:
                assert caught is error  # noqa: PT017 # a failed removal may go unnoticed
                whole = False
        failed_at = done[n_steps] if n_steps < len(done) else None
        if (path / META).exists():
            read = read_index(path)
            assert same(read, new) or (same(read, content(1)) and not is_first)
            assert failed_at == "unlink" or files_in(path) == named_files(path)
        else:
            assert is_first
            assert failed_at == "unlink" or not path.exists() or files_in(path) <= {LOCK}
        saved(path, 3)
        assert_is_one_of(path, (3,))
        if whole and failed_at is None:
            assert n_steps > 8
            return
    pytest.fail("the save never ends")


def test_files_beyond_a_limit(tmp_path: Path) -> None:
    """A save beyond the file size limit raises EFBIG and leaves the old index.

    The kernel refuses the write, so the test covers how numpy and Python report it.
    """
    saved(tmp_path, 1)
    script = f"""
import errno, resource, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from saved_content import content, files_in, named_files, patch_of, same
from l2route.files.storage import append_patch, read_index, write_index
path = Path({str(tmp_path)!r})
for limit in range(0, 200_000, 9_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        write_index(path, *content(2, 4000), overwrite=True)
    except OSError as error:
        assert error.errno == errno.EFBIG, repr(error)
    else:
        raise AssertionError(f"nothing failed at {{limit}}")
    assert same(read_index(path), content(1))
    assert files_in(path) == named_files(path)
saved = read_index(path)[2]
for limit in (0, 100, 500, 1_500):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        append_patch(saved, {{"made_by": 2}}, patch_of(2, n_new=300))
    except OSError as error:
        assert error.errno == errno.EFBIG, repr(error)
    else:
        raise AssertionError(f"nothing failed at {{limit}}")
    assert same(read_index(path), content(1))
    assert files_in(path) == named_files(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, resource.RLIM_INFINITY))
write_index(path, *content(1), overwrite=True)
print("held")
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ran.stdout == "held\n", ran.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting is not allowed here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    """A save on a full disk fails; the old index stays, and can be saved again.

    A save first removes partial files that a killed save left, to free space.
    """
    path = small_disk / "index"
    write_index(path, *content(1, 4000), overwrite=True)  # 320 KB of a megabyte
    for _ in range(3):
        with pytest.raises(OSError, match="No space left on device"):
            write_index(path, *content(2, 9000), overwrite=True)
        assert same(read_index(path), content(1, 4000))
        assert files_in(path) == named_files(path)
        write_index(path, *content(1, 4000), overwrite=True)
    (path / f".vectors.{'0' * 16}.npy.{'0' * 16}.partial").write_bytes(bytes(500_000))
    write_index(path, *content(3, 4000), overwrite=True)
    assert same(read_index(path), content(3, 4000))
    assert files_in(path) == named_files(path)


def test_a_patch_on_a_full_disk(small_disk: Path) -> None:
    """A patch that does not fit on the disk fails; the old index stays, and smaller ones fit."""
    path = small_disk / "index"
    saved = write_index(path, *content(1, 4000), overwrite=True)  # 320 KB of a megabyte
    for n_new in (12_000, 14_000, 16_000):
        with pytest.raises(OSError, match="No space left on device"):
            append_patch(saved, {"made_by": 2}, patch_of(2, 4000, n_new))
        assert same(read_index(path), content(1, 4000))
        assert files_in(path) == named_files(path)
    append_patch(saved, {"made_by": 2}, patch_of(2, 4000))
    patched = change_of(content(1, 4000)[1], patch_of(2, 4000))
    assert same(read_index(path), ({"made_by": 2}, patched))
