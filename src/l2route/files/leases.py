"""Ids that nobody chose, leased from a directory so that processes cannot meet."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

LEASES = "ids.next"
"""File of the first id that was not leased, in a directory of an index."""
_DIGITS = 20


def lease_ids(directory: Path, least: int, n: int) -> int:
    """Lease n ids in a row, and return the first of them.

    Where the directory cannot be written to or has no locks, or is gone, the least id is returned.
    What was leased need not survive the machine: who might have used it does not either.

    Args:
        directory: the directory of an index.
        least: the first id that the caller knows to be free.
        n: number of ids.
    """
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(directory / LEASES, flags, 0o666)
    except OSError:
        return least
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # held for microseconds, and let go by the close
        except OSError:
            return least
        text = os.pread(file, _DIGITS, 0)
        first = max(least, int(text) if text.isdigit() else 0)
        os.pwrite(file, b"%0*d" % (_DIGITS, first + n), 0)
        return first
    finally:
        os.close(file)
