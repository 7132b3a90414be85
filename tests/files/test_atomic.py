"""Laws of atomic replacement of files, and of opening regular files only."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from l2route.files import atomic
from l2route.files.atomic import is_partial, open_regular, replacing, size_of, sync


def test_a_file_is_replaced_when_it_is_whole(tmp_path: Path) -> None:
    """The old file stays until the block ends; then the new file is there and no other."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
        assert path.read_bytes() == b"old"
        assert is_partial(temporary.name, of=r"a\.bin")
        assert not is_partial(temporary.name, of=r"b\.bin")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
def test_what_fails_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    """If the block raises, the old file stays and no temporary file is left."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def write() -> None:
        with replacing(path) as temporary:
            temporary.write_bytes(b"ne")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_writers_at_once_do_not_mix(tmp_path: Path) -> None:
    """After concurrent writes to one path the file is the complete output of one writer."""
    path, together = tmp_path / "a.bin", threading.Barrier(4)

    def write(letter: bytes) -> None:
        together.wait()
        with replacing(path) as temporary, temporary.open("wb") as stream:
            for _ in range(100):
                stream.write(letter * 1000)
                stream.flush()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [b"a", b"b", b"c", b"d"]))
    assert path.read_bytes() in {letter * 100_000 for letter in (b"a", b"b", b"c", b"d")}
    assert list(tmp_path.iterdir()) == [path]


def test_targets_that_cannot_be_are_refused_at_once(tmp_path: Path) -> None:
    """A directory as the target, or a missing parent directory, is refused before any write."""
    with (
        pytest.raises(IsADirectoryError, match="expected a file or nothing, got a directory"),
        replacing(tmp_path),
    ):
        pytest.fail("written all the same")
    with (
        pytest.raises(FileNotFoundError, match="no such directory"),
        replacing(tmp_path / "a" / "b"),
    ):
        pytest.fail("written all the same")


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    """Files and links to files open; the error for a pipe, device or directory names its kind."""
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_bytes(b"abc")
    link.symlink_to(file)
    os.mkfifo(pipe)
    for path in (file, link):
        with open_regular(path) as stream:
            assert stream.read() == b"abc"
        assert size_of(path) == 3
    for path, kind in (
        (pipe, "a named pipe"),
        (tmp_path, "a directory"),
        (Path("/dev/null"), "a device"),
    ):
        for read in (open_regular, size_of):
            with pytest.raises(ValueError, match=f"{path}: expected a regular file, got {kind}"):
                read(path)
    assert size_of(tmp_path / "absent") is None
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "absent")


def test_files_that_are_refused_are_closed(tmp_path: Path) -> None:
    """`open_regular` leaves no descriptor open when it refuses a file."""
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(ValueError, match="a named pipe"):
            open_regular(tmp_path / "pipe")
    assert len(os.listdir("/proc/self/fd")) == before


FULL_SYNC = 51
"""The value of F_FULLFSYNC on macOS."""


@pytest.mark.parametrize(
    ("error", "calls"), [(None, ["full"]), (errno.ENOTSUP, ["full", "fsync"])], ids=["full", "none"]
)
def test_the_cache_of_the_disk_is_flushed_on_macos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int | None, calls: list[str]
) -> None:
    """Where fsync leaves data in the disk's cache, F_FULLFSYNC is used; fsync if it is missing."""
    made = []

    def full_sync(descriptor: int, command: int) -> None:
        assert command == FULL_SYNC
        made.append("full")
        if error is not None:
            raise OSError(error, os.strerror(error))

    monkeypatch.setattr(atomic.fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
    monkeypatch.setattr(atomic.fcntl, "fcntl", full_sync)
    monkeypatch.setattr(atomic.os, "fsync", lambda descriptor: made.append("fsync"))
    sync(tmp_path)
    assert made == calls


def test_an_error_of_the_disk_is_not_hidden_on_macos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full flush that fails is an error."""

    def full_sync(descriptor: int, command: int) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(atomic.fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
    monkeypatch.setattr(atomic.fcntl, "fcntl", full_sync)
    with pytest.raises(OSError, match="Input/output"):
        sync(tmp_path)


def test_a_socket_is_refused_on_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of macOS for opening a socket becomes the message that others get."""

    def refuse(name: str, flags: int) -> NoReturn:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(atomic.os, "open", refuse)
    with pytest.raises(ValueError, match="got a socket"):
        open_regular(tmp_path / "a.bin")
