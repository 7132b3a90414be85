"""Atomic replacement of files, locks between writers, and opening of regular files only."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

_TOKEN_BYTES = 8
_POLL_SECONDS = 0.01  # between two attempts to take a lock
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)
# errors of flock on file systems without locks; EBADF: NFS, for a read-only file
_NO_FULL_SYNC = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)  # of file systems without it
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def replacing(path: Path, *, sync_directory: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the same directory; if the block succeeds, rename it over the file.

    Args:
        path: The file to replace; after a crash or an error the old file is still there.
        sync_directory: Whether to flush the rename to disk. A caller that replaces several files
            may call `sync` on the directory once instead.

    Yields:
        A temporary path to write to, unique to this writer.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no such directory: {path.parent}")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file or nothing, got a directory")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(_TOKEN_BYTES)}.partial")
    try:
        yield temporary
        publish(temporary, path, sync_directory=sync_directory)
    finally:
        with suppress(OSError):  # this error would hide that of the block
            temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Replace a file by this text in UTF-8."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def publish(temporary: Path, path: Path, *, sync_directory: bool = True) -> None:
    """Flush a complete file to disk and rename it.

    Args:
        temporary: The complete file.
        path: The new name, in the same directory.
        sync_directory: Whether to flush the rename to disk.
    """
    sync(temporary)
    os.replace(temporary, path)
    if sync_directory:
        sync(path.parent)


def make_directory(path: Path) -> None:
    """Make a directory and those above it where they are missing, and flush that to disk."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        with suppress(PermissionError):  # a directory that others may write to but not read
            sync(made.parent)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _flush(descriptor)
    finally:
        os.close(descriptor)


def _flush(descriptor: int) -> None:
    """Flush an open file to disk. On macOS fsync ends before the disk has written its own cache."""
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is not None:
        try:
            fcntl.fcntl(descriptor, full_sync)
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
        else:
            return
    os.fsync(descriptor)


def is_partial(name: str, of: str) -> bool:
    """Whether a name is a temporary name of `replacing` for a file whose name matches `of`."""
    return re.fullmatch(rf"\.({of})\.[0-9a-f]{{{2 * _TOKEN_BYTES}}}\.partial", name) is not None


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; refuse a directory, pipe, socket or device.

    Opening a named pipe would block. The check is made on the open file, not on its path, which
    could be replaced in between.
    """

    def opener(name: str, flags: int) -> int:
        try:
            descriptor = os.open(name, flags | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):  # a socket, on Linux and on macOS
                raise ValueError(f"{path}: expected a regular file, got a socket") from None
            raise
        return _kept_if_regular(path, descriptor)

    return open(path, "rb", opener=opener)


def size_of(path: Path) -> int | None:
    """Size of a regular file in bytes; None if it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    _check_regular(path, status)
    return status.st_size


def _check_regular(path: Path, status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        got = _KINDS.get(kind, f"a file of type {kind:#o}")
        raise ValueError(f"{path}: expected a regular file, got {got}")


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[bool]:
    """Exclude other writers, among threads and processes; readers need no lock.

    The lock is the kernel's (flock): it is released when its holder is killed. The lock file is
    never removed: otherwise two writers could lock two files of the same name.

    Args:
        path: The lock file; created if missing, in an existing directory.
        seconds: How long to wait for another writer before a TimeoutError.

    Yields:
        Whether the lock is held: some network file systems have no locks.
    """
    deadline = time.monotonic() + seconds
    while True:
        descriptor = _open_lock(path)
        try:
            is_alone = _acquire(descriptor, path, deadline)
            if not is_alone or _is_at(descriptor, path):
                break
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the directory was recreated, with a new lock file
    try:
        yield is_alone
    finally:
        if is_alone:  # forked processes share the descriptor, and would keep the lock
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
    except PermissionError:  # another user's file; it can be locked nevertheless
        descriptor = os.open(path, os.O_RDONLY | flags)
    return _kept_if_regular(path, descriptor)


def _kept_if_regular(path: Path, descriptor: int) -> int:
    """Return the descriptor of a regular file; close any other and raise a ValueError."""
    try:
        _check_regular(path, os.fstat(descriptor))
    except ValueError:
        os.close(descriptor)
        raise
    return descriptor


def _acquire(descriptor: int, path: Path, deadline: float) -> bool:
    """Lock an open file; False if its file system has no locks."""
    started = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - started
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"{path.parent}: expected other writers to finish, "
                    f"got one still writing after {waited:.0f} s"
                ) from None
            time.sleep(_POLL_SECONDS)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            raise
        else:
            return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether a path still names the file of an open descriptor."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
