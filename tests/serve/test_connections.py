"""Laws of what clients can make a server keep: memory is bounded, and there is room for others."""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from l2route.serve.connections import MAX_UNREAD, network_of
from l2route.serve.gate import GRACE
from serving import QUERIES, VECTORS, Server, saved_index, server_of

HEAD = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
MB = 1_000_000
SOON = 1.0
"""Seconds in which a client that behaves is answered."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an index."""
    return saved_index(tmp_path_factory.mktemp("connections") / "index.l2r")


@contextmanager
def connected(server: Server, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    """A plain connection from an address of loopback, which reads ahead little."""
    with socket.socket() as connection:
        connection.settimeout(15)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.bind((host, 0))
        connection.connect(("127.0.0.1", server.port))
        yield connection


def peak(server: Server) -> int:
    """The most memory that a server has had so far, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def flood(connection: socket.socket, part: bytes, n_bytes: int, patience: float = 1) -> int:
    """Send a part again and again until it is not taken; return the bytes that were taken."""
    n_sent = 0
    connection.settimeout(patience)
    with suppress(OSError):
        while n_sent < n_bytes:
            n_sent += connection.send(part)
    return n_sent


def request(body: bytes, media: str = "application/json", path: str = "/search") -> bytes:
    """A search with this body."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


ONE = request(json.dumps({"queries": QUERIES[0].tolist()}).encode())


JSON_OF_NPY = "application/x-npy\r\naccept: application/json"


def many(n_rows: int, k: int) -> bytes:
    """A search with queries as npy and answers as JSON."""
    np.save(stream := io.BytesIO(), np.resize(VECTORS, (n_rows, VECTORS.shape[1])))
    return request(stream.getvalue(), JSON_OF_NPY, f"/search?k={k}&ef=300")


LONG = many(9000, 100)
"""A search that takes a second."""


def seconds_of_search(server: Server, host: str = "127.0.0.1") -> float:
    """Search on a new connection; return the seconds until the answer."""
    start = time.monotonic()
    with connected(server, host) as connection:
        connection.sendall(ONE)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200 "), answer[:200]
    return time.monotonic() - start


def answer_of(stream: BinaryIO) -> bytes:
    """The body of the next answer on a connection."""
    lines = list(iter(stream.readline, b"\r\n"))
    assert lines[0].startswith(b"HTTP/1.1 200 ")
    (n_bytes,) = (int(line.split()[1]) for line in lines if line.startswith(b"content-length: "))
    return stream.read(n_bytes)


CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "part", "n_bytes"),
    [
        pytest.param(CHUNKED + b"0\r\n", b"x-trailer: %s\r\n" % (b"y" * 500), 100 * MB),
        pytest.param(CHUNKED + b"0\r\nx: ", b"y" * 65536, 100 * MB),
        pytest.param(CHUNKED + b"1;", b"y" * 65536, 40 * MB),
        pytest.param(CHUNKED + b"1\r\n{\r\n" * 9 + b"0\r\n", b"a: b\r\n" * 10_000, 40 * MB),
        pytest.param(LONG + b"GET / HTTP/1.1\r\nx: ", b"y" * 65536, 40 * MB),
        pytest.param(LONG + b"GET / HTTP/1.1\r\n", b"x-more: %s\r\n" % (b"y" * 500), 40 * MB),
        pytest.param(b"GET /", b"y" * 65536, 40 * MB),
        pytest.param(b"", b"\r\n" * 30_000, 40 * MB),
    ],
    ids=["trailers", "trailer", "extension", "short", "header", "second", "path", "newlines"],
)
def test_what_is_no_body_is_bounded(path: Path, begin: bytes, part: bytes, n_bytes: int) -> None:
    """Heads, chunk headers and trailers without end are cut off, and cost no memory."""
    with server_of(path, "--max-body-mb", "1") as server, connected(server) as connection:
        with connected(server) as other:  # takes what a long search takes
            other.sendall(LONG)
            other.recv(1)
        before = peak(server)
        connection.sendall(begin)
        assert flood(connection, part, n_bytes) < 10 * MB
        assert seconds_of_search(server) < SOON
        assert peak(server) - before < 10 * MB


@pytest.mark.parametrize("part", [b"GET / HTTP/1.1\r\n\r\n" * 2000, ONE * 50], ids=["get", "post"])
def test_requests_sent_ahead_are_bounded(path: Path, part: bytes) -> None:
    """Requests that are sent without reading answers are left to the client, and not read."""
    with server_of(path) as server, connected(server) as connection:
        seconds_of_search(server)
        before = peak(server)
        assert flood(connection, part, 100 * MB) < 30 * MB
        assert seconds_of_search(server) < SOON
        assert peak(server) - before < 10 * MB


