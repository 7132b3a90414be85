"""Laws of changes under faults: an id is in one shard, and what was acknowledged is there."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from l2route.cluster.asking import Call
from l2route.cluster.changes import Changes
from l2route.cluster.errors import PartialError
from l2route.cluster.folder import Folder
from l2route.cluster.moves import MOVES, Move
from l2route.cluster.replica import Replica
from l2route.cluster.sharded import ShardedIndex
from sharding import IDS, N_SHARDS, QUERIES, VECTORS

SECONDS = 30.0


class Driver:
    """A process that changes a sharded index, whose calls are lost when a test says so."""

    def __init__(self, path: str | Path) -> None:
        self.replicas = [Replica(str(path), number) for number in range(N_SHARDS)]
        self.partition = ShardedIndex(path).router.partition
        self.lost: dict[str, str] = {}
        """When calls of a method are lost: before or after they are made."""
        self.changes = Changes(N_SHARDS, self.partition, self.ask, Folder(path))

    def ask(self, calls: dict[int, Call], seconds: float) -> dict[int, Any]:
        """Answers of all shards, or an error."""
        answers = {}
        for shard, call in calls.items():
            if (when := self.lost.get(call.method)) != "before":
                answers[shard] = getattr(self.replicas[shard], call.method)(*call.arguments)
            if when is not None:
                raise PartialError(f"shard {shard} gave no answer to {call.method}")
        return answers


def places(path: str | Path, ids: NDArray[np.int64]) -> dict[int, list[int]]:
    """Shards that have ids, as whoever opens the index finds them."""
    shards = ShardedIndex(path).shards
    return {i: [s.number for s in shards if i in s.index] for i in ids.tolist()}


def vector_of(path: Path, id_: int) -> NDArray[np.float32]:
    """The vector of an id, from the only shard that has it."""
    (shard,) = (each for each in ShardedIndex(path).shards if id_ in each.index)
    found: NDArray[np.float32] = shard.index.vectors([id_])[0]
    return found


def moving(path: Path, n: int) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int32]]:
    """Ids, vectors of other shards than they are in, and these shards."""
    partition = ShardedIndex(path).router.partition
    at, to = partition.assign(VECTORS), partition.assign(QUERIES)
    rows = [np.flatnonzero(at != shard)[7 * i] for i, shard in enumerate(to[:n])]
    return IDS[rows], QUERIES[:n], to[:n]


@pytest.mark.parametrize(
    ("method", "when", "url"),
    [
        ("put", "before", "{}"),
        ("put", "after", "{}"),
        ("delete", "before", "{}"),
        ("delete", "before", "file://{}"),
        ("end_moves", "before", "{}"),
    ],
)
def test_a_move_that_was_cut_off_is_finished(
    copied_path: Path, method: str, when: str, url: str
) -> None:
    """Whoever opens the index finds moved ids in one shard: with the new vector, if it arrived."""
    url = url.format(copied_path)
    driver = Driver(url)
    ids, rows, to = moving(copied_path, 8)
    driver.lost = {method: when}
    with pytest.raises(PartialError):
        driver.changes.update(ids, rows, SECONDS)
    assert (method, when) == ("put", "before") or [*copied_path.glob(f"*/{MOVES}")]
    found = places(url, ids)
    assert all(len(each) == 1 for each in found.values()), found
    assert not [*copied_path.glob(f"*/{MOVES}")]
    if method != "put":
        assert [each for (each,) in found.values()] == to.tolist()
        for id_, row in zip(ids.tolist(), rows, strict=True):
            np.testing.assert_array_equal(vector_of(copied_path, id_), row)


def test_the_next_change_finishes_a_move(copied_path: Path) -> None:
    """A change of the same ids finishes their move first, and any of the same driver does too."""
    driver, other = Driver(copied_path), Driver(copied_path)
    ids, rows, to = moving(copied_path, 4)
    driver.lost = {"delete": "before"}
    with pytest.raises(PartialError):
        driver.changes.update(ids, rows, SECONDS)
    other.changes.delete(ids[:1], SECONDS)
    assert len([*copied_path.glob(f"*/{MOVES}")]) > 0
    driver.lost, unmoved = {}, IDS[~np.isin(IDS, ids)]
    driver.changes.delete(unmoved[:1], SECONDS)
    assert not [*copied_path.glob(f"*/{MOVES}")]
    expected = {i: [s] for i, s in zip(ids[1:].tolist(), to[1:].tolist(), strict=True)}
    assert places(copied_path, ids) == {int(ids[0]): [], **expected}


def test_a_late_call_of_a_move_harms_no_later_move(copied_path: Path) -> None:
    """Ids that came back to a shard stay there when the end of an earlier move arrives late."""
    driver = Driver(copied_path)
    (id_, *_), rows, (to, *_) = moving(copied_path, 1)
    (source,) = places(copied_path, np.array([id_]))[id_]
    calls: list[Call] = []
    ask = driver.ask

    def note(asked: dict[int, Call], seconds: float) -> dict[int, Any]:
        calls.extend(call for call in asked.values() if call.method in ("delete", "end_moves"))
        return ask(asked, seconds)

    driver.changes._ask = note
    back = VECTORS[id_ == IDS]
    driver.changes.update(np.array([id_]), rows, SECONDS)
    driver.changes.update(np.array([id_]), back, SECONDS)
    assert places(copied_path, np.array([id_])) == {id_: [source]}
    late, end, *_ = calls
    driver.replicas[source].delete(*late.arguments)
    driver.replicas[to].end_moves(*end.arguments)
    assert places(copied_path, np.array([id_])) == {id_: [source]}
    np.testing.assert_array_equal(vector_of(copied_path, id_), back[0])


def test_an_end_that_is_too_early_keeps_the_record(copied_path: Path) -> None:
    """A move whose vectors arrive while another process looks for them is not forgotten."""
    driver = Driver(copied_path)
    ids, rows, (to, *_) = moving(copied_path, 1)
    move = Move(int(to), "0123456789abcdef", ids)
    driver.replicas[to].put(rows, ids, move)
    driver.replicas[to].end_moves([move], np.empty(0, np.int64))  # it was seen nowhere else
    assert len(driver.replicas[to].holds(ids).moves) == 1
    assert places(copied_path, ids) == {int(ids[0]): [int(to)]}


class Model:
    """What ids may be: an acknowledged vector or none, and those of changes without an answer."""

    def __init__(self) -> None:
        self.may_be: dict[int, list[NDArray[np.float32] | None]] = {}

    def note(self, ids: NDArray[np.int64], rows: Any, is_answered: bool) -> None:
        """Note a change; rows are None for a delete."""
        for at, id_ in enumerate(ids.tolist()):
            new = None if rows is None else rows[at]
            before = [] if is_answered else self.may_be.get(id_, [None])
            self.may_be[id_] = [*before, new]


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_lost_every_id_is_in_one_shard(
    built_path: Path, tmp_path: Path, seed: int
) -> None:
    """Two drivers, any of whose calls are lost: acknowledged changes are there, in one shard."""
    path = Path(shutil.copytree(built_path, tmp_path / "x"))
    rng, model, drivers = random.Random(seed), Model(), [Driver(path) for _ in range(2)]
    known = list(IDS[:12])
    model.note(IDS[:12], VECTORS[:12], is_answered=True)
    for step in range(24):
        driver = rng.choice(drivers)
        lost = rng.choice(["put", "delete", "end_moves", "holds", "settle", "add", ""])
        driver.lost = {lost: rng.choice(["before", "after"])} if lost else {}
        ids = np.array(rng.sample(known, 3))
        rows = QUERIES[rng.sample(range(len(QUERIES)), 3)]
        kind = rng.choice(["update", "update", "delete", "add"])
        try:
            if kind == "update":
                driver.changes.update(ids, rows, SECONDS)
            elif kind == "delete":
                rows = None  # type: ignore[assignment]
                driver.changes.delete(ids, SECONDS)
            else:
                ids = np.arange(3) + 10**6 + 3 * step
                known += ids.tolist()
                driver.changes.add(rows, ids, SECONDS)
        except PartialError:
            model.note(ids, rows, is_answered=False)
        except ValueError:  # of ids that may have been deleted
            assert kind != "add"
        else:
            model.note(ids, rows, is_answered=True)
    found = places(path, np.array(known))
    for id_, allowed in model.may_be.items():
        assert len(found[id_]) <= 1, id_
        now = vector_of(path, id_) if found[id_] else None
        assert any(now is each or (now is not None and (now == each).all()) for each in allowed)
