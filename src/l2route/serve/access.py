"""Access: who may change the index, and under which names it is read."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from l2route.serve.options import API_KEY, ServeOptions

BEARER = HTTPBearer(auto_error=False, description=f"The key in {API_KEY}.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]
Check = Callable[..., Awaitable[None]]
FORWARDED = re.compile(r"forwarded|x-forwarded-.*|x-real-ip|via")
"""Headers that a proxy adds to requests of others."""
OPEN = ("/health", "/ready")
"""Paths that may be asked for under any name of this machine."""


def check_of(options: ServeOptions) -> Check:
    """The check that requests to change the index have to pass.

    With a key: they have to carry it. Without: the server has to listen on loopback only, no proxy
    may have passed the request on, and a browser has to have it from the server's own page.

    Args:
        options: address and key of the server.
    """
    if options.api_key is not None:
        return _key_check(options.api_key.encode())
    is_local = is_loopback(options.host)

    async def check(request: Request) -> None:
        if not (is_local and _is_reached_locally(request.scope)):
            expected = f"a server with a key in {API_KEY} to change the index from afar"
            raise HTTPException(403, f"expected {expected}, got one without")
        _check_sender(request)

    return check


class HostCheck:
    """An application around another one: other sites do not read what loopback answers.

    A page of another site may have a name that resolves to this machine, so that a browser takes
    the server for a part of that site. Without a key, the server answers under its own names only.

    Args:
        app: the application inside.
        options: address and key of the server.
    """

    def __init__(self, app: ASGIApp, options: ServeOptions) -> None:
        self._app = app
        self._is_private = options.api_key is None and is_loopback(options.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse its Host."""
        if scope["type"] == "http" and scope["path"] not in OPEN:
            try:
                self.check(scope)
            except HTTPException as error:
                refusal = JSONResponse({"detail": error.detail}, error.status_code)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def check(self, scope: Scope) -> None:
        """Refuse a request to loopback under the name of another machine."""
        if self._is_private and _is_reached_locally(scope):
            _check_host(scope)


def _key_check(key: bytes) -> Check:
    async def check(credentials: Credentials) -> None:
        given = b"" if credentials is None else credentials.credentials.encode("latin-1")
        if not hmac.compare_digest(given, key):
            got = "none" if credentials is None else "another one"
            raise HTTPException(
                401,
                f"expected the key in the header Authorization: Bearer KEY, got {got}",
                headers={"WWW-Authenticate": "Bearer"},
            )

    return check


def is_loopback(host: str) -> bool:
    """Whether all addresses of a host are of this machine only."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = {str(info[4][0]).partition("%")[0] for info in found}
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def _is_reached_locally(scope: Scope) -> bool:
    """Whether the socket of a request has an address of this machine only."""
    server = scope.get("server")
    return server is not None and _is_local_name(str(server[0]))


def _check_host(scope: Scope) -> None:
    hosts = [str(value, "latin-1") for name, value in scope["headers"] if name == b"host"]
    for host in hosts or [""]:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:  # a broken IPv6 address
            name = ""
        if not _is_local_name(name):
            raise HTTPException(403, f"expected a Host of this machine, got {host!r:.80}")


def _check_sender(request: Request) -> None:
    """Refuse what a proxy passes on, or what a page of another site has a browser send."""
    _check_host(request.scope)
    for name in request.headers:
        if FORWARDED.fullmatch(name):
            expected = f"a key in {API_KEY} to change the index through a proxy"
            raise HTTPException(403, f"expected {expected}, got the header {name!r:.80} without")
    host, origin = request.headers["host"], request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{host}":
        raise HTTPException(403, f"expected a request of the server's own page, got {origin!r}")


def _is_local_name(name: str) -> bool:
    return name == "localhost" or _is_loopback_address(name)


def _is_loopback_address(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
