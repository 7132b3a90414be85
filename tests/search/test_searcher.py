"""Laws of beam search: it equals its twin, and threads and batches do not matter."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from beam_search_twin import CASES, Case, beam_search, check_found, random_graph
from indexes import SmallWorld
from l2route import _core
from l2route.graph.build import GraphOptions, build_graph
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.layout import pad_rows
from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, original_space

SIMD_LEVELS = _core.simd_levels()


@given(case=CASES, simd=st.sampled_from(SIMD_LEVELS))
def test_search_equals_its_twin(case: Case, simd: str) -> None:
    """The core equals the heapq twin in ids, order, counts and visited vertices."""
    graph, base, space, query, _ = case.drawn()
    found = Searcher(graph, space, base, simd).search(query, case.k, limits=case.limits, trace=True)

    scores = _core.Rows(base.rows, case.scorer, simd=simd).scores(pad_rows(query)[0])
    routing = scores if space.bias is None else scores - space.bias
    walk = beam_search(graph, lambda v: float(routing[v]), case.most, case.beam)
    kept = [v for _, v in walk.best(case.n_rerank or case.n)]
    answers = sorted((float(scores[v]), v) for v in kept)[: case.k]
    check_found(found, walk, answers, len(kept) if case.n_rerank else 0)
    missing = case.k - len(answers)
    assert found.distances[0].tolist() == [s for s, _ in answers] + [np.inf] * missing


@given(seed=st.integers(0, 2**32 - 1), ef=st.none() | st.integers(1, 20))
def test_projection_equals_its_twin(seed: int, ef: int | None) -> None:
    """With a query matrix, answers and costs equal those of the twin."""
    rng = np.random.default_rng(seed)
    n, dim, routing_dim = 40, 6, 2
    base = BaseVectors.of(rng.integers(-3, 4, (n, dim)), "l2")
    matrix = rng.integers(-2, 3, (routing_dim, dim)).astype(np.float32)
    routing_vectors = rng.integers(-9, 10, (n, routing_dim)).astype(np.float32)
    space = RoutingSpace(pad_rows(routing_vectors), routing_dim, "ip", matrix)
    graph = random_graph(rng, n, 5, 0)
    query = rng.integers(-3, 4, (1, dim)).astype(np.float32)

    limits = Limits(17, ef, rerank=6)  # 27 = (17 - 6 - 2) * 6 / 2 to route with
    found = Searcher(graph, space, base).search(query, 4, limits=limits)

    routing = -routing_vectors @ (matrix @ query[0])
    beam = None if ef is None else max(ef, 6)
    walk = beam_search(graph, lambda v: float(routing[v]), 27, beam)
    true = ((base.vectors() - query) ** 2).sum(axis=1)
    answers = sorted((float(true[v]), v) for _, v in walk.best(6))[:4]
    assert [v for v in found.ids[0].tolist() if v >= 0] == [v for _, v in answers]
    assert found.n_projection == routing_dim
    spent = len(walk.scores) * routing_dim / dim + routing_dim + found.n_rerank[0]
    assert found.n_computed[0] == pytest.approx(spent)


@pytest.mark.parametrize("simd", _core.simd_levels())
def test_a_score_that_is_not_a_number_is_farthest(simd: str) -> None:
    """A NaN score, the difference of two infinite products, ranks last.

    Users' vectors are checked before; those loaded from a file without verification are not.
    """
    vectors = np.array([[1e30, -1e30], [1, 1], [-1, 0.5]], dtype=np.float32)
    neighbors = np.array([[1, 2], [0, 2], [0, 1]], dtype=np.int32)
    graph = Graph(neighbors, np.zeros(1, dtype=np.int32))
    base = BaseVectors(pad_rows(vectors), 2, "ip")
    searcher = Searcher(graph, original_space(base), base, simd)
    query = np.array([1e15, 1e15], dtype=np.float32)
    for limits in (Limits(ef=3), Limits(budget=3)):
        found = searcher.search(query, 3, limits=limits)
        assert found.ids.tolist() == [[1, 2, 0]]
        assert found.distances[0, 2] == np.inf


@pytest.mark.parametrize("rerank", [None, 8])
@pytest.mark.parametrize("budget", [1, 7, 64, 333])
def test_a_budget_is_spent_to_the_last(
    small_world: SmallWorld, budget: int, rerank: int | None
) -> None:
    """In an exact space a search of a connected graph spends its whole budget."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    result = searcher.search(small_world.queries, 3, limits=Limits(budget, rerank=rerank))
    assert (result.n_computed == budget).all()


