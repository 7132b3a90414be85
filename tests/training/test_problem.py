"""Laws of problems: training queries, base vectors as training queries, hubs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.truth import Truth, exact_neighbors
from l2route.data.vectors import Metric
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import original_space
from l2route.training import problem as posing
from l2route.training.base_queries import base_as_queries, look_alike, nearest_others
from l2route.training.footprint import max_hop_blocks
from l2route.training.options import LearnOptions
from l2route.training.oracle import BLOCK_TARGETS
from l2route.training.problem import CHOOSING, CONFIRMING, Problem, pose
from l2route.training.start import N_SAMPLED, find_hubs

OPTIONS = LearnOptions(budget=48, rerank=4, n_validation=200)
DIM = 8


def draw(n: int, seed: int, shift: float = 0.0) -> NDArray[np.float32]:
    """Normal vectors, each coordinate shifted [n, DIM]."""
    return (np.random.default_rng(seed).normal(size=(n, DIM)) + shift).astype(np.float32)


@pytest.fixture(scope="module")
def index() -> RoutingIndex:
    """A graph over 2,000 vectors."""
    return RoutingIndex.build(draw(2000, 0), degree=8, ef_construction=40, entry=0, refine=False)


def pose_on(index: RoutingIndex, queries: NDArray[np.float32], options: LearnOptions) -> Problem:
    """The problem of these queries on the index's graph."""
    return pose(index.graph, index.base, queries, options)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("seed", range(3))
def test_queries_of_the_same_distribution_look_alike(metric: Metric, seed: int) -> None:
    """Queries of the distribution of base vectors are recognised, whatever their number."""
    base = BaseVectors.of(draw(3000, 10 + seed), metric)
    for n in (500, 6000):
        assert look_alike(base, draw(n, 20 + seed), draw(300, 30 + seed), seed)


@pytest.mark.parametrize("shift", [-2.0, 1.5])
def test_queries_of_another_distribution_do_not_look_alike(shift: float) -> None:
    """Shifted queries, nearer to each other than to base vectors, do not look like them."""
    base = BaseVectors.of(draw(3000, 1), "l2")
    assert not look_alike(base, draw(3000, 2, shift), draw(300, 3, shift), 0)


def test_by_inner_product_queries_never_look_alike() -> None:
    """By inner product base vectors are not used as queries, whatever the distribution."""
    assert not look_alike(BaseVectors.of(draw(3000, 1), "ip"), draw(3000, 2), draw(300, 3), 0)


def test_base_vectors_are_training_queries_too(index: RoutingIndex) -> None:
    """They follow the queries, hidden from their own walks, unless the option is off."""
    queries = draw(1000, 1)
    both = pose_on(index, queries, OPTIONS)
    alone = pose_on(index, queries, replace(OPTIONS, learns_from_base=False))
    n = len(alone.train)
    assert n == 800
    assert (alone.hidden == -1).all()
    np.testing.assert_array_equal(both.train[:n], alone.train)
    np.testing.assert_array_equal(both.targets[:n], alone.targets)
    np.testing.assert_array_equal(both.hidden[:n], alone.hidden)
    vectors = index.base.vectors()
    np.testing.assert_array_equal(both.train[n:], vectors[both.hidden[n:]])
    np.testing.assert_array_equal(both.nearest, alone.nearest)
    assert 0 not in both.hidden  # the entry point
    elsewhere = pose_on(index, draw(1000, 1, shift=3.0), OPTIONS)
    assert len(elsewhere.train) == 800


def test_the_target_of_a_base_vector(index: RoutingIndex) -> None:
    """The target is the nearest graph neighbour, in over 95% of cases the nearest vector of all."""
    vectors = index.base.vectors()
    others = nearest_others(index.graph, index.base, OPTIONS)
    ids, nearest = base_as_queries(index.graph, others, np.zeros(0, np.int64), 4)
    nearest = nearest[:, 0]
    np.testing.assert_array_equal(ids, np.arange(1, len(vectors)))
    for i in (1, 7, 1999):
        row = index.graph.neighbors[i]
        linked = row[row >= 0]
        apart = ((vectors[linked] - vectors[i]) ** 2).sum(axis=1)
        assert nearest[i - 1] == linked[apart.argmin()]
    distances = ((vectors[:, None] - vectors) ** 2).sum(axis=2)  # [n, n]
    np.fill_diagonal(distances, np.inf)
    assert (distances.argmin(axis=1)[ids] == nearest).mean() > 0.95


def test_entry_points_and_dead_ends_are_no_training_queries() -> None:
    """Of three vertices, the entry point and the one without neighbours are left out."""
    neighbors = np.array([[1, 2], [2, -1], [-1, -1]], np.int32)
    graph = Graph(neighbors, np.array([0], np.int32))
    others = nearest_others(graph, BaseVectors.of(draw(3, 0), "l2"), OPTIONS)
    ids, nearest = base_as_queries(graph, others, np.array([2]), 1)
    assert (ids.tolist(), nearest.tolist()) == ([1], [[2]])


def test_the_k_targets_of_a_base_vector(index: RoutingIndex) -> None:
    """For k > 1 targets are found by search, without the vector itself but with its copies."""
    vectors = index.base.vectors()
    options = replace(OPTIONS, k=4)
    found = nearest_others(index.graph, index.base, options)
    distances = ((vectors[:, None] - vectors) ** 2).sum(axis=2)  # [n, n]
    np.fill_diagonal(distances, np.inf)
    expected = np.argsort(distances, axis=1)[:, :4]
    assert (found == expected).all(axis=1).mean() > 0.95
    assert (found != np.arange(len(vectors))[:, None]).all()
    ids, nearest = base_as_queries(index.graph, found, np.zeros(0, np.int64), 4)
    np.testing.assert_array_equal(nearest, found[ids])
    twins = BaseVectors.of(np.zeros((12, DIM)), "l2")
    whole = Graph(np.tile(np.arange(12, dtype=np.int32), (12, 1)), np.array([0], np.int32))
    among = nearest_others(whole, twins, options)
    assert among.shape == (12, 4)
    assert (among != np.arange(12)[:, None]).all()


