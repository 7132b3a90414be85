"""The right to change a shard, alone among threads and processes: a lease that its holder renews.

It is a small file, which is locked for moments only. A holder that hangs does not renew its lease,
and may be overtaken when that has expired. It must not save then: whoever overtakes it saves
first, and a save over another one than was read last is refused.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from l2route.cluster.errors import LateError
from l2route.files.atomic import locked
from l2route.files.meta import read_bytes

LEASE = ".change.lock"
"""The lease of a shard, in its directory."""
LEASE_SECONDS = 5.0
"""Seconds after which a holder that has not renewed its lease may be overtaken."""
POLL_SECONDS = 0.02
"""Seconds between two attempts to take a lease."""
N_BYTES = 96
"""Of a lease; more than it needs."""
_UNRETURNED = {"holder": "", "until": 0.0}


@dataclass(slots=True)
class Lease:
    """A lease while it is held."""

    path: Path
    token: str
    """Of this holder, and of no other."""
    overtakes: bool
    """Whether an earlier holder has not given it back, and may go on; until it cannot save."""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Do something that takes a moment, during which nobody overtakes this holder."""
        expected = f"{self.path.parent}: expected no other writer"
        try:
            with _opened(self.path, LEASE_SECONDS) as content:
                if content.get("holder") != self.token:
                    raise LateError(f"{expected}, got one meanwhile")
                yield
        except TimeoutError:
            raise LateError(f"{expected}, got one that hangs") from None


@contextmanager
def leased(directory: Path, until: float) -> Iterator[Lease]:
    """Hold the lease of a shard, and renew it.

    Args:
        directory: the directory of the shard.
        until: how long to wait for it before a TimeoutError, in seconds since the epoch.
    """
    path, token = directory / LEASE, secrets.token_hex(8)
    while (overtakes := _take(path, token, until)) is None:
        if time.time() >= until:
            raise TimeoutError(f"{directory}: expected other changes to end, got one that goes on")
        time.sleep(POLL_SECONDS)
    ended = Event()
    renewing = Thread(target=_renew, args=(path, token, ended), daemon=True)
    renewing.start()
    lease = Lease(path, token, overtakes)
    try:
        yield lease
    finally:
        ended.set()
        renewing.join()
        with suppress(OSError), _opened(path, LEASE_SECONDS) as content:  # else it expires
            if content.get("holder") == token:
                content.clear()
                if lease.overtakes:
                    content |= _UNRETURNED


def _take(path: Path, token: str, until: float) -> bool | None:
    """Take a lease, and say whether one that has expired is overtaken; None if it is held."""
    with _opened(path, max(POLL_SECONDS, until - time.time())) as content:
        left = content.get("until", 0.0) - time.time()
        if 0 < left <= 2 * LEASE_SECONDS:  # no clock that is right can have written more
            return None
        overtakes = bool(content)
        content |= {"holder": token, "until": time.time() + LEASE_SECONDS}
        return overtakes


def _renew(path: Path, token: str, ended: Event) -> None:
    """Renew a lease until its holder has ended, or was overtaken."""
    while not ended.wait(LEASE_SECONDS / 4):
        with suppress(OSError), _opened(path, LEASE_SECONDS / 4) as content:
            if content.get("holder") != token:
                return
            content["until"] = time.time() + LEASE_SECONDS


@contextmanager
def _opened(path: Path, seconds: float) -> Iterator[dict[str, Any]]:
    """The content of a lease, locked; what is changed in it is written."""
    with locked(path, seconds):
        content = _content(path)
        before = dict(content)
        yield content
        if content != before:  # at no moment it is empty, as if it had been given back
            with path.open("r+b", buffering=0) as file:
                file.write(json.dumps(content).encode().ljust(N_BYTES))
                file.truncate(N_BYTES)


def _content(path: Path) -> dict[str, Any]:
    """The content of a lease; one that cannot be read was not given back."""
    text = read_bytes(path)
    try:
        content = json.loads(text or b"{}")
        if content == {}:
            return {}
        return {"holder": str(content["holder"]), "until": float(content["until"])}
    except (ValueError, TypeError, LookupError, RecursionError):
        return dict(_UNRETURNED)
