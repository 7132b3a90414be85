"""Laws of access: changes need the key, or else a server that only this machine reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from l2route.serve.access import is_loopback
from l2route.serve.options import ServeOptions
from serving import QUERIES, client_of, saved_index

BODIES = {
    "/add": {"vectors": QUERIES[:1].tolist()},
    "/update": {"ids": [1], "vectors": QUERIES[:1].tolist()},
    "/delete": {"ids": [2]},
    "/save": None,
    "/reload": None,
}
"""All requests that change what is served."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small index."""
    return saved_index(tmp_path_factory.mktemp("serve") / "index.l2r")


@pytest.mark.parametrize("route", BODIES)
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_changes_need_the_key(path: Path, route: str, host: str) -> None:
    """With a key, changes without it or with another one get 401, on every address."""
    with client_of(path, ServeOptions(host=host, api_key="sécret")) as client:
        for header in (None, "Bearer", "Bearer secret", "Basic sécret", "Bearer sécret2", "sécret"):
            headers = {} if header is None else {"authorization": header.encode()}
            answer = client.post(route, json=BODIES[route], headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer KEY" in answer.json()["detail"]


@pytest.mark.parametrize("route", BODIES)
def test_beyond_loopback_changes_need_a_key_to_be_set(path: Path, route: str) -> None:
    """Without a key, a server that others can reach refuses changes with 403, and searches."""
    with client_of(path, ServeOptions(host="0.0.0.0")) as client:
        answer = client.post(route, json=BODIES[route])
        assert answer.status_code == 403
        assert "L2ROUTE_API_KEY" in answer.json()["detail"]
        assert client.post("/search", json={"queries": QUERIES[0].tolist()}).status_code == 200


def test_the_key_lets_changes_pass(path: Path) -> None:
    """With the key, changes pass on every address, whatever page they come from."""
    with client_of(path, ServeOptions(host="0.0.0.0", api_key="kéy")) as client:
        headers = {"authorization": "Bearer kéy".encode(), "origin": b"https://console.example"}
        for route in ("/save", "/reload"):
            assert client.post(route, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost"}, 200),
        ({"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"origin": "https://elsewhere.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:81"}, 403),
        ({"host": "elsewhere.example"}, 403),
        ({"host": "elsewhere.example", "origin": "http://elsewhere.example"}, 403),
    ],
)
def test_pages_of_others_change_nothing(path: Path, headers: dict[str, str], status: int) -> None:
    """Without a key, a page of another site cannot use a browser on this machine for changes."""
    with client_of(path) as client:
        assert client.post("/save", headers=headers).status_code == status


def test_loopback_is_recognised() -> None:
    """Only names and addresses of this machine alone are loopback."""
    hosts = ["127.0.0.1", "127.8.9.1", "localhost", "::1"]
    assert [host for host in hosts if is_loopback(host)] == hosts
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.0.1", "no-such-host.invalid"]))
