"""Removal of vertices from a graph, with new edges in place of those that led to them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.graph.graph import Graph, UpperLayer, compact_rows
from l2route.graph.report import hops_from
from l2route.rewiring.connect import connect_graph
from l2route.search.base import BaseVectors

N_SUBSTITUTES = 2
"""Maximum number of vertices that replace a removed one in a neighbour list."""
BLOCK = 4096
"""Rows processed at a time."""

Ids = NDArray[np.integer[Any]]


def remove_vertices(graph: Graph, base: BaseVectors, is_removed: NDArray[np.bool_]) -> Graph:
    """Remove vertices from all layers; the others are renumbered in the same order.

    In the lists of others a removed vertex is replaced by its own nearest neighbours that remain,
    so that a search gets past it. If none of them remains, their neighbours are used, and so on.
    Vertices that were reachable from the entries are connected again if they no longer are.

    Args:
        graph: the graph.
        base: the vectors of its vertices.
        is_removed: True for the vertices to remove [n].
    """
    kept = np.flatnonzero(~is_removed)
    if not len(kept):
        raise ValueError(f"expected a vertex to remain, got all {len(is_removed)} to remove")
    remaining = BaseVectors.of(base.vectors()[kept], base.metric)
    upper = tuple(
        UpperLayer(_renumbered(layer.vertices[~is_removed[layer.vertices]], kept), lists)
        for layer in graph.upper
        if len(lists := _lists_without(layer.vertices, layer.neighbors, base, is_removed, kept))
    )
    every = np.arange(graph.n_vertices)
    neighbors = _lists_without(every, graph.neighbors, base, is_removed, kept)
    entries = _renumbered(graph.entries[~is_removed[graph.entries]], kept)
    if not len(entries):
        highest = upper[0].vertices if upper else np.arange(len(kept))
        entries = _nearest(base.vectors()[graph.entries[0]], remaining, highest)
    was_reachable = hops_from(graph, graph.entries)[kept] >= 0
    table = None if graph.table is None else graph.table.mapped(numbers_of(is_removed))
    after = Graph(neighbors, entries, upper, table)
    return connect_graph(after, remaining, wanted=was_reachable)


def numbers_of(is_removed: NDArray[np.bool_]) -> NDArray[np.int32]:
    """New numbers of vertices, in the same order; −1 for those that are removed [n]."""
    return np.where(is_removed, -1, np.cumsum(~is_removed) - 1).astype(np.int32)


def _renumbered(ids: Ids, kept: Ids) -> NDArray[np.int32]:
    """New numbers of vertices: their places among those that remain; −1 stays −1."""
    return np.where(ids < 0, -1, np.searchsorted(kept, ids)).astype(np.int32)


def _nearest(vector: NDArray[np.float32], base: BaseVectors, ids: Ids) -> NDArray[np.int32]:
    """The vertex among `ids` that is nearest to a vector [dim], as an array [1]."""
    distances = base.exact_distances(vector[None], ids[None])[0]
    return np.array([ids[distances.argmin()]], dtype=np.int32)


def _lists_without(
    vertices: Ids,
    lists: NDArray[np.int32],
    base: BaseVectors,
    is_removed: NDArray[np.bool_],
    kept: Ids,
) -> NDArray[np.int32]:
    """Neighbour lists of the remaining vertices of a layer, in new numbers [n_remaining, width].

    Args:
        vertices: the layer's vertices, ascending [m].
        lists: their neighbours, padded with −1 [m, width].
        base: vectors of all vertices of the graph.
        is_removed: True for removed vertices [n].
        kept: remaining vertices, ascending.
    """
    is_gone = is_removed[vertices]
    removed = vertices[is_gone]
    substitutes = _substitutes(removed, lists[is_gone], base, is_removed)
    remaining, rows = vertices[~is_gone], lists[~is_gone].copy()
    changed = np.flatnonzero(((rows >= 0) & is_removed[rows]).any(axis=1))
    for begin in range(0, len(changed), BLOCK):
        at = changed[begin : begin + BLOCK]
        rows[at] = _with_substitutes(remaining[at], rows[at], removed, substitutes, is_removed)
    return compact_rows(_renumbered(rows, kept))


def _substitutes(
    removed: Ids, lists: NDArray[np.int32], base: BaseVectors, is_removed: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """Substitutes of each removed vertex, nearest first [n_removed, at most N_SUBSTITUTES].

    Args:
        removed: removed vertices of a layer, ascending [n_removed].
        lists: their neighbours, padded with −1 [n_removed, width].
        base: vectors of all vertices of the graph.
        is_removed: True for removed vertices [n].
    """
    missing = (lists < 0) | is_removed[lists]
    candidates = compact_rows(np.where(missing, -1, lists))
    without = np.flatnonzero(candidates[:, 0] < 0) if len(removed) else np.zeros(0, dtype=np.int64)
    while len(without):
        ids = lists[without]  # all of them are removed
        near = np.where(ids < 0, -1, np.searchsorted(removed, ids))
        theirs = np.where((near < 0)[:, :, None], -1, candidates[near]).reshape(len(without), -1)
        candidates[without] = compact_rows(theirs)[:, : candidates.shape[1]]
        still = without[candidates[without, 0] < 0]
        if len(still) == len(without):
            break  # no path leads to a vertex that remains
        without = still
    vectors = base.vectors()
    for begin in range(0, len(removed), BLOCK):
        part = slice(begin, begin + BLOCK)
        distances = base.exact_distances(vectors[removed[part]], candidates[part])
        order = np.argsort(distances, axis=1, kind="stable")
        candidates[part] = np.take_along_axis(candidates[part], order, axis=1)
    return candidates[:, :N_SUBSTITUTES]


def _with_substitutes(
    vertices: Ids,
    rows: NDArray[np.int32],
    removed: Ids,
    substitutes: NDArray[np.int32],
    is_removed: NDArray[np.bool_],
) -> NDArray[np.int32]:
    """Neighbour lists in which removed vertices are replaced [m, width].

    A list has the neighbours that remain, then the first substitute of each removed one, then the
    second ones: as many as fit, without repeats and without the vertex itself.

    Args:
        vertices: vertices of the lists [m].
        rows: their neighbours, padded with −1 [m, width].
        removed: removed vertices of the layer, ascending [n_removed].
        substitutes: their substitutes [n_removed, at most N_SUBSTITUTES].
        is_removed: True for removed vertices [n].
    """
    is_gone = (rows >= 0) & is_removed[rows]
    places = np.searchsorted(removed, np.where(is_gone, rows, removed[0]))
    choices = np.where(is_gone[:, :, None], substitutes[places], -1)  # [m, width, 2]
    choices = choices.transpose(0, 2, 1).reshape(len(rows), -1)
    every = np.concatenate([np.where(is_gone, -1, rows), choices], axis=1)
    every[every == vertices[:, None]] = -1
    order = np.argsort(every, axis=1, kind="stable")
    ordered = np.take_along_axis(every, order, axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = -1
    np.put_along_axis(every, order, ordered, axis=1)
    return compact_rows(every)[:, : rows.shape[1]]
