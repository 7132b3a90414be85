"""Laws of a server as a process: what it acknowledged is there, whatever ends it."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from l2route.cli.app import main
from l2route.files.formats import read_array
from l2route.index import RoutingIndex, load
from living import check_structure
from serving import DIM, QUERIES, START_SECONDS, VECTORS, Server, saved_index, server_of

N_KILLS = 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The directory of a small index."""
    return saved_index(tmp_path / "index.l2r")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of l2route."""
    command = [sys.executable, "-m", "l2route", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < end, "expected the condition to hold in time"
        time.sleep(0.02)


def vector_of(id_: int) -> list[float]:
    """The vector that is added under an id."""
    row: list[float] = np.random.default_rng(id_).normal(size=DIM).astype(np.float32).tolist()
    return row


def test_the_main_path(path: Path) -> None:
    """A server answers searches, takes changes with the key only, and tells how it is."""
    with server_of(path, "--recall", "0.9", key="key") as server:
        client = server.client
        assert client.get("/ready").json() == {"status": "ready"}
        found = client.post("/search", json={"queries": VECTORS[:3].tolist(), "k": 1})
        assert found.json()["ids"] == [[0], [1], [2]]
        body = {"vectors": [vector_of(900)], "ids": [900]}
        assert client.post("/add", json=body).status_code == 401
        headers = {"authorization": "Bearer key"}
        assert client.post("/add", json=body, headers=headers).json()["n_vectors"] == 301
        info = client.get("/info").json()
        assert (info["n_vectors"], info["dim"], info["metric"]) == (301, DIM, "l2")
        metrics = client.get("/metrics").text
        for line in (
            'l2route_requests_total{route="/search",status="200"} 1.0',
            'l2route_requests_total{route="/add",status="401"} 1.0',
            'l2route_queries_total{limit="recall 0.9"} 3.0',
            'l2route_vectors_changed_total{change="add"} 1.0',
            "l2route_index_vectors 301.0",
            "l2route_queue_length 0.0",
            "l2route_batch_queries_count 1.0",
        ):
            assert line in metrics
        assert 'l2route_setting_recall{ef="' in metrics
        assert client.get("/docs").status_code == 200
        assert client.put("/search").status_code == 405
        assert server.end() == -signal.SIGTERM
    assert np.allclose(load(path).vectors([900])[0], vector_of(900))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_finishes_what_was_taken(path: Path, number: signal.Signals) -> None:
    """Requests that had arrived are answered before the server ends, and changes are saved."""
    rows = np.random.default_rng(1).normal(size=(3_000, DIM)).round(3)
    with server_of(path, "--save-seconds", "3600") as server, ThreadPoolExecutor(2) as threads:
        adding = threads.submit(server.client.post, "/add", json={"vectors": rows.tolist()})
        metric = "l2route_index_vectors"
        with httpx.Client(base_url=server.url) as other:
            until(lambda: f"{metric} 300.0" not in other.get("/metrics").text)
            server.process.send_signal(number)
            answer = adding.result(START_SECONDS)
        assert answer.json()["n_vectors"] == 3_300
        code = server.process.wait(START_SECONDS)
        assert code == (130 if number == signal.SIGINT else -number)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health")
    assert len(load(path)) == 3_300


class Load:
    """Clients that add, delete and search until the server is gone."""

    def __init__(self, server: Server, first_id: int) -> None:
        self.added: list[int] = []
        self.doomed: list[int] = []  # deletes were sent for these
        self.deleted: list[int] = []
        self.n_found = 0
        self._ids, self._url = itertools.count(first_id), server.url
        works = (self._add, self._add, self._search, self._search)
        self._threads = [threading.Thread(target=self._repeat, args=(work,)) for work in works]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until all have noticed the end of the server."""
        for thread in self._threads:
            thread.join(START_SECONDS)

    def _repeat(self, work: Callable[[httpx.Client], None]) -> None:
        with httpx.Client(base_url=self._url, timeout=START_SECONDS) as client:
            try:
                while True:
                    work(client)
            except httpx.TransportError:
                return

    def _add(self, client: httpx.Client) -> None:
        ids = [next(self._ids) for _ in range(3)]
        body = {"vectors": [vector_of(i) for i in ids], "ids": ids}
        assert client.post("/add", json=body).status_code == 200
        self.added += ids
        if len(self.added) > 30:
            gone = ids[:1]
            self.doomed += gone
            assert client.post("/delete", json={"ids": gone}).status_code == 200
            self.deleted += gone

    def _search(self, client: httpx.Client) -> None:
        found = client.post("/search", json={"queries": QUERIES[:2].tolist(), "k": 5})
        assert found.status_code == 200
        self.n_found += 1


