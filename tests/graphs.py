"""Small graphs, and functions to build and compare graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from l2route.data.vectors import METRICS, check_metric
from l2route.graph.build import GRAPH_KINDS, GraphOptions, build_graph
from l2route.graph.graph import Graph
from l2route.rewiring.grow import grow_graph
from l2route.search.base import BaseVectors

KINDS_AND_METRICS = [
    (kind, metric) for kind in GRAPH_KINDS for metric in METRICS if (kind, metric) != ("nsg", "ip")
]


def built(vectors: object, metric: str = "l2", **options: Any) -> Graph:
    """Build a graph with a narrow beam, for speed."""
    chosen = GraphOptions(**{"ef_construction": 40} | options)
    if chosen.kind == "l2route":
        return grow_graph(BaseVectors.of(vectors, check_metric(metric)), chosen)
    return build_graph(vectors, metric, chosen)


def equal(a: Graph, b: Graph) -> bool:
    """Whether two graphs are equal in entries and all layers."""
    return (
        np.array_equal(a.neighbors, b.neighbors)
        and np.array_equal(a.entries, b.entries)
        and len(a.upper) == len(b.upper)
        and all(
            np.array_equal(x.vertices, y.vertices) and np.array_equal(x.neighbors, y.neighbors)
            for x, y in zip(a.upper, b.upper, strict=True)
        )
    )


def graph_of(rows: list[list[int]], entries: list[int], width: int | None = None) -> Graph:
    """Make a graph from neighbour lists."""
    width = width or max(1, *map(len, rows))
    padded = [row + [-1] * (width - len(row)) for row in rows]
    return Graph(np.array(padded, dtype=np.int32), np.array(entries, dtype=np.int32))


@st.composite
def random_graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Neighbour lists of a few vertices, with loops and repeats, and distinct vertices."""
    n = draw(st.integers(1, 12))
    vertex = st.integers(0, n - 1)
    rows = draw(st.lists(st.lists(vertex, max_size=4), min_size=n, max_size=n))
    return rows, draw(st.lists(vertex, min_size=1, max_size=3, unique=True))
