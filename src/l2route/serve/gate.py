"""Gate: what every request passes. It bounds bodies and answers, and counts requests.

The route that is asked for most is answered here, without the application: that takes half the
time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from fastapi import HTTPException, Request, Response
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from l2route.serve.connections import PART, Address, Connections
from l2route.serve.metrics import OTHER, Metrics

Handler = Callable[[Request], Awaitable[Response]]
"""Answers requests of one route."""
N_BODIES = 8
"""Largest bodies that may be in memory at a time, beside those of at most PART bytes."""
GRACE = 5.0
"""Seconds after which a body has to have come at MIN_RATE."""
MIN_RATE = 16_384
"""Bytes of a body a second."""
MAX_MADE = 1_000_000
"""Answers, of all requests together, that are being made."""
LARGE_ANSWER = 10_000
"""Answers of a request beyond which it waits for room, and another thread writes them."""
CLOSE = {"Connection": "close"}
"""Header of answers to bodies that are not read to their end."""


class Gate:
    """An application around another one.

    Args:
        app: the application inside.
        metrics: what is counted.
        connections: the connections of the server.
        max_body: largest body of a request in bytes.
        timeout: seconds that a body may take to arrive, and an answer to be read.
        routes: paths that are counted by their names.
        direct: paths whose POST requests are answered without the application inside.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        connections: Connections,
        max_body: int,
        timeout: float,
        routes: Collection[str],
        direct: Mapping[str, Handler],
    ) -> None:
        self._app, self._metrics, self._connections = app, metrics, connections
        self._max_body, self._timeout, self._routes = max_body, timeout, routes
        self._direct = direct
        self._n_bytes = 0  # of all bodies that are being answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, path = time.perf_counter(), 500, scope["path"]
        body = _Body(self, receive)

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            if len(message.get("body", b"")) > PART:
                await self._write(message, scope["client"], send)
            else:
                await send(message)

        try:
            length = _length_of(scope)
            if length is not None and length > self._max_body:
                await self._too_large(length)(scope, receive, noting)
            elif scope["method"] == "POST" and path in self._direct:
                response = await _answered(self._direct[path], Request(scope, body.receive))
                body.release()
                await response(scope, receive, noting)
            else:
                await self._app(scope, body.receive, noting)
        finally:
            body.release()
            route = path if path in self._routes else OTHER
            self._metrics.observe(route, status, time.perf_counter() - start)

    def take(self, n_bytes: int, n_all: int) -> None:
        """Count a part of a body, and refuse it if there is no room.

        Args:
            n_bytes: of the part.
            n_all: of the parts before it, and of this one.
        """
        self._n_bytes += n_bytes
        if n_all > self._max_body:
            self._metrics.rejected.labels("body").inc()
            raise HTTPException(413, self._expected("more"), headers=CLOSE)
        if self._n_bytes > N_BODIES * self._max_body and n_all > PART:
            self._metrics.rejected.labels("memory").inc()
            expected = f"expected bodies of {N_BODIES * self._max_body} bytes in all, got more"
            raise HTTPException(429, expected, headers={"Retry-After": "1", **CLOSE})

    def release(self, n_bytes: int) -> None:
        """Count bytes of a body that are not in memory any more."""
        self._n_bytes -= n_bytes

    async def within_time(self, receive: Receive, deadline: float) -> Message:
        """The next part of a body; refused if it does not come in time."""
        try:
            async with asyncio.timeout_at(deadline):
                return await receive()
        except TimeoutError:
            self._metrics.rejected.labels("slow").inc()
            rate = f"{MIN_RATE} bytes/s after {GRACE:g} s"
            expected = f"expected the body within {self._timeout:g} s and {rate}, got a part of it"
            raise HTTPException(408, expected, headers=CLOSE) from None

    def deadline(self, start: float, n_bytes: int) -> float:
        """When the next part of a body has to have come, by the clock of the event loop."""
        return start + min(self._timeout, GRACE + n_bytes / MIN_RATE)

    async def _write(self, message: Message, client: Address, send: Send) -> None:
        """Write an answer part by part, as the client reads it."""
        body, more = message["body"], message.get("more_body", False)
        try:
            async with asyncio.timeout(self._timeout):
                for start in range(0, len(body), PART):
                    self._connections.answers(client, len(body))  # whole until its last part
                    part, is_last = body[start : start + PART], start + PART >= len(body)
                    await send({**message, "body": part, "more_body": more or not is_last})
        except TimeoutError:
            self._connections.abort(client)
        finally:
            self._connections.answers(client, 0)

    def _too_large(self, length: int) -> JSONResponse:
        self._metrics.rejected.labels("body").inc()
        return JSONResponse({"detail": self._expected(length)}, 413, headers=CLOSE)

    def _expected(self, got: object) -> str:
        return f"expected a body of at most {self._max_body} bytes, got {got}"


class Room:
    """Room for answers that are being made, which would pile up where writing takes longest.

    Requests get in one after another, and clients take turns.

    Args:
        timeout: seconds that a request may wait for room.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout, self._n_made = timeout, 0
        self._first, self._is_changed = asyncio.Lock(), asyncio.Event()
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, n_answers: int, client: str) -> AsyncIterator[None]:
        """Have room for the answers of a request; a small one needs none.

        Args:
            n_answers: of the request.
            client: who asks.
        """
        if n_answers <= LARGE_ANSWER:
            yield
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._enter(n_answers, client)
        except TimeoutError:
            expected = f"expected room for {n_answers} answers within {self._timeout:g} s, got none"
            raise HTTPException(503, expected, headers={"Retry-After": "1"}) from None
        try:
            yield
        finally:
            self._n_made -= n_answers
            self._is_changed.set()

    async def _enter(self, n_answers: int, client: str) -> None:
        line = self._lines.setdefault(client, asyncio.Lock())
        async with line, self._first:
            while self._n_made and self._n_made + n_answers > MAX_MADE:
                self._is_changed.clear()
                await self._is_changed.wait()
            self._n_made += n_answers


class _Body:
    """The body of a request as it arrives."""

    def __init__(self, gate: Gate, receive: Receive) -> None:
        self._gate, self._receive = gate, receive
        self._start: float | None = None
        self._is_whole = False
        self._n_bytes = 0

    async def receive(self) -> Message:
        """The next message: a part of the body, or that the client has gone."""
        if self._is_whole:
            return await self._receive()
        if self._start is None:
            self._start = asyncio.get_running_loop().time()
        deadline = self._gate.deadline(self._start, self._n_bytes)
        message = await self._gate.within_time(self._receive, deadline)
        if message["type"] == "http.request":
            n_bytes = len(message.get("body", b""))
            self._n_bytes += n_bytes
            self._gate.take(n_bytes, self._n_bytes)
            self._is_whole = not message.get("more_body", False)
        return message

    def release(self) -> None:
        """The body is not in memory any more."""
        self._gate.release(self._n_bytes)
        self._n_bytes = 0


async def _answered(handler: Handler, request: Request) -> Response:
    try:
        return await handler(request)
    except HTTPException as error:
        return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


def _length_of(scope: Scope) -> int | None:
    """The Content-Length of a request; None without one that is a number."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None
