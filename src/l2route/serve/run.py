"""A server that runs in this process until it is told to end."""

from __future__ import annotations

import importlib.util
import math
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from l2route.serve.app import app_of
from l2route.serve.engine import Engine
from l2route.serve.options import ServeOptions
from l2route.serve.served import Served

BACKLOG = 1024
"""Connections that the system may hold before they are accepted."""


def run(served: Served, options: ServeOptions, on_started: Callable[[str], None]) -> None:
    """Serve an index until SIGTERM or SIGINT, and finish what was taken before.

    Args:
        served: the index.
        options: address, limits and time-outs.
        on_started: called with the address, when connections are taken.
    """
    engine = Engine(served, options)
    with _listening(options.host, options.port) as listener:
        host, port = listener.getsockname()[:2]
        config = uvicorn.Config(
            app_of(engine),
            http=engine.connections.protocol(_http()),  # type: ignore[arg-type] # a factory will do
            ws="none",
            lifespan="on",
            access_log=False,
            log_level="warning",
            proxy_headers=False,  # connections are known by their own addresses
            server_header=False,
            timeout_keep_alive=math.ceil(options.timeout),
            timeout_graceful_shutdown=math.ceil(2 * options.timeout),
        )
        server = uvicorn.Server(config)
        on_started(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        server.run(sockets=[listener])


def _http() -> Any:
    """The protocol of uvicorn: the one by httptools where that is installed, as it is faster."""
    if importlib.util.find_spec("httptools") is not None:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

        return HttpToolsProtocol
    from uvicorn.protocols.http.h11_impl import H11Protocol

    return H11Protocol


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens on the first address of a host."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise OSError(f"expected a host that has an address, got {host!r}: {error}") from None
    try:
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise OSError(f"expected an address that is free, got {host}:{port}: {error}") from None
