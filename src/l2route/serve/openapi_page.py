"""The page of the OpenAPI document: Swagger UI, whose files come from a package, not a network."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI

from l2route.serve.pages import HEADERS, add_page

SWAGGER = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
"""Files of Swagger UI in the package fastapi-offline, and their media types."""
OWN = {"openapi.js": "text/javascript"}
"""Files of our own, and their media types."""
HEADERS_OF_SWAGGER = HEADERS | {
    "Content-Security-Policy": HEADERS["Content-Security-Policy"].replace(
        "style-src 'self'; img-src 'self'", "style-src 'self' 'unsafe-inline'; img-src 'self' data:"
    )
}
"""Headers of the page: as of the other page, but Swagger UI sets styles and draws icons inline."""


def add_openapi_page(app: FastAPI) -> None:
    """Add the page `/docs`, on which requests can be tried, and its files, which are read once."""
    own = files("l2route.serve").joinpath("page")
    swagger = files("fastapi_offline").joinpath("static")
    contents = {name: (own.joinpath(name).read_bytes(), kind) for name, kind in OWN.items()}
    contents |= {
        name: (swagger.joinpath(name).read_bytes(), kind) for name, kind in SWAGGER.items()
    }
    html = own.joinpath("openapi.html").read_bytes()
    add_page(app, "/docs", "/docs", html, contents, HEADERS_OF_SWAGGER)
