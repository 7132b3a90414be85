"""A server that runs in this process until it is told to end."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable

import uvicorn

from l2route.serve.app import app_of
from l2route.serve.engine import Engine
from l2route.serve.options import ServeOptions
from l2route.serve.served import Served

BACKLOG = 1024
"""Connections that the system may hold before they are accepted."""
UNSENT = 131_072
"""Bytes of answers that the system may hold of a connection before they are sent."""


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
            http=engine.connections.protocol,  # type: ignore[arg-type] # a factory will do
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


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens on the first address of a host."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise OSError(f"expected a host that has an address, got {host!r}: {error}") from None
    try:
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise OSError(f"expected an address that is free, got {host}:{port}: {error}") from None
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
    return listener