def test_exhaustive_search_is_exact(small_world: SmallWorld) -> None:
    """A budget that covers a connected graph finds the true neighbours."""
    vectors = small_world.base.vectors()
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    result = searcher.search(small_world.queries, 5, limits=Limits(len(vectors)))
    true = ((vectors[None] - small_world.queries[:, None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(result.ids, np.argsort(true, axis=1, kind="stable")[:, :5])
    assert (result.n_computed == len(vectors)).all()


def test_a_vertex_finds_itself(small_world: SmallWorld) -> None:
    """Self-recall is 1: an exhaustive beam finds every vector at distance 0."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    result = searcher.search(small_world.base.vectors(), 1, limits=Limits(ef=600))
    np.testing.assert_array_equal(result.ids[:, 0], np.arange(len(small_world.base.rows)))
    assert (result.distances == 0).all()


def answers(result: SearchResult) -> list[NDArray[np.generic]]:
    """Answers and counts, for comparison."""
    return [result.ids, result.distances, result.n_routing, result.n_hops]


@pytest.mark.parametrize("n_threads", [2, 3, 8])
def test_threads_change_nothing(small_world: SmallWorld, n_threads: int) -> None:
    """Answers, counts and traces do not depend on the number of threads."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    one = searcher.search(small_world.queries, 5, limits=Limits(100), n_threads=1, trace=True)
    many = searcher.search(
        small_world.queries, 5, limits=Limits(100), n_threads=n_threads, trace=True
    )
    for a, b in zip(answers(one), answers(many), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.trace is not None
    assert many.trace is not None
    np.testing.assert_array_equal(one.trace.vertices, many.trace.vertices)
    np.testing.assert_array_equal(one.trace.offsets, many.trace.offsets)


def test_one_query_is_a_batch_of_one(small_world: SmallWorld) -> None:
    """Queries searched one by one, also as vectors [dim], answer as in a batch."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    batch = searcher.search(small_world.queries, 5, limits=Limits(100))
    single = [searcher.search(query, 5, limits=Limits(100)) for query in small_world.queries]
    for i, result in enumerate(single):
        for a, b in zip(answers(batch), answers(result), strict=True):
            np.testing.assert_array_equal(a[i], b[0])


def test_visited_stamps_survive_many_searches(small_world: SmallWorld) -> None:
    """Repeated searches agree after the 8-bit visited stamps wrap around."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    query = small_world.queries[:1]
    first = searcher.search(query, 5, limits=Limits(200))
    for _ in range(600):
        again = searcher.search(query, 5, limits=Limits(200))
        np.testing.assert_array_equal(first.ids, again.ids)
        assert first.n_hops == again.n_hops


def test_a_wider_beam_finds_no_less(small_world: SmallWorld) -> None:
    """On average a wider beam computes more and finds nearer neighbours."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    results = [
        searcher.search(small_world.queries, 1, limits=Limits(ef=ef)) for ef in (1, 8, 64, 512)
    ]
    for narrow, wide in pairwise(results):
        assert wide.n_routing.mean() > narrow.n_routing.mean()
        assert wide.distances.mean() <= narrow.distances.mean()


def test_hnsw_descent_starts_near_the_answer() -> None:
    """At a small budget, HNSW with upper layers finds nearer answers than its bottom layer."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(3000, 4)).astype(np.float32)
    queries = rng.normal(size=(200, 4)).astype(np.float32)
    layered = build_graph(vectors, options=GraphOptions("hnsw", degree=8, ef_construction=40))
    base = BaseVectors.of(vectors, "l2")
    far = int(((vectors - vectors.mean(axis=0)) ** 2).sum(axis=1).argmax())
    flat = layered.entered_at([far])
    found = [
        Searcher(graph, original_space(base), base)
        .search(queries, 1, limits=Limits(60))
        .distances.mean()
        for graph in (layered, flat)
    ]
    assert found[0] < 0.75 * found[1]


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_distances_follow_the_convention(metric: str) -> None:
    """Distances are squared l2, negative inner products or one minus the cosine."""
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(50, 7))
    vectors[3] = 0  # no direction: its cosine with anything is 0
    query = rng.normal(size=(1, 7))
    base = BaseVectors.of(vectors, metric)  # type: ignore[arg-type] # a parameter of the test
    graph = build_graph(vectors, metric, GraphOptions("knn", degree=49))
    result = Searcher(graph, original_space(base), base).search(query, 50, limits=Limits(50))
    lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
    expected = {
        "l2": ((vectors - query) ** 2).sum(axis=1),
        "ip": -vectors @ query[0],
        "cosine": 1 - vectors @ query[0] / lengths / np.linalg.norm(query),
    }[metric]
    np.testing.assert_allclose(result.distances[0], np.sort(expected), rtol=1e-4, atol=1e-5)
    assert sorted(result.ids[0].tolist()) == list(range(50))
