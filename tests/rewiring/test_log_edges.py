"""Laws of edges from a query log: neighbours of a query reach each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route import _core
from l2route.data.truth import exact_neighbors
from l2route.graph.graph import Graph, compact_rows
from l2route.rewiring.log_edges import MAX_DEPTH, _by_need, join_neighbors
from l2route.search.base import BaseVectors

Edges = list[tuple[int, int]]


def random_graph(rng: np.random.Generator, n: int, width: int) -> Graph:
    """A graph of random lists, some of them short."""
    lists = np.full((n, width), -1, dtype=np.int32)
    for v in range(n):
        others = np.delete(np.arange(n), v)
        chosen = rng.permutation(others)[: rng.integers(0, width + 1)]
        lists[v, : len(chosen)] = chosen
    return Graph(compact_rows(lists), np.zeros(1, dtype=np.int32))


def reachable(graph: Graph, inside: list[int], start: int, extra: Edges = ()) -> set[int]:
    """Vertices reached from a start by edges among some vertices."""
    found, waiting = {start}, [start]
    while waiting:
        v = waiting.pop()
        ends = [*graph.neighbors[v].tolist(), *(b for a, b in extra if a == v)]
        fresh = {u for u in ends if u in inside} - found
        found |= fresh
        waiting += fresh
    return found


def lacking_twin(graph: Graph, rows: NDArray[np.float32], nearest: NDArray[np.int32]) -> Edges:
    """The edges that each query lacks, by a search from every vertex before every edge."""
    edges: Edges = []
    for inside in nearest.tolist():
        own: Edges = []
        pairs = [
            (float(((rows[a] - rows[b]) ** 2).sum()), i, j)
            for i, a in enumerate(inside)
            for j, b in enumerate(inside)
            if i < j
        ]
        for _, i, j in sorted(pairs):
            for a, b in ((inside[i], inside[j]), (inside[j], inside[i])):
                if b not in reachable(graph, inside, a, own):
                    own.append((a, b))
        edges += own
    return edges


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(4, 40),
    width=st.integers(1, 6),
    depth=st.integers(1, 12),
    is_half=st.booleans(),
)
def test_edges_are_those_of_the_twin(
    seed: int, n: int, width: int, depth: int, is_half: bool
) -> None:
    """The core finds the edges that a slow search finds, for any number of threads."""
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-8, 8, size=(n, 5)).astype(np.float32)  # exact in half floats; ties
    graph, depth = random_graph(rng, n, width), min(depth, n)
    nearest = np.array([rng.permutation(n)[:depth] for _ in range(7)], dtype=np.int32)
    rows = BaseVectors.of(vectors, "l2").rows
    core_rows = _core.Rows(rows.astype(np.float16) if is_half else rows, "l2")
    expected = lacking_twin(graph, vectors, nearest)
    for n_threads in (1, 3):
        found = _core.lacking_edges(
            graph.core, rows=core_rows, nearest=nearest, n_threads=n_threads
        )
        assert [tuple(edge) for edge in found.tolist()] == expected


@pytest.mark.parametrize("depth", [63, MAX_DEPTH])
def test_as_many_neighbors_as_a_word_has_bits(depth: int) -> None:
    """The deepest neighbourhoods are connected too."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(MAX_DEPTH, 4)).astype(np.float32)
    graph = random_graph(rng, MAX_DEPTH, 2)
    nearest = rng.permutation(MAX_DEPTH)[None, :depth].astype(np.int32)
    base = BaseVectors.of(vectors, "l2")
    joined = join_neighbors(graph, base, nearest, degree=MAX_DEPTH)
    assert joined.n_refused == 0
    inside = nearest[0].tolist()
    assert all(reachable(joined.graph, inside, v) == set(inside) for v in inside)


