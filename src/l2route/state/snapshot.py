"""From a constant state to the buffers of a living index, and back."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import Metric
from l2route.graph.build import DEGREE
from l2route.graph.graph import Graph, compact_rows, mapped_ids
from l2route.search.base import BaseVectors
from l2route.search.layout import aligned_rows, padded_dim
from l2route.search.space import RoutingSpace
from l2route.search.validation import DEPTH, Validation
from l2route.state.buffers import capacity_for, widened, with_room
from l2route.state.living import MAX_ENTRIES, Counts, Living
from l2route.state.space_record import arrays_of_space
from l2route.state.state import IndexState

PER_SLOT = ("rows", "bias")
"""Arrays of a space that have a row per slot; the others are of the whole space."""


def living_state(state: IndexState) -> IndexState:
    """The same index in buffers with room for more vectors.

    Upper layers are given up: searches then enter at the vertices of the topmost ones. Copies of
    neighbours' vectors are given up too.
    """
    n, graph = state.graph.n_vertices, _flat(state.graph)
    width = graph.neighbors.shape[1]
    if n <= width + 1:
        width = max(width, DEGREE)  # the lists of a small graph are as short as the graph
    labels = np.arange(n, dtype=np.int64) if state.labels is None else state.labels
    arrays = {
        "vectors": state.base.rows,
        "neighbors": widened(graph.neighbors, width),
        "parents": _core.tree_parents(graph.core),
        "labels": labels,
    }
    for i, space in enumerate(state.spaces[1:]):
        of_space = arrays_of_space(i, space)
        arrays |= {name: of_space[name] for name in of_space if name.endswith(PER_SLOT)}
    counts = Counts(next_id=int(labels.max()) + 1, n_when_entered=n)
    buffers = with_room(arrays, n, capacity_for(n))
    living = Living(
        state.base, state.spaces[1:], buffers, padded_entries(graph.entries), n, counts
    )
    return served(living, state)


def empty_living(dim: int, metric: Metric, degree: int) -> IndexState:
    """The state of an index without vectors."""
    base = BaseVectors(np.zeros((0, padded_dim(dim)), dtype=np.float32), dim, metric)
    arrays = {
        "vectors": base.rows,
        "neighbors": np.zeros((0, degree), dtype=np.int32),
        "parents": np.zeros(0, dtype=np.int32),
        "labels": np.zeros(0, dtype=np.int64),
    }
    entries = padded_entries(np.zeros(0, dtype=np.int32))
    living = Living(base, (), with_room(arrays, 0, capacity_for(0)), entries, 0, Counts())
    return served(living)


def served(living: Living, like: IndexState | None = None) -> IndexState:
    """The state that searches read of a living index, with the settings of another state."""
    if like is None:
        return IndexState(
            living.base, living.graph, living.searchers, living.labels, living=living
        )
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


def _flat(graph: Graph) -> Graph:
    """The bottom layer, entered where the graph is: at its entries or at its topmost layers."""
    entries = graph.entries
    for layer in graph.upper:
        others = layer.vertices[~np.isin(layer.vertices, entries)]
        entries = np.concatenate([entries, others])[: MAX_ENTRIES // 2]
    return Graph(graph.neighbors, entries[:MAX_ENTRIES])


def dense_state(state: IndexState) -> IndexState:
    """A constant copy of a living index without dead and free slots, in the order of the slots.

    Validation queries and settings are left out if vectors have changed since their true neighbours
    were computed: see `with_fresh_validation`.
    """
    living = state.living
    assert living is not None
    living.mend_tree()
    live = living.live()
    if not len(live):
        raise ValueError("expected an index with vectors, got an empty one")
    rows_of_slots = np.full(len(living.labels), -1, dtype=np.int32)
    rows_of_slots[live] = np.arange(len(live), dtype=np.int32)
    base = replace(living.base, rows=aligned_rows(living.base.rows, live))
    entries = rows_of_slots[living.entries[living.entries >= 0]]
    graph = Graph(_dense_lists(living, live, rows_of_slots), entries)
    labels = living.labels[live]
    is_numbered = bool((labels == np.arange(len(live))).all())
    validation = None if living.counts.n_changed else state.validation
    if validation is not None:
        validation = replace(validation, neighbors=mapped_ids(validation.neighbors, rows_of_slots))
    return IndexState.of(
        base,
        graph,
        [_dense_space(space, live) for space in living.spaces[1:]],
        None if is_numbered else labels,
        validation,
        () if validation is None else list(state.settings.values()),
        () if validation is None else list(state.losses.values()),
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
    if living is None or validation is None or not living.counts.n_changed:
        return state
    live = living.live()
    vectors = np.ascontiguousarray(living.base.vectors()[live])
    depth = min(DEPTH, len(live))
    truth = exact_neighbors(vectors, validation.queries, depth, living.base.metric)
    fresh = Validation(validation.queries, live[truth.ids].astype(np.int32))
    living.counts.n_changed = 0
    return replace(state, validation=fresh, settings={}, losses={})
