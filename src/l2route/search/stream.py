"""Searches without a fixed number of answers: pages, and all within a radius."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.vectors import as_array

Page = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Ids and distances, nearest first."""


class Stream(Iterator[Page]):
    """Answers to one query, page after page, from near to far; made by `RoutingIndex.stream`.

    No id comes twice. A page is sorted by distance; a later page may have answers that are nearer
    than the last of an earlier one, the fewer the larger `ef`. Everything that passes comes in the
    end. A stream keeps the buffers of the index as they were when it was made; of a living index it
    has vectors that are deleted later no more, and may have some that are added later.
    """

    def __init__(self, core: _core.Stream, page: int, reading: object = None) -> None:
        self._core, self._page, self._reading = core, page, reading

    def __next__(self) -> Page:
        ids, distances = self._core.next(self._page)
        if not len(ids):
            raise StopIteration
        return ids, distances


@dataclass(frozen=True, slots=True)
class RadiusResult:
    """Answers within a radius; query i has those from offsets[i] up to offsets[i + 1]."""

    offsets: NDArray[np.int64]
    """[n_queries + 1]"""
    ids: NDArray[np.int64]
    """Ids of the answers to all queries, those of one query nearest first [n_found]."""
    distances: NDArray[np.float32]
    """Their distances [n_found]."""

    def of(self, query: int) -> Page:
        """Ids and distances of one query's answers."""
        part = slice(self.offsets[query], self.offsets[query + 1])
        return self.ids[part], self.distances[part]


def check_radii(radius: object, n_queries: int) -> NDArray[np.float32]:
    """One radius for all queries, or one for each [n_queries], as float32."""
    given = as_array("radius", radius)
    if given.dtype.kind not in "fiu" or given.shape not in ((), (n_queries,)):
        got = f"{given.dtype} {list(given.shape)}"
        raise ValueError(f"expected a radius, or {n_queries}, one per query, got {got}")
    if np.isnan(given).any():
        raise ValueError("expected a radius, got NaN")
    radii: NDArray[np.float32] = np.broadcast_to(given, (n_queries,)).astype(np.float32)
    return radii
