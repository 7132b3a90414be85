"""Access: who may change the index."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from l2route.serve.options import API_KEY, ServeOptions

BEARER = HTTPBearer(auto_error=False, description=f"The key in {API_KEY}.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]
Check = Callable[..., Awaitable[None]]


def check_of(options: ServeOptions) -> Check:
    """The check that requests to change the index have to pass.

    With a key: they have to carry it. Without: the server has to listen on loopback only, and a
    browser has to have the request from the server's own page.

    Args:
        options: address and key of the server.
    """
    if options.api_key is not None:
        return _key_check(options.api_key.encode())
    is_local = is_loopback(options.host)

    async def check(request: Request) -> None:
        if not is_local:
            expected = f"a server with a key in {API_KEY} to change the index from afar"
            raise HTTPException(403, f"expected {expected}, got one without")
        _check_origin(request)

    return check


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


def _check_origin(request: Request) -> None:
    """Refuse what a page of another site asks a browser on this machine to send."""
    host = request.headers.get("host", "")
    name = urlsplit(f"//{host}").hostname or ""
    if name != "localhost" and not _is_loopback_address(name):
        raise HTTPException(403, f"expected a Host of this machine, got {host!r}")
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{host}":
        raise HTTPException(403, f"expected a request of the server's own page, got {origin!r}")


def _is_loopback_address(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