def test_a_kill_loses_nothing_that_was_acknowledged(path: Path) -> None:
    """Killed under load, again and again, the index has what was acknowledged, and is intact."""
    added: set[int] = set()
    deleted: set[int] = set()
    doomed: set[int] = set()
    for kill in range(N_KILLS):
        with server_of(path) as server:
            load_ = Load(server, 1000 * (kill + 1))
            until(lambda load_=load_, n=20 + 15 * kill: len(load_.added) >= n)  # type: ignore[misc]
            server.process.kill()
            load_.join()
        added |= set(load_.added)
        deleted |= set(load_.deleted)
        doomed |= set(load_.doomed)
        assert load_.n_found
        index = load(path)
        known = added - doomed
        assert known <= set(index)
        assert not deleted & set(index)
        ids = sorted(known)
        assert np.allclose(index.vectors(ids), [vector_of(i) for i in ids])
        index.delete([0])  # a change in memory, to look at what it is made of
        check_structure(index)
    with server_of(path) as server:
        assert server.client.get("/health").status_code == 200
        body = {"vectors": [vector_of(7)], "ids": [99_999]}
        assert server.client.post("/add", json=body).status_code == 200


def test_newer_saves_are_served_without_a_dropped_request(path: Path) -> None:
    """While other processes save, every search is answered, and the newest save is served."""
    with server_of(path, "--reload-seconds", "0.05") as server:
        statuses: list[int] = []
        is_over = threading.Event()

        def ask() -> None:
            with httpx.Client(base_url=server.url, timeout=START_SECONDS) as client:
                while not is_over.is_set():
                    found = client.post("/search", json={"queries": QUERIES[:3].tolist()})
                    statuses.append(found.status_code)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for n in range(3):
            index = RoutingIndex.build(VECTORS[: 100 + n], degree=8, ef_construction=40)
            index.save(path, overwrite=True)
            until(lambda n=n: server.client.get("/info").json()["n_vectors"] == 100 + n)  # type: ignore[misc]
        is_over.set()
        for thread in threads:
            thread.join(START_SECONDS)
        assert set(statuses) == {200}
        assert server.client.get("/info").json()["n_reloads"] >= 3
        assert server.client.post("/reload").json() == {"reloaded": False, "n_vectors": 102}


def test_without_reload_the_old_index_is_served(path: Path) -> None:
    """With --no-reload a newer save is served when POST /reload asks for it."""
    with server_of(path, "--no-reload", "--reload-seconds", "0.05") as server:
        RoutingIndex.build(VECTORS[:50], degree=8).save(path, overwrite=True)
        time.sleep(0.3)
        assert server.client.get("/info").json()["n_vectors"] == 300
        refused = server.client.post("/delete", json={"ids": [1]})
        assert (refused.status_code, "newer" in refused.json()["detail"]) == (409, True)
        assert server.client.post("/reload").json() == {"reloaded": True, "n_vectors": 50}
        assert server.client.post("/delete", json={"ids": [1]}).status_code == 200


def test_an_index_learns_from_the_log_of_its_server(tmp_path: Path, path: Path) -> None:
    """Served queries are logged, learned from, and what was learned is served without a stop."""
    log = tmp_path / "served.log"
    asked = np.random.default_rng(5).normal(size=(1200, DIM)).astype(np.float32)
    options = ["--log-queries", str(log), "--log-mb", "0.02", "--log-files", "9"]
    with server_of(path, *options, "--reload-seconds", "0.05") as server:
        for row in asked[:200]:
            server.client.post("/search", json={"queries": row.tolist(), "k": 1})
        for rows in np.split(asked[200:], 10):
            server.client.post("/search", json={"queries": rows.tolist(), "ef": 16})
        server.client.post("/search", json={"queries": [1.0]})  # refused, and so not logged
        until(lambda: "l2route_queries_logged_total 1200.0" in server.client.get("/metrics").text)
        assert np.array_equal(np.sort(read_array(log), axis=0), np.sort(asked, axis=0))
        assert len(list(tmp_path.glob("served.log*"))) == 3
        added = server.client.post("/add", json={"vectors": [vector_of(5)], "ids": [900]})
        assert added.status_code == 200
        learned = run("learn", str(path), "--queries", str(log), "--steps", "2", "--json")
        assert learned.returncode == 0, learned.stderr
        assert json.loads(learned.stdout)["n_steps"] == 2
        until(lambda: server.client.get("/info").json()["n_reloads"] == 1)
        assert 900 in load(path)


def test_what_cannot_be_served_is_one_line(
    tmp_path: Path,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A port in use, no index, a wrong log and wrong numbers are one line and exit code 2."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = {
            (str(path), "--port", port): f"got 127.0.0.1:{port}",
            (str(tmp_path / "none"),): "expected an index directory",
            (str(path), "--log-queries", "a.fvecs"): "named *.log, got 'a.fvecs'",
            (str(path), "--max-k", "0"): "expected max_k at least 1, got 0",
            (str(path), "--host", "no-such-host.invalid"): "expected a host",
            (str(path), "--labels", str(tmp_path / "no.tsv")): "no.tsv",
        }
        for arguments, message in cases.items():
            monkeypatch.setattr(sys, "argv", ["l2route", "serve", *arguments])
            with pytest.raises(SystemExit) as stop:
                main()
            error = capsys.readouterr().err
            assert stop.value.code == 2, error
            assert message in error
            assert len(error.splitlines()) == 1, error
