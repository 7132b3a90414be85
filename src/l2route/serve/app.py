"""The application: all routes of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from l2route.serve.engine import Engine
from l2route.serve.gate import Gate
from l2route.serve.openapi_page import add_openapi_page
from l2route.serve.options import ServeOptions
from l2route.serve.pages import add_pages
from l2route.serve.routes import add_changes, add_search, add_status, add_upkeep
from l2route.serve.served import Served


def create_app(served: Served, options: ServeOptions) -> FastAPI:
    """Make the application that answers requests from an index.

    Args:
        served: the index.
        options: limits, time-outs and what is logged.
    """
    return app_of(Engine(served, options))


def app_of(engine: Engine, *, has_page: bool = True) -> FastAPI:
    """Make the application around the parts that answer requests.

    Args:
        engine: the parts.
        has_page: whether there is a page, which needs the vectors in this process.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        try:
            yield
        finally:
            await engine.close()

    app = FastAPI(
        title="l2route",
        version=version("l2route"),
        summary="Graph nearest-neighbour search that learns from queries.",
        docs_url=None,  # FastAPI's own page loads scripts from the network
        redoc_url=None,
        lifespan=lifespan,
    )
    search = add_search(app, engine)
    for add in (add_changes, add_upkeep, add_status):
        add(app, engine)
    add_openapi_page(app)
    if has_page:
        add_pages(app, engine.served)
    app.exception_handler(RequestValidationError)(_refuse)
    app.exception_handler(StarletteHTTPException)(_answer)
    app.add_middleware(
        Gate,
        metrics=engine.metrics,
        connections=engine.connections,
        max_body=engine.options.max_body,
        timeout=engine.options.timeout,
        routes={getattr(route, "path", "") for route in app.routes},
        direct={"/search": search},
    )
    return app


async def _answer(request: Request, error: Exception) -> JSONResponse:
    """Answer to a request that was refused; for paths and methods that there are not, say so."""
    assert isinstance(error, StarletteHTTPException)
    detail = error.detail
    if error.status_code == 404 and detail == "Not Found":
        detail = f"expected a path of /docs, got {request.url.path}"
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        detail = f"expected {allowed} for {request.url.path}, got {request.method}"
    return JSONResponse({"detail": detail}, error.status_code, error.headers)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    """Answer to a request whose parameters are not what was expected."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    detail = f"expected {place} to be valid: {first['msg']}, got {first.get('input')!r:.60}"
    return JSONResponse({"detail": detail}, 422)
