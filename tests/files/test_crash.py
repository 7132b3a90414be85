"""Laws of killed writers: nothing saved is lost, nothing is torn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crash import kill_repeatedly
from crash_writers import state_at
from l2route.files.storage import read_index, write_index
from saved_content import content, files_in, named_files, same

N_KILLS = int(os.environ.get("L2ROUTE_KILLS", "60"))
"""By `make crash` 300."""


def state_on_disk(path: Path, n_returned: int) -> int:
    """Check that a directory holds the last state returned or the next one; return its number."""
    try:
        read = read_index(path, mmap=n_returned % 2 == 0)
    except FileNotFoundError:
        assert n_returned == 0
        return 0
    number: int = read[0]["made_by"]
    assert n_returned <= number <= n_returned + 1
    assert same(read, state_at(number))
    return number


def test_a_killed_writer_loses_nothing(tmp_path: Path) -> None:
    """After a kill at any moment the directory holds the state of the last save that returned.

    Or that of the save that was under way, whole. The next save removes what the kills left.
    """
    path = tmp_path / "index"

    def check(n_returned: int) -> int:
        return state_on_disk(path, n_returned)

    last = kill_repeatedly("crash_writers:save_arrays", path, check, N_KILLS)
    assert last > N_KILLS  # writers come far
    write_index(path, *content(1), overwrite=True)
    assert files_in(path) == named_files(path)


def test_kills_find_a_writer_that_is_not_safe(tmp_path: Path) -> None:
    """The harness finds a writer that removes its file before it renames the new one."""

    def check(n_returned: int) -> int:
        number = int((tmp_path / "file").read_text()) if n_returned else 0
        assert number in (n_returned, n_returned + 1)
        return number

    with pytest.raises(FileNotFoundError) as caught:
        kill_repeatedly("crash_writers:remove_and_rename", tmp_path, check, 300)
    assert "saves returned" in caught.value.__notes__[0]


def test_a_writer_that_fails_is_no_kill(tmp_path: Path) -> None:
    """A writer that ends by itself is an error of the test."""
    with pytest.raises(AssertionError, match=r"expected a writer killed at .*, got 0"):
        kill_repeatedly("crash_writers:fail", tmp_path, lambda n_returned: n_returned, 50)
