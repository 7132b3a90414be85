"""Laws of a server that is asked for too much: it refuses, says so, and goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from l2route.serve.options import ServeOptions
from serving import QUERIES, client_of, saved_index

ASKED = {"queries": QUERIES[0].tolist()}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small index."""
    return saved_index(tmp_path_factory.mktemp("serve") / "index.l2r")


@contextmanager
def held(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let searches wait until the event is set; it is set at the end."""
    go = threading.Event()
    index = client.served.index  # type: ignore[attr-defined]
    search = index.search

    def waiting(*arguments: Any, **options: Any) -> Any:
        assert go.wait(20)
        return search(*arguments, **options)

    monkeypatch.setattr(index, "search", waiting)
    try:
        yield go
    finally:
        go.set()


def test_a_full_queue_answers_429(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When as many requests wait as may, others get 429 with Retry-After at once."""
    options = ServeOptions(threads=1, max_queue=3, max_batch=1)
    with client_of(path, options) as client, ThreadPoolExecutor(8) as threads:
        with held(client, monkeypatch) as go:
            futures = [threads.submit(client.post, "/search", json=ASKED) for _ in range(8)]
            refused = [each.result(20) for each in futures if _is_done(each)]
            assert [each.status_code for each in refused] == [429] * 4
            assert {each.headers["retry-after"] for each in refused} == {"1"}
            assert "at most 3 requests" in refused[0].json()["detail"]
            assert client.get("/ready").status_code == 503
            assert client.get("/health").status_code == 200
            go.set()
            answered = [each.result(20).status_code for each in futures]
        assert sorted(answered) == [200] * 4 + [429] * 4
        assert client.get("/ready").status_code == 200
        assert 'l2route_rejected_total{reason="queue"} 4.0' in client.get("/metrics").text


def _is_done(future: Any) -> bool:
    """Whether a request is answered soon: those that wait are not."""
    try:
        future.result(0.5)
    except TimeoutError:
        return False
    return True


def test_a_search_that_takes_too_long_answers_503(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time-out a request gets 503; later ones are answered again."""
    with client_of(path, ServeOptions(timeout=0.2)) as client:
        with held(client, monkeypatch):
            late = client.post("/search", json=ASKED)
            assert late.status_code == 503
            assert late.json()["detail"] == "expected an answer within 0.2 s, got none"
            assert late.headers["retry-after"] == "1"
        assert client.post("/search", json=ASKED).status_code == 200


def test_limits_are_those_of_the_options(path: Path) -> None:
    """k, queries, ids, budgets and bodies are bounded by the options."""
    options = ServeOptions(max_k=5, max_rows=2, max_ids=3, max_budget=50, max_body_mb=0.002)
    query = QUERIES[0].astype(float).round(2).tolist()
    with client_of(path, options) as client:
        good = {"queries": [query] * 2, "k": 5, "where": [1, 2, 3], "ef": 50}
        assert client.post("/search", json=good).status_code == 200
        for wrong in (
            {"k": 6},
            {"queries": [query] * 3},
            {"where": [1, 2, 3, 4]},
            {"ef": 51},
            {"budget": 51},
            {"rerank": 51},
        ):
            answer = client.post("/search", json={"queries": query, **wrong})
            assert answer.status_code == 422
            assert "at most" in answer.json()["detail"]
        large = client.post("/search", json={"queries": [query] * 100})
        assert large.status_code == 413
        assert "expected a body of at most 2000 bytes" in large.json()["detail"]
        chunked = client.post("/search", content=iter([b" " * 1500] * 2))
        assert chunked.status_code in (413, 415)
        headers = {"content-type": "application/json"}
        chunked = client.post("/search", content=iter([b" " * 1500] * 2), headers=headers)
        assert chunked.status_code == 413
        assert chunked.headers["connection"] == "close"
        assert 'l2route_rejected_total{reason="body"}' in client.get("/metrics").text


def test_paths_and_methods_that_there_are_not(path: Path) -> None:
    """An unknown path gets 404, another method 405; metrics do not grow with what is asked for."""
    with client_of(path) as client:
        for name in ("/searc", "/documents", "/redoc", "/search/1", "/%00"):
            answer = client.post(name, json=ASKED)
            assert (answer.status_code, "expected" in answer.json()["detail"]) == (404, True)
        wrong = client.get("/search")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert wrong.json()["detail"] == "expected POST for /search, got GET"
        metrics = client.get("/metrics").text
        assert 'route="other",status="404"} 5.0' in metrics
        assert 'searc"' not in metrics
