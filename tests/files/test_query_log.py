"""Laws of logs of queries: what was logged is read, oldest first, whatever was cut off."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from l2route.files.formats import read_array
from l2route.files.query_log import QueryLog

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
