"""Laws of entry points that depend on the query."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_search_twin import random_graph
from entry_tables import entries_by_hand, random_table, rows_scored
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.codes import compress_space
from l2route.search.limits import Limits, spent
from l2route.search.searcher import Searcher
from l2route.search.space import original_space, pca_space

N, DIM = 60, 8
SPACES = ["original", "int8", "pca"]


def space_of(kind: str, base: BaseVectors):
    """A routing space over vectors."""
    if kind == "pca":
        return pca_space(base, 3)
    space = original_space(base)
    return space if kind == "original" else compress_space(space, "int8")


def ring(rng: np.random.Generator) -> Graph:
    """A graph in which every vertex reaches all others, with random edges beside."""
    others = rng.integers(0, N, size=(N, 4))
    lists = np.concatenate([(np.arange(N)[:, None] + 1) % N, others], axis=1)
    return Graph(np.ascontiguousarray(lists, dtype=np.int32), np.array([0], dtype=np.int32))


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(SPACES),
    limits=st.sampled_from(
        [Limits(ef=4), Limits(slack=0.1, rerank=8), Limits(budget=40, rerank=5), Limits(ef=30)]
    ),
    n_threads=st.integers(1, 2),
)
def test_walks_start_at_the_entry_points_of_the_cluster(
    seed: int, kind: str, limits: Limits, n_threads: int
) -> None:
    """Answers are those of a graph entered there; the cost of finding the cluster is counted."""
    rng = np.random.default_rng(seed)
    base = BaseVectors.of(rng.normal(size=(N, DIM)).astype(np.float32), "l2")
    table, space = random_table(rng, N, DIM), space_of(kind, base)
    graph = replace(ring(rng), table=table)
    queries = rng.normal(size=(5, DIM)).astype(np.float32)
    queries[:, table.coordinates] += table.centroids[rng.integers(len(table.centroids), size=5)]
    found = Searcher(graph, space, base).search(queries, 3, limits=limits, n_threads=n_threads)
    for i, query in enumerate(queries):
        cost = -(-rows_scored(table, query) * len(table.coordinates) // space.dim)
        plain = Searcher(graph.entered_at(entries_by_hand(table, graph, query)), space, base)
        left = limits
        if limits.budget is not None:
            total = spent(cost, 0, 0, space.dim, DIM)
            left = limits._replace(budget=int(limits.budget - total))
            assert found.n_computed[i] <= limits.budget
        expected = plain.search(query, 3, limits=left)
        if limits.budget is None or total == int(total):
            assert found.n_routing[i] == expected.n_routing[0] + cost
            assert found.ids[i].tolist() == expected.ids[0].tolist()


@given(seed=st.integers(0, 2**32 - 1), metric=st.sampled_from(["l2", "ip", "cosine"]))
def test_an_exhaustive_search_is_exact(seed: int, metric: str) -> None:
    """Wherever walks start, what is reachable from the first entry point is found."""
    rng = np.random.default_rng(seed)
    base = BaseVectors.of(rng.normal(size=(N, DIM)).astype(np.float32), metric)
    graph = ring(rng)
    queries = rng.normal(size=(4, DIM)).astype(np.float32)
    space = original_space(base)
    expected = Searcher(graph, space, base).search(queries, 5, limits=Limits(ef=N))
    table = random_table(rng, N, DIM)
    found = Searcher(replace(graph, table=table), space, base).search(
        queries, 5, limits=Limits(ef=N)
    )
    assert found.ids.tolist() == expected.ids.tolist()


@pytest.mark.parametrize("limits", [Limits(ef=N), Limits(budget=3 * N)])
def test_a_walk_that_is_stuck_goes_on_from_the_entry_points_of_the_graph(limits: Limits) -> None:
    """Of two parts that do not reach each other both are found, wherever the table leads."""
    rng = np.random.default_rng(0)
    base = BaseVectors.of(rng.normal(size=(N, DIM)).astype(np.float32), "l2")
    half = N // 2
    following = np.concatenate([(np.arange(half) + 1) % half, half + (np.arange(half) + 1) % half])
    entries = np.array([0, half], dtype=np.int32)
    lists = following.astype(np.int32)[:, None]
    table = random_table(rng, N, DIM)
    for part in (0, half):
        own = replace(table, vertices=np.full_like(table.vertices, part))
        graph = Graph(np.ascontiguousarray(lists), entries, table=own)
        searcher = Searcher(graph, original_space(base), base)
        found = searcher.search(base.vectors(), 1, limits=limits)
        assert found.ids[:, 0].tolist() == list(range(N))


def test_a_budget_too_small_for_the_table_starts_at_the_plain_entry_points() -> None:
    """Tiny budgets are kept too."""
    rng = np.random.default_rng(0)
    base = BaseVectors.of(rng.normal(size=(N, DIM)).astype(np.float32), "l2")
    table, space = random_table(rng, N, DIM), original_space(base)
    graph = random_graph(rng, N, 6, 0)
    for budget in range(1, 12):
        found = [
            Searcher(each, space, base).search(base.vectors()[:4], 1, limits=Limits(budget=budget))
            for each in (graph, replace(graph, table=table))
        ]
        assert (found[1].n_computed <= budget).all()
        if budget == 1:
            assert found[0].ids.tolist() == found[1].ids.tolist()


def test_clusters_whose_entry_points_are_gone_start_at_the_first_of_the_graph() -> None:
    """A cluster without entry points is no dead end."""
    rng = np.random.default_rng(0)
    base = BaseVectors.of(rng.normal(size=(N, DIM)).astype(np.float32), "l2")
    table = random_table(rng, N, DIM)
    table.forget(np.full(N, -1, dtype=np.int64))
    assert (table.vertices == -1).all()
    graph, space = random_graph(rng, N, 6, 0), original_space(base)
    queries = base.vectors()[:7]
    first = graph.entered_at(graph.entries[:1])
    expected = Searcher(first, space, base).search(queries, 3, limits=Limits(ef=9))
    found = Searcher(replace(graph, table=table), space, base).search(
        queries, 3, limits=Limits(ef=9)
    )
    assert found.ids.tolist() == expected.ids.tolist()


def test_coordinates_beyond_the_dimension_are_refused() -> None:
    """A table of queries of more dimensions does not fit."""
    rng = np.random.default_rng(0)
    base = BaseVectors.of(rng.normal(size=(N, DIM)).astype(np.float32), "l2")
    table = replace(random_table(rng, N, DIM), coordinates=np.array([0, DIM], dtype=np.int32))
    graph = replace(random_graph(rng, N, 6, 0), table=table)
    with pytest.raises(ValueError, match=f"coordinates below {DIM}, got {DIM}"):
        Searcher(graph, original_space(base), base)
