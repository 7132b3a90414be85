"""Downloads: resumed after interruptions, verified before use.

The server is not trusted: no more than the known size is written, and a download that gains only a
few bytes at a time is given up.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, NoReturn

from l2route.files.atomic import open_regular, publish, replace_text, size_of
from l2route.files.progress import Progress, ignore

_CHUNK_BYTES = 1 << 20
_N_TRIES = 4  # consecutive failures with little gain before a download is given up
_MIN_GAIN = 1 << 16  # bytes; a broken connection that brought as many resets the count of failures,
_MIN_SHARE = 64  # as does one that brought this fraction (1/64) of the file, if that is less
_RETRY_SECONDS = 0.25  # before the first retry; doubled before each further one


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to download."""

    url: str
    """Address: http, https or ftp."""
    checksum: str | None
    """``sha256:`` or ``md5:`` and the digest; None if it is unknown."""
    size: int | None = None
    """Size of the whole file in bytes, if known; no more is written."""
    head: int | None = None
    """Number of bytes to fetch from the start of the file; None for the whole file."""

    @property
    def n_bytes(self) -> int | None:
        """Bytes of the local copy, if known."""
        return self.size if self.head is None else self.head

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
    """Download a file, resuming an earlier attempt, and verify it.

    Args:
        file: The file to download.
        directory: Target directory; an existing copy is verified instead.
        progress: Called after every chunk with the bytes done and in total.
        timeout: Seconds without a byte before a connection counts as broken.

    Returns:
        Path of the verified copy.
    """
    target = Path(directory) / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    if size_of(target) is not None:
        _verify(file, target, target)
        return target
    part = target.with_name(f"{target.name}.part")
    _fetch(file, part, progress or ignore, timeout)
    _verify(file, part, target)
    publish(part, target)
    return target


def _verify(file: RemoteFile, path: Path, target: Path) -> None:
    """Check size and checksum of a download; remove it if they are wrong.

    Without a known checksum, that of the first download is recorded beside the target.
    """
    size = path.stat().st_size
    if file.n_bytes is not None and size != file.n_bytes:
        path.unlink()
        raise ValueError(f"{file.url}: expected {file.n_bytes} bytes, got {size}; removed {path}")
    record = target.with_name(f"{target.name}.sha256")
    expected, origin = file.checksum, "known"
    if expected is None and size_of(record) is not None:
        with open_regular(record) as stream:
            expected = f"sha256:{stream.read(64).decode('ascii', 'replace')}"
        origin = f"recorded in {record}"
    algorithm = "sha256" if expected is None else expected.partition(":")[0]
    with open_regular(path) as stream:
        digest = hashlib.file_digest(stream, algorithm).hexdigest()
    got = f"{algorithm}:{digest}"
    if expected is None:
        replace_text(record, f"{digest}  {target.name}\n")
        message = f"{file.url}: its checksum is unknown; trusting {got}, recorded in {record}"
        warnings.warn(message, stacklevel=3)
    elif got != expected:
        path.unlink()
        raise ValueError(f"{file.url}: expected {expected} ({origin}), got {got}; removed {path}")


def _fetch(file: RemoteFile, part: Path, report: Progress, timeout: float) -> None:
    if file.url.partition(":")[0] not in ("http", "https", "ftp"):
        raise ValueError(f"expected an address in http, https or ftp, got {file.url!r}")
    if file.n_bytes is not None and _size_of_part(part) > file.n_bytes:
        part.unlink()
    n_failures, largest = 0, _size_of_part(part)
    while True:
        offset = _size_of_part(part)
        try:
            return _fetch_rest(file, part, offset, report, timeout)
        except urllib.error.HTTPError as error:
            with error:
                if _is_whole(error, offset):
                    return None
                if error.code == 416:
                    part.unlink(missing_ok=True)
                elif error.code < 500 and error.code not in (408, 429):
                    raise OSError(f"{file.url}: expected the file, got {error}") from None
            failure: Exception = error
        except (OSError, http.client.HTTPException) as error:
            failure = error
        gain = _size_of_part(part) - largest
        n_failures = 1 if gain >= _worthwhile_gain(file) else n_failures + 1
        largest += max(gain, 0)
        if n_failures >= _N_TRIES:
            raise OSError(f"{file.url}: expected the file, got {failure}") from failure
        time.sleep(_RETRY_SECONDS * 2 ** (n_failures - 1))


def _is_whole(error: urllib.error.HTTPError, offset: int) -> bool:
    """Whether the server says that the file ends at this offset."""
    return (
        offset > 0 and error.code == 416 and error.headers["Content-Range"] == f"bytes */{offset}"
    )


def _worthwhile_gain(file: RemoteFile) -> int:
    """Bytes that a broken connection must bring to reset the count of failures."""
    share = _MIN_GAIN if file.n_bytes is None else file.n_bytes // _MIN_SHARE
    return max(1, min(_MIN_GAIN, share))


def _size_of_part(part: Path) -> int:
    """Bytes that earlier attempts have downloaded."""
    return size_of(part) or 0


def _fetch_rest(
    file: RemoteFile, part: Path, offset: int, report: Progress, timeout: float
) -> None:
    if offset and offset == file.n_bytes:
        return
    request = urllib.request.Request(file.url, headers={"User-Agent": "l2route"})
    if offset or file.head:
        request.add_header("Range", f"bytes={offset}-{file.head - 1 if file.head else ''}")
    with urllib.request.urlopen(request, timeout=timeout) as response:
        start, end = _body_range(response)
        if start not in (0, offset):
            part.unlink(missing_ok=True)
            raise OSError(f"expected bytes from {offset}, got bytes from {start}")
        if file.head is not None:
            end = file.head if end is None else min(end, file.head)
        with part.open("ab" if start else "wb") as output:
            _copy(response, output, start, end, report, file)


def _body_range(response: Any) -> tuple[int, int | None]:
    """The first byte of a response within the file, and its end if known."""
    if response.status == 206:
        span = re.match(r"bytes (\d{1,18})-(\d{1,18})/", response.headers.get("Content-Range", ""))
        if span is None or int(span[2]) < int(span[1]):
            raise OSError(f"expected a range of bytes, got {response.headers['Content-Range']!r}")
        return int(span[1]), int(span[2]) + 1
    length = response.headers["Content-Length"]
    if length is None:
        return 0, None
    if re.fullmatch(r"\d{1,18}", length.strip()) is None:
        raise OSError(f"expected a length in bytes, got {length!r}")
    return 0, int(length)


def _copy(
    source: Any, output: IO[bytes], start: int, end: int | None, report: Progress, file: RemoteFile
) -> None:
    limit = file.n_bytes
    if end is not None and limit is not None and end > limit:
        _refuse_more(file, output, end)
    done = start
    while end is None or done < end:
        chunk = source.read(_CHUNK_BYTES if end is None else min(_CHUNK_BYTES, end - done))
        if not chunk:
            break
        done += len(chunk)
        if limit is not None and done > limit:
            _refuse_more(file, output, done)
        output.write(chunk)
        report(done, end)
    if end is not None and done < end:
        raise ConnectionError(f"expected {end} bytes, got {done} before the connection closed")


def _refuse_more(file: RemoteFile, output: IO[bytes], got: int) -> NoReturn:
    Path(output.name).unlink(missing_ok=True)
    raise ValueError(f"{file.url}: expected {file.n_bytes} bytes, got {got} or more; removed them")
