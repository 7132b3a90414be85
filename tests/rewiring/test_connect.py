"""Laws of `connect_graph`: all vertices become reachable, and few edges change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.vectors import METRICS, Metric
from l2route.graph.build import GraphOptions, build_graph
from l2route.graph.graph import Graph, compact_rows
from l2route.graph.report import report
from l2route.rewiring.connect import ROOT, UNREACHED, _link, connect_graph
from l2route.search.base import BaseVectors


def random_graph(
    rng: np.random.Generator, n: int, width: int, density: float
) -> tuple[NDArray[np.float32], Graph]:
    """Vectors in three distant clusters, and a random graph over them."""
    clusters = 100 * rng.normal(size=(3, 2))
    vectors = (clusters[rng.integers(0, 3, n)] + rng.normal(size=(n, 2))).astype(np.float32)
    drawn = rng.integers(0, n, size=(n, width))
    neighbors = compact_rows(np.where(rng.random((n, width)) < density, drawn, -1))
    n_entries = int(rng.integers(1, min(n, 3) + 1))
    return vectors, Graph(neighbors, rng.permutation(n)[:n_entries].astype(np.int32))


@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 60),
    width=st.integers(1, 6),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    metric=st.sampled_from(METRICS),
)
def test_all_vertices_become_reachable(
    seed: int, n: int, width: int, density: float, metric: Metric
) -> None:
    """All vertices of any graph are reachable after `connect_graph`, in any metric.

    No more edges change than vertices were unreachable, and the number of threads does not matter.
    """
    vectors, graph = random_graph(np.random.default_rng(seed), n, width, density)
    base = BaseVectors.of(vectors, metric)
    before = report(graph).n_unreachable
    connected = connect_graph(graph, base, n_threads=1)
    assert report(connected).n_unreachable == 0
    assert connected.neighbors.shape == graph.neighbors.shape
    assert (connected.neighbors != graph.neighbors).sum() <= before
    assert connected.entries is graph.entries
    assert (connected is graph) == (before == 0)
    again = connect_graph(graph, base, n_threads=2)
    np.testing.assert_array_equal(again.neighbors, connected.neighbors)


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_low_degrees_are_connected_at_once(degree: int) -> None:
    """Graphs with nearly full lists and many unreachable vertices are connected.

    No path becomes long.
    """
    vectors = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
    graph = build_graph(vectors, options=GraphOptions("knn", degree, entry=0))
    assert report(graph).n_unreachable > 300
    connected = connect_graph(graph, BaseVectors.of(vectors, "l2"))
    facts = report(connected)
    assert facts.n_unreachable == 0
    assert facts.max_hops < 200  # paths down the tree are random, so none grows long


@pytest.mark.parametrize(
    ("row", "parents_of_1_2_3", "expected"),
    [
        ([1, -1, -1], [0, 0, 0], [1, 9, -1]),  # the first free place
        ([1, 2, 3], [0, 5, 5], [1, 2, 9]),  # the last one that has another parent
        ([1, 2, 3], [5, 5, 0], [1, 9, 3]),  # not one whose parent is 0
        ([1, 2, 3], [0, 0, 0], [1, 2, 3]),  # no room: the next source is tried
    ],
)
def test_a_new_edge_replaces_no_edge_of_the_tree(
    row: list[int], parents_of_1_2_3: list[int], expected: list[int]
) -> None:
    """A new edge takes a free place, or replaces one that is not in the breadth-first tree."""
    neighbors = np.full((10, 3), -1, dtype=np.int32)
    neighbors[0] = row
    parents = np.array(
        [ROOT, *parents_of_1_2_3, UNREACHED, 0, UNREACHED, UNREACHED, UNREACHED, UNREACHED],
        dtype=np.int32,
    )
    rng = np.random.default_rng(0)
    _link(neighbors, parents, np.int32(9), np.array([0, 5, -1], dtype=np.int32), rng)
    assert neighbors[0].tolist() == expected
    has_taken = 9 in expected
    assert neighbors[5].tolist() == ([-1, -1, -1] if has_taken else [9, -1, -1])
    assert parents[9] == (0 if has_taken else 5)


def test_a_new_edge_may_start_below_full_sources() -> None:
    """If no source has room, the new edge starts at one of their descendants in the tree."""
    neighbors = np.full((6, 2), -1, dtype=np.int32)
    neighbors[0], neighbors[1] = [1, 2], [3, 4]
    parents = np.array([ROOT, 0, 0, 1, 1, UNREACHED], dtype=np.int32)
    rng = np.random.default_rng(0)
    _link(neighbors, parents, np.int32(5), np.array([0, 1], dtype=np.int32), rng)
    assert parents[5] in (2, 3, 4)
    assert neighbors[parents[5]].tolist() == [5, -1]


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_a_graph_that_is_whole_stays_as_faiss_builds_it(metric: Metric) -> None:
    """Without equal vectors or unreachable vertices `build` changes no edge unless it refines."""
    vectors = np.random.default_rng(0).normal(size=(500, 12)).astype(np.float32)
    options = GraphOptions("nsw", 16, 40, 0)
    expected = build_graph(vectors, metric, options)
    assert report(expected).n_unreachable == 0
    index = RoutingIndex.build(
        vectors, metric, graph="nsw", degree=16, ef_construction=40, entry=0, refine=False
    )
    np.testing.assert_array_equal(index.graph.neighbors, expected.neighbors)
    np.testing.assert_array_equal(index.graph.entries, expected.entries)
