"""Gate: what every request passes. It bounds bodies in size and time, and counts requests.

The route that is asked for most is answered here, without the application: that takes half the
time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping

from fastapi import HTTPException, Request, Response
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from l2route.serve.connections import Connections
from l2route.serve.metrics import OTHER, Metrics

Handler = Callable[[Request], Awaitable[Response]]
"""Answers requests of one route."""
N_BODIES = 8
"""Largest bodies that may be in memory at a time."""
CLOSE = {"Connection": "close"}
"""Header of answers to bodies that are not read to their end."""


class Gate:
    """An application around another one.

    Args:
        app: the application inside.
        metrics: what is counted.
        connections: the connections of the server.
        max_body: largest body of a request in bytes.
        timeout: seconds that a body may take to arrive.
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
        self._connections.began(scope["client"])

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            length = _length_of(scope)
            if length is not None and length > self._max_body:
                await self._too_large(length)(scope, receive, noting)
            elif scope["method"] == "POST" and path in self._direct:
                response = await _answered(self._direct[path], Request(scope, body.receive))
                await response(scope, receive, noting)
            else:
                await self._app(scope, body.receive, noting)
        finally:
            self._n_bytes -= body.n_bytes
            self._connections.ended(scope["client"])
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
        if self._n_bytes > N_BODIES * self._max_body:
            self._metrics.rejected.labels("memory").inc()
            expected = f"expected bodies of {N_BODIES * self._max_body} bytes in all, got more"
            raise HTTPException(429, expected, headers={"Retry-After": "1", **CLOSE})

    async def within_time(self, receive: Receive, deadline: float) -> Message:
        """The next part of a body; refused if it does not come in time."""
        try:
            async with asyncio.timeout_at(deadline):
                return await receive()
        except TimeoutError:
            self._metrics.rejected.labels("slow").inc()
            expected = f"expected the body within {self._timeout:g} s, got a part of it"
            raise HTTPException(408, expected, headers=CLOSE) from None

    def deadline(self) -> float:
        """When a body that begins now has to have come, by the clock of the event loop."""
        return asyncio.get_running_loop().time() + self._timeout

    def _too_large(self, length: int) -> JSONResponse:
        self._metrics.rejected.labels("body").inc()
        return JSONResponse({"detail": self._expected(length)}, 413, headers=CLOSE)

    def _expected(self, got: object) -> str:
        return f"expected a body of at most {self._max_body} bytes, got {got}"


class _Body:
    """The body of a request as it arrives."""

    def __init__(self, gate: Gate, receive: Receive) -> None:
        self._gate, self._receive = gate, receive
        self._deadline: float | None = None
        self._is_whole = False
        self.n_bytes = 0

    async def receive(self) -> Message:
        """The next message: a part of the body, or that the client has gone."""
        if self._is_whole:
            return await self._receive()
        if self._deadline is None:
            self._deadline = self._gate.deadline()
        message = await self._gate.within_time(self._receive, self._deadline)
        if message["type"] == "http.request":
            n_bytes = len(message.get("body", b""))
            self.n_bytes += n_bytes
            self._gate.take(n_bytes, self.n_bytes)
            self._is_whole = not message.get("more_body", False)
        return message


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
