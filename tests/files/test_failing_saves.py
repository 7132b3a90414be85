"""Laws of failing saves: the old index stays, and no files are left."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.files.storage import LOCK, META, read_index, write_index
from saved_content import assert_is_one_of, content, files_in, named_files, same, saved


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, n_steps: int, error: BaseException
) -> Iterator[list[str]]:
    """Make one step of a save fail: the one after `n_steps` steps. All other steps work."""
    done: list[str] = []

    def counted(owner: object, name: str, step: Callable[..., Any]) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            is_read = owner is os and name == "open" and not args[1] & os.O_CREAT
            if not is_read:
                done.append(name)
                if len(done) == n_steps + 1:
                    raise error
            return step(*args, **kwargs)

        return called

    with monkeypatch.context() as patch:
        for owner, name in (
            *((os, "replace"), (os, "fsync"), (os, "open"), (Path, "unlink"), (Path, "mkdir")),
            *((Path, "open"), (np.lib.format, "write_array")),
        ):
            patch.setattr(owner, name, counted(owner, name, getattr(owner, name)))
        yield done


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr
)
def test_a_save_that_fails_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, is_first: bool
) -> None:
    """If any step of a save fails, the error is raised and the old or the new index is intact.

    No other file is left, unless the removal of a file failed, and the next save works.
    """
    for n_steps in range(1000):
        path = tmp_path / str(n_steps)
        if not is_first:
            saved(path, 1)
        whole = True
        with failing(monkeypatch, n_steps, error) as done:
            try:
                write_index(path, *content(2))
            except type(error) as caught:
                assert caught is error  # noqa: PT017 # a failed removal may go unnoticed
                whole = False
        failed_at = done[n_steps] if n_steps < len(done) else None
        if (path / META).exists():
            read = read_index(path)
            assert same(read, content(2)) or (same(read, content(1)) and not is_first)
            assert failed_at == "unlink" or files_in(path) == named_files(path)
        else:
            assert is_first
            assert failed_at == "unlink" or not path.exists() or files_in(path) <= {LOCK}
        saved(path, 3)
        assert_is_one_of(path, (3,))
        if whole and failed_at is None:
            assert n_steps > 15
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
from saved_content import content, files_in, named_files, same
from l2route.files.storage import read_index, write_index
path = Path({str(tmp_path)!r})
for limit in range(0, 200_000, 9_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        write_index(path, *content(2, 4000))
    except OSError as error:
        assert error.errno == errno.EFBIG, repr(error)
    else:
        raise AssertionError(f"nothing failed at {{limit}}")
    assert same(read_index(path), content(1))
    assert files_in(path) == named_files(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, resource.RLIM_INFINITY))
write_index(path, *content(1))
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
    write_index(path, *content(1, 4000))  # 320 KB of a megabyte
    for _ in range(3):
        with pytest.raises(OSError, match="No space left on device"):
            write_index(path, *content(2, 9000))
        assert same(read_index(path), content(1, 4000))
        assert files_in(path) == named_files(path)
        write_index(path, *content(1, 4000))
    (path / f".vectors.{'0' * 16}.npy.{'0' * 16}.partial").write_bytes(bytes(500_000))
    write_index(path, *content(3, 4000))
    assert same(read_index(path), content(3, 4000))
    assert files_in(path) == named_files(path)