def test_requests_sent_ahead_are_answered_in_order(path: Path) -> None:
    """Hundreds of requests that are sent at once on a connection are answered one by one."""
    bodies = [json.dumps({"queries": QUERIES[0].tolist(), "k": k % 9 + 1}) for k in range(500)]
    sent = b"".join(request(body.encode()) for body in bodies)
    with server_of(path) as server, connected(server) as connection:
        connection.sendall(sent)
        with connection.makefile("rb") as stream:
            for k in range(500):
                assert len(json.loads(answer_of(stream))["ids"][0]) == k % 9 + 1


def test_half_bodies_keep_nobody_out(path: Path) -> None:
    """Thousands of connections with one byte of a body delay nobody, from whatever address."""
    with server_of(path) as server, ExitStack() as stack, connected(server) as kept:
        answers = stack.enter_context(kept.makefile("rb"))
        for n in range(2000):
            idle = stack.enter_context(connected(server, "127.0.0.2"))
            idle.sendall(HEAD + b"content-length: 1000\r\n\r\n{")
            if n % 100 == 99:
                assert seconds_of_search(server) < SOON
                assert seconds_of_search(server, "127.0.0.2") < SOON
                start = time.monotonic()
                kept.sendall(ONE)
                assert answer_of(answers)
                assert time.monotonic() - start < SOON


def test_bodies_have_to_make_progress(path: Path) -> None:
    """A body of which nothing comes is refused after some seconds, long before the time-out."""
    with server_of(path, "--timeout", "60") as server, connected(server) as connection:
        start = time.monotonic()
        connection.sendall(HEAD + b"content-length: 1000\r\n\r\n{")
        with connection.makefile("rb") as stream:
            answer = stream.read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"16384 bytes/s after 5 s" in answer
    assert GRACE * 0.9 < time.monotonic() - start < 3 * GRACE


def test_a_slow_body_that_makes_progress_is_taken(path: Path) -> None:
    """A body that takes longer than a silent one may is answered if it comes steadily."""
    body = ONE.partition(b"\r\n\r\n")[2].ljust(300_000)
    with server_of(path) as server, connected(server) as connection:
        for start in range(0, len(body), len(body) // 12):
            part = body[start : start + len(body) // 12]
            connection.sendall(part if start else request(body)[: -len(body)] + part)
            time.sleep(0.5)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_small_bodies_are_taken_when_large_ones_fill_the_memory(path: Path) -> None:
    """Bodies under way that fill what there is for them keep large ones out, and no small one."""
    large = request(b" " * 290_000)
    with server_of(path, "--max-body-mb", "0.3") as server, ExitStack() as stack:
        for _ in range(9):
            stack.enter_context(connected(server)).sendall(large[:-1])
        time.sleep(0.5)  # until they are read
        assert seconds_of_search(server) < SOON
        with connected(server) as connection:
            connection.sendall(large[:-1])
            assert connection.recv(65536).startswith(b"HTTP/1.1 429 ")


@pytest.mark.parametrize(("n_rows", "n_requests"), [(2000, 2), (10, 200)], ids=["large", "many"])
def test_answers_that_are_not_read_are_bounded(path: Path, n_rows: int, n_requests: int) -> None:
    """Clients that do not read answers cost as much memory as is stated, and delay nobody."""
    asked = many(n_rows, 300)
    with server_of(path) as server, ExitStack() as stack:
        before = peak(server)
        for _ in range(200):
            greedy = stack.enter_context(connected(server, "127.0.0.2"))
            flood(greedy, asked, n_requests * len(asked), patience=0.01)
        start = time.monotonic()
        for _ in range(30):
            assert seconds_of_search(server) < 5 * SOON  # they take all processors at first
            time.sleep(0.1)
        with connected(server) as connection:  # from another address, and it reads
            connection.sendall(asked)
            with connection.makefile("rb") as answers:
                assert len(json.loads(answer_of(answers))["ids"]) == n_rows
        assert time.monotonic() - start < 25  # before the time-out cuts the others off
        assert peak(server) - before < MAX_UNREAD + 450 * MB


def test_customers_share_a_limit() -> None:
    """Addresses of IPv6 with the same 64 bits count as one client, others and IPv4 as several."""
    assert network_of("2001:db8::1") == network_of("2001:db8:0:0:2:3:4:5%eth0")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("10.0.0.1") != network_of("10.0.0.2")
