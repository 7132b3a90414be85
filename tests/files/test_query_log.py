"""Laws of logs of queries: what was logged is read, oldest first, whatever was cut off."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.files.formats import read_array
from l2route.files.query_log import QueryLog, read_query_log

DIM = 6
ROW = 4 * (DIM + 1)
ROWS = np.random.default_rng(0).normal(size=(50, DIM)).astype(np.float32)


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    """A log that was closed and continued has all queries in order, readable by its owner only."""
    path = tmp_path / "served.log"
    for part in np.split(ROWS, [1, 7, 30]):
        log = QueryLog(path, DIM)
        assert log.append(part) == len(part)
        log.close()
    assert np.array_equal(read_array(path), ROWS)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("n_files", [1, 2, 4])
def test_files_rotate(tmp_path: Path, n_files: int) -> None:
    """The newest queries are kept, in a bounded number of files of a bounded size."""
    path = tmp_path / "served.log"
    log = QueryLog(path, DIM, max_bytes=8 * ROW + 3, n_files=n_files)
    for rows in np.split(ROWS, [3, 4, 20, 21]):
        log.append(rows)
    log.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == n_files
    assert max(each.stat().st_size for each in files) == (8 if n_files > 1 else 2) * ROW
    kept = read_array(path)
    assert np.array_equal(kept, ROWS[-len(kept) :])
    assert len(kept) == 8 * (n_files - 1) + 2


def test_a_row_without_its_end_is_left_out(tmp_path: Path) -> None:
    """A writer killed within a row costs that row alone, for readers and for the next writer."""
    path = tmp_path / "served.log"
    log = QueryLog(path, DIM)
    log.append(ROWS[:5])
    log.close()
    whole = path.read_bytes()
    for n_bytes in (1, 3, 4, 5, ROW - 1):
        path.write_bytes(whole + whole[:n_bytes])
        assert np.array_equal(read_array(path), ROWS[:5])
        log = QueryLog(path, DIM)
        log.append(ROWS[5:7])
        log.close()
        assert np.array_equal(read_array(path), ROWS[:7])


def test_a_sample_is_logged(tmp_path: Path) -> None:
    """About the share asked for is logged, and none or all at the ends."""
    counts = {}
    for sample in (0.0, 0.3, 1.0):
        log = QueryLog(tmp_path / f"{sample}.log", DIM, sample=sample)
        counts[sample] = sum(log.append(ROWS) for _ in range(40))
        log.close()
        assert log.n_logged == counts[sample]
    assert (counts[0.0], counts[1.0]) == (0, 2000)
    assert 500 < counts[0.3] < 700  # a binomial with a standard deviation of 20


def test_a_full_disk_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while writing is raised, and what the disk took of the rows is removed."""
    path = tmp_path / "served.log"
    log = QueryLog(path, DIM)
    log.append(ROWS[:2])
    write = os.write

    def write_half(file: int, content: bytes) -> int:
        if len(content) < ROW:
            raise OSError(errno.ENOSPC, "no space left")
        return write(file, content[: len(content) // 2])

    monkeypatch.setattr(os, "write", write_half)
    with pytest.raises(OSError, match="no space"):
        log.append(ROWS[2:5])
    monkeypatch.undo()
    log.append(ROWS[5:6])
    log.close()
    assert np.array_equal(read_array(path), ROWS[[0, 1, 5]])


def test_half_a_row_is_removed_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If what a full disk took cannot be removed at once, it is removed before the next row."""
    path = tmp_path / "served.log"
    log = QueryLog(path, DIM)
    log.append(ROWS[:2])
    write = os.write

    def write_half(file: int, content: bytes) -> int:
        if len(content) < ROW:
            raise OSError(errno.ENOSPC, "no space left")
        return write(file, content[: len(content) // 2])

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "a broken disk")

    monkeypatch.setattr(os, "write", write_half)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(OSError, match="no space"):
        log.append(ROWS[2:3])
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="a broken disk"):
        log.append(ROWS[2:3])
    monkeypatch.undo()
    log.append(ROWS[2:3])
    log.close()
    assert np.array_equal(read_array(path), ROWS[:3])


class FailingSteps:
    """Makes the renaming, removal and opening of files fail after `n_left` steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n_left: int, code: int) -> None:
        self.n_left, self._error = n_left, OSError(code, os.strerror(code))
        for name in ("replace", "unlink", "open"):
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            self.n_left -= 1
            if self.n_left < 0:
                raise self._error
            return step(*args, **kwargs)

        return called


def sizes(path: Path) -> dict[str, int]:
    """Sizes of the files of a log by what follows its name."""
    files = path.parent.glob(f"{path.name}*")
    return {each.name.removeprefix(path.name): each.stat().st_size for each in files}


def read_log(path: Path) -> list[tuple[float, ...]]:
    """The rows of a log; none if no file is left."""
    return [tuple(row) for row in read_query_log(path).tolist()] if sizes(path) else []


@pytest.mark.parametrize("n_files", [1, 2, 4])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("n_steps", range(5))
def test_a_rotation_that_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_files: int, code: int, n_steps: int
) -> None:
    """Whatever step of a rotation fails, and however often: the log goes on, and misses no row.

    Every append says why it failed. When the cause is gone, the log is as if there had been none.
    """
    path, n_open = tmp_path / "served.log", len(os.listdir("/proc/self/fd"))
    log = QueryLog(path, DIM, max_bytes=3 * ROW, n_files=n_files)
    twin = QueryLog(tmp_path / "twin.log", DIM, max_bytes=3 * ROW, n_files=n_files)
    for row in ROWS[:24]:
        assert log.append(row[None]) == twin.append(row[None]) == 1
    codes: list[int | None] = []
    with monkeypatch.context() as patch:
        steps = FailingSteps(patch, n_steps, code)
        while len(codes) < 3 and log.n_logged < 25:
            steps.n_left = n_steps
            try:
                log.append(ROWS[24:25])
            except OSError as error:
                codes.append(error.errno)
    twin.append(ROWS[24:25])
    if log.n_logged < 25:
        assert set(read_log(path)) >= set(read_log(twin.path)[:-1])
        log.append(ROWS[24:25])
    assert codes == [code] * len(codes)
    assert codes or n_steps >= max(2, n_files)  # a rotation has so many steps
    for row in ROWS[25:40]:
        assert log.append(row[None]) == twin.append(row[None]) == 1
    assert log.n_logged == twin.n_logged == 40
    assert len(os.listdir("/proc/self/fd")) == n_open + 2
    log.close()
    twin.close()
    assert np.array_equal(read_array(path), read_array(twin.path))
    assert sizes(path) == sizes(twin.path)


