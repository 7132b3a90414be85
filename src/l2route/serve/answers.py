"""Answers of searches as bodies, whatever their media type."""

from __future__ import annotations

from pydantic_core import to_json

from l2route.data.labels import Labels
from l2route.search.result import SearchResult
from l2route.serve.arrow import write_arrow
from l2route.serve.media import ARROW, JSON, Media
from l2route.serve.npy import write_npy


def write_answers(media: Media, result: SearchResult, labels: Labels | None) -> bytes:
    """Write the answers of a search.

    JSON has as many answers as were found. npy and Arrow have k, with id −1 and distance inf where
    fewer were found; npy has no labels.

    Args:
        media: media type of the answer.
        result: the answers.
        labels: names of ids; None for none.
    """
    if media not in (JSON, ARROW):
        return write_npy(result.ids, result.distances)
    if media == ARROW:
        names = None if labels is None else [labels.names(ids) for ids in result.ids]
        return write_arrow(result.ids, result.distances, names)
    ids, distances = result.ids.tolist(), result.distances.tolist()
    if result.ids.size and (result.ids[:, -1] == -1).any():
        found = (result.ids != -1).sum(axis=1).tolist()
        ids = [row[:n] for row, n in zip(ids, found, strict=True)]
        distances = [row[:n] for row, n in zip(distances, found, strict=True)]
    answer = {"ids": ids, "distances": distances, "n_computed": result.n_computed.tolist()}
    if labels is not None:
        answer["labels"] = [labels.names(row) if row else [] for row in ids]
    return to_json(answer)
