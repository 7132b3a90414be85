"""Laws of servers whose index others hold too: what was acknowledged is there in the end."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from l2route.files.storage import StaleError
from l2route.index import RoutingIndex, load
from l2route.serve.batcher import Batcher
from l2route.serve.options import ServeOptions
from l2route.serve.served import Served
from l2route.serve.troubles import Troubles
from l2route.serve.writer import Writer
from serving import DIM, QUERIES, START_SECONDS, VECTORS, client_of, saved_index, server_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The directory of a small index."""
    return saved_index(tmp_path / "index.l2r")


def vector_of(id_: int) -> list[float]:
    """A vector that depends on an id alone."""
    row: list[float] = np.random.default_rng(id_).normal(size=DIM).astype(np.float32).tolist()
    return row


def post(client: httpx.Client, route: str, **body: object) -> None:
    """Send a change, which has to be acknowledged as saved."""
    answer = client.post(route, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["saved"] is True


@pytest.mark.parametrize("option", ["--reload-seconds=30", "--no-reload"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_save_of_another_process_undoes_nothing(
    path: Path, option: str, end: signal.Signals
) -> None:
    """What a server has acknowledged outlives it and the save of one that had loaded before."""
    other = load(path)
    with server_of(path, option) as server:
        post(server.client, "/add", vectors=[vector_of(900)], ids=[900])
        post(server.client, "/delete", ids=[5])
        other.compress("int8")
        other.save()
        server.end(end)
    index = load(path)
    assert (900 in index, 5 in index) == (True, False)
    assert "original-int8" in index.space_names
    assert np.allclose(index.vectors([900]), [vector_of(900)])


def keep_adding(url: str, first: int, is_over: threading.Event, added: list[int]) -> None:
    """Add vectors one by one until told to end, and note those that were acknowledged."""
    with httpx.Client(base_url=url, timeout=START_SECONDS) as client:
        id_ = first
        while not is_over.is_set():
            post(client, "/add", vectors=[vector_of(id_)], ids=[id_])
            added.append(id_)
            id_ += 1
            time.sleep(0.002)


SAVER = """
import sys
import numpy as np
from l2route.index import load
path, first = sys.argv[1], int(sys.argv[2])
for at in range(6):
    index = load(path)
    index.add(np.full((1, index.dim), first + at, np.float32), [first + at])
    index.save()
"""


def test_commands_and_clients_change_one_index(path: Path) -> None:
    """Compressing commands and processes that add beside clients: nobody loses a change."""
    added: list[int] = []
    is_over = threading.Event()
    with server_of(path, "--reload-seconds", "0.2", "--save-seconds", "0.3") as server:
        clients = [
            threading.Thread(target=keep_adding, args=(server.url, first, is_over, added))
            for first in (10_000, 20_000)
        ]
        for client in clients:
            client.start()
        command = [sys.executable, "-m", "l2route", "compress", str(path), "--vectors", "float16"]
        saver = [sys.executable, "-c", SAVER, str(path), "30000"]
        running = [subprocess.Popen(each) for each in (command, saver)]
        assert [each.wait(START_SECONDS) for each in running] == [0, 0]
        is_over.set()
        for client in clients:
            client.join(START_SECONDS)
        server.process.kill()
    index = load(path)
    assert len(added) > 20
    assert {*added, *range(30_000, 30_006)} <= set(index)
    assert len(index) == 300 + len(added) + 6
    assert index.base.rows.dtype == np.float16


def test_two_servers_follow_each_other(path: Path) -> None:
    """Changes of two servers of one directory are answered by both, and chosen ids differ."""
    with (
        server_of(path, "--reload-seconds", "0.1") as one,
        server_of(path, "--reload-seconds", "0.1", "--save-seconds", "0.2") as two,
    ):
        ids: list[int] = []
        for at in range(20):
            server = (one, two)[at % 2]
            body = {"vectors": [vector_of(at)] * 2}
            ids += server.client.post("/add", json=body).json()["ids"]
        assert len(set(ids)) == 40
        end = time.monotonic() + START_SECONDS
        for server in (one, two):
            while server.client.get("/info").json()["n_vectors"] != 340:
                assert time.monotonic() < end
                time.sleep(0.02)
            post(server.client, "/update", ids=ids[:1], vectors=[vector_of(99)])
    assert set(ids) <= set(load(path))


def test_a_restore_is_obeyed(path: Path) -> None:
    """A server serves what was restored, without its own changes since, and goes on from there."""
    with server_of(path, "--reload-seconds", "0.1") as server:
        post(server.client, "/delete", ids=[7])
        take = [sys.executable, "-m", "l2route", "snapshot", str(path), "monday"]
        subprocess.run(take, check=True, capture_output=True)
        post(server.client, "/add", vectors=[vector_of(900)], ids=[900])
        post(server.client, "/delete", ids=[8])
        back = [sys.executable, "-m", "l2route", "restore", str(path), "monday"]
        subprocess.run(back, check=True, capture_output=True)
        post(server.client, "/delete", ids=[9])
        assert server.client.get("/info").json()["n_vectors"] == 298
        assert server.end() in (0, -signal.SIGTERM)
    assert set(load(path)) == set(range(300)) - {7, 9}


def test_background_work_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload and a save that fail for any reason are named by /health, counted, tried again."""
    with client_of(path, ServeOptions(reload_seconds=0.02, save_seconds=0.02)) as client:
        served, health = client.served, "/health"  # type: ignore[attr-defined]

        def fail(*_: object, **__: object) -> None:
            raise MemoryError("expected memory, got none")

        for name, work in (("reload", "reload"), ("save", "save")):
            with monkeypatch.context() as patch:
                patch.setattr(served, name, fail)
                other = load(path)
                other.add(QUERIES[:1])
                other.save()
                served.index.name(served.index.names)
                if work == "save":
                    client.post("/add", json={"vectors": QUERIES[:1].tolist()})
                wait_for(lambda work=work: work in client.get(health).json().get("failing", {}))
                assert "MemoryError" in client.get(health).json()["failing"][work]
            wait_for(lambda: client.get(health).json() == {"status": "ok"})
        wait_for(lambda: client.get("/info").json()["n_vectors"] == len(load(path)) == 303)
        assert 'l2route_failures_total{work="reload"}' in client.get("/metrics").text


def wait_for(condition: object) -> None:
    """Wait until a condition holds."""
    assert callable(condition)
    end = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < end, "expected the condition to hold in time"
        time.sleep(0.02)


def test_closing_goes_on_to_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails at the end, the rest is done, and what was acknowledged is in the journal."""
    close = Batcher.close

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    def close_and_fail(batcher: Batcher) -> None:
        close(batcher)
        raise MemoryError

    with client_of(path, ServeOptions(log_queries=path.parent / "q.log")) as client:
        assert client.post("/add", json={"vectors": QUERIES[:1].tolist()}).status_code == 200
        served = client.served  # type: ignore[attr-defined]
        monkeypatch.setattr(served, "save", fail)
        monkeypatch.setattr(Batcher, "close", close_and_fail)
    assert 300 in load(path)


def test_a_change_that_meets_a_restore_is_not_acknowledged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that was made just before a restore, and not written, is refused."""
    served, other = Served(path), load(path)
    other.snapshot("one")
    served.reload()
    writer = Writer(
        served, max_queue=9, save_seconds=60, follows=True, troubles=Troubles(lambda _: None)
    )

    def change() -> object:
        gone = served.delete(np.array([5]))
        other.restore("one")
        return gone

    async def test() -> None:
        writer.start()
        with pytest.raises(StaleError, match="replaced or restored"):
            await writer.change(change, 20)
        await writer.change(lambda: served.delete(np.array([6])), 20)
        await asyncio.to_thread(writer.close)

    asyncio.run(test())
    assert sorted(served.index) == sorted(load(path)) == sorted(set(range(300)) - {6})


def test_an_index_that_was_built_anew_is_served(path: Path) -> None:
    """An index that takes the place of the one that is served is served without old changes."""
    with client_of(path, ServeOptions(reload_seconds=3600)) as client:
        client.post("/delete", json={"ids": [1]})
        RoutingIndex.build(VECTORS[:50], degree=8).save(path, overwrite=True)
        assert client.post("/reload").json() == {"reloaded": True, "n_vectors": 50}
        assert client.post("/delete", json={"ids": [2]}).json()["n_vectors"] == 49
    assert sorted(load(path)) == [0, 1, *range(3, 50)]
