"""A file system of a few megabytes that can be full, without privileges where Linux allows that.

A program starts itself again in a mount namespace of its own, and mounts a file system in memory
there. Nobody else sees it, and it is gone with the last process in the namespace.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MARK = "L2ROUTE_SOAK_DISK"
"""Environment variable of a program that runs in such a namespace: where the file system is."""
UNSHARE = ("unshare", "--user", "--map-root-user", "--mount", "--fork", "--kill-child")


def rerun_with_disk(place: Path, megabytes: int) -> int | None:
    """Run this program again with a small file system; its exit code, or None if that is refused.

    Args:
        place: an empty directory.
        megabytes: size of the file system.
    """
    options = f"size={megabytes}m,mode=700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    try:
        tried = subprocess.run([*UNSHARE, *mount], capture_output=True, timeout=60)
    except OSError:
        return None
    if tried.returncode:
        return None
    script = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'
    program = [sys.executable, *sys.orig_argv[1:]]
    command = [*UNSHARE, "sh", "-c", script, "sh", options, str(place), *program]
    return subprocess.run(command, env={**os.environ, MARK: str(place)}).returncode


class SmallDisk:
    """The file system, which can be filled.

    Args:
        place: where it is mounted; None if there is none, which is never full.
    """

    def __init__(self, place: Path | None) -> None:
        self._filler = None if place is None else place / "filler"
        self._emptied = -1.0
        self._is_full = False

    @property
    def exists(self) -> bool:
        """Whether it can be filled."""
        return self._filler is not None

    def was_full_since(self, moment: float) -> bool:
        """Whether it is full, or was at some time since then."""
        return self._is_full or self._emptied >= moment

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fill it, and make room again."""
        assert self._filler is not None
        self._is_full = True
        try:
            with self._filler.open("wb", buffering=0) as file:
                fill(file.fileno())
                yield
        finally:
            self._filler.unlink(missing_ok=True)
            self._emptied = time.monotonic()
            self._is_full = False


def fill(file: int) -> None:
    """Give a file all that is free of its file system."""
    while free := os.fstatvfs(file).f_bavail * os.fstatvfs(file).f_frsize:
        try:
            os.posix_fallocate(file, os.fstat(file).st_size, free)
        except OSError:
            return  # somebody else was faster
