"""Bodies of requests as arrays, whatever their media type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from fastapi import HTTPException
from numpy.typing import NDArray

from l2route.search.limits import DEFAULT_BUDGET, Limits
from l2route.search.searcher import check_queries
from l2route.serve.arrow import read_arrow
from l2route.serve.batcher import Ask
from l2route.serve.media import ARROW, JSON, Media
from l2route.serve.messages import (
    AddRequest,
    DeleteRequest,
    SearchParameters,
    SearchRequest,
    UpdateRequest,
    read_json,
    read_parameters,
    with_parameters,
)
from l2route.serve.npy import read_npy
from l2route.serve.options import ServeOptions

MAX_ANSWERS = 1_000_000
"""Most answers of a request, over all of its queries."""


class Search(NamedTuple):
    """A search as a request asked for it."""

    rows: NDArray[np.float32]
    ask: Ask
    where: NDArray[np.int64] | None


class Change(NamedTuple):
    """A change as a request asked for it."""

    vectors: Any
    ids: NDArray[np.int64] | None
    labels: list[str] | None


def read_search(
    media: Media, body: bytes, query: Mapping[str, str], dim: int, options: ServeOptions
) -> Search:
    """Read and check a search.

    Args:
        media: media type of the body.
        body: queries, and in JSON what is asked for.
        query: what is asked for, by the query string.
        dim: dimension of the queries.
        options: limits of the server.
    """
    given: Any
    if media == JSON:
        found, arrays, _ = read_json(SearchRequest, body)
        if "where" in arrays:
            found = found.model_copy(update={"where": arrays["where"]})
        asked, given = with_parameters(found, query), arrays["queries"]
    else:
        asked, given = read_parameters(query), _vectors_of(media, body)
    try:
        rows = check_queries(given, dim)
    except ValueError as error:
        raise HTTPException(422, str(error)) from None
    _check_counts(len(rows), asked, options)
    limits = Limits(asked.budget, asked.ef, asked.slack, asked.rerank)
    recall = asked.recall
    if recall is None and limits == Limits():
        recall = options.recall
    _check_work(len(rows), limits, recall, options)
    given_ids = _as_ids(asked.where)
    where = None if given_ids is None else np.unique(given_ids)
    guarantee = asked.guarantee
    if guarantee is not None and recall is None:
        raise HTTPException(422, f"expected a guarantee with a recall, got {guarantee!r} without")
    return Search(rows, Ask(asked.k, limits, recall, asked.space, guarantee), where)


def read_add(media: Media, body: bytes, options: ServeOptions) -> Change:
    """Read vectors to add, and check their number."""
    if media == JSON:
        _, arrays, labels = read_json(AddRequest, body, options.max_rows)
        change = Change(arrays["vectors"], _as_ids(arrays.get("ids")), labels)
    elif media == ARROW:
        columns = _columns(body, "vector")
        change = Change(columns["vector"], _as_ids(columns.get("id")), columns.get("label"))
    else:
        change = Change(read_npy(body), None, None)
    return _checked_rows(change, options)


def read_update(media: Media, body: bytes, options: ServeOptions) -> Change:
    """Read ids and their new vectors, and check their number."""
    if media == JSON:
        _, arrays, _ = read_json(UpdateRequest, body)
        change = Change(arrays["vectors"], _as_ids(arrays["ids"]), None)
    elif media == ARROW:
        columns = _columns(body, "vector", "id")
        change = Change(columns["vector"], _as_ids(columns["id"]), columns.get("label"))
    else:
        raise HTTPException(415, f"expected ids and vectors as {JSON} or {ARROW}, got {media}")
    if change.labels is not None:
        raise HTTPException(422, "expected columns id and vector, got label too")
    return _checked_rows(change, options)


def read_delete(media: Media, body: bytes, options: ServeOptions) -> NDArray[np.int64]:
    """Read ids to delete, and check their number."""
    if media == JSON:
        ids = _as_ids(read_json(DeleteRequest, body)[1]["ids"])
    elif media == ARROW:
        columns = _columns(body, "id")
        if len(columns) > 1:
            raise HTTPException(422, f"expected a column id, got {', '.join(columns)}")
        ids = _as_ids(columns["id"])
    else:
        ids = _as_ids(read_npy(body))
    assert ids is not None
    if len(ids) > options.max_ids:
        raise HTTPException(422, f"expected at most {options.max_ids} ids, got {len(ids)}")
    return ids


def _columns(body: bytes, *needed: str) -> dict[str, Any]:
    columns = read_arrow(body)
    for name in needed:
        if name not in columns:
            raise HTTPException(422, f"expected a column {name}, got {', '.join(columns)}")
    return columns


def _vectors_of(media: Media, body: bytes) -> NDArray[Any]:
    """The queries of a body that holds nothing else."""
    if media != ARROW:
        return read_npy(body)
    columns = _columns(body, "vector")
    if len(columns) > 1:
        raise HTTPException(422, f"expected a column vector, got {', '.join(columns)}")
    rows: NDArray[Any] = columns["vector"]
    return rows


def _as_ids(ids: object) -> NDArray[np.int64] | None:
    if ids is None:
        return None
    given = np.atleast_1d(np.asarray(ids))
    if not given.size:
        return np.zeros(0, dtype=np.int64)
    is_too_large = given.dtype == np.uint64 and given.max() > np.iinfo(np.int64).max
    if given.dtype.kind not in "iu" or given.ndim != 1 or is_too_large:
        raise HTTPException(422, f"expected ids [n] of int64, got {given.dtype} {given.shape}")
    return given.astype(np.int64)


def _check_counts(n_rows: int, asked: SearchParameters, options: ServeOptions) -> None:
    """Refuse what is more than the server allows."""
    if n_rows > options.max_rows:
        raise HTTPException(422, f"expected at most {options.max_rows} queries, got {n_rows}")
    if asked.k > options.max_k:
        raise HTTPException(422, f"expected k of at most {options.max_k}, got {asked.k}")
    if n_rows * asked.k > MAX_ANSWERS:
        got = f"{n_rows} queries with k={asked.k}"
        raise HTTPException(422, f"expected at most {MAX_ANSWERS} answers, got {got}")
    for name in ("budget", "ef", "rerank"):
        value = getattr(asked, name)
        if value is not None and value > options.max_budget:
            raise HTTPException(
                422, f"expected {name} of at most {options.max_budget}, got {value}"
            )
    if asked.where is not None and len(asked.where) > options.max_ids:
        got = f"{len(asked.where)} in where"
        raise HTTPException(422, f"expected at most {options.max_ids} ids, got {got}")


def _check_work(n_rows: int, limits: Limits, recall: float | None, options: ServeOptions) -> None:
    """Refuse more distance computations than a request may ask for."""
    has_default = recall is None and limits.is_budgeted
    usual = min(DEFAULT_BUDGET, options.max_budget) if has_default else 1
    most = max(limits.budget or usual, limits.ef or 0, limits.rerank or 0)
    if n_rows * most > options.max_work:
        expected = f"rows × budget of at most {options.max_work} distance computations in a request"
        raise HTTPException(422, f"expected {expected}, got {n_rows} × {most}")


def _checked_rows(change: Change, options: ServeOptions) -> Change:
    try:
        rows = np.asarray(change.vectors)
    except ValueError:
        raise HTTPException(422, "expected vectors of one length, got several") from None
    n_rows = len(rows) if rows.ndim > 1 else 1
    if n_rows > options.max_rows:
        raise HTTPException(422, f"expected at most {options.max_rows} vectors, got {n_rows}")
    return change._replace(vectors=rows)
