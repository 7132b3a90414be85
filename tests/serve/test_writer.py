"""Laws of changes in a server: made one after another, saved together, acknowledged afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.files.storage import StaleError
from l2route.index import load
from l2route.serve.batcher import ClosedError, QueueFullError
from l2route.serve.served import Served
from l2route.serve.troubles import Troubles
from l2route.serve.writer import UnsavedError, Writer
from serving import QUERIES, saved_index

FAILURES: list[str] = []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The directory of a small index."""
    return saved_index(tmp_path / "index.l2r")


class Counted:
    """An index that is served, whose commits and saves are counted and may fail."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.served, self.n_commits, self.n_saves = Served(path), 0, 0
        commit, save = self.served.commit, self.served.save

        def committed(**how: Any) -> None:
            self.n_commits += 1
            if self.error is not None:
                raise self.error
            commit(**how)

        def saved(**how: Any) -> None:
            self.n_saves += 1
            if self.error is not None:
                raise self.error
            save(**how)

        self.error: Exception | None = None
        monkeypatch.setattr(self.served, "commit", committed)
        monkeypatch.setattr(self.served, "save", saved)

    def adding(self, vector: Any) -> Callable[[], Any]:
        """A change that adds a vector."""
        return lambda: self.served.add(np.asarray(vector)[None], None, None)


def writer_of(served: Served, **options: Any) -> Writer:
    """A writer with options of tests."""
    chosen = {"max_queue": 100, "save_seconds": 60.0, "follows": True} | options
    return Writer(served, **chosen, troubles=Troubles(FAILURES.append))


def run(writer: Writer, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a writer."""

    async def whole() -> None:
        writer.start()
        try:
            await test()
        finally:
            await asyncio.to_thread(writer.close)

    asyncio.run(whole())


async def hold(writer: Writer) -> threading.Event:
    """Let a writer wait until the event is set."""
    go, is_held = threading.Event(), threading.Event()
    writer.call(lambda: (is_held.set(), go.wait(20)), 20)
    await asyncio.to_thread(is_held.wait, 20)
    return go


def test_changes_that_wait_are_saved_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that wait together share a write, which is done when they are acknowledged."""
    counted = Counted(path, monkeypatch)
    writer = writer_of(counted.served)

    async def test() -> None:
        go = await hold(writer)
        futures = [writer.change(counted.adding(row), 20) for row in QUERIES[:20]]
        go.set()
        added = [int((await future)[0]) for future in futures]
        assert added == list(range(300, 320))
        assert set(added) <= set(load(path))

    run(writer, test)
    assert counted.n_commits == 1


def test_a_refused_change_leaves_the_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that is refused fails alone, in a group of others."""
    counted = Counted(path, monkeypatch)
    served, writer = counted.served, writer_of(counted.served)

    async def test() -> None:
        go = await hold(writer)
        good = writer.change(lambda: served.delete(np.array([5])), 20)
        wrong = writer.change(lambda: served.delete(np.array([6, 5])), 20)
        also = writer.change(lambda: served.delete(np.array([7])), 20)
        go.set()
        with pytest.raises(ValueError, match="got 5"):
            await wrong
        await good
        await also
        assert {5, 6, 7} & set(load(path)) == {6}

    run(writer, test)
    assert counted.n_commits == 1


def test_changes_that_cannot_be_saved_are_not_acknowledged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a save fails its changes fail; a later save has them."""
    counted = Counted(path, monkeypatch)
    writer = writer_of(counted.served)

    async def test() -> None:
        counted.error = OSError("no space left")
        with pytest.raises(UnsavedError, match="not saved: no space left"):
            await writer.change(counted.adding(QUERIES[0]), 20)
        assert 300 not in load(path)
        assert writer.is_alive
        counted.error = None
        await writer.change(counted.adding(QUERIES[1]), 20)
        assert {300, 301} <= set(load(path))

    FAILURES.clear()
    run(writer, test)
    assert FAILURES == ["save"]


def test_a_change_that_waits_too_long_is_not_made(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change whose time is over before it begins is refused, and not made."""
    counted = Counted(path, monkeypatch)
    writer = writer_of(counted.served)

    async def test() -> None:
        go = await hold(writer)
        late = writer.change(counted.adding(QUERIES[0]), 0.05)
        await asyncio.sleep(0.1)
        go.set()
        with pytest.raises(TimeoutError):
            await late
        assert len(counted.served.index) == 300

    run(writer, test)
    assert counted.n_commits == 0


def test_saves_come_by_the_clock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are in the journal at once; the index is saved in the background, and at the end."""
    counted = Counted(path, monkeypatch)
    writer = writer_of(counted.served, save_seconds=0.3)

    async def test() -> None:
        await writer.change(counted.adding(QUERIES[0]), 20)
        assert not counted.served.has_changes
        assert load(path).n_journal_bytes
        assert 300 in load(path)
        for _ in range(200):
            if not load(path).n_journal_bytes:
                break
            await asyncio.sleep(0.05)
        assert not load(path).n_journal_bytes
        assert 300 in load(path)
        await asyncio.sleep(0.7)
        n_saves = counted.n_saves
        assert n_saves == 1  # without changes nothing is saved
        await writer.change(counted.adding(QUERIES[1]), 20)

    run(writer, test)
    assert 301 in load(path)
    assert not load(path).n_journal_bytes


def test_a_full_queue_and_the_end_refuse(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond `max_queue` changes, and after the end, others are refused."""
    counted = Counted(path, monkeypatch)
    writer = writer_of(counted.served, max_queue=2)

    async def test() -> None:
        go = await hold(writer)
        waiting = [writer.change(counted.adding(row), 20) for row in QUERIES[:2]]
        assert writer.n_waiting == 2
        with pytest.raises(QueueFullError, match="at most 2 changes"):
            writer.change(counted.adding(QUERIES[3]), 20)
        closing = asyncio.create_task(asyncio.to_thread(writer.close))
        await asyncio.sleep(0.05)
        go.set()
        await asyncio.gather(*waiting)  # what was taken is done
        await closing
        with pytest.raises(ClosedError):
            writer.change(counted.adding(QUERIES[3]), 20)

    run(writer, test)
    assert {300, 301} <= set(load(path))


@pytest.mark.parametrize("follows", [True, False])
def test_a_change_meets_a_newer_save(
    path: Path, monkeypatch: pytest.MonkeyPatch, follows: bool
) -> None:
    """A change is made on the newer save, or refused by a server that does not reload by itself."""
    counted = Counted(path, monkeypatch)
    writer = writer_of(counted.served, follows=follows)

    async def test() -> None:
        other = load(path)
        other.add(QUERIES[:1], [900])
        other.save()
        change = writer.change(lambda: counted.served.delete(np.array([3])), 20)
        if follows:
            await change
            assert (900 in load(path), 3 in load(path)) == (True, False)
        else:
            with pytest.raises(StaleError, match="newer one: reload it first"):
                await change
            assert (900 in load(path), 3 in load(path)) == (True, True)

    run(writer, test)
