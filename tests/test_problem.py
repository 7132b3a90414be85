"""Laws of what is to be learned: queries, base vectors that serve as such, crossroads."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.graph import Graph
from l2route.oracle import BLOCK_TARGETS
from l2route.search import BaseVectors, Metric, Searcher, original_space
from l2route.training import problem as posing
from l2route.training.options import LearnOptions
from l2route.training.problem import Problem, base_as_queries, find_crossroads, look_alike, pose

OPTIONS = LearnOptions(budget=48, rerank=4, n_validation=200)
DIM = 8


def draw(n: int, seed: int, shift: float = 0.0) -> NDArray[np.float32]:
    """Normal vectors, moved along the diagonal."""
    return (np.random.default_rng(seed).normal(size=(n, DIM)) + shift).astype(np.float32)


@pytest.fixture(scope="module")
def index() -> RoutingIndex:
    """A graph over 2,000 vectors."""
    return RoutingIndex.build(draw(2000, 0), degree=8, ef_construction=40, entry=0)


def pose_on(index: RoutingIndex, queries: NDArray[np.float32], options: LearnOptions) -> Problem:
    """What these queries ask of the index."""
    return pose(index.graph, index.base, queries, options)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("seed", range(3))
def test_queries_of_the_same_kind_look_alike(metric: Metric, seed: int) -> None:
    """Queries drawn as base vectors are look like them, whatever the sizes of both."""
    base = BaseVectors.of(draw(3000, 10 + seed), metric)
    for n in (500, 6000):
        assert look_alike(base, draw(n, 20 + seed), draw(300, 30 + seed), seed)


@pytest.mark.parametrize("shift", [-2.0, 1.5])
def test_queries_from_elsewhere_do_not(shift: float) -> None:
    """Queries of another distribution are nearer to each other than to base vectors."""
    base = BaseVectors.of(draw(3000, 1), "l2")
    assert not look_alike(base, draw(3000, 2, shift), draw(300, 3, shift), 0)


def test_by_inner_product_nothing_looks_alike() -> None:
    """A vector need not be its own best match, so that base vectors are no queries."""
    assert not look_alike(BaseVectors.of(draw(3000, 1), "ip"), draw(3000, 2), draw(300, 3), 0)


def test_base_vectors_join_the_queries(index: RoutingIndex) -> None:
    """They come after the queries, hidden from their own walks; off, only queries are there."""
    queries = draw(1000, 1)
    both = pose_on(index, queries, OPTIONS)
    alone = pose_on(index, queries, replace(OPTIONS, learns_from_base=False))
    n = len(alone.train)
    assert n == 900
    assert (alone.hidden == -1).all()
    np.testing.assert_array_equal(both.train[:n], alone.train)
    np.testing.assert_array_equal(both.targets[:n], alone.targets)
    np.testing.assert_array_equal(both.hidden[:n], alone.hidden)
    vectors = index.base.vectors()
    np.testing.assert_array_equal(both.train[n:], vectors[both.hidden[n:]])
    np.testing.assert_array_equal(both.nearest, alone.nearest)
    assert 0 not in both.hidden  # walks begin there
    elsewhere = pose_on(index, draw(1000, 1, shift=3.0), OPTIONS)
    assert len(elsewhere.train) == 900


def test_a_base_vector_asks_for_its_nearest(index: RoutingIndex) -> None:
    """Its target is the nearest of its neighbours, which in most cases is the nearest of all."""
    vectors = index.base.vectors()
    ids, nearest = base_as_queries(index.graph, vectors, np.zeros(0, np.int64))
    np.testing.assert_array_equal(ids, np.arange(1, len(vectors)))
    for i in (1, 7, 1999):
        row = index.graph.neighbors[i]
        linked = row[row >= 0]
        apart = ((vectors[linked] - vectors[i]) ** 2).sum(axis=1)
        assert nearest[i - 1] == linked[apart.argmin()]
    distances = ((vectors[:, None] - vectors) ** 2).sum(axis=2)  # [n, n]
    np.fill_diagonal(distances, np.inf)
    assert (distances.argmin(axis=1)[ids] == nearest).mean() > 0.95


def test_a_vector_without_neighbours_asks_nothing() -> None:
    """Of three vertices in a row, the last has no way out and the first is the entry."""
    neighbors = np.array([[1, 2], [2, -1], [-1, -1]], np.int32)
    graph = Graph(neighbors, np.array([0], np.int32))
    ids, nearest = base_as_queries(graph, draw(3, 0), np.array([2]))
    assert (ids.tolist(), nearest.tolist()) == ([1], [2])


def test_the_oracle_holds_no_more_than_it_may(
    index: RoutingIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for few targets, base vectors are left out whose target is not among them."""
    block_bytes = index.graph.n_vertices * BLOCK_TARGETS // 2
    monkeypatch.setattr(posing, "MEMORY", block_bytes)
    known = np.arange(400)
    ids, nearest = base_as_queries(index.graph, index.base.vectors(), known)
    targets = np.unique(np.concatenate([known, nearest]))
    assert len(targets) == BLOCK_TARGETS
    everyone, _ = base_as_queries(index.graph, index.base.vectors(), np.arange(2000))
    assert 0 < len(ids) < len(everyone)


def test_crossroads_are_where_many_walks_pass(index: RoutingIndex) -> None:
    """As a count by hand has it: so many visits in an epoch for each weight."""
    problem = pose_on(index, draw(1000, 1), OPTIONS)
    crossroads = find_crossroads(problem, OPTIONS)
    searcher = Searcher(problem.graph, original_space(problem.base), problem.base)
    sample = problem.train[: posing.N_ASKED]
    budget = searcher.space.budget(OPTIONS.budget, DIM, 0)
    trace = searcher.search(sample, 1, budget, trace=True).trace
    assert trace is not None
    passing = np.zeros(2000)
    for query in range(len(sample)):
        passing[trace.of(query)] += 1
    per_weight = passing / len(sample) * len(problem.train) / (DIM + 1)
    assert 5 < len(crossroads) < 200
    np.testing.assert_array_equal(
        crossroads, np.flatnonzero(per_weight >= OPTIONS.visits_per_weight)
    )
    assert not len(find_crossroads(problem, replace(OPTIONS, visits_per_weight=np.inf)))
    assert 0 in crossroads
