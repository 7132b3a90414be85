"""The web page of the server: its files, and the endpoints that it asks."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from threading import BoundedSemaphore
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from l2route.explain.picture import MODULES, STYLE, drawing_file, payload
from l2route.search.limits import Limits
from l2route.serve.page_answers import MAX_BUDGET, Curves, about, explained, suggested
from l2route.serve.served import Served

MAX_K = 100
"""Largest k that the page may ask for."""
MAX_TEXT = 400_000
"""Longest text of a query, in characters: a vector of some 10,000 dimensions."""
MAX_TYPED = 200
"""Longest part of a label to suggest labels for, in characters."""
MAX_EF = 4096
"""Largest beam width and rerank that the page may ask for."""
MAX_AT_ONCE = 4
"""Walks that are explained at the same time; each scans all vectors for the true neighbours."""
PATIENCE = 10.0
"""Seconds that a request may wait for others before it is refused."""
OWN = {
    "page.js": "text/javascript",
    "suggest.js": "text/javascript",
    "page.css": "text/css",
    "icon.svg": "image/svg+xml",
}
"""Files of the page beside those of the drawing, and their media types."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Headers of the page: it loads from the server alone, and runs no script but its own."""


class ExplainRequest(BaseModel):
    """What the page asks for when a query is searched for."""

    model_config = ConfigDict(strict=True, extra="forbid")

    text: Annotated[str, Field(max_length=MAX_TEXT)]
    """A label, an id or a vector, as it was typed."""
    id: Annotated[str | None, Field(max_length=20, pattern=r"^-?\d+$")] = None
    """The id, if it was chosen from a list; as text, since JavaScript rounds large numbers."""
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 10
    budget: Annotated[int | None, Field(ge=1, le=MAX_BUDGET)] = None
    ef: Annotated[int | None, Field(ge=1, le=MAX_EF)] = None
    slack: Annotated[float | None, Field(ge=0, le=1)] = None
    rerank: Annotated[int | None, Field(ge=1, le=MAX_EF)] = None


def add_pages(app: FastAPI, served: Served) -> None:
    """Add the page, its files and its endpoints."""
    turns, curves = BoundedSemaphore(MAX_AT_ONCE), Curves(served)

    @app.get("/page/about", include_in_schema=False)
    def page_about() -> dict[str, Any]:
        return about(served)

    @app.get("/page/labels", include_in_schema=False)
    def page_labels(
        text: Annotated[str, Query(max_length=MAX_TYPED)],
    ) -> list[dict[str, str]]:
        return suggested(served, text)

    @app.get("/page/curve", include_in_schema=False)
    def page_curve(k: Annotated[int, Query(ge=1, le=MAX_K)] = 10) -> dict[str, Any]:
        return curves.of(k)

    @app.post("/page/explain", include_in_schema=False)
    def page_explain(asked: ExplainRequest) -> dict[str, Any]:
        if not turns.acquire(timeout=PATIENCE):
            raise HTTPException(503, "The server is busy with other walks: try again.")
        try:
            chosen = None if asked.id is None else int(asked.id)
            limits = Limits(asked.budget, asked.ef, asked.slack, asked.rerank)
            name, found = explained(served, asked.text, chosen, asked.k, limits)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        finally:
            turns.release()
        drawn = payload(found)
        del drawn["query"]  # nothing of it is drawn
        return {"name": name, "explanation": drawn}

    _add_files(app)  # the last: any name is a file


def _add_files(app: FastAPI) -> None:
    """Add the page and its files, which are read once."""
    own = files("l2route.serve").joinpath("page")
    drawing = {**dict.fromkeys(MODULES, "text/javascript"), STYLE: "text/css"}
    contents = {name: (own.joinpath(name).read_bytes(), kind) for name, kind in OWN.items()}
    contents |= {name: (drawing_file(name).encode(), kind) for name, kind in drawing.items()}
    add_page(app, "/", "/page", own.joinpath("index.html").read_bytes(), contents, HEADERS)


def add_page(
    app: FastAPI,
    path: str,
    folder: str,
    html: bytes,
    contents: Mapping[str, tuple[bytes, str]],
    headers: Mapping[str, str],
) -> None:
    """Add a page and its files; other names are refused.

    Args:
        app: the application.
        path: of the page.
        folder: path that the names of the files are appended to.
        html: the page.
        contents: content and media type of each file, by its name.
        headers: of the page and of all files.
    """

    @app.get(path, include_in_schema=False)
    async def page() -> Response:
        return Response(html, media_type="text/html", headers=headers)

    @app.get(f"{folder}/{{name}}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        if name not in contents:
            raise HTTPException(404, "expected a file of the page, got another name")
        content, kind = contents[name]
        return Response(content, media_type=kind, headers=headers)
