"""Files from elsewhere: downloaded with resuming, verified before they count."""

from __future__ import annotations

import hashlib
import http.client
import math
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from l2route.atomic import replacing

Progress = Callable[[int, int | None], None]
"""Called with the bytes done and the bytes in all, if known."""

_CHUNK_BYTES = 1 << 20
_N_TRIES = 4  # failures in a row, without a byte gained, before a download is given up
_RETRY_SECONDS = 0.25  # before the first retry; doubled before each further one


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to download."""

    url: str
    """Address: http, https or ftp."""
    checksum: str | None
    """``sha256:`` or ``md5:`` and the digest; None where it is unknown."""
    size: int | None = None
    """Bytes of the whole file, if known."""
    head: int | None = None
    """Bytes to fetch from the start, where the whole is far larger than what is needed."""

    @property
    def name(self) -> str:
        """Name of the local copy."""
        name = PurePosixPath(urllib.parse.urlsplit(self.url).path).name
        return name if self.head is None else f"head-{self.head}-{name}"


def download(
    file: RemoteFile,
    directory: str | Path,
    *,
    progress: Progress | None = None,
    timeout: float = 60.0,
) -> Path:
    """Download a file, resuming what an earlier attempt left, and verify it.

    Args:
        file: What to download.
        directory: Where to; an existing copy is verified instead.
        progress: Called after every chunk.
        timeout: Seconds without a byte before a connection counts as broken.

    Returns:
        Path of the verified copy.
    """
    target = Path(directory) / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        _verify(file, target, target)
        return target
    part = target.with_name(f"{target.name}.part")
    _fetch(file, part, progress or _ignore, timeout)
    _verify(file, part, target)
    os.replace(part, target)
    return target


def _ignore(done: int, total: int | None) -> None:
    pass


def _verify(file: RemoteFile, path: Path, target: Path) -> None:
    expected_size, size = file.head or file.size, path.stat().st_size
    if expected_size is not None and size != expected_size:
        path.unlink()
        raise ValueError(f"{file.url}: expected {expected_size} bytes, got {size}; removed {path}")
    record = target.with_name(f"{target.name}.sha256")
    expected, origin = file.checksum, "known"
    if expected is None and record.exists():
        expected, origin = f"sha256:{record.read_text()[:64]}", f"recorded in {record}"
    algorithm = "sha256" if expected is None else expected.partition(":")[0]
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, algorithm).hexdigest()
    got = f"{algorithm}:{digest}"
    if expected is None:
        with replacing(record) as temporary:
            temporary.write_text(f"{digest}  {target.name}\n")
        message = f"{file.url}: its checksum is unknown; trusting {got}, recorded in {record}"
        warnings.warn(message, stacklevel=3)
    elif got != expected:
        path.unlink()
        raise ValueError(f"{file.url}: expected {expected} ({origin}), got {got}; removed {path}")


def _fetch(file: RemoteFile, part: Path, report: Progress, timeout: float) -> None:
    if file.url.partition(":")[0] not in ("http", "https", "ftp"):
        raise ValueError(f"expected an address in http, https or ftp, got {file.url!r}")
    if _size(part) > (file.head or file.size or math.inf):
        part.unlink()
    n_failures = 0
    while True:
        offset = _size(part)
        try:
            return _fetch_rest(file, part, offset, report, timeout)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416 and error.headers["Content-Range"] == f"bytes */{offset}":
                    return None  # the part is the whole
                if error.code == 416:
                    part.unlink(missing_ok=True)
                elif error.code < 500 and error.code not in (408, 429):
                    raise OSError(f"{file.url}: expected the file, got {error}") from None
            failure: Exception = error
        except (OSError, http.client.HTTPException) as error:
            failure = error
        n_failures = 1 if _size(part) > offset else n_failures + 1
        if n_failures == _N_TRIES:
            raise OSError(f"{file.url}: expected the file, got {failure}") from failure
        time.sleep(_RETRY_SECONDS * 2 ** (n_failures - 1))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _fetch_rest(
    file: RemoteFile, part: Path, offset: int, report: Progress, timeout: float
) -> None:
    if offset and offset == (file.head or file.size):
        return
    request = urllib.request.Request(file.url, headers={"User-Agent": "l2route"})
    if offset or file.head:
        request.add_header("Range", f"bytes={offset}-{file.head - 1 if file.head else ''}")
    with urllib.request.urlopen(request, timeout=timeout) as response:
        start, total = _body_range(response)
        if start not in (0, offset):
            part.unlink(missing_ok=True)
            raise OSError(f"expected bytes from {offset}, got them from {start}")
        if file.head is not None:
            total = file.head if total is None else min(total, file.head)
        with part.open("ab" if start else "wb") as output:
            _copy(response, output, start, total, report)


def _body_range(response: Any) -> tuple[int, int | None]:
    """Tell which bytes of the file a response holds, from start up to an end if it is known."""
    if response.status == 206:
        span = re.match(r"bytes (\d+)-(\d+)/", response.headers.get("Content-Range", ""))
        if span is None:
            raise OSError(f"expected a range of bytes, got {response.headers['Content-Range']!r}")
        return int(span[1]), int(span[2]) + 1
    length = response.headers["Content-Length"]
    return 0, None if length is None else int(length)


def _copy(source: Any, output: IO[bytes], start: int, total: int | None, report: Progress) -> None:
    done = start
    while total is None or done < total:
        chunk = source.read(_CHUNK_BYTES if total is None else min(_CHUNK_BYTES, total - done))
        if not chunk:
            break
        output.write(chunk)
        done += len(chunk)
        report(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"expected {total} bytes, got {done} before the connection closed")
