"""Messages of the server: the fields of JSON bodies and answers, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from l2route.search.guarantee import Guarantee

MAX_ID = 2**63 - 1
Id = Annotated[int, Field(ge=-MAX_ID - 1, le=MAX_ID)]
Vectors = list[float] | list[list[float]]
_STRICT = ConfigDict(strict=True, extra="forbid")


class SearchParameters(BaseModel):
    """What is asked of a search, beside its queries."""

    model_config = _STRICT

    k: Annotated[int, Field(ge=1, description="Answers per query.")] = 10
    recall: Annotated[
        float | None,
        Field(gt=0, le=1, description="Recall@k to reach, in place of budget, ef, slack, rerank."),
    ] = None
    guarantee: Annotated[
        Guarantee | None,
        Field(description="What reaches the recall: mean (the default), or p95, 95% of queries."),
    ] = None
    budget: Annotated[
        int | None, Field(ge=1, description="Distance computations per query, never exceeded.")
    ] = None
    ef: Annotated[int | None, Field(ge=1, description="Beam width.")] = None
    slack: Annotated[
        float | None,
        Field(ge=0, description="A walk ends at vertices 1 + slack times as far as the k-th best."),
    ] = None
    rerank: Annotated[
        int | None, Field(ge=0, description="True distances per query at the end.")
    ] = None
    space: Annotated[
        str | None, Field(description="Routing space; by default the index's last.")
    ] = None
    where: Annotated[
        list[Id] | None, Field(description="Ids that may be answers; by default all.")
    ] = None


class SearchRequest(SearchParameters):
    """A search."""

    queries: Annotated[Vectors, Field(description="One query, or several.")]


class AddRequest(BaseModel):
    """Vectors to add."""

    model_config = _STRICT

    vectors: Annotated[Vectors, Field(description="One vector, or several.")]
    ids: Annotated[
        list[Id] | None,
        Field(description="One per vector; by default the numbers after the largest so far."),
    ] = None
    labels: Annotated[
        list[str] | None, Field(description="Names of the vectors, one per vector.")
    ] = None


class UpdateRequest(BaseModel):
    """Ids that get new vectors."""

    model_config = _STRICT

    ids: Annotated[list[Id], Field(description="Ids of the index, one per vector.")]
    vectors: Annotated[Vectors, Field(description="One vector, or several.")]


class DeleteRequest(BaseModel):
    """Ids to delete."""

    model_config = _STRICT

    ids: Annotated[list[Id], Field(description="Ids of the index.")]


class Found(BaseModel):
    """Answers of a search, nearest first; fewer than k where fewer were found."""

    ids: list[list[int]]
    distances: list[list[float]]
    n_computed: Annotated[list[float], Field(description="Distance computations of each query.")]
    labels: Annotated[
        list[list[str | None]] | None, Field(description="Names of the ids, if the index has any.")
    ] = None


class Changed(BaseModel):
    """What a change did."""

    ids: Annotated[list[int], Field(description="Ids of the vectors that were changed.")]
    n_vectors: Annotated[int, Field(description="Vectors of the index after the change.")]
    saved: Annotated[bool, Field(description="Whether the change survives a crash.")]


class Problem(BaseModel):
    """Why a request was not answered."""

    detail: Annotated[str, Field(description="What was expected, and what came.")]


Message = TypeVar("Message", bound=BaseModel)


def read_json(kind: type[Message], body: bytes) -> Message:
    """Read a JSON body.

    Args:
        kind: the message expected.
        body: JSON.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from None


def read_parameters(query: Mapping[str, str]) -> SearchParameters:
    """Read what is asked for from a query string; ids are separated by commas."""
    fields: dict[str, Any] = dict(query)
    if "where" in fields:
        fields["where"] = fields["where"].split(",") if fields["where"] else []
    try:
        return SearchParameters.model_validate(fields, strict=False)
    except ValidationError as error:
        raise _refusal(error) from None


def with_parameters(asked: Message, query: Mapping[str, str]) -> Message:
    """A message with fields from a query string, where the message does not have them itself."""
    if not query:
        return asked
    given = read_parameters(query).model_dump(exclude_unset=True)
    others = {name: value for name, value in given.items() if name not in asked.model_fields_set}
    return asked.model_copy(update=others)


def _refusal(error: ValidationError) -> HTTPException:
    """The answer to a body that is no JSON (400) or not the message expected (422)."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return HTTPException(400, f"expected JSON, got {first['msg']}")
    place = ".".join(map(str, first["loc"])) or "the body"
    given = repr(first["input"])
    shown = given if len(given) <= 60 else f"{given[:60]}…"
    return HTTPException(422, f"expected {place} to be valid: {first['msg']}, got {shown}")
