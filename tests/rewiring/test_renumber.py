"""Laws of renumbering."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from indexes import (
    QUERIES,
    same_results,
)
from l2route import _core
from l2route.graph.build import GraphOptions, build_graph
from l2route.index import RoutingIndex, load
from l2route.rewiring.renumber import numbers_in, renumber_graph
from l2route.search.limits import Limits


def test_renumbering_changes_no_answer(index: RoutingIndex, tmp_path: Path) -> None:
    """Renumbering keeps ids, distances, costs and settings in every space, also when saved."""
    index.save(tmp_path / "before")
    again = load(tmp_path / "before")
    again.renumber()
    before, after = index.info(), again.info()
    for facts in (before, after):
        facts["graph"].pop("entries")
        facts.pop("bytes_per_vector"), facts.pop("labelled")
    assert after == before
    again.save(tmp_path / "after")
    for other in (again, load(tmp_path / "after")):
        for space in index.spaces:
            for limit in ({"budget": 100}, {"ef": 20}):
                a = index.search(QUERIES, k=5, space=space.name, **limit)
                b = other.search(QUERIES, k=5, space=space.name, **limit)
                assert same_results(a, b)
    if index.validation is not None:
        assert again.validation is not None
        limits = Limits(ef=20)
        found = index.searcher().search(index.validation.queries, 5, limits=limits).ids
        renamed = again.searcher().search(index.validation.queries, 5, limits=limits).ids
        recalls = [
            each.validation.judge(each.base, 5)(answers)
            for each, answers in ((index, found), (again, renamed))
        ]
        assert recalls[0] == recalls[1]


@given(seed=st.integers(0, 999), n=st.integers(1, 40), width=st.integers(1, 5))
def test_breadth_first_order_is_that_of_a_queue(seed: int, n: int, width: int) -> None:
    """The order equals that of a queue, restarted at the first vertex not yet reached."""
    rng = np.random.default_rng(seed)
    neighbors = np.full((n, width), -1, dtype=np.int32)
    for row in neighbors:
        degree = rng.integers(0, width + 1)
        row[:degree] = rng.integers(0, n, degree)
    entries = rng.choice(n, rng.integers(1, min(n, 3) + 1), replace=False).astype(np.int32)
    expected: list[int] = entries.tolist()
    waiting, fresh = list(expected), iter(range(n))
    while len(expected) < n or waiting:
        if not waiting:
            vertex = next(v for v in fresh if v not in expected)
            expected.append(vertex)
            waiting.append(vertex)
        for u in neighbors[waiting.pop(0)].tolist():
            if u >= 0 and u not in expected:
                expected.append(u)
                waiting.append(u)
    order = _core.breadth_first_order(_core.Graph(neighbors, entries, []))
    assert order.tolist() == expected


@given(seed=st.integers(0, 999), n=st.integers(2, 40))
def test_renumbering_back_gives_the_graph(seed: int, n: int) -> None:
    """Renumbering by a permutation and its inverse restores the graph with upper layers."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 3)).astype(np.float32)
    graph = build_graph(vectors, "l2", GraphOptions("hnsw", 4, 20))
    order = rng.permutation(n)
    again = renumber_graph(renumber_graph(graph, order), numbers_in(order))
    np.testing.assert_array_equal(again.neighbors, graph.neighbors)
    np.testing.assert_array_equal(again.entries, graph.entries)
    for ours, theirs in zip(again.upper, graph.upper, strict=True):
        np.testing.assert_array_equal(ours.vertices, theirs.vertices)
        np.testing.assert_array_equal(ours.neighbors, theirs.neighbors)
