"""The parts of the OpenAPI document that FastAPI cannot derive: bodies of several media types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Response
from pydantic import BaseModel

from l2route.serve.media import ARROW, JSON, NPY
from l2route.serve.messages import (
    AddRequest,
    Changed,
    DeleteRequest,
    Found,
    Problem,
    SearchParameters,
    SearchRequest,
    UpdateRequest,
)
from l2route.serve.options import ServeOptions

WHY = {
    400: "The body is broken.",
    401: "The key is missing or wrong.",
    403: "The request is not allowed: a change, or a foreign name of the server.",
    406: "No media type of answers is accepted.",
    408: "The body came too slowly.",
    409: "The saved index is not the one that is served.",
    413: "The body is too large.",
    415: "The media type of the body is unknown.",
    422: "The body is not what was expected.",
    429: "Too many requests wait; come again after Retry-After.",
    503: "The server has no time, or ends.",
}
"""When each status is answered."""
BINARY = {"schema": {"type": "string", "format": "binary"}}
BODY = (400, 408, 413, 415, 422, 429, 503)
"""Statuses of all routes with a body."""


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The statuses of a route beside 200."""
    return {status: {"model": Problem, "description": WHY[status]} for status in statuses}


def describe_search(dim: int, options: ServeOptions) -> dict[str, Any]:
    """Arguments of FastAPI's route that describe `/search`.

    Args:
        dim: dimension of the queries.
        options: limits of the server.
    """
    body = _fitted(SearchRequest, "queries", dim, options)
    parameters = [
        {"name": name, "in": "query", "required": False, "schema": _in_query(name, schema)}
        for name, schema in _fitted(SearchParameters, None, dim, options)["properties"].items()
    ]
    return {
        "response_class": Response,  # without a media type of its own
        "responses": {
            200: {
                "description": "The answers.",
                "content": {
                    JSON: {"schema": Found.model_json_schema()},
                    NPY: BINARY,
                    ARROW: BINARY,
                },
            },
            **responses(*BODY, 403, 406),
        },
        "openapi_extra": {
            "parameters": parameters,
            "requestBody": _request(body, {"queries": _vector(dim)}),
        },
    }


def describe_changes(name: str, dim: int, options: ServeOptions) -> dict[str, Any]:
    """Arguments of FastAPI's route that describe `/add`, `/update` or `/delete`.

    Args:
        name: of the route.
        dim: dimension of the vectors.
        options: limits of the server.
    """
    kinds: Mapping[str, type[BaseModel]] = {
        "add": AddRequest,
        "update": UpdateRequest,
        "delete": DeleteRequest,
    }
    vectors = None if name == "delete" else "vectors"
    body = _fitted(kinds[name], vectors, dim, options)
    examples: Mapping[str, Mapping[str, Any]] = {
        "add": {"vectors": _vector(dim)},
        "update": {"ids": [0], "vectors": [_vector(dim)]},
        "delete": {"ids": [0]},
    }
    request = _request(body, examples[name], with_npy=name != "update")
    return {
        "response_model": Changed,
        "responses": responses(*BODY, 401, 403, 409),
        "openapi_extra": {"requestBody": request},
    }


def _vector(dim: int) -> list[float]:
    """An example of a vector: of length 1, for any metric."""
    return [1.0, *[0.0] * (dim - 1)]


def _request(
    body: dict[str, Any], example: Mapping[str, Any], with_npy: bool = True
) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": body, "example": example}, ARROW: BINARY}
    if with_npy:
        content[NPY] = BINARY
    return {"required": True, "content": content}


def _fitted(
    kind: type[BaseModel], vectors: str | None, dim: int, options: ServeOptions
) -> dict[str, Any]:
    """The schema of a message, with the dimension of the index and the limits of the server."""
    schema = kind.model_json_schema()
    fields = schema["properties"]
    if vectors is not None:
        vector = {
            "type": "array",
            "items": {"type": "number"},
            "minItems": dim,
            "maxItems": dim,
        }
        several = {"type": "array", "items": vector, "minItems": 1, "maxItems": options.max_rows}
        fields[vectors].pop("anyOf")
        fields[vectors]["anyOf"] = [vector, several]
    if "k" in fields:
        fields["k"]["maximum"] = options.max_k
    for name in ("budget", "ef", "rerank"):
        if name in fields:
            fields[name]["anyOf"][0]["maximum"] = options.max_budget
    if "where" in fields:
        fields["where"]["anyOf"][0]["maxItems"] = options.max_ids
    return schema


def _in_query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field in a query string, where there is no null and lists are texts."""
    if name == "where":
        return {"type": "string", "pattern": r"^(-?[0-9]{1,18}(,-?[0-9]{1,18})*)?$"}
    kinds = schema.get("anyOf", [schema])
    return {**kinds[0], **({"default": schema["default"]} if schema.get("default") else {})}
