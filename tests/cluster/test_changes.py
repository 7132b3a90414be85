"""Laws of changes that do not end in time: none comes later, and all can be repeated."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from l2route.cluster.asking import Call
from l2route.cluster.changes import Changes
from l2route.cluster.errors import LateError, PartialError, QueueFullError
from l2route.cluster.replica import Replica
from l2route.cluster.shard import LOCK
from l2route.cluster.sharded import ShardedIndex
from l2route.files.atomic import locked
from sharding import IDS, N_SHARDS, QUERIES, VECTORS

SHORT, LONG = 0.4, 30.0
"""Seconds of changes that are to be late, and of others."""


class Shards:
    """One replica of every shard, called in threads as actors are: changes one after another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replicas = [Replica(str(path), number) for number in range(N_SHARDS)]
        self.threads = [
            {"change": ThreadPoolExecutor(1), "status": ThreadPoolExecutor(1)}
            for _ in self.replicas
        ]
        partition = ShardedIndex(path).router.partition
        self.at = partition.assign(QUERIES)
        self.changes = Changes(N_SHARDS, partition, self.ask)

    def ask(self, calls: dict[int, Call], seconds: float) -> dict[int, Any]:
        """Answers of all shards, or an error."""
        ends: dict[int, Future[Any]] = {
            shard: self.threads[shard][call.group].submit(
                getattr(self.replicas[shard], call.method), *call.arguments
            )
            for shard, call in calls.items()
        }
        until, answers, missing = time.monotonic() + seconds, dict[int, Any](), list[int]()
        for shard, end in ends.items():
            try:
                answers[shard] = end.result(max(0, until - time.monotonic()))
            except (TimeoutError, LateError):
                missing.append(shard)
        if missing:
            raise PartialError(f"got no answer from {missing}")
        return answers

    def holders(self, id_: int) -> list[int]:
        """Shards that have an id, by their files."""
        return [n for n, each in enumerate(ShardedIndex(self.path).shards) if id_ in each.index]

    def moving(self) -> tuple[int, int, NDArray[np.int64], NDArray[np.float32]]:
        """A shard, another one, an id of the first, and a vector that belongs to the second."""
        index = ShardedIndex(self.path)
        to = int(self.at[0])
        source = (to + 1) % N_SHARDS
        return source, to, index.shards[source].index.ids[:1].copy(), QUERIES[:1]

    @contextmanager
    def busy(self, shard: int) -> Iterator[None]:
        """Another writer changes a shard."""
        with locked(self.path / f"shard-{shard:04d}" / LOCK, 10):
            yield

    def drain(self) -> None:
        """Wait until all calls have ended."""
        for each in (thread for group in self.threads for thread in group.values()):
            each.submit(int).result(LONG)


@pytest.fixture
def shards(copied_path: Path) -> Iterator[Shards]:
    """A small sharded index, whose replicas end with the test."""
    made = Shards(copied_path)
    yield made
    for each in (thread for group in made.threads for thread in group.values()):
        each.shutdown()


def test_a_change_that_was_given_up_is_not_made_later(shards: Shards) -> None:
    """A vector whose move did not begin in time stays deleted after it is deleted."""
    source, to, moved, vector = shards.moving()
    with shards.busy(to), pytest.raises(PartialError):
        shards.changes.update(moved, vector, SHORT)
    shards.drain()
    assert shards.holders(moved[0]) == [source]
    shards.changes.delete(moved, LONG)
    shards.drain()
    assert shards.holders(moved[0]) == []


def test_a_change_that_has_begun_is_waited_for(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delete after a move that is still being saved deletes the vector where it arrives."""
    _, to, moved, vector = shards.moving()
    shards.changes.add(vector, np.array([10**9]), LONG)  # opens the shard
    served, go = shards.replicas[to]._opened()._served, Event()
    save = served.save
    monkeypatch.setattr(served, "save", lambda: (go.wait(LONG), save()))
    with pytest.raises(PartialError):
        shards.changes.update(moved, vector, SHORT)
    Thread(target=lambda: (time.sleep(SHORT), go.set())).start()
    shards.changes.delete(moved, LONG)
    assert shards.holders(moved[0]) == []


def test_vectors_are_added_once(shards: Shards) -> None:
    """An add that failed in one shard has ids, with which it can be repeated."""
    rows = QUERIES[:30]
    assert len(set(shards.at[:30].tolist())) > 1
    with shards.busy(shards.at[0]), pytest.raises(PartialError, match="repeat it with") as failed:
        shards.changes.add(rows, None, SHORT)
    new = failed.value.ids
    assert new is not None
    others = shards.changes.add(rows, None, LONG)
    assert not set(others.tolist()) & set(new.tolist())
    shards.changes.delete(others, LONG)
    for _ in range(2):  # also if it was made
        assert shards.changes.add(rows, new, LONG) is new
    found = ShardedIndex(shards.path)
    assert len(found) == len(VECTORS) + 30
    np.testing.assert_array_equal(found.search(rows, 1, ef=2000).ids[:, 0], new)


def test_a_known_id_with_another_vector_is_refused(shards: Shards) -> None:
    """An add is taken for a repeated one only if all its vectors are the same."""
    at = np.flatnonzero(shards.at == shards.at[0])[:2]
    rows, ids = QUERIES[at].copy(), np.array([10**9, 10**9 + 1])
    rows[1] *= 1e-3
    shards.at = shards.changes._partition.assign(rows)
    shards.changes.add(rows, ids, LONG)
    shards.changes.add(rows, ids, LONG)
    rows[1] *= 1.01
    with pytest.raises(ValueError, match="does not have"):
        shards.changes.add(rows, ids, LONG)


def test_a_delete_can_be_repeated(shards: Shards) -> None:
    """Ids that a delete has removed from one shard only are known to the next."""
    index = ShardedIndex(shards.path)
    ids = np.array([each.index.ids[0] for each in index.shards])
    with shards.busy(1), pytest.raises(PartialError):
        shards.changes.delete(ids, SHORT)
    shards.changes.delete(ids, LONG)
    assert not np.isin(
        ids, np.concatenate([s.index.ids for s in ShardedIndex(shards.path).shards])
    ).any()
    with pytest.raises(ValueError, match="ids of the index"):
        shards.changes.delete(ids, LONG)


def test_waiting_for_other_changes_counts(shards: Shards) -> None:
    """A change that does not get its turn in time is refused in time."""

    def change() -> None:
        with pytest.raises(PartialError):
            shards.changes.delete(IDS, 4 * SHORT)

    with shards.busy(0):
        first = Thread(target=change)
        first.start()
        time.sleep(SHORT / 4)
        began = time.monotonic()
        with pytest.raises(QueueFullError, match="room for a change"):
            shards.changes.delete(IDS[:1], SHORT)
        assert time.monotonic() - began < 2 * SHORT
        first.join()
