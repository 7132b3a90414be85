"""Degrees and reachability of a graph."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class GraphReport:
    """Degrees and reachability of a graph."""

    n_vertices: int
    n_edges: int
    min_degree: int
    mean_degree: float
    max_degree: int
    n_layers: int
    """Upper layers of HNSW; 0 for a flat graph."""
    entries: tuple[int, ...]
    n_unreachable: int
    """Vertices that cannot be reached from the entries over the bottom layer."""
    max_hops: int
    """Largest number of hops from the entries to a reachable vertex."""


EMPTY = GraphReport(0, 0, 0, 0.0, 0, 0, (), 0, 0)
"""Of a graph without vertices."""


def report(graph: Graph) -> GraphReport:
    """Count degrees, and hops from the entries over the bottom layer."""
    if not graph.n_vertices:
        return EMPTY
    degrees = (graph.neighbors >= 0).sum(axis=1)
    hops = hops_from(graph, graph.entries)
    return GraphReport(
        n_vertices=graph.n_vertices,
        n_edges=int(degrees.sum()),
        min_degree=int(degrees.min()),
        mean_degree=float(degrees.mean()),
        max_degree=int(degrees.max()),
        n_layers=len(graph.upper),
        entries=tuple(graph.entries.tolist()),
        n_unreachable=int((hops < 0).sum()),
        max_hops=int(hops.max()),
    )


def hops_from(graph: Graph, sources: NDArray[np.int32]) -> NDArray[np.int32]:
    """Hops over the bottom layer from the nearest source [n]; −1 for unreachable vertices."""
    hops = np.full(graph.n_vertices, -1, dtype=np.int32)
    hops[sources] = 0
    frontier, depth = sources, 0
    while len(frontier):
        depth += 1
        reached = np.unique(graph.neighbors[frontier])
        frontier = reached[(reached >= 0) & (hops[reached] < 0)]
        hops[frontier] = depth
    return hops
