"""Removing vertices from a graph, with new edges past them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.graph.graph import Graph, UpperLayer, compact_rows
from l2route.graph.report import hops_from
from l2route.rewiring.connect import connect_graph
from l2route.search.base import BaseVectors

N_OFFERED = 2
"""Maximum number of substitutes that a removed vertex offers."""
BLOCK = 4096
"""Rows processed at a time."""

Ids = NDArray[np.integer[Any]]


def remove_vertices(graph: Graph, base: BaseVectors, gone: NDArray[np.bool_]) -> Graph:
    """Remove vertices from all layers; the others are renumbered in the same order.

    In the lists of others a removed vertex is replaced by its own nearest neighbours that remain,
    so that a search gets past it. If none of them remains, their neighbours are used, and so on.
    Vertices that were reachable from the entries are connected again if they no longer are.

    Args:
        graph: the graph.
        base: the vectors of its vertices.
        gone: True for the vertices to remove [n].
    """
    kept = np.flatnonzero(~gone)
    if not len(kept):
        raise ValueError(f"expected a vertex to remain, got all {len(gone)} to remove")
    left = BaseVectors.of(base.vectors()[kept], base.metric)
    upper = tuple(
        UpperLayer(_renumbered(layer.vertices[~gone[layer.vertices]], kept), lists)
        for layer in graph.upper
        if len(lists := _lists_without(layer.vertices, layer.neighbors, base, gone, kept))
    )
    every = np.arange(graph.n_vertices)
    neighbors = _lists_without(every, graph.neighbors, base, gone, kept)
    entries = _renumbered(graph.entries[~gone[graph.entries]], kept)
    if not len(entries):
        highest = upper[0].vertices if upper else np.arange(len(kept))
        entries = _nearest(base.vectors()[graph.entries[0]], left, highest)
    was_found = hops_from(graph, graph.entries)[kept] >= 0
    return connect_graph(Graph(neighbors, entries, upper), left, wanted=was_found)


def _renumbered(ids: Ids, kept: Ids) -> NDArray[np.int32]:
    """New numbers of vertices: their places among those that remain; −1 stays −1."""
    return np.where(ids < 0, -1, np.searchsorted(kept, ids)).astype(np.int32)


def _nearest(vector: NDArray[np.float32], base: BaseVectors, ids: Ids) -> NDArray[np.int32]:
    """The vertex of `ids` nearest to a vector [1]."""
    distances = base.exact_distances(vector[None], ids[None])[0]
    return np.array([ids[distances.argmin()]], dtype=np.int32)


def _lists_without(
    vertices: Ids, lists: NDArray[np.int32], base: BaseVectors, gone: NDArray[np.bool_], kept: Ids
) -> NDArray[np.int32]:
    """Neighbour lists of the remaining vertices of a layer, in new numbers [n_left, width].

    Args:
        vertices: the layer's vertices, ascending [m].
        lists: their neighbours, padded with −1 [m, width].
        base: vectors.
        gone: True for removed vertices [n].
        kept: remaining vertices, ascending.
    """
    is_gone = gone[vertices]
    going = vertices[is_gone]
    offered = _offers(going, lists[is_gone], base, gone)  # [n_going, n_offered]
    left, rows = vertices[~is_gone], lists[~is_gone].copy()
    changed = np.flatnonzero(((rows >= 0) & gone[rows]).any(axis=1))
    for begin in range(0, len(changed), BLOCK):
        at = changed[begin : begin + BLOCK]
        rows[at] = _bridged(left[at], rows[at], going, offered, gone)
    return compact_rows(_renumbered(rows, kept))


def _offers(
    going: Ids, lists: NDArray[np.int32], base: BaseVectors, gone: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """Substitutes of each removed vertex, nearest to it first [n_going, n_offered]."""
    missing = (lists < 0) | gone[lists]
    offers = compact_rows(np.where(missing, -1, lists))
    bare = np.flatnonzero(offers[:, 0] < 0) if len(going) else np.zeros(0, dtype=np.int64)
    while len(bare):
        near = np.where(lists[bare] < 0, -1, np.searchsorted(going, lists[bare]))  # all are removed
        theirs = np.where((near < 0)[:, :, None], -1, offers[near]).reshape(len(bare), -1)
        offers[bare] = compact_rows(theirs)[:, : offers.shape[1]]
        still = bare[offers[bare, 0] < 0]
        if len(still) == len(bare):
            break  # no path leads to a vertex that remains
        bare = still
    vectors = base.vectors()
    for begin in range(0, len(going), BLOCK):
        part = slice(begin, begin + BLOCK)
        distances = base.exact_distances(vectors[going[part]], offers[part])
        order = np.argsort(distances, axis=1, kind="stable")
        offers[part] = np.take_along_axis(offers[part], order, axis=1)
    return offers[:, :N_OFFERED]


def _bridged(
    vertices: Ids,
    rows: NDArray[np.int32],
    going: Ids,
    offered: NDArray[np.int32],
    gone: NDArray[np.bool_],
) -> NDArray[np.int32]:
    """Remaining neighbours, then first substitutes of the removed ones, then second ones.

    As many as fit [m, width], without repeats and without the vertex itself.
    """
    is_gone = (rows >= 0) & gone[rows]
    places = np.searchsorted(going, np.where(is_gone, rows, going[0]))
    choices = np.where(is_gone[:, :, None], offered[places], -1)  # [m, width, n_offered]
    choices = choices.transpose(0, 2, 1).reshape(len(rows), -1)
    every = np.concatenate([np.where(is_gone, -1, rows), choices], axis=1)
    every[every == vertices[:, None]] = -1
    order = np.argsort(every, axis=1, kind="stable")
    ordered = np.take_along_axis(every, order, axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = -1
    np.put_along_axis(every, order, ordered, axis=1)
    return compact_rows(every)[:, : rows.shape[1]]
