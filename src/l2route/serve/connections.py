"""Connections: how many there may be, and how long one may do nothing.

A `Guard` stands between a transport and uvicorn's protocol. It closes a connection whose request
does not come, or whose client does not read, in time; and it closes the connection that is idle
longest when there are too many. So clients that are slow or silent do not keep others out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

Address = tuple[Any, ...] | None
MAX_HEAD = 65_536
"""Largest head of a request in bytes."""
_END_OF_HEAD = b"\r\n\r\n"


class Connections:
    """The open connections of a server.

    Args:
        most: connections that may be open.
        timeout: seconds that a client may take to send the head of a request, and to read.
    """

    def __init__(self, most: int, timeout: float) -> None:
        self.most, self.timeout = most, timeout
        self.n_refused = 0
        self._open: dict[Address, Guard] = {}
        self._idle: dict[Guard, None] = {}  # in the order in which they became idle

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self, inner: Callable[..., asyncio.Protocol]) -> Callable[..., asyncio.Protocol]:
        """The factory of guarded protocols, for uvicorn.

        Args:
            inner: factory of the protocols that are guarded.
        """

        def guarded(
            config: object,
            server_state: object,
            app_state: object,
            _loop: asyncio.AbstractEventLoop | None = None,
        ) -> asyncio.Protocol:
            made = inner(config=config, server_state=server_state, app_state=app_state, _loop=_loop)
            return Guard(made, self)

        return guarded

    def began(self, client: Address) -> None:
        """The head of a request of a client has come."""
        guard = self._open.get(client)
        if guard is not None:
            self._idle.pop(guard, None)
            guard.begin()

    def ended(self, client: Address) -> None:
        """A request of a client has been answered."""
        guard = self._open.get(client)
        if guard is not None:
            self._idle[guard] = None
            guard.wait_for_head()

    def opened(self, client: Address, guard: Guard) -> bool:
        """Note a new connection; False if there is no room for it."""
        if len(self._open) >= self.most:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                self.n_refused += 1
                return False
            oldest.abort()
        self._open[client] = guard
        self._idle[guard] = None
        return True

    def closed(self, client: Address, guard: Guard) -> None:
        """Forget a connection."""
        if self._open.get(client) is guard:
            del self._open[client]
        self._idle.pop(guard, None)


class Guard(asyncio.Protocol):
    """A protocol that passes everything on to another, and watches the time.

    Args:
        inner: the protocol that is guarded.
        connections: the connections of the server.
    """

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self._inner, self._connections = inner, connections
        self._client: Address = None
        self._is_refused = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._n_head = 0  # bytes of a head that has not come to its end
        self._tail = b""  # the last bytes of it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass on, or refuse with 503 if there are too many."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base
        self._loop = asyncio.get_running_loop()
        peer = transport.get_extra_info("peername")
        self._client = tuple(peer[:2]) if isinstance(peer, tuple) else None
        if not self._connections.opened(self._client, self):
            self._is_refused = True
            self._refuse("503 Service Unavailable", "expected fewer connections, got too many")
            return
        self._inner.connection_made(transport)
        self.wait_for_head()

    def connection_lost(self, error: Exception | None) -> None:
        """Pass on."""
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._connections.closed(self._client, self)
        if not self._is_refused:
            self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Pass on, unless the head of a request is too long."""
        if self._is_refused:
            return
        if self._head_timer is not None and self._n_head >= 0 and self._is_too_long(data):
            self._is_refused = True
            got = f"expected a head of at most {MAX_HEAD} bytes, got more"
            self._refuse("431 Request Header Fields Too Large", got)
            self._inner.connection_lost(None)
            return
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on."""
        return None if self._is_refused else self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass on; the client has some time to read."""
        self._write_timer = self._loop.call_later(self._connections.timeout, self.abort)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on."""
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._inner.resume_writing()

    def begin(self) -> None:
        """The head has come: what follows is timed by the request."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def wait_for_head(self) -> None:
        """Give the client some time to send the head of the next request."""
        self.begin()
        self._n_head, self._tail = 0, b""
        self._head_timer = self._loop.call_later(self._connections.timeout, self.abort)

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()
        self._connections.closed(self._client, self)

    def _is_too_long(self, data: bytes) -> bool:
        """Count the bytes of a head; −1 when its end has come."""
        if _END_OF_HEAD in self._tail + data:
            self._n_head = -1
            return False
        self._n_head += len(data)
        self._tail = data[-3:]
        return self._n_head > MAX_HEAD

    def _refuse(self, status: str, message: str) -> None:
        body = f'{{"detail":"{message}"}}'
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._transport.write((head + body).encode())
        self._transport.close()
