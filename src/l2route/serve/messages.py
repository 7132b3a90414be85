"""Messages of the server: the fields of JSON bodies and answers, and how they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import HTTPException
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from l2route import _core
from l2route.search.guarantee import Guarantee

MAX_ID = 2**63 - 1
Id = Annotated[int, Field(ge=-MAX_ID - 1, le=MAX_ID)]
Vectors = list[float] | list[list[float]]
_STRICT = ConfigDict(strict=True, extra="forbid")
_FLOATS, _INTEGERS, _TEXTS = ["queries", "vectors"], ["ids", "where"], "labels"
MAX_REST = 65_536
"""Bytes of a JSON body beside lists of numbers and labels."""
Arrays = dict[str, NDArray[Any]]
"""Lists of a JSON body, by the names of their fields."""


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


def read_json(
    kind: type[BaseModel], body: bytes, most_labels: int = 0
) -> tuple[SearchParameters, Arrays, list[str] | None]:
    """Read a JSON body; it takes a few times its bytes, and the first fault ends it.

    Args:
        kind: the message expected.
        body: JSON.
        most_labels: labels that there may be.

    Returns:
        What is asked for beside lists, lists of numbers by their names, and labels.
    """
    try:
        rest, arrays = _core.json_arrays(body, _FLOATS, _INTEGERS, _TEXTS, most_labels)
        spans = arrays.pop(_TEXTS, None)
        labels = None if spans is None else _texts_of(body, spans)
    except SyntaxError as error:
        raise HTTPException(400, str(error)) from None
    except ValueError as error:
        raise HTTPException(422, str(error)) from None
    if len(rest) > MAX_REST:
        expected = f"expected at most {MAX_REST} bytes beside numbers and labels"
        raise HTTPException(422, f"{expected}, got {len(rest)}")
    given = {*arrays, *([_TEXTS] if labels is not None else [])}
    fields = kind.model_fields
    lacking = [name for name in fields if fields[name].is_required() and name not in given]
    if unknown := sorted(given - fields.keys()):
        raise HTTPException(422, f"expected no {unknown[0]}, got some")
    asked = _rest_of(kind, rest)
    if lacking:
        raise HTTPException(422, f"expected {lacking[0]} as lists of numbers, got none")
    return asked, arrays, labels


def _texts_of(body: bytes, spans: NDArray[Any]) -> list[str]:
    pairs = spans.reshape(-1, 2).tolist()
    try:
        return [json.loads(body[begin:end]) for begin, end in pairs]
    except ValueError as error:  # an escape that there is not
        raise SyntaxError(f"expected labels of JSON, got {error}") from None


def _rest_of(kind: type[BaseModel], rest: bytes) -> SearchParameters:
    """What is asked for beside lists; lists may only be null, where they may be left out."""
    try:
        whole = json.loads(rest)
    except ValueError as error:
        raise HTTPException(400, f"expected JSON, got {error}") from None
    nulls = {name for name, field in kind.model_fields.items() if not field.is_required()}
    fields = {k: v for k, v in whole.items() if v is not None or k not in nulls}
    if issubclass(kind, SearchParameters):
        for name in kind.model_fields.keys() - SearchParameters.model_fields.keys():
            if name in fields:
                got = f"{fields[name]!r:.60}"
                raise HTTPException(422, f"expected {name} as lists of numbers, got {got}")
        return _validated(fields)
    for name, value in fields.items():
        known = "as a list" if name in kind.model_fields else "only among known fields"
        raise HTTPException(422, f"expected {name} {known}, got {value!r:.60}")
    return SearchParameters()


def _validated(fields: Mapping[str, Any], *, strict: bool = True) -> SearchParameters:
    try:
        return SearchParameters.model_validate(fields, strict=strict)
    except ValidationError as error:
        raise _refusal(error) from None


def read_parameters(query: Mapping[str, str]) -> SearchParameters:
    """Read what is asked for from a query string; ids are separated by commas."""
    fields: dict[str, Any] = dict(query)
    if "where" in fields:
        fields["where"] = fields["where"].split(",") if fields["where"] else []
    return _validated(fields, strict=False)


def with_parameters(asked: SearchParameters, query: Mapping[str, str]) -> SearchParameters:
    """A message with fields from a query string, where the message does not have them itself."""
    if not query:
        return asked
    given = read_parameters(query).model_dump(exclude_unset=True)
    others = {name: value for name, value in given.items() if name not in asked.model_fields_set}
    return asked.model_copy(update=others)


def _refusal(error: ValidationError) -> HTTPException:
    """The answer to what is not the message expected."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"])) or "the body"
    given = repr(first["input"])  # of at most MAX_REST bytes
    shown = given if len(given) <= 60 else f"{given[:60]}…"
    return HTTPException(422, f"expected {place} to be valid: {first['msg']}, got {shown}")
