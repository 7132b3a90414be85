"""Laws of changes by several processes, some in time and some not: none comes later or is lost."""

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
from l2route.cluster.folder import Folder
from l2route.cluster.lease import leased
from l2route.cluster.replica import Replica
from l2route.cluster.sharded import ShardedIndex
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
        self.changes = Changes(N_SHARDS, partition, self.ask, Folder(path))

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
        with leased(self.path / f"shard-{shard:04d}", time.time() + 10):
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
    index, go = shards.replicas[to]._opened().index, Event()
    save = index.save
    monkeypatch.setattr(index, "save", lambda **how: (go.wait(LONG), save(**how)))
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


def test_a_shard_that_hangs_delays_no_other(shards: Shards) -> None:
    """While a shard is busy, and a change of it was given up, changes of others are made."""
    to, here = int(shards.at[0]), shards.at != shards.at[0]
    with shards.busy(to):
        with pytest.raises(PartialError):
            shards.changes.add(QUERIES[:1], None, SHORT)
        began = time.monotonic()
        new = shards.changes.add(QUERIES[here][:6], None, LONG)
        shards.changes.update(new, QUERIES[here][6:12], LONG)
        shards.changes.delete(new[:2], LONG)
        assert time.monotonic() - began < LONG / 2
    assert [len(shards.holders(id_)) for id_ in new.tolist()] == [0, 0, 1, 1, 1, 1]


def test_an_id_that_may_still_come_is_waited_for(shards: Shards) -> None:
    """A change of ids of a change that was given up waits for its shard; others do not."""
    to, here = int(shards.at[0]), shards.at != shards.at[0]
    new = np.array([10**9])
    with shards.busy(to):
        with pytest.raises(PartialError):
            shards.changes.add(QUERIES[:1], new, SHORT)
        with pytest.raises(PartialError):  # it could be in two shards
            shards.changes.add(QUERIES[here][:1], new, SHORT)
        shards.changes.add(QUERIES[here][:1], new + 1, LONG)
    shards.changes.add(QUERIES[here][:1], new, LONG)
    assert len(shards.holders(new[0])) == 1


@pytest.fixture
def drivers(copied_path: Path) -> Iterator[list[Shards]]:
    """Two processes that change the small sharded index, each with replicas of its own."""
    made = [Shards(copied_path) for _ in range(2)]
    yield made
    for each in (t for driver in made for group in driver.threads for t in group.values()):
        each.shutdown()


def test_processes_choose_different_ids(drivers: list[Shards]) -> None:
    """Vectors that two processes add at a time have all ids after the largest, each one vector."""
    chosen: list[int] = []

    def add(driver: Shards, rows: NDArray[np.float32]) -> None:
        for n in range(0, 24, 3):
            chosen.extend(driver.changes.add(rows[n : n + 3], None, LONG).tolist())

    at = drivers[0].at  # shards of their own, so that they need not wait for each other
    threads = [
        Thread(target=add, args=(driver, QUERIES[at == shard]))
        for shard, driver in enumerate(drivers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(chosen) == list(range(IDS.max() + 1, IDS.max() + 49))
    assert len(ShardedIndex(drivers[0].path)) == len(VECTORS) + 48


def test_ids_that_were_given_are_not_chosen(drivers: list[Shards]) -> None:
    """An id that one process is given is not chosen by another one that began before."""
    first, second = (driver.changes for driver in drivers)
    (id_,) = first.add(QUERIES[:1], None, LONG).tolist()
    second.add(QUERIES[1:2], np.array([id_ + 3]), LONG)
    assert first.add(QUERIES[2:7], None, LONG).tolist() == list(range(id_ + 4, id_ + 9))
    second.delete(np.array([id_ + 8]), LONG)
    assert second.add(QUERIES[7:8], None, LONG).tolist() == [id_ + 9]  # none is used again


def test_ids_in_a_store_are_numbers_of_json(
    copied_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without locks ids are by chance, below 2**53, and none that is there."""
    driver = Shards(copied_path)
    changes = Changes(
        N_SHARDS, driver.changes._partition, driver.ask, Folder(f"file://{copied_path}")
    )
    firsts = iter([int(IDS.max()) - 1, 10**12])
    with monkeypatch.context() as patched:
        patched.setattr("l2route.cluster.changes.secrets.randbelow", lambda _: next(firsts))
        assert changes.add(QUERIES[:2], None, LONG).tolist() == [10**12, 10**12 + 1]
    new = np.concatenate([changes.add(QUERIES[n : n + 5], None, LONG) for n in (0, 5)])
    assert len(set(new.tolist())) == 10
    assert 0 <= new.min() < new.max() < 2**53
