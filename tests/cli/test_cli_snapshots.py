"""Laws of `l2route snapshot`, `restore` and `versions`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from command_line import BUILD, Run
from l2route.index import load


def test_a_snapshot_is_taken_listed_restored_and_removed(workdir: Path, run: Run) -> None:
    """What was deleted after a snapshot is back after a restore; others are told apart by name."""
    assert run(BUILD)[0] == 0
    assert run("snapshot words.l2r monday") == (0, "words.l2r/snapshots/monday\n", "")
    np.savetxt(workdir / "ids.txt", [0, 1, 2], "%d")
    assert run("delete words.l2r ids.txt")[0] == 0
    taken = json.loads(run("snapshot words.l2r tuesday --json")[1])
    listed = json.loads(run("versions words.l2r --json")[1])
    assert [each["name"] for each in listed] == ["monday", "tuesday"]
    assert listed[1] == taken
    assert {"monday", "tuesday"} <= set(run("versions words.l2r")[1].split())
    before = len(load(workdir / "words.l2r"))
    assert run("restore words.l2r monday")[0] == 0
    assert len(load(workdir / "words.l2r")) == before + 3
    assert "tuesday" in run("versions words.l2r --remove monday")[1]
    code, _, err = run("restore words.l2r monday")
    assert (code, "expected a snapshot among tuesday, got monday" in err) == (2, True)


def test_old_snapshots_are_removed(workdir: Path, run: Run) -> None:
    """--keep removes the oldest; it has to keep at least the one that is taken."""
    assert run(BUILD)[0] == 0
    for _ in range(3):
        assert run("snapshot words.l2r --keep 2")[0] == 0
    assert len(json.loads(run("versions words.l2r --json")[1])) == 2
    assert run("snapshot words.l2r --keep 0")[0] == 2


def test_what_is_no_index_has_no_snapshots(workdir: Path, run: Run) -> None:
    """A directory without an index is refused, and nothing is made in it."""
    (workdir / "empty").mkdir()
    code, _, err = run("snapshot empty one")
    assert (code, "expected an index directory" in err) == (2, True)
    assert list((workdir / "empty").iterdir()) == []