@given(
    seed=st.integers(0, 2**32 - 1),
    metric=st.sampled_from(["l2", "ip", "cosine"]),
    room=st.integers(0, 3),
)
def test_lists_grow_only_at_their_end_and_only_so_far(seed: int, metric: str, room: int) -> None:
    """Lists begin as before; neighbours are distinct; degrees are bounded; order is irrelevant."""
    rng = np.random.default_rng(seed)
    base = BaseVectors.of(rng.normal(size=(60, 6)).astype(np.float32), metric)
    queries = rng.normal(size=(40, 6)).astype(np.float32)
    nearest = exact_neighbors(base.vectors(), queries, 5, base.metric).ids.astype(np.int32)
    graph = random_graph(rng, 60, 3)
    joined = join_neighbors(graph, base, nearest, degree=3 + room)
    for before, after in zip(
        graph.neighbors.tolist(), joined.graph.neighbors.tolist(), strict=True
    ):
        was, now = ([v for v in row if v >= 0] for row in (before, after))
        assert now[: len(was)] == was
        assert len(now) == len(set(now)) <= 3 + room
    n_edges = [(each.neighbors >= 0).sum() for each in (graph, joined.graph)]
    assert n_edges[1] - n_edges[0] == joined.n_added
    other = join_neighbors(graph, base, nearest[rng.permutation(40)], degree=3 + room)
    assert np.array_equal(other.graph.neighbors, joined.graph.neighbors)
    if joined.n_refused == 0:
        for inside in nearest.tolist():
            assert reachable(joined.graph, inside, inside[0]) == set(inside)


def test_edges_that_most_queries_lack_come_first() -> None:
    """Where a list has room for one edge, it is the one that two queries lack, not the shorter."""
    vectors = np.array([[0.0], [1.0], [3.0], [50.0]], dtype=np.float32)
    lists = np.array([[3], [3], [3], [0]], dtype=np.int32)
    graph = Graph(lists, np.zeros(1, dtype=np.int32))
    base = BaseVectors.of(vectors, "l2")
    nearest = np.array([[0, 1], [0, 2], [2, 0]], dtype=np.int32)
    joined = join_neighbors(graph, base, nearest, degree=2)
    assert joined.graph.neighbors[0].tolist() == [3, 2]
    assert (joined.n_added, joined.n_refused) == (3, 1)


def test_a_graph_that_lacks_nothing_stays_as_it_is() -> None:
    """Without edges to add, lists are not even widened."""
    vectors = np.arange(4, dtype=np.float32)[:, None]
    lists = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]], dtype=np.int32)
    graph = Graph(lists, np.zeros(1, dtype=np.int32))
    nearest = np.array([[0, 1, 2], [1, 3, 2]], dtype=np.int32)
    joined = join_neighbors(graph, BaseVectors.of(vectors, "l2"), nearest)
    assert np.array_equal(joined.graph.neighbors, lists)
    assert (joined.n_added, joined.n_refused) == (0, 0)


def test_edges_of_many_vertices_are_told_apart() -> None:
    """Edges are what they were also where pairs of vertices are more than 2³¹: numbers are int64.

    With numpy 1 an int32 array times an int64 number is int32.
    """
    n = 100_000
    base = BaseVectors.of(np.arange(n, dtype=np.float32)[:, None], "l2")
    edges = np.array([[99_999, 5], [70_000, 3], [99_999, 5], [1, 2], [99_999, 99_998]], np.int32)
    sources, targets = _by_need(edges, base)
    assert sources.dtype == targets.dtype == np.int64
    assert sources.tolist() == [1, 70_000, 99_999, 99_999]
    assert targets.tolist() == [2, 3, 5, 99_998]


def test_bad_input_is_refused() -> None:
    """Neighbours out of range, too many of them, and shorter lists are errors."""
    rng = np.random.default_rng(0)
    base = BaseVectors.of(rng.normal(size=(80, 3)).astype(np.float32), "l2")
    graph = random_graph(rng, 80, 4)
    with pytest.raises(ValueError, match=r"expected neighbours in \[0, 80\), got 0 to 80"):
        join_neighbors(graph, base, np.array([[0, 80]], dtype=np.int32))
    with pytest.raises(ValueError, match=r"expected neighbours \[n_queries, at most 64\]"):
        join_neighbors(graph, base, np.zeros((1, 65), dtype=np.int32))
    with pytest.raises(ValueError, match="expected a degree of at least 4, as now, got 3"):
        join_neighbors(graph, base, np.zeros((1, 2), dtype=np.int32), degree=3)
