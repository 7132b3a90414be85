"""Means over the neighbourhoods of some vertices, gathered from the rows and lists of all."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.search.base import BaseVectors

GATHERED = 2**17
"""Values of neighbours that are gathered at a time."""


def neighborhood_means(
    base: BaseVectors, lists: NDArray[np.int32], slots: NDArray[np.integer[Any]], n_hops: int
) -> list[NDArray[np.float32]]:
    """x, A·x, …, A^n_hops·x of some vertices, where A is the mean over a vertex and its neighbours.

    A neighbour that is listed twice counts twice.

    Args:
        base: vectors of all vertices.
        lists: neighbours of all vertices, −1 where there is none [at least n, width].
        slots: the vertices [m].
        n_hops: number of means over means.

    Returns:
        n_hops + 1 arrays [m, dim].
    """
    wanted = [np.unique(slots)]  # vertices whose A^n_hops·x is wanted; then one hop less, …
    for _ in range(n_hops - 1):
        near = lists[wanted[-1]]
        wanted.append(np.unique(np.concatenate([wanted[-1], near[near >= 0]])))
    found = [base.rows[slots].astype(np.float32, copy=False)]
    known, values = None, base.rows
    for ids in reversed(wanted[:n_hops]):
        values = _means(values, _places(ids, lists[ids], known))
        known = ids
        found.append(values[np.searchsorted(known, slots)])
    return [mean[:, : base.dim] for mean in found]


def _places(
    ids: NDArray[np.integer[Any]],
    near: NDArray[np.int32],
    known: NDArray[np.integer[Any]] | None,
) -> NDArray[np.integer[Any]]:
    """Rows of vertices and of their neighbours among known ones; −1 for no neighbour [u, 1 + w]."""
    together = np.concatenate([ids[:, None], near], axis=1)
    if known is None:
        return together
    return np.where(together < 0, -1, np.searchsorted(known, together))


def _means(values: NDArray[Any], places: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    """Means of rows of values, float32 [u, padded]; places of −1 are left out."""
    used = places >= 0
    weights = used.astype(np.float32)
    weights /= weights.sum(axis=1, keepdims=True)
    places = np.where(used, places, places[:, :1])  # any row that is finite: its weight is 0
    means = np.empty((len(places), values.shape[1]), dtype=np.float32)
    step = max(1, GATHERED // max(1, places.shape[1] * values.shape[1]))
    for begin in range(0, len(places), step):
        part = slice(begin, begin + step)
        gathered = values[places[part]].astype(np.float32, copy=False)  # [step, 1 + w, padded]
        means[part] = (weights[part, None] @ gathered)[:, 0]
    return means
