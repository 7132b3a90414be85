"""Laws of graph reports and of hops."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from graphs import built, graph_of, random_graphs
from l2route.graph.report import hops_from, report


def naive_hops(rows: list[list[int]], sources: list[int]) -> list[int]:
    """Breadth-first search with a queue."""
    hops = [-1] * len(rows)
    queue = deque(sources)
    for source in sources:
        hops[source] = 0
    while queue:
        vertex = queue.popleft()
        for neighbor in rows[vertex]:
            if hops[neighbor] < 0:
                hops[neighbor] = hops[vertex] + 1
                queue.append(neighbor)
    return hops


@given(drawn=random_graphs())
def test_hops_are_those_of_a_queue(drawn: tuple[list[list[int]], list[int]]) -> None:
    """Hops equal those of a queue from the nearest source; −1 for unreachable vertices."""
    rows, sources = drawn
    graph = graph_of(rows, [0], width=4)
    found = hops_from(graph, np.array(sources, dtype=np.int32))
    assert found.tolist() == naive_hops(rows, sources)


@given(drawn=random_graphs())
def test_report_counts(drawn: tuple[list[list[int]], list[int]]) -> None:
    """The numbers of a report equal naive counts."""
    rows, entries = drawn
    degrees, hops = [len(row) for row in rows], naive_hops(rows, entries)
    got = report(graph_of(rows, entries, width=4))
    assert got.n_vertices == len(rows)
    assert got.n_edges == sum(degrees)
    assert (got.min_degree, got.max_degree) == (min(degrees), max(degrees))
    assert got.mean_degree == pytest.approx(sum(degrees) / len(rows))
    assert got.n_layers == 0
    assert got.entries == tuple(entries)
    assert got.n_unreachable == hops.count(-1)
    assert got.max_hops == max(hops)


def test_report_counts_upper_layers(vectors: NDArray[np.float32]) -> None:
    """A report has the number of upper layers."""
    hnsw = built(vectors, kind="hnsw", degree=8)
    assert report(hnsw).n_layers == len(hnsw.upper) > 0
