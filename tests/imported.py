"""Vectors and checks shared by the tests of imports."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.graph.graph import Graph
from l2route.index import RoutingIndex

N, DIM = 600, 10
VECTORS = np.random.default_rng(0).normal(size=(N, DIM)).astype(np.float32)
"""Vectors without ties."""
QUERIES = np.random.default_rng(1).normal(size=(50, DIM)).astype(np.float32)
ENTRIES: list[Any] = ["medoid", 5, [9, 2]]
Rows = dict[int, list[int]]
"""Neighbours of each vertex of a layer."""


def rows_of(graph: Graph) -> list[Rows]:
    """Neighbour lists of a graph, the bottom layer first."""
    layers: list[tuple[Any, NDArray[np.int32]]] = [(range(graph.n_vertices), graph.neighbors)]
    layers += [(layer.vertices.tolist(), layer.neighbors) for layer in reversed(graph.upper)]
    return [
        {
            vertex: [neighbor for neighbor in row if neighbor >= 0]
            for vertex, row in zip(vertices, neighbors.tolist(), strict=True)
        }
        for vertices, neighbors in layers
    ]


def assert_entered_at(index: RoutingIndex, entry: Any) -> None:
    """The index has only its bottom layer, and a search starts at the entry."""
    assert index.graph.upper == ()
    first = index.search(VECTORS[:1], k=1, budget=1, trace=True)
    assert first.trace is not None
    assert first.trace.of(0).tolist() == index.graph.entries[:1].tolist()
    if entry != "medoid":
        assert index.graph.entries.tolist() == np.atleast_1d(entry).tolist()
