"""Laws of access: changes need the key, or else a server that only this machine reaches."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from l2route.cluster.deployment import deployed
from l2route.serve.access import is_loopback
from l2route.serve.app import create_app
from l2route.serve.options import API_KEY, ServeOptions
from l2route.serve.served import Served
from serving import QUERIES, client_of, saved_index, server_of

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
        ({"host": "[::1"}, 403),
        ({"host": ""}, 403),
        ({"host": "elsewhere.example", "origin": "http://elsewhere.example"}, 403),
    ],
)
def test_pages_of_others_change_nothing(path: Path, headers: dict[str, str], status: int) -> None:
    """Without a key, a page of another site cannot use a browser on this machine for changes."""
    with client_of(path) as client:
        assert client.post("/save", headers=headers).status_code == status


@pytest.mark.parametrize(
    "header",
    [
        "Forwarded: for=192.0.2.1",
        "X-Forwarded-For: 192.0.2.1",
        "X-Forwarded-Host: localhost",
        "X-Real-IP: 127.0.0.1",
        "Via: 1.1 proxy",
    ],
)
def test_what_a_proxy_passes_on_changes_nothing(path: Path, header: str) -> None:
    """On loopback without a key, changes with a header of a proxy get 403; searches are answered.

    With a key they pass.
    """
    name, _, value = header.partition(": ")
    headers = {name: value}
    with client_of(path) as client:
        answer = client.post("/save", headers=headers)
        assert answer.status_code == 403
        assert "L2ROUTE_API_KEY" in answer.json()["detail"]
        asked = {"queries": QUERIES[0].tolist()}
        assert client.post("/search", json=asked, headers=headers).status_code == 200
    with client_of(path, ServeOptions(api_key="key")) as client:
        headers["Authorization"] = "Bearer key"
        assert client.post("/save", headers=headers).status_code == 200


READS = ("/info", "/metrics", "/", "/page/about", "/page/page.js", "/docs", "/openapi.json")
"""What is read of a server, beside searches."""


@pytest.mark.parametrize("host", ["elsewhere.example", "192.168.0.1:80", "localhost.example", ""])
def test_pages_of_others_read_nothing(path: Path, host: str) -> None:
    """On loopback without a key, reads under another Host get 403, health and readiness do not."""
    headers, asked = {"host": host}, {"queries": QUERIES[0].tolist()}
    with client_of(path) as client:
        answers = [client.get(name, headers=headers) for name in READS]
        answers.append(client.post("/search", json=asked, headers=headers))
        assert {answer.status_code for answer in answers} == {403}
        assert all("expected a Host of" in answer.json()["detail"] for answer in answers)
        for name in ("/health", "/ready"):
            assert client.get(name, headers=headers).status_code == 200
        for name in READS:
            assert client.get(name, headers={"host": "127.0.0.1:8"}).status_code == 200


@pytest.mark.parametrize("options", [ServeOptions(host="0.0.0.0"), ServeOptions(api_key="key")])
def test_proxies_may_have_searches_answered(path: Path, options: ServeOptions) -> None:
    """Beyond loopback, and with a key, reads are answered under any Host."""
    headers, asked = {"host": "search.example"}, {"queries": QUERIES[0].tolist()}
    with client_of(path, options) as client:
        assert client.post("/search", json=asked, headers=headers).status_code == 200
        assert client.get("/info", headers=headers).status_code == 200


@pytest.mark.parametrize("route", BODIES)
def test_the_socket_decides_and_no_header(path: Path, route: str) -> None:
    """A request that came to an address of the network changes nothing, whatever its Host says."""
    app = create_app(Served(path), ServeOptions())  # as if another program listened for it
    with TestClient(app, base_url="http://192.0.2.7") as client:
        answer = client.post(route, json=BODIES[route], headers={"host": "127.0.0.1"})
        assert answer.status_code == 403


def test_a_server_in_its_own_process_knows_its_socket(path: Path) -> None:
    """`l2route serve` on loopback takes changes, but not of proxies and under other names."""
    with server_of(path) as server:
        assert server.client.post("/save").status_code == 200
        for headers in ({"host": "elsewhere.example"}, {"via": "1.1 proxy"}):
            assert server.client.post("/save", headers=headers).status_code == 403
        assert server.client.get("/info", headers={"host": "elsewhere"}).status_code == 403


def test_a_deployment_has_the_key_of_its_environment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deployment of Ray Serve, which does not know who reaches it, needs a key for changes.

    The key is that of the options, or else of the environment; without one changes get 403.
    """
    headers = {"host": "127.0.0.1"}
    monkeypatch.delenv(API_KEY, raising=False)
    with client_of(path, deployed(None)) as client:
        for route, body in BODIES.items():
            assert client.post(route, json=body, headers=headers).status_code == 403
        assert client.post("/search", json={"queries": QUERIES[0].tolist()}).status_code == 200
    monkeypatch.setenv(API_KEY, "of the environment")
    assert deployed(ServeOptions(api_key="given")).api_key == "given"
    with client_of(path, deployed(ServeOptions())) as client:
        assert client.post("/reload", headers=headers).status_code == 401
        headers["authorization"] = "Bearer of the environment"
        assert client.post("/reload", headers=headers).status_code == 200
    monkeypatch.setenv(API_KEY, "")
    with pytest.raises(ValueError, match="expected an API key"):
        deployed(None)


def test_loopback_is_recognised() -> None:
    """Only names and addresses of this machine alone are loopback."""
    hosts = ["127.0.0.1", "127.8.9.1", "localhost", "::1"]
    assert [host for host in hosts if is_loopback(host)] == hosts
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.0.1", "no-such-host.invalid"]))
