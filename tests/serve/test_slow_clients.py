"""Laws of a server with slow, silent and greedy clients: they are cut off, others are answered."""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from serving import QUERIES, VECTORS, Server, saved_index, server_of

TIMEOUT = 1.0
"""Of the server, in seconds."""
PATIENCE = 15.0
"""Seconds until a connection that should be closed counts as open, on a busy machine."""
MOST = 20
"""Connections of the server."""
NPY = b"application/x-npy\r\naccept: application/json"
HEAD = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a short time-out, a small limit of bodies and few connections."""
    path = saved_index(tmp_path_factory.mktemp("slow") / "index.l2r")
    limits = f"--timeout {TIMEOUT} --max-connections {MOST} --max-body-mb 0.3".split()
    with server_of(path, *limits) as server:
        yield server
        assert server.client.get("/health").status_code == 200


@contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    """A plain connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        yield connection


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    content = b""
    try:
        while part := connection.recv(65536):
            content += part
    except ConnectionResetError:
        pass
    return content


def drip(connection: socket.socket, content: bytes) -> float:
    """Send a byte now and then until the server closes the connection; return the seconds."""
    start = time.monotonic()
    connection.setblocking(False)
    for byte in content:
        try:
            connection.send(bytes([byte]))
            if connection.recv(65536) == b"":
                break
        except BlockingIOError:
            pass
        except (ConnectionResetError, BrokenPipeError):
            break
        time.sleep(0.05)
        if time.monotonic() - start > PATIENCE:
            break
    return time.monotonic() - start


def test_silent_connections_are_closed(server: Server) -> None:
    """A connection on which nothing comes is closed after the time-out, as is half a head."""
    for begin in (b"", HEAD):
        with connected(server) as connection:
            start = time.monotonic()
            connection.sendall(begin)
            assert read_all(connection) == b""
            assert TIMEOUT * 0.9 < time.monotonic() - start < PATIENCE


def test_dripping_heads_are_cut_off(server: Server) -> None:
    """A head that comes byte by byte has no more time than one that does not come."""
    with connected(server) as connection:
        assert TIMEOUT * 0.9 < drip(connection, HEAD * 20) < PATIENCE


def test_dripping_bodies_are_cut_off(server: Server) -> None:
    """A body that does not come in time gets 408, and the connection is closed."""
    with connected(server) as connection:
        connection.sendall(HEAD + b"content-length: 1000\r\n\r\n")
        connection.sendall(b'{"queries"')
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"expected the body within 1 s" in answer
    with connected(server) as connection:
        connection.sendall(HEAD + b"content-length: 1000\r\n\r\n")
        assert drip(connection, b" " * 1000) < PATIENCE


def test_large_bodies_are_refused(server: Server) -> None:
    """A body over the limit gets 413: at once if its length is known, otherwise as it comes."""
    with connected(server) as connection:
        connection.sendall(HEAD + b"content-length: 300001\r\n\r\n")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"expected a body of at most 300000 bytes, got 300001" in answer
    with connected(server) as connection:
        connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        part = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        try:
            for _ in range(1000):  # 32 MB
                connection.sendall(part)
        except (ConnectionResetError, BrokenPipeError):
            pass
        else:
            pytest.fail("expected a connection that is closed, got one that takes everything")


def test_long_heads_are_refused(server: Server) -> None:
    """A head of more than 64 KiB gets 431, or its connection is closed."""
    with connected(server) as connection:
        try:
            for i in range(2000):
                connection.sendall(b"x-%d: %s\r\n" % (i, b"y" * 100) if i else HEAD)
        except (ConnectionResetError, BrokenPipeError):
            return
        answer = read_all(connection)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


def test_clients_that_do_not_read_are_cut_off(server: Server) -> None:
    """An answer that the client does not read is given up after the time-out."""
    asked = {"queries": VECTORS.astype(float).round(3).tolist() * 10, "k": 300, "ef": 300}
    body = json.dumps(asked).encode()
    whole = len(server.client.post("/search", json=asked).content)
    assert whole > 15_000_000  # more than the buffers of a connection
    with connected(server) as connection:
        connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        time.sleep(2 * TIMEOUT + 2)
        assert len(read_all(connection)) < whole


def test_many_silent_connections_keep_nobody_out(server: Server) -> None:
    """Five times as many silent connections as may be open do not hinder a client that asks."""
    with ExitStack() as stack:
        for _ in range(5 * MOST):
            stack.enter_context(connected(server))
        start = time.monotonic()
        with connected(server) as connection:
            body = json.dumps({"queries": QUERIES[0].tolist()}).encode()
            connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - start < PATIENCE


def test_busy_connections_are_not_closed_for_others(tmp_path: Path) -> None:
    """When all connections wait for answers, one more gets 503; these are answered."""
    np.save(stream := io.BytesIO(), np.tile(VECTORS, (33, 1)))
    body = stream.getvalue()
    head = HEAD.replace(b"search", b"search?k=100&ef=300").replace(b"application/json", NPY)
    path = saved_index(tmp_path / "index.l2r")
    limits = ["--max-connections", "3", "--threads", "1"]
    with server_of(path, *limits) as server, ExitStack() as stack:
        busy = [stack.enter_context(connected(server)) for _ in range(3)]
        for connection in busy:
            connection.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        time.sleep(0.2)  # until all bodies are read; the searches take seconds
        with connected(server) as late:
            answer = read_all(late)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"expected fewer connections" in answer
        for connection in busy:
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_clients_that_leave_are_forgotten(server: Server) -> None:
    """Clients that go away in a head, in a body or before the answer do no harm."""
    body = json.dumps({"queries": QUERIES.tolist()}).encode()
    whole = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    for n_bytes in range(0, len(whole) + 1, len(whole) // 30):
        with connected(server) as connection:
            connection.sendall(whole[:n_bytes])
    assert server.client.post("/search", json={"queries": QUERIES.tolist()}).status_code == 200


def test_requests_one_after_another_on_a_connection(server: Server) -> None:
    """Requests that are sent at once on a connection are answered in order."""
    asked = []
    for k in (1, 2, 3):
        body = json.dumps({"queries": QUERIES[0].tolist(), "k": k}).encode()
        asked.append(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
    with connected(server) as connection:
        connection.sendall(
            b"".join(asked[:-1]) + asked[-1].replace(HEAD, HEAD + b"connection: close\r\n")
        )
        answers = read_all(connection).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200"] * 3
    found = [json.loads(answer.partition(b"\r\n\r\n")[2])["ids"][0] for answer in answers]
    assert list(map(len, found)) == [1, 2, 3]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x07" * 300,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        HEAD + b"content-length: -5\r\n\r\n",
        HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\nzz",
        HEAD + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        b"GET /" + b"%" * 5000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=range(8),
)
def test_what_is_no_http_is_cut_off(server: Server, garbage: bytes) -> None:
    """Bytes that are no HTTP get an error or nothing, and the connection is closed."""
    with connected(server) as connection:
        connection.sendall(garbage)
        answer = read_all(connection)
    assert answer == b"" or answer[9:10] == b"4", answer[:100]