def test_targets_and_recall_are_of_the_k_nearest(index: RoutingIndex) -> None:
    """Targets are the true k nearest neighbours, and validation measures recall@k."""
    options = replace(OPTIONS, k=3, learns_from_base=False)
    problem = pose_on(index, draw(1000, 1), options)
    truth = exact_neighbors(index.base.vectors(), problem.train, 3)
    np.testing.assert_array_equal(problem.targets, truth.ids)
    space = original_space(index.base)
    queries = problem.validation.queries
    found = Searcher(index.graph, space, index.base).search(
        queries, 3, limits=Limits(OPTIONS.goals[0].budget)
    )
    true = exact_neighbors(index.base.vectors(), queries, 100).ids
    np.testing.assert_array_equal(problem.validation.neighbors, true)
    shares = np.array(
        [len(set(a) & set(b)) / 3 for a, b in zip(found.ids, true[:, :3], strict=True)]
    )
    for part in (CHOOSING, CONFIRMING):
        np.testing.assert_allclose(problem.recalls(space, options.goals[0], part), shares[part])
    assert len(shares[CHOOSING]) == len(shares[CONFIRMING]) == 100
    with pytest.raises(ValueError, match="expected k of at most 2000, got 2001"):
        pose_on(index, draw(1000, 1), replace(OPTIONS, k=2001, rerank=2001, budget=3000))
    with pytest.raises(ValueError, match=r"expected k in \[1, 4\], the rerank, got 5"):
        replace(OPTIONS, k=5)


def test_targets_fit_the_memory_for_hops(index: RoutingIndex) -> None:
    """Base vectors with a target for which there is no room are left out."""
    block_gb = index.graph.n_vertices * BLOCK_TARGETS / 2 / 1e9
    assert max_hop_blocks(index.graph.n_vertices, 3.5 * block_gb) == 3
    n_blocks = max_hop_blocks(index.graph.n_vertices, block_gb)
    known = np.arange(400)
    others = nearest_others(index.graph, index.base, OPTIONS)
    ids, nearest = base_as_queries(index.graph, others, known, n_blocks)
    targets = np.union1d(known, nearest)
    assert len(targets) == BLOCK_TARGETS
    unlimited, _ = base_as_queries(index.graph, others, np.arange(2000), n_blocks)
    assert 0 < len(ids) < len(unlimited)
    posed = pose_on(index, draw(1000, 1), replace(OPTIONS, memory_gb=block_gb))
    assert posed.sizes.blocks == 1


def test_hubs_are_visited_often(index: RoutingIndex) -> None:
    """Hubs are the vertices with at least `visits_per_weight` visits per epoch and weight."""
    problem = pose_on(index, draw(1000, 1), OPTIONS)
    hubs = find_hubs(problem, OPTIONS, OPTIONS.goals)
    searcher = Searcher(problem.graph, original_space(problem.base), problem.base)
    sample = problem.train[:N_SAMPLED]
    trace = searcher.search(sample, 1, limits=Limits(OPTIONS.goals[0].budget), trace=True).trace
    assert trace is not None
    passing = np.zeros(2000)
    for query in range(len(sample)):
        passing[trace.of(query)] += 1
    per_weight = passing / len(sample) * len(problem.train) / (DIM + 1)
    assert 5 < len(hubs) < 200
    np.testing.assert_array_equal(hubs, np.flatnonzero(per_weight >= OPTIONS.visits_per_weight))
    none = replace(OPTIONS, visits_per_weight=np.inf)
    assert not len(find_hubs(problem, none, OPTIONS.goals))
    assert 0 in hubs


def test_known_neighbours_are_not_computed(
    index: RoutingIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given neighbours make the same problem; only those of validation queries are computed."""
    queries, options = draw(1000, 1), replace(OPTIONS, k=3, learns_from_base=False)
    expected = pose_on(index, queries, options)
    known = exact_neighbors(index.base.vectors(), queries, 5).ids
    n_searched: list[int] = []

    def counted(base: object, probes: NDArray[np.float32], *more: Any, **options: Any) -> Truth:
        n_searched.append(len(probes))
        return exact_neighbors(base, probes, *more, **options)

    monkeypatch.setattr(posing, "exact_neighbors", counted)

    def with_known(neighbors: object) -> Problem:
        return pose(index.graph, index.base, queries, options, neighbors=neighbors)

    problem = with_known(known.astype(np.uint32))
    assert n_searched == [200]
    np.testing.assert_array_equal(problem.train, expected.train)
    np.testing.assert_array_equal(problem.targets, expected.targets)
    np.testing.assert_array_equal(problem.validation.queries, expected.validation.queries)
    np.testing.assert_array_equal(problem.nearest, expected.nearest)
    for wrong in (known[:, :2], known[1:], known.astype(float), known[0]):
        with pytest.raises(ValueError, match=r"expected neighbors int \[1000, at least 3\], got"):
            with_known(wrong)
    with pytest.raises(ValueError, match=r"expected neighbors in \[0, 2000\), got"):
        with_known(known + 1000)
