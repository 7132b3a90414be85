"""Logs of queries: rows of fvecs, appended one after another, in files that rotate.

The current file has the name of the log. Older ones have a number after it, `served.log.1` being
the newest of them. A row is the dimension and the values, as in an fvecs file. A process that is
killed may leave a row without its end: readers ignore it, and the next writer removes it.
Only their owner may read the files.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from itertools import pairwise, takewhile
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.files.atomic import open_regular, size_of

SUFFIX = ".log"
"""Ending of the names of logs."""
_MODE = 0o600  # queries may be private
_MAX_DIM = 1_000_000


class QueryLog:
    """Appends a sample of queries to a log; any number of threads may share it.

    Args:
        path: the current file, named `*.log`; made if there is none, continued otherwise.
        dim: dimension of the queries.
        sample: share of the queries that is logged, by chance.
        max_bytes: size at which a file is rotated.
        n_files: files that are kept, the current one included.
        seed: of the sample.
    """

    def __init__(
        self,
        path: Path,
        dim: int,
        *,
        sample: float = 1.0,
        max_bytes: int = 100_000_000,
        n_files: int = 4,
        seed: int = 0,
    ) -> None:
        check_name(path)
        if n_files < 1 or not 0 <= sample <= 1:
            got = f"{n_files} and {sample}"
            raise ValueError(f"expected at least 1 file and a sample from 0 to 1, got {got}")
        self.path, self.n_logged = path, 0
        self._record = _record(dim)
        self._sample, self._n_files = sample, n_files
        self._n_rows = max(1, max_bytes // self._record.itemsize)  # of a file
        self._rng, self._lock = np.random.default_rng(seed), Lock()
        self._n_written = _whole_rows(path, dim)
        for each in _rotated(path):
            _protect(each, each)
        self._file: int | None = _opened(path)
        self._is_torn = True  # there may be a row without its end behind the whole ones
        try:
            self._cut_off()
        except BaseException:
            os.close(self._file)
            raise

    def append(self, rows: NDArray[np.float32]) -> int:
        """Log a sample of queries [n, dim], and return how many were.

        After an error, such as a full disk, `n_logged` counts the rows that were logged before it.
        The log stays open, and the next call tries again what failed.
        """
        with self._lock:
            if self._sample < 1:
                rows = rows[self._rng.random(len(rows)) < self._sample]
            records = np.empty(len(rows), self._record)
            records["dim"], records["row"] = self._record["row"].shape[0], rows
            while len(records):
                n_written = self._write(records)
                self.n_logged += n_written
                records = records[n_written:]
        return len(rows)

    def _write(self, records: NDArray[Any]) -> int:
        """Write as many records as the current file has room for, and return their number."""
        if self._file is None:
            raise ValueError(f"{self.path}: expected an open log, got a closed one")
        self._cut_off()
        if self._n_written >= self._n_rows:
            self._rotate(self._file)
        fitting = records[: self._n_rows - self._n_written]
        self._is_torn = True
        try:
            _write_all(self._file, fitting.tobytes())
        except OSError:
            with suppress(OSError):  # this error would hide that of the write
                self._cut_off()
            raise
        self._is_torn = False
        self._n_written += len(fitting)
        return len(fitting)

    def _cut_off(self) -> None:
        """Remove what follows the whole rows: a disk that is full may have taken half a row."""
        if self._is_torn and self._file is not None:
            os.ftruncate(self._file, self._n_written * self._record.itemsize)
            self._is_torn = False

    def _rotate(self, file: int) -> None:
        """Number the files anew, without the oldest, and begin another.

        If that fails, the current file stays open. Files move up only as far as the first number
        that is free, so that a second attempt removes none that the first one has moved.

        Args:
            file: descriptor of the current file.
        """
        files = [self.path, *(_numbered(self.path, i) for i in range(1, self._n_files))]
        taken = list(takewhile(_exists, files))
        for newer, older in reversed(list(pairwise(files[: len(taken) + 1]))):
            os.replace(newer, older)
        if self._n_files == 1:
            self.path.unlink(missing_ok=True)
        try:
            self._file, self._n_written = _opened(self.path), 0
        except OSError:
            with suppress(OSError):  # this error would hide that of the opening
                if len(files) > 1 and taken and not self.path.exists():
                    os.replace(files[1], self.path)
            raise
        os.close(file)

    def close(self) -> None:
        """Close the current file; a closed log takes no more queries."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
            self._file = None


