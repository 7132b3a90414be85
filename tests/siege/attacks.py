"""What one client without a key may send: each attack goes on until it is told to end.

    python -m siege.attacks NAME PORT SECONDS

All of it goes to 127.0.0.1, from an address of loopback of its own.
"""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np

from serving import QUERIES, VECTORS

Attack = Callable[[int, str], None]
"""One round of an attack on a port, from an address."""
HEAD = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
PATIENCE = 0.05
MB = 1_000_000


@contextmanager
def connected(port: int, host: str) -> Iterator[socket.socket]:
    """A connection that reads ahead little."""
    with socket.socket() as connection:
        connection.settimeout(PATIENCE)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.bind((host, 0))
        connection.connect(("127.0.0.1", port))
        yield connection


def request(body: bytes, media: str = "application/json", path: str = "/search") -> bytes:
    """A request with this body."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def flood(port: int, host: str, begin: bytes, part: bytes, n_bytes: int) -> None:
    """Send a begin, and a part again and again, until it is not taken."""
    with suppress(OSError), connected(port, host) as connection:
        connection.sendall(begin)
        n_sent = 0
        while n_sent < n_bytes:
            n_sent += connection.send(part)


def trailers(port: int, host: str) -> None:
    """A chunked body whose trailers never end."""
    begin = HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n"
    flood(port, host, begin, b"x-trailer: %s\r\n" % (b"y" * 500), 100 * MB)


def pipelined(port: int, host: str) -> None:
    """A second head without end behind a search, and many requests sent ahead."""
    one = request(json.dumps({"queries": QUERIES[0].tolist()}).encode())
    flood(port, host, one + b"GET / HTTP/1.1\r\n", b"x-more: %s\r\n" % (b"y" * 500), 40 * MB)
    flood(port, host, b"", one * 50, 20 * MB)


def half_bodies(port: int, host: str) -> None:
    """A thousand connections with a head and one byte of a body."""
    with ExitStack() as stack:
        for _ in range(1000):
            with suppress(OSError):
                idle = stack.enter_context(connected(port, host))
                idle.sendall(HEAD + b"content-length: 1000\r\n\r\n{")
        time.sleep(1)


def unread(port: int, host: str) -> None:
    """Connections that ask for large answers, and read nothing."""
    np.save(stream := io.BytesIO(), np.resize(VECTORS, (500, VECTORS.shape[1])))
    asked = request(
        stream.getvalue(), "application/x-npy\r\naccept: application/json", "/search?k=100"
    )
    with ExitStack() as stack:
        for _ in range(50):
            with suppress(OSError):
                greedy = stack.enter_context(connected(port, host))
                for _ in range(5):
                    greedy.sendall(asked)
        time.sleep(1)


def bombs(port: int, host: str) -> None:
    """Bodies of JSON and npy that are long and wrong, each in its own way."""
    shape = b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (0, %d)}"
    bodies = [
        b'{"queries":[' + b'"",' * 3_000_000 + b'""]}',
        b'{"queries":[' + b"0," * 5_000_000 + b"0]}",
        b'{"queries":[' + b"[]," * 3_000_000 + b"[]]}",
        b'{"queries":[1],"x":[' + b"{}," * 3_000_000 + b"0]}",
    ]
    for body in bodies:
        ask(port, host, request(body))
    ask(port, host, request(shape % 2**70, "application/x-npy"))


def settings(port: int, host: str) -> None:
    """Searches with recalls, numbers of answers and spaces of all kinds, and without limits."""
    rng = np.random.default_rng()
    query = QUERIES[0].tolist()
    for _ in range(20):
        asked = {"queries": query, "k": int(rng.integers(1, 100)), "recall": float(rng.random())}
        ask(port, host, request(json.dumps({**asked, "space": str(rng.integers(9))}).encode()))
        ask(port, host, request(json.dumps(asked).encode()))
        ask(port, host, request(json.dumps({"queries": query, "slack": 1e9}).encode()))


def changes(port: int, host: str) -> None:
    """Changes as a proxy, a page of another site or one that rebinds its name would send them."""
    body = json.dumps({"ids": list(range(300))}).encode()
    for header in (b"x-forwarded-for: 127.0.0.1", b"origin: http://evil.example", b"via: 1.1 x"):
        sent = request(body, path="/delete").replace(b"\r\n", b"\r\n" + header + b"\r\n", 1)
        assert b" 200 " not in ask(port, host, sent)[:20]
    sent = request(body, path="/delete").replace(b"host: localhost", b"host: evil.example")
    assert b" 200 " not in ask(port, host, sent)[:20]


def many_rows(port: int, host: str) -> None:
    """Searches of as many rows, answers and distances as there may be, one after the other."""
    np.save(stream := io.BytesIO(), np.resize(VECTORS, (5000, VECTORS.shape[1])))
    for limits in ("k=100&ef=1000", "k=10&budget=100000"):
        ask(port, host, request(stream.getvalue(), "application/x-npy", f"/search?{limits}"), 20)


def ask(port: int, host: str, sent: bytes, seconds: float = 5) -> bytes:
    """Send a request, and return what comes back first; nothing if the server closes."""
    with suppress(OSError), connected(port, host) as connection:
        connection.settimeout(seconds)
        connection.sendall(sent)
        return connection.recv(65536)
    return b""


ATTACKS: dict[str, Attack] = {
    each.__name__: each
    for each in (
        *(trailers, pipelined, half_bodies, unread),
        *(bombs, settings, changes, many_rows),
    )
}


def main() -> None:
    """Attack until the time is over."""
    name, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    end, host = time.monotonic() + seconds, f"127.0.0.{10 + list(ATTACKS).index(name)}"
    n_rounds = 0
    while time.monotonic() < end:
        ATTACKS[name](port, host)
        n_rounds += 1
        time.sleep(0.05)
    print(n_rounds)


if __name__ == "__main__":
    main()
