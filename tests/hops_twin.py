"""The slow twin of hops to targets, and graphs to compare them on."""

from collections import deque

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route.graph.graph import Graph, compact_rows
from l2route.training.oracle import (
    MAX_HOPS,
    UNREACHABLE,
    HopOracle,
    decode_hops,
)


def naive_hops(graph: Graph, target: int) -> NDArray[np.uint8]:
    """Hops to one target by a plain breadth-first search over reversed edges."""
    sources: list[list[int]] = [[] for _ in range(graph.n_vertices)]
    for vertex, row in enumerate(graph.neighbors.tolist()):
        for neighbor in row:
            if neighbor >= 0:
                sources[neighbor].append(vertex)
    hops = {target: 0}
    queue = deque([target])
    while queue:
        reached = queue.popleft()
        for vertex in sources[reached]:
            if vertex not in hops:
                hops[vertex] = hops[reached] + 1
                queue.append(vertex)
    found = [min(hops[v], MAX_HOPS) if v in hops else UNREACHABLE for v in range(graph.n_vertices)]
    return np.array(found, dtype=np.uint8)


def random_graph(seed: int, n: int, width: int, share: float = 0.7) -> Graph:
    """A random graph with self loops, repeated edges and short or empty lists."""
    rng = np.random.default_rng(seed)
    lists = np.where(rng.random((n, width)) < share, rng.integers(n, size=(n, width)), -1)
    return Graph(compact_rows(lists), np.array([0], dtype=np.int32))


def chain(n: int) -> Graph:
    """A chain: the only neighbour of vertex v is v + 1."""
    neighbors = np.append(np.arange(1, n), -1).astype(np.int32)[:, None]
    return Graph(neighbors, np.array([0], dtype=np.int32))


graphs = st.one_of(
    st.builds(
        random_graph,
        seed=st.integers(0, 2**32),
        n=st.integers(1, 80),
        width=st.integers(1, 5),
        share=st.floats(0.1, 1.0),
    ),
    st.builds(chain, st.integers(1, 40)),
)


def targets_in(graph: Graph, data: st.DataObject) -> NDArray[np.int64]:
    """Targets of queries; several queries may have the same target."""
    vertices = st.integers(0, graph.n_vertices - 1)
    return np.array(data.draw(st.lists(vertices, min_size=1, max_size=30)), dtype=np.int64)


def hops_of(oracle: HopOracle, query: int) -> NDArray[np.uint8]:
    """Hops from all vertices to the target of a query [n]."""
    block, column = oracle.places.block_of[query], oracle.places.column_of[query]
    return decode_hops(oracle.block(int(block)), int(column))