def read_query_log(path: Path) -> NDArray[np.float32]:
    """All queries of a log, those of rotated files included, oldest first [n, dim]."""
    rotated = _rotated(path)
    current = [path] if _exists(path) or not rotated else []  # a rotation may have no current file
    parts = [part for part in map(_read_file, rotated + current) if len(part)]
    if not parts:
        raise ValueError(f"{path}: expected queries, got none")
    dims = {part.shape[1] for part in parts}
    if len(dims) > 1:
        raise ValueError(f"{path}: expected queries of one dimension, got {sorted(dims)}")
    return np.concatenate(parts)


def check_name(path: Path) -> None:
    """Refuse a log that does not have the ending of logs, which readers recognise it by."""
    if path.suffix.lower() != SUFFIX:
        raise ValueError(f"{path}: expected a log of queries named *{SUFFIX}, got {path.name!r}")


def _read_file(path: Path) -> NDArray[np.float32]:
    """Queries of one file [n, dim], without a last row that has no end."""
    with open_regular(path) as file:
        content = file.read()
    if len(content) < 4:
        return np.zeros((0, 1), dtype=np.float32)
    record = _record(_checked_dim(path, content))
    records = np.frombuffer(content, record, count=len(content) // record.itemsize)
    _check_rows(path, records)
    return np.ascontiguousarray(records["row"], dtype=np.float32)


def _check_rows(path: Path, records: NDArray[Any]) -> None:
    dim = records.dtype["row"].shape[0]
    wrong = records["dim"] != dim
    if wrong.any():
        row = int(np.argmax(wrong))
        got = f"{int(records['dim'][row])} in row {row}"
        raise ValueError(f"{path}: expected dimension {dim} in every row, got {got}")


def _checked_dim(path: Path, content: bytes) -> int:
    dim = int.from_bytes(content[:4], "little", signed=True)
    if not 0 < dim <= _MAX_DIM:
        raise ValueError(f"{path}: expected a dimension from 1 to {_MAX_DIM}, got {dim}")
    return dim


def _whole_rows(path: Path, dim: int) -> int:
    """Number of whole rows in a file that a writer is about to continue; 0 if there is none."""
    size = size_of(path)
    if not size or size < 4:
        return 0
    with open_regular(path) as file:
        found = _checked_dim(path, file.read(4))
    if found != dim:
        raise ValueError(f"{path}: expected a log of queries [*, {dim}], got [*, {found}]")
    return size // _record(dim).itemsize


def _opened(path: Path) -> int:
    """Open a file to append to it, made if there is none, which only its owner may read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    file = os.open(path, flags, _MODE)
    try:
        _protect(path, file)
    except BaseException:
        os.close(file)
        raise
    return file


def _protect(path: Path, file: Path | int) -> None:
    """Let only its owner read a file, given by its path or open."""
    status = os.stat(file)
    mode = stat.S_IMODE(status.st_mode)
    if mode == _MODE:
        return
    try:
        os.chmod(file, _MODE)
    except OSError as error:
        got = f"mode {mode:o} of user {status.st_uid} ({error.strerror})"
        expected = f"{path}: expected a log that only its owner may read"
        raise PermissionError(f"{expected}, got {got}") from error


def _exists(path: Path) -> bool:
    """Whether there is a file; a directory in its place is refused."""
    return size_of(path) is not None


def _rotated(path: Path) -> list[Path]:
    """The files of a log but the current one, oldest first."""
    names = re.compile(re.escape(path.name) + r"\.([1-9]\d*)")
    matches = ((names.fullmatch(each.name), each) for each in path.parent.iterdir())
    numbered = [(int(match[1]), each) for match, each in matches if match]
    return [each for _, each in sorted(numbered, reverse=True)]


def _write_all(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _record(dim: int) -> np.dtype[Any]:
    return np.dtype([("dim", "<i4"), ("row", "<f4", (dim,))])
