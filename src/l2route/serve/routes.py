"""Routes of the server: search, changes, and what is known about the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import ClientDisconnect

from l2route.serve.access import HostCheck, check_of
from l2route.serve.answers import write_answers
from l2route.serve.bodies import Change, read_add, read_delete, read_search, read_update
from l2route.serve.engine import Engine
from l2route.serve.gate import LARGE_ANSWER, Handler
from l2route.serve.media import accepted, media_of
from l2route.serve.messages import Changed
from l2route.serve.schema import describe_changes, describe_search, responses
from l2route.serve.served import Ids

LARGE_BODY = 100_000
"""Bytes of a body from which it is read outside of the event loop."""
CHANGES: list[str | Enum] = ["changes"]
STATUS: list[str | Enum] = ["status"]
T = TypeVar("T")


def add_search(app: FastAPI, engine: Engine) -> Handler:
    """Add the route of searches, and return what answers it.

    Whatever is asked of the application has to pass the check of its Host.
    """
    options, served = engine.options, engine.served
    hosts = HostCheck(app, options)
    app.add_middleware(HostCheck, options)

    @app.post("/search", tags=["search"], **describe_search(served.index.dim, options))
    async def search(request: Request) -> Response:
        """Find the k nearest neighbours of each query.

        A JSON body has the queries and what is asked for. A body of npy (an array [n, dim]) or of
        an Arrow stream (a column `vector`) has the queries only; what is asked for is in the query
        string, where ids are separated by commas. The answer has the type of the body unless
        `Accept` names another. npy: an array [n, k] with the fields `id` and `distance`. Arrow:
        columns `ids`, `distances` and `labels`. Ids in `where` that the index does not have are
        ignored.
        """
        hosts.check(request.scope)  # also where this is asked without the application
        media = media_of(_header(request, b"content-type"))
        wanted = accepted(_header(request, b"accept"), media)
        body = await _body_of(request)
        query = request.query_params if request.scope["query_string"] else {}
        asked = await _outside(
            len(body) > LARGE_BODY,
            lambda: read_search(media, body, query, served.index.dim, options),
        )
        client = _client_of(request)
        async with engine.room.of(len(asked.rows) * asked.ask.k, client):
            result = await engine.search(*asked, client)
            content = await _outside(
                result.ids.size > LARGE_ANSWER, lambda: write_answers(wanted, result, served.labels)
            )
        return Response(content, media_type=wanted)

    return search


def add_changes(app: FastAPI, engine: Engine) -> None:
    """Add the routes that change the index."""
    options, served = engine.options, engine.served
    check, dim = [Depends(check_of(options))], served.index.dim

    @app.post("/add", tags=CHANGES, dependencies=check, **describe_changes("add", dim, options))
    async def add(request: Request) -> Changed:
        """Add vectors under ids that the index does not have; all or none.

        Arrow: columns `vector`, and optionally `id` and `label`. npy: vectors [n, dim] alone. With
        `saved` true the change survives a crash.
        """
        given: Change = await _read_change(request, read_add, engine)
        work = partial(served.add, given.vectors, given.ids, given.labels)
        return await _changed(engine, "add", work)

    @app.post(
        "/update", tags=CHANGES, dependencies=check, **describe_changes("update", dim, options)
    )
    async def update(request: Request) -> Changed:
        """Give ids of the index new vectors; all or none. Arrow: columns `id` and `vector`."""
        given: Change = await _read_change(request, read_update, engine)
        assert given.ids is not None
        work = partial(served.update, given.ids, given.vectors)
        return await _changed(engine, "update", work)

    @app.post(
        "/delete", tags=CHANGES, dependencies=check, **describe_changes("delete", dim, options)
    )
    async def delete(request: Request) -> Changed:
        """Delete vectors by their ids; all or none. Arrow: a column `id`; npy: ids [n]."""
        ids = await _read_change(request, read_delete, engine)
        return await _changed(engine, "delete", partial(served.delete, ids))


async def _changed(engine: Engine, name: str, work: Callable[[], Ids]) -> Changed:
    """Make a change, and say what it did."""
    ids = await engine.change(work)
    engine.metrics.changed.labels(name).inc(len(ids))
    return Changed(ids=ids.tolist(), n_vectors=len(engine.served.index), saved=True)


def add_upkeep(app: FastAPI, engine: Engine) -> None:
    """Add the routes that save and reload the index."""
    served = engine.served
    check = [Depends(check_of(engine.options))]
    refusals = responses(401, 403, 409, 429, 503)

    @app.post("/save", tags=CHANGES, dependencies=check, responses=refusals)
    async def save() -> dict[str, int]:
        """Save the index, and empty its journal."""
        await engine.change(lambda: served.save(follows=engine.options.reload))
        return {"n_vectors": len(served.index)}

    @app.post("/reload", tags=CHANGES, dependencies=check, responses=refusals)
    async def reload() -> dict[str, bool | int]:
        """Serve the newer save of the index, if there is one, with the changes made here."""
        is_newer = await engine.call(served.reload)
        return {"reloaded": is_newer, "n_vectors": len(served.index)}


def add_status(app: FastAPI, engine: Engine) -> None:
    """Add the routes that tell how the server is."""

    @app.get("/info", tags=STATUS)
    async def info() -> dict[str, Any]:
        """Size, metric, spaces and settings of the index, and the limits of the server."""
        return _info(engine)

    @app.get("/health", tags=STATUS, responses=responses(503))
    async def health() -> dict[str, str | dict[str, str]]:
        """Whether the server works: its threads run. What fails in the background is named."""
        if not (engine.batcher.is_alive and engine.writer.is_alive):
            raise HTTPException(503, "expected all threads to run, got one that ended")
        failing = dict(engine.troubles.failing)
        return {"status": "ok", "failing": failing} if failing else {"status": "ok"}

    @app.get("/ready", tags=STATUS, responses=responses(503))
    async def ready() -> dict[str, str]:
        """Whether the server takes requests: it has started, and its queue is not full."""
        if not engine.is_ready or engine.batcher.n_waiting >= engine.options.max_queue:
            raise HTTPException(503, "expected room for requests, got a full queue or the end")
        return {"status": "ready"}

    @app.get(
        "/metrics",
        tags=STATUS,
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(engine.metrics.page(), media_type=CONTENT_TYPE_LATEST)


def _info(engine: Engine) -> dict[str, Any]:
    served, options = engine.served, engine.options
    index = served.index
    settings = [
        {
            "space": each.space,
            "k": each.k,
            "recall": each.target,
            "guarantee": each.guarantee,
            "measured": each.recall,
        }
        for each in index.settings
        if each.share == 1.0
    ]
    return {
        "n_vectors": len(index),
        "dim": index.dim,
        "metric": index.searcher().base.metric,
        "spaces": list(index.space_names),
        "settings": settings,
        "n_bytes": index.n_bytes,
        "labelled": served.labels is not None,
        "unsaved_changes": served.has_changes,
        "n_reloads": served.n_reloads,
        "default_recall": options.recall,
        "max_k": options.max_k,
        "max_rows": options.max_rows,
        "max_ids": options.max_ids,
        "max_body_bytes": options.max_body,
    }


def _header(request: Request, name: bytes) -> str | None:
    """A header; read from the scope, as an object for all headers takes longer to make."""
    for key, value in request.scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def _client_of(request: Request) -> str:
    """The address of a client, with which it takes turns; all behind a proxy are one."""
    client = request.scope.get("client")
    return "" if client is None else str(client[0])


async def _body_of(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect:
        raise HTTPException(400, "expected a whole body, got a part of it") from None


async def _read_change(request: Request, read: Callable[..., T], engine: Engine) -> T:
    media = media_of(_header(request, b"content-type"))
    if request.query_params:
        got = next(iter(request.query_params))
        raise HTTPException(422, f"expected no query string, got {got!r}")
    body = await _body_of(request)
    return await _outside(len(body) > LARGE_BODY, lambda: read(media, body, engine.options))


async def _outside(is_long: bool, work: Callable[[], T]) -> T:
    """Do work, outside of the event loop if it takes long."""
    return await asyncio.to_thread(work) if is_long else work()
