"""Laws of docs/howto/deploy.md: what it tells to install works as it stands."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import yaml

from serving import QUERIES, VECTORS, Server, saved_index, server_of

PAGE = (Path(__file__).parents[2] / "docs/howto/deploy.md").read_text()
FILES = dict(re.findall(r"```text\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
"""Files that the page has, by their paths."""
UNIT, CONFIGURATION = "/etc/systemd/system/l2route@.service", "/etc/nginx/conf.d/l2route.conf"
KEY = "secret"
ONE = {"queries": QUERIES[0].tolist()}
MAIN = """
daemon off;
user root;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    {}
}}
"""


class Site(NamedTuple):
    """nginx with the configuration of the page, and the servers behind it."""

    client: httpx.Client
    port: int
    writer: Server
    reader: Server


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def make_certificate(directory: Path) -> None:
    """Make search.pem and search.key."""
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=search.example.org"
    made = ["-keyout", str(directory / "search.key"), "-out", str(directory / "search.pem")]
    subprocess.run([*command.split(), *made], check=True, capture_output=True)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Nginx in front of two servers of one directory, all on loopback."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("expected nginx (Debian's nginx-light), found none")
    path, port = saved_index(tmp_path / "items.l2r"), free_port()
    make_certificate(tmp_path)
    with ExitStack() as stack:
        writer, reader = (stack.enter_context(server_of(path, key=KEY)) for _ in range(2))
        text = FILES[CONFIGURATION].replace("/etc/nginx/tls", str(tmp_path))
        text = text.replace("8001", str(writer.port)).replace("8002", str(reader.port))
        text = text.replace("listen 443", f"listen 127.0.0.1:{port}")
        (tmp_path / "nginx.conf").write_text(MAIN.format(text))
        command = [nginx, "-p", str(tmp_path), "-c", "nginx.conf"]
        process = stack.enter_context(subprocess.Popen(command))
        stack.callback(process.terminate)
        client = httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=False, timeout=30)
        stack.enter_context(client)
        wait_for(client)
        yield Site(client, port, writer, reader)


def wait_for(client: httpx.Client) -> None:
    """Wait until nginx answers."""
    for _ in range(100):
        try:
            client.get("/ready")
        except httpx.ConnectError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("expected nginx to answer within 10 s")


def n_searches(server: Server) -> int:
    """The searches that a server has answered."""
    page = server.client.get("/metrics").text
    found = re.search(r'l2route_requests_total{route="/search",status="200"} (\d+)', page)
    return int(found[1]) if found else 0


def test_searches_go_to_all_and_changes_to_one(site: Site) -> None:
    """Both servers search, one takes the changes, and the other one answers with them soon."""
    for _ in range(20):
        assert site.client.post("/search", json=ONE).status_code == 200
    assert n_searches(site.writer) >= 5
    assert n_searches(site.reader) >= 5
    added = {"vectors": QUERIES[:1].tolist(), "ids": [7777]}
    assert site.client.post("/add", json=added).status_code == 401
    answer = site.client.post("/add", json=added, headers={"Authorization": f"Bearer {KEY}"})
    assert answer.status_code == 200, answer.text
    assert 'route="/add"' not in site.reader.client.get("/metrics").text
    for _ in range(100):
        if site.reader.client.post("/search", json=ONE).json()["ids"][0][0] == 7777:
            break
        time.sleep(0.1)
    else:
        pytest.fail("expected the reader to follow within 10 s")
    assert site.client.get("/metrics").status_code == 404


def test_a_server_that_ends_is_not_missed(site: Site) -> None:
    """Searches are answered while a server ends; large bodies and answers pass whole."""
    site.reader.process.terminate()
    for _ in range(50):
        assert site.client.post("/search", json=ONE).status_code == 200
    assert site.reader.process.wait(30) in (0, -signal.SIGTERM)
    asked = {"queries": VECTORS.tolist() * 10, "k": 100}
    found = site.client.post("/search", json=asked).json()
    assert [len(found["ids"]), len(found["ids"][0])] == [3000, 100]


def test_an_address_has_so_many_connections(site: Site) -> None:
    """A client with too many slow requests gets 429, and slow bodies do not reach the servers."""
    context = httpx.create_ssl_context(verify=False)
    head = b"POST /search HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"
    with ExitStack() as stack:
        for _ in range(32):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", site.port)))
            stack.enter_context(context.wrap_socket(plain)).sendall(head)
        time.sleep(0.3)  # until all heads are read
        assert site.client.post("/search", json=ONE).status_code == 429
        assert site.writer.client.post("/search", json=ONE).status_code == 200
    assert site.client.post("/search", json=ONE).status_code == 200


def test_the_unit_is_sound(tmp_path: Path) -> None:
    """Systemd finds nothing wrong with the unit, and l2route takes its command line."""
    command = shutil.which("systemd-analyze")
    if command is None:
        pytest.skip("expected systemd-analyze, found none")
    installed = Path(sys.executable).with_name("l2route")
    text = FILES[UNIT].replace("/opt/l2route/bin/l2route", str(installed))
    (tmp_path / "l2route@8001.service").write_text(text)
    verified = [command, "verify", "--man=no", str(tmp_path / "l2route@8001.service")]
    done = subprocess.run(verified, capture_output=True, text=True, check=False)
    assert "l2route" not in done.stderr, done.stderr
    (started,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    program, serve, index, *options = started.replace("%i", "8001").split()
    assert subprocess.run([program, serve, *options, "--help"], check=False).returncode == 0
    assert index in PAGE.replace(FILES[UNIT], "")


def test_alerts_are_of_metrics_that_there_are(tmp_path: Path) -> None:
    """The rules are YAML, and each names metrics that the server has."""
    rules = yaml.safe_load(FILES["/etc/prometheus/l2route.yml"])["groups"][0]["rules"]
    with server_of(saved_index(tmp_path / "items.l2r")) as server:
        page = server.client.get("/metrics").text
    assert len(rules) >= 5
    for rule in rules:
        named = re.findall(r"\bl2route_\w+", rule["expr"])
        assert named or rule["expr"].startswith("up{")
        for name in named:
            assert re.search(rf"^# TYPE {name.removesuffix('_bucket')} ", page, re.MULTILINE), name
