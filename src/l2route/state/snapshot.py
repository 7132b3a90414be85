"""From a constant state to the buffers of a living index, and back."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import Metric
from l2route.graph.build import DEGREE
from l2route.graph.entry import N_ENTRIES
from l2route.graph.graph import Graph, compact_rows, mapped_ids
from l2route.rewiring.connect import connect_graph
from l2route.search.base import BaseVectors
from l2route.search.layout import aligned_rows, padded_dim
from l2route.search.space import RoutingSpace
from l2route.search.validation import DEPTH, Validation
from l2route.state.buffers import capacity_for, widened, with_room
from l2route.state.living import MAX_ENTRIES, Counts, Living
from l2route.state.state import IndexState

MIN_WIDTH = 2
"""Fewest neighbours of a vertex for which there has to be room."""
BLOCK = 65_536
"""Vectors that are compared at a time."""


def living_state(state: IndexState) -> IndexState:
    """The same index in buffers with room for more vectors.

    Upper layers are given up: searches then enter at the vertices of the topmost ones. Copies of
    neighbours' vectors are given up too. Vertices that could not be reached, which other libraries'
    graphs may have, are connected.
    """
    labels = state.labels
    if labels is None:
        labels = np.arange(state.graph.n_vertices, dtype=np.int64)
    n, width = state.graph.neighbors.shape
    is_small = n <= width + 1  # its lists are as short as the graph
    lists = widened(state.graph.neighbors, max(width, DEGREE if is_small else MIN_WIDTH))
    flat = Graph.empty(lists.shape[1])
    if n:
        whole = Graph(lists, _flat_entries(state.graph), table=state.graph.table)
        flat = connect_graph(whole, state.base)
    counts = Counts(next_id=max(state.next_id, int(labels.max(initial=-1)) + 1))
    living = reopened(state.base, state.spaces[1:], flat, labels, counts)
    changed = np.flatnonzero((flat.neighbors != lists).any(axis=1)).astype(np.int32)
    living.store.note_changes(changed, changed[:0])
    return served(living, state)


def reopened(
    base: BaseVectors,
    spaces: Sequence[RoutingSpace],
    graph: Graph,
    labels: NDArray[np.int64],
    counts: Counts,
) -> Living:
    """A living index from arrays with a row per slot.

    Args:
        base: vectors.
        spaces: routing spaces beside the original one.
        graph: a flat graph in which every slot with an id is reachable.
        labels: ids of slots, distinct, and −1 for dead and free ones [n].
        counts: what has happened so far.
    """
    n = graph.n_vertices
    parents = _parents(graph, labels)
    arrays: dict[str, NDArray[Any]] = {
        "vectors": base.rows,
        "neighbors": graph.neighbors,
        "parents": parents,
        "copies": _copies(base, parents),
        "labels": labels,
    }
    for i, space in enumerate(spaces):
        arrays[f"space{i}_rows"] = space.rows
        if space.bias is not None:
            arrays[f"space{i}_bias"] = space.bias
    counts.n_when_entered = int((labels != -1).sum())
    buffers = with_room(arrays, n, capacity_for(n))
    entries = padded_entries(graph.entries[graph.entries >= 0])
    table = None if graph.table is None else graph.table.copy()
    return Living(base, tuple(spaces), buffers, entries, n, counts, table)


def _parents(graph: Graph, labels: NDArray[np.int64]) -> NDArray[np.int32]:
    """Parents in a tree that reaches every slot with an id [n]."""
    if (graph.entries >= 0).any():
        return _core.tree_parents(graph.core, labels)
    if (labels != -1).any():
        raise ValueError("expected entries of a graph with vertices, got none")
    return np.full(len(labels), -1, dtype=np.int32)


def _copies(base: BaseVectors, parents: NDArray[np.int32]) -> NDArray[np.uint8]:
    """1 for vertices whose vector equals that of their parent in the tree [n]."""
    copies = np.zeros(len(parents), dtype=np.uint8)
    for begin in range(0, len(parents), BLOCK):
        part = slice(begin, begin + BLOCK)
        equal = (base.rows[part] == base.rows[parents[part]]).all(axis=1)
        copies[part] = equal & (parents[part] >= 0)
    return copies


def empty_state(dim: int, metric: Metric, degree: int) -> IndexState:
    """The state of an index without vectors."""
    base = BaseVectors(np.zeros((0, padded_dim(dim)), dtype=np.float32), dim, metric)
    no_labels = np.zeros(0, dtype=np.int64)
    return served(reopened(base, (), Graph.empty(degree), no_labels, Counts()))


def served(living: Living, like: IndexState | None = None) -> IndexState:
    """The state that searches read of a living index, with the settings of another state."""
    if like is None:
        return IndexState(living.base, living.graph, living.searchers, living.labels, living=living)
    return replace(
        like,
        base=living.base,
        graph=living.graph,
        searchers=living.searchers,
        labels=living.labels,
        living=living,
    )


def padded_entries(entries: NDArray[np.int32]) -> NDArray[np.int32]:
    """Entry points, padded with −1 [MAX_ENTRIES]."""
    padded = np.full(MAX_ENTRIES, -1, dtype=np.int32)
    padded[: len(entries)] = entries[:MAX_ENTRIES]
    return padded


def _flat_entries(graph: Graph) -> NDArray[np.int32]:
    """Entry points of the bottom layer: those of the graph, and vertices of its topmost layers."""
    entries = graph.entries
    for layer in graph.upper:
        others = layer.vertices[~np.isin(layer.vertices, entries)]
        entries = np.concatenate([entries, others])[:N_ENTRIES]
    return entries[:MAX_ENTRIES]


def dense_state(state: IndexState) -> IndexState:
    """A constant copy of a living index without dead and free slots, in the order of the slots.

    Validation queries and settings are left out if vectors have changed since their true neighbours
    were computed: see `with_fresh_validation`.
    """
    living = state.living
    assert living is not None
    living.mend_tree()
    living.repair_fully()
    live = living.live()
    rows_of_slots = np.full(len(living.labels), -1, dtype=np.int32)
    rows_of_slots[live] = np.arange(len(live), dtype=np.int32)
    base = replace(living.base, rows=aligned_rows(living.base.rows, live))
    entries = rows_of_slots[living.entries[living.entries >= 0]]
    lists = _dense_lists(living, live, rows_of_slots)
    table = living.graph.table
    table = None if table is None else table.mapped(rows_of_slots)
    graph = Graph(lists, entries, table=table) if len(live) else Graph.empty(lists.shape[1])
    labels = living.labels[live]
    is_numbered = bool((labels == np.arange(len(live))).all())
    validation = None if living.counts.n_changed or not len(live) else state.validation
    if validation is not None:
        validation = replace(validation, neighbors=mapped_ids(validation.neighbors, rows_of_slots))
    dense = IndexState.of(
        base,
        graph,
        [_dense_space(space, live) for space in living.spaces[1:]],
        None if is_numbered else labels,
        validation,
        () if validation is None else list(state.settings.values()),
        () if validation is None else list(state.losses.values()),
    )
    return replace(
        dense,
        drifts=state.drifts,
        rules=state.rules,
        next_id=living.counts.next_id,
        report=state.report,
        names=state.names,
    )


def _dense_lists(
    living: Living, live: NDArray[np.int64], rows_of_slots: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Neighbour lists of live slots by row number, without dead slots and loops."""
    lists = mapped_ids(living.graph.neighbors[live], rows_of_slots)
    lists[lists == np.arange(len(live), dtype=np.int32)[:, None]] = -1
    lists = compact_rows(lists)
    return np.ascontiguousarray(lists[:, : max(1, min(lists.shape[1], len(live) - 1))])


def _dense_space(space: RoutingSpace, live: NDArray[np.int64]) -> RoutingSpace:
    bias = None if space.bias is None else space.bias[live]
    return replace(space, rows=aligned_rows(space.rows, live), bias=bias)


def with_fresh_validation(state: IndexState) -> IndexState:
    """A living state whose validation queries have their true neighbours among all live slots."""
    living, validation = state.living, state.validation
    if living is None or validation is None or not living.counts.n_changed or not len(living):
        return state
    live = living.live()
    vectors = np.ascontiguousarray(living.base.vectors()[live])
    depth = min(DEPTH, len(live))
    truth = exact_neighbors(vectors, validation.queries, depth, living.base.metric)
    fresh = Validation(validation.queries, live[truth.ids].astype(np.int32))
    living.counts.n_changed = 0
    return replace(state, validation=fresh, settings={}, losses={})
