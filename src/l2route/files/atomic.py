"""Files that are replaced whole or not at all, by one writer at a time, and opened if regular."""

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
_POLL_SECONDS = 0.01  # between two attempts at a lock that another holds
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)
# flock's answers where a file system has no locks; EBADF: NFS, on a file that is only readable
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def replacing(path: Path, *, sync_directory: bool = True) -> Iterator[Path]:
    """Give a temporary path beside a file, and rename it over the file if all went well.

    Args:
        path: The file to replace; a crash leaves the old one whole.
        sync_directory: Whether the rename is on the disk at the end; whoever replaces several
            files may call `sync` once for all.

    Yields:
        The temporary path to write to, which no other writer has.
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
        with suppress(OSError):  # what went wrong before is what the caller has to know
            temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Replace a file by this text in UTF-8."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def publish(temporary: Path, path: Path, *, sync_directory: bool = True) -> None:
    """Rename a file that is written over another, on the disk and not just in memory.

    Args:
        temporary: The file that is written.
        path: What it is to be called, in the same directory.
        sync_directory: Whether to wait until the new name is on the disk.
    """
    sync(temporary)
    os.replace(temporary, path)
    if sync_directory:
        sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or a directory's list of files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_partial(name: str, of: str) -> bool:
    """Whether a name is one that `replacing` gives to write beside files that match a pattern."""
    return re.fullmatch(rf"\.({of})\.[0-9a-f]{{{2 * _TOKEN_BYTES}}}\.partial", name) is not None


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read it, unless it is a directory, a pipe, a socket or a device.

    A named pipe would block until somebody writes to it. What is opened is what is checked, so
    that nothing can be put in its place in between.
    """

    def opener(name: str, flags: int) -> int:
        try:
            descriptor = os.open(name, flags | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ENXIO:  # sockets cannot be opened
                raise ValueError(f"{path}: expected a regular file, got a socket") from None
            raise
        return _kept_if_regular(path, descriptor)

    return open(path, "rb", opener=opener)


def size_of(path: Path) -> int | None:
    """Bytes of a regular file; None if there is nothing of that name."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    _check_regular(path, status)
    return status.st_size


def _check_regular(path: Path, status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        got = _KINDS.get(kind, "something else")
        raise ValueError(f"{path}: expected a regular file, got {got}")


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[bool]:
    """Let one writer at a time in, among threads and processes; readers need no lock.

    The lock is the kernel's (flock), so that a holder that is killed lets go of it. The lock file
    stays: if it were removed, two writers could hold two files of the same name.

    Args:
        path: The lock file; made if missing, in a directory that is there.
        seconds: How long to wait for another writer before a TimeoutError.

    Yields:
        Whether there is a lock: some network file systems have none.
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
        os.close(descriptor)  # the directory was removed and made anew, with another lock file
    try:
        yield is_alone
    finally:
        if is_alone:  # for all that share the descriptor, as forked processes do
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
    except PermissionError:  # another user's; it can be locked all the same
        descriptor = os.open(path, os.O_RDONLY | flags)
    return _kept_if_regular(path, descriptor)


def _kept_if_regular(path: Path, descriptor: int) -> int:
    """The descriptor of a regular file; that of anything else is closed, and an error raised."""
    try:
        _check_regular(path, os.fstat(descriptor))
    except ValueError:
        os.close(descriptor)
        raise
    return descriptor


def _acquire(descriptor: int, path: Path, deadline: float) -> bool:
    started = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - started
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"{path.parent}: expected other writers to be done, "
                    f"got one still at work after {waited:.0f} s"
                ) from None
            time.sleep(_POLL_SECONDS)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            raise
        else:
            return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