@pytest.mark.parametrize("name", ["served.log", "served.log.1", "served.log.2"])
def test_a_directory_in_the_way_stays(tmp_path: Path, name: str) -> None:
    """A directory with the name of a file of the log is an error, and never moved or removed."""
    path = tmp_path / "served.log"
    log = QueryLog(path, DIM, max_bytes=ROW, n_files=3)
    log.append(ROWS[:3])
    moved = (tmp_path / name).rename(tmp_path / "moved")
    (tmp_path / name).mkdir()
    for _ in range(2):
        with pytest.raises(ValueError, match=f"{name}: expected a regular file, got a directory"):
            log.append(ROWS[3:4])
    (tmp_path / name).rmdir()
    moved.rename(tmp_path / name)
    log.append(ROWS[3:4])
    log.close()
    assert np.array_equal(read_array(path), ROWS[1:4])


def test_what_was_logged_before_an_error_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that the current file took before its rotation failed are logged, and counted."""
    log = QueryLog(tmp_path / "served.log", DIM, max_bytes=3 * ROW)
    with monkeypatch.context() as patch:
        FailingSteps(patch, 0, errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            log.append(ROWS[:5])
    assert log.n_logged == 3
    log.append(ROWS[3:5])
    log.close()
    assert np.array_equal(read_array(log.path), ROWS[:5])
    assert log.n_logged == 5


@pytest.mark.parametrize("mode", [0o644, 0o664, 0o660, 0o400])
def test_a_log_that_exists_is_made_private(tmp_path: Path, mode: int) -> None:
    """A log that others may read is made private when it is continued, with its renamed files."""
    path = tmp_path / "served.log"
    log = QueryLog(path, DIM, max_bytes=ROW)
    log.append(ROWS[:3])
    log.close()
    files = [path, tmp_path / "served.log.1", tmp_path / "served.log.2"]
    for each in files:
        each.chmod(mode)
    (tmp_path / "served.log.old").touch(0o644)
    QueryLog(path, DIM).close()
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}
    assert (tmp_path / "served.log.old").stat().st_mode & 0o777 == 0o644
    assert np.array_equal(read_array(path), ROWS[:3])


@pytest.mark.parametrize("name", ["served.log", "served.log.1"])
def test_a_log_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A log whose mode cannot be changed, and that others may read, is refused and left open."""
    path = tmp_path / "served.log"
    QueryLog(path, DIM).close()
    (tmp_path / name).touch()
    (tmp_path / name).chmod(0o644)

    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "chmod", fail)
    monkeypatch.setattr(os, "fchmod", fail)
    n_open = len(os.listdir("/proc/self/fd"))
    expected = f"{name}: expected a log that only its owner may read, got mode 644 of user"
    with pytest.raises(PermissionError, match=expected):
        QueryLog(path, DIM)
    assert len(os.listdir("/proc/self/fd")) == n_open


def test_wrong_logs_are_refused(tmp_path: Path) -> None:
    """Other names, other dimensions, no queries and mixed rows are refused with a message."""
    with pytest.raises(ValueError, match=r"expected a log of queries named \*.log, got 'a.fvecs'"):
        QueryLog(tmp_path / "a.fvecs", DIM)
    path = tmp_path / "served.log"
    path.touch()
    with pytest.raises(ValueError, match="expected queries, got none"):
        read_array(path)
    log = QueryLog(path, DIM)
    log.append(ROWS[:4])
    log.close()
    with pytest.raises(ValueError, match="closed"):
        log.append(ROWS[:1])
    with pytest.raises(ValueError, match=r"expected a log of queries \[\*, 7\], got \[\*, 6\]"):
        QueryLog(path, 7)
    mixed = bytearray(path.read_bytes())
    mixed[2 * ROW] = 5
    path.write_bytes(mixed)
    with pytest.raises(ValueError, match="expected dimension 6 in every row, got 5 in row 2"):
        read_array(path)
    (tmp_path / "other.log").write_bytes(b"2026-01-01 GET /search 200\n")
    with pytest.raises(ValueError, match="expected a dimension from 1"):
        read_array(tmp_path / "other.log")
