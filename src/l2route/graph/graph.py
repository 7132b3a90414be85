"""Graph: neighbour lists, entry points and upper layers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.files.memory import aligned, aligned_zeros
from l2route.graph.entry_table import EntryTable


@dataclass(frozen=True, slots=True)
class UpperLayer:
    """A layer of HNSW above the bottom layer."""

    vertices: NDArray[np.int32]
    """Vertices of the layer, ascending [n_layer]."""
    neighbors: NDArray[np.int32]
    """Their neighbours' ids, padded with −1 [n_layer, width]."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A directed graph whose vertices are rows of the base vectors.

    Every id is checked on construction, because the core does not check. Neighbour lists are copied
    if they do not start at a cache line.
    """

    neighbors: NDArray[np.int32]
    """Neighbours of each vertex, padded with −1 at the end of a row [n, width]."""
    entries: NDArray[np.int32]
    """Entry points: vertices that a search visits first [n_entries]."""
    upper: tuple[UpperLayer, ...] = ()
    """Upper layers of HNSW, from the top down; empty for a flat graph."""
    table: EntryTable | None = None
    """Entry points that depend on the query, in place of `entries`; None if there are none."""
    core: _core.Graph = field(init=False, repr=False, compare=False)
    """The graph as the core reads it, shared by all searchers."""

    def __post_init__(self) -> None:
        check_neighbors("neighbors", self.neighbors, self.n_vertices)
        object.__setattr__(self, "neighbors", aligned(self.neighbors))
        check_entries(self.entries, self.n_vertices)
        if self.table is not None:
            self.table.check_fits(self.n_vertices)
        _check_layers(self)
        layers = [(layer.vertices, layer.neighbors) for layer in self.upper]
        object.__setattr__(self, "core", _core.Graph(self.neighbors, self.entries, layers))

    @classmethod
    def with_room(
        cls,
        neighbors: NDArray[np.int32],
        entries: NDArray[np.int32],
        table: EntryTable | None = None,
    ) -> "Graph":
        """A graph whose arrays are changed in place, so that nothing is checked or copied.

        Args:
            neighbors: lists of all slots, those of unused ones empty [capacity, width].
            entries: entry points, padded with −1 [at least 1].
            table: entry points that depend on the query.
        """
        graph = object.__new__(cls)
        values = {"neighbors": neighbors, "entries": entries, "upper": (), "table": table}
        for name, value in values.items():
            object.__setattr__(graph, name, value)
        object.__setattr__(graph, "core", _core.Graph(neighbors, entries, []))
        return graph

    @classmethod
    def empty(cls, width: int) -> "Graph":
        """A graph without vertices and entry points, whose lists would have this length."""
        no_entry = np.full(1, -1, dtype=np.int32)
        graph = cls.with_room(np.zeros((0, width), dtype=np.int32), no_entry)
        object.__setattr__(graph, "entries", no_entry[:0])
        return graph

    @property
    def n_vertices(self) -> int:
        """Number of vertices."""
        return len(self.neighbors)

    def entered_at(self, entries: Sequence[int] | NDArray[np.int32]) -> "Graph":
        """The bottom layer alone, with these entry points."""
        return Graph(self.neighbors, np.array(entries, dtype=np.int32))


def check_neighbors(name: str, neighbors: NDArray[np.int32], n_vertices: int) -> None:
    """Refuse neighbour lists that are not of vertices of a graph, or not padded at their end."""
    if neighbors.dtype != np.int32 or neighbors.ndim != 2 or not neighbors.flags.c_contiguous:
        raise ValueError(
            f"expected {name} contiguous int32 [n, width], got {neighbors.dtype} {neighbors.shape}"
        )
    if neighbors.size == 0:
        raise ValueError(f"expected {name} with vertices and neighbours, got {neighbors.shape}")
    low, high = int(neighbors.min()), int(neighbors.max())
    if low < -1 or high >= n_vertices:
        raise ValueError(f"expected {name} in [-1, {n_vertices}), got {low} to {high}")
    missing = neighbors < 0
    if (missing[:, :-1] & ~missing[:, 1:]).any():
        row = int((missing[:, :-1] & ~missing[:, 1:]).any(axis=1).argmax())
        got = f"{neighbors[row].tolist()} in row {row}"
        raise ValueError(f"expected {name} padded with -1 at the end of rows only, got {got}")


def check_entries(entries: NDArray[np.int32], n_vertices: int) -> None:
    """Refuse entries that are not distinct vertices of a graph."""
    if entries.dtype != np.int32 or entries.ndim != 1 or len(entries) == 0:
        raise ValueError(f"expected entries int32 [n_entries], got {entries.dtype} {entries.shape}")
    if entries.min() < 0 or entries.max() >= n_vertices:
        raise ValueError(f"expected entries in [0, {n_vertices}), got {entries.tolist()}")
    if len(np.unique(entries)) != len(entries):
        raise ValueError(f"expected distinct entries, got {entries.tolist()}")


def _check_layers(graph: Graph) -> None:
    above = graph.entries
    for layer in graph.upper:
        check_neighbors("layer's neighbors", layer.neighbors, graph.n_vertices)
        vertices = layer.vertices
        if vertices.dtype != np.int32 or vertices.shape != (len(layer.neighbors),):
            raise ValueError(
                f"expected layer's vertices int32 [{len(layer.neighbors)}], "
                f"got {vertices.dtype} {vertices.shape}"
            )
        ascending = bool((vertices[1:] > vertices[:-1]).all())
        if not ascending or vertices[0] < 0 or vertices[-1] >= graph.n_vertices:
            got = f"{vertices[:10].tolist()}…" if len(vertices) > 10 else vertices.tolist()
            expected = f"layer's vertices ascending in [0, {graph.n_vertices})"
            raise ValueError(f"expected {expected}, got {got}")
        used = np.union1d(above, layer.neighbors[layer.neighbors >= 0])
        outside = used[~np.isin(used, vertices)]
        if len(outside):
            expected = "a layer to hold its neighbours and the layer above it"
            raise ValueError(f"expected {expected}, got vertex {outside[0]} outside it")
        above = vertices


def mapped_ids(ids: NDArray[np.int32], table: NDArray[np.int32]) -> NDArray[np.int32]:
    """Ids of any shape looked up in a table [n]; −1 stays −1."""
    return np.where(ids >= 0, table[ids], np.int32(-1))


def compact_rows(lists: NDArray[Any]) -> NDArray[np.int32]:
    """Move −1 to the end of neighbour lists [n, width], and align them to cache lines."""
    order = np.argsort(lists < 0, axis=1, kind="stable")
    rows = aligned_zeros(lists.shape, np.int32)
    rows[:] = np.take_along_axis(lists, order, axis=1)
    return rows
