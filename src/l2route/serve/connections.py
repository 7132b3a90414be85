"""Connections: how many there may be, and what a client may make the server keep on one.

A `Guard` is uvicorn's protocol by httptools, with the limits that this lacks. Connections that wait
for their client, which has to send or to read something, make room for others when there are too
many: the one that waits longest, of the network that has most of them. So neither clients that are
slow or silent nor those that come in thousands keep others out.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

Address = tuple[Any, ...] | None
MAX_HEAD = 65_536
"""Most bytes of a head, of chunk headers between two parts of a body, and of trailers."""
MAX_UNREAD = 256_000_000
"""Most bytes of answers, over all connections, that their clients have not read."""
PART = 65_536
"""Bytes of a body that count as progress of a client that sends it, or reads it."""
_SLICE = 4096
"""Bytes that are parsed at a time: no more than these can bring requests ahead of answers."""


class Connections:
    """The open connections of a server.

    Args:
        most: connections that may be open.
        timeout: seconds that a client may take to send the head of a request, and to read.
    """

    def __init__(self, most: int, timeout: float) -> None:
        self.most, self.timeout = most, timeout
        self._open: dict[Address, Guard] = {}
        self._waiting: dict[object, dict[Guard, None]] = {}  # by network, longest first
        self._unread: dict[Guard, int] = {}  # bytes of answers, longest without progress first
        self.protocol = partial(Guard, self)

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, guard: Guard) -> bool:
        """Note a new connection; False if there is no room for it."""
        if len(self._open) >= self.most:
            crowd = max(self._waiting.values(), key=len, default=None)
            if crowd is None:
                return False
            next(iter(crowd)).abort()
        self._open[guard.client] = guard
        return True

    def closed(self, guard: Guard) -> None:
        """Forget a connection."""
        if self._open.get(guard.client) is guard:
            del self._open[guard.client]
        self.works(guard)
        self._unread.pop(guard, None)

    def waits(self, guard: Guard) -> None:
        """From now on the client of a connection has to send or to read something."""
        self.works(guard)
        self._waiting.setdefault(guard.network, {})[guard] = None

    def works(self, guard: Guard) -> None:
        """The client of a connection waits for the server."""
        crowd = self._waiting.get(guard.network)
        if crowd is not None and guard in crowd:
            del crowd[guard]
            if not crowd:
                del self._waiting[guard.network]

    def answers(self, client: Address, n_bytes: int) -> None:
        """Note what a client has not read of an answer; 0 when it has read all.

        Beyond MAX_UNREAD, the network that has most of it loses the connection that has not read
        for longest.
        """
        guard = self._open.get(client)
        if guard is None:
            return
        self._unread.pop(guard, None)
        if n_bytes:
            self._unread[guard] = n_bytes
        while sum(self._unread.values()) > MAX_UNREAD and len(self._unread) > 1:
            sums: Counter[object] = Counter()
            for each, n_unread in self._unread.items():
                sums[each.network] += n_unread
            greediest = max(sums, key=sums.__getitem__)
            next(each for each in self._unread if each.network == greediest).abort()

    def abort(self, client: Address) -> None:
        """Close the connection of a client at once."""
        guard = self._open.get(client)
        if guard is not None:
            guard.abort()


class Guard(HttpToolsProtocol):
    """The protocol of one connection.

    Requests that are sent ahead are not parsed before the answers to those before them are written,
    and nothing is read meanwhile.

    Args:
        connections: the connections of the server.
        uvicorns: what uvicorn passes to protocols.
    """

    def __init__(self, connections: Connections, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._connections = connections
        self.network: object = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._n_head = 0  # bytes since the last of a body or the end of a request
        self._n_body = 0  # bytes of a body since the last progress
        self._has_head = False
        self._ahead = b""  # sent ahead, and not parsed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse with 503 if there are too many."""
        super().connection_made(transport)
        self.network = network_of(self.client[0] if self.client else "")
        if self._connections.opened(self):
            self._wait_for_head()
        else:
            self._refuse("503 Service Unavailable", "expected fewer connections, got too many")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._connections.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse slice by slice, until a request has to wait for the one before it."""
        data, self._ahead = self._ahead + data, b""
        for start in range(0, len(data), _SLICE):
            if self.transport.is_closing():
                return
            if self.pipeline:
                self._ahead = data[start:]
                self.flow.pause_reading()
                self.flow.read_paused = False  # requests that are begun do not read on
                return
            part = data[start : start + _SLICE]
            self._n_head += len(part)
            super().data_received(part)
            if self._n_head > MAX_HEAD:
                self._refuse_head()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._has_head = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are dropped."""
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head has come: what follows is timed by the request."""
        self._has_head = True
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body has come."""
        self._n_head = 0
        self._n_body += len(body)
        if self._n_body > PART:
            self._n_body = 0
            self._note()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has come to its end."""
        self._n_head = 0
        super().on_message_complete()
        self._note()

    def on_response_complete(self) -> None:
        """An answer is written: parse on."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._wait_for_head()
        if self._ahead:
            self.transport.resume_reading()
            self.data_received(b"")

    def pause_writing(self) -> None:
        """The client has some time to read."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._connections.timeout, self.abort)
        self._note()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._note()

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()
        self._connections.closed(self)

    def _wait_for_head(self) -> None:
        """Give the client some time to send the head of the next request."""
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = self.loop.call_later(self._connections.timeout, self.abort)
        self._note()

    def _note(self) -> None:
        """Note who has to do something now: the client or the server."""
        cycle = self.cycle
        has_to_send = cycle is None or cycle.response_complete or cycle.more_body
        if self.flow.write_paused or (has_to_send and not self.pipeline):
            self._connections.waits(self)
        else:
            self._connections.works(self)

    def _refuse_head(self) -> None:
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            got = f"expected a head of at most {MAX_HEAD} bytes, got more"
            self._refuse("431 Request Header Fields Too Large", got)
        else:
            self.abort()

    def _refuse(self, status: str, message: str) -> None:
        body = f'{{"detail":"{message}"}}'
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write((head + body).encode())
        self.transport.close()


def network_of(host: str) -> object:
    """Who shares a limit: an address, and of IPv6 what a provider gives to one customer (/64)."""
    if ":" not in host:
        return host
    return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:8]
