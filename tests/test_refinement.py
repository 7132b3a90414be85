"""Laws of refining: neighbours by a rule that a slow twin spells out, and nobody is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route import RoutingIndex, _core, from_faiss, load
from l2route.datasets import demo_words
from l2route.graph import Graph, hops_from, report
from l2route.memory import pad_rows
from l2route.metrics import knn_recall_at
from l2route.refinement import refine_graph
from l2route.spaces import BaseVectors
from l2route.truth import exact_neighbors

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(600, 12)).astype(np.float32)


def slow_choice(
    vectors: NDArray[np.float32],
    vertex: int,
    candidates: set[int],
    degree: int,
    alpha: float | None,
) -> list[int]:
    """From near to far, those to which no one taken before is much nearer; all without an alpha."""

    def squared(a: int, b: int) -> np.float32:
        return ((vectors[a] - vectors[b]) ** 2).sum(dtype=np.float32)

    taken: list[int] = []
    for one in sorted(candidates, key=lambda other: (squared(vertex, other), other)):
        if len(taken) == degree:
            break
        if alpha is None or not any(
            np.float32(alpha) * squared(one, other) < squared(vertex, one) for other in taken
        ):
            taken.append(one)
    return taken


def slow_lists(
    vectors: NDArray[np.float32], candidates: NDArray[np.int32], degree: int, alpha: float
) -> list[list[int]]:
    """Choose, add whoever chose the vertex, and choose again where there are too many."""
    n = len(vectors)
    own = [set(candidates[v].tolist()) - {-1, v} for v in range(n)]
    chosen = [slow_choice(vectors, v, own[v], degree, alpha) for v in range(n)]
    lists = []
    for v in range(n):
        both = {*chosen[v], *(u for u in range(n) if v in chosen[u])}
        is_full = len(both) > degree
        lists.append(slow_choice(vectors, v, both, degree, alpha if is_full else None))
    return lists


@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 24),
    width=st.integers(1, 30),
    degree=st.integers(1, 8),
    alpha=st.sampled_from([1.0, 1.15, 2.0]),
)
@pytest.mark.parametrize("simd", _core.simd_levels())
def test_lists_are_those_of_the_slow_twin(
    simd: str, seed: int, n: int, width: int, degree: int, alpha: float
) -> None:
    """Among ties, twins and candidates that come twice; whole numbers, so that sums are exact."""
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-3, 4, size=(n, 3)).astype(np.float32)
    candidates = rng.integers(-1, n, size=(n, width)).astype(np.int32)
    expected = slow_lists(vectors, candidates, degree, alpha)
    for n_threads in (1, 2):
        lists = _core.pruned_lists(
            rows=pad_rows(vectors),
            candidates=candidates,
            degree=degree,
            alpha=alpha,
            n_threads=n_threads,
            simd=simd,
        )
        assert lists.shape == (n, degree)
        assert [[one for one in row.tolist() if one >= 0] for row in lists] == expected


@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 60),
    degree=st.integers(1, 6),
    n_islands=st.integers(1, 5),
)
def test_nobody_is_lost_who_was_found(seed: int, n: int, degree: int, n_islands: int) -> None:
    """Over islands far apart and graphs of any kind, a refined graph reaches all that it can."""
    rng = np.random.default_rng(seed)
    islands = 100 * rng.normal(size=(n_islands, 2))
    vectors = islands[rng.integers(0, n_islands, n)] + rng.normal(size=(n, 2))
    neighbors = np.sort(rng.integers(-1, n, size=(n, degree)), axis=1)[:, ::-1].astype(np.int32)
    graph = Graph(np.ascontiguousarray(neighbors), np.zeros(1, dtype=np.int32))
    refined = refine_graph(graph, BaseVectors.of(vectors, "l2"), degree=degree + 1)
    assert refined.neighbors.shape == (n, degree + 1)
    assert (refined.neighbors != np.arange(n)[:, None]).all()
    for row in refined.neighbors:
        ids = row[row >= 0].tolist()
        assert len(set(ids)) == len(ids)
    if degree > 1:  # with two places a chain may have none free
        assert report(refined).n_unreachable == 0


def test_lost_parts_are_taken_in_by_one_edge_each() -> None:
    """Two islands that know only themselves; whoever was found before is found still."""
    vectors = np.array([[0.0], [1.0], [2.0], [50.0], [51.0], [90.0], [91.0]])
    rows = [[1, 2], [0, 2], [1, 0], [4, -1], [3, -1], [6, -1], [5, -1]]
    graph = Graph(np.array(rows, dtype=np.int32), np.zeros(1, dtype=np.int32))
    base = BaseVectors.of(vectors, "l2")
    refined = refine_graph(graph, base, n_candidates=1)
    assert (hops_from(graph, graph.entries) < 0).sum() == 4
    assert (hops_from(refined, refined.entries) < 0).sum() == 0
    edges = [(v, u) for v, row in enumerate(refined.neighbors.tolist()) for u in row if u >= 0]
    for part, shore in (((3, 4), 3), ((5, 6), 5)):
        assert [u for v, u in edges if v not in part and u in part] == [shore]


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_the_same_for_any_number_of_threads(metric: str) -> None:
    """And for half floats nearly so; answers of an exhaustive search stay exact."""
    indexes = [RoutingIndex.build(VECTORS, metric, degree=8) for _ in range(3)]
    indexes[2].compress(None, "float16")
    for index, n_threads in zip(indexes, (1, 3, 1), strict=True):
        index.refine(n_threads=n_threads)
    one, three, half = (index.graph.neighbors for index in indexes)
    np.testing.assert_array_equal(one, three)
    assert (one == half).mean() > 0.95
    found = indexes[0].search(VECTORS, k=3, ef=len(VECTORS))
    expected = exact_neighbors(VECTORS, VECTORS, 3, metric)
    np.testing.assert_allclose(found.distances, expected.distances, atol=1e-5)


def test_upper_layers_entries_labels_and_spaces_stay(tmp_path: Path) -> None:
    """What was measured is forgotten; all else is as it was, saved and loaded too."""
    index = RoutingIndex.build(VECTORS, graph="hnsw", degree=8)
    index.validate_with(VECTORS[:50])
    index.compress("int8")
    index.setting(0.5)
    upper, entries = index.graph.upper, index.graph.entries
    index.refine(degree=12, n_candidates=20, alpha=1.3)
    assert index.graph.upper is upper
    assert index.graph.entries is entries
    assert index.graph.neighbors.shape == (600, 12)
    facts = index.info()
    assert facts["settings"] == facts["losses"] == []
    assert [space.name for space in index.spaces] == ["original", "original-int8"]
    index.renumber()
    index.save(tmp_path / "index")
    again = load(tmp_path / "index")
    np.testing.assert_array_equal(again.graph.neighbors, index.graph.neighbors)
    np.testing.assert_array_equal(
        again.search(VECTORS[:40], ef=30).ids, index.search(VECTORS[:40], ef=30).ids
    )
    assert again.search(VECTORS[7], k=1, ef=30).ids.tolist() == [[7]]


def test_graphs_of_others_can_be_refined() -> None:
    """A graph of faiss finds more for as many distances."""
    import faiss

    theirs = faiss.IndexHNSWFlat(12, 8)
    theirs.hnsw.efConstruction = 20
    theirs.add(VECTORS)
    index = from_faiss(theirs)
    truth = exact_neighbors(VECTORS, VECTORS, 10)

    def recall() -> float:
        found = index.search(VECTORS, k=10, budget=100)
        return knn_recall_at(found.distances, truth.distances, 10)

    before = recall()
    index.refine()
    assert recall() > before + 0.02


def test_words_are_found_with_fewer_distances() -> None:
    """Recall@10 of 1,000 words among 10,000 at 300 distances, before and after, from both sides."""
    data = demo_words(n_base=10_000, n_learn=1, n_query=1_000).dataset
    truth = exact_neighbors(data.base, data.query, 10)
    index = RoutingIndex.build(data.base, degree=32, entry="medoids")
    recalls = []
    for _ in range(2):
        found = index.search(data.query, k=10, budget=300)
        recalls.append(knn_recall_at(found.distances, truth.distances, 10))
        index.refine()
    assert recalls == pytest.approx([0.7206, 0.7725], abs=0.02)


@pytest.mark.parametrize(
    "wrong",
    [
        {"degree": 0},
        {"n_candidates": 0},
        {"n_threads": -1},
        {"alpha": 0.9},
        {"alpha": np.nan},
        {"alpha": np.inf},
    ],
)
def test_wrong_numbers_are_refused(wrong: dict[str, float]) -> None:
    """And the index stays as it is."""
    index = RoutingIndex.build(VECTORS, degree=8)
    graph = index.graph
    with pytest.raises(ValueError, match="expected"):
        index.refine(**wrong)
    assert index.graph is graph


def test_inner_products_are_refused() -> None:
    """They are no distances: nothing can be said to be nearer to another."""
    with pytest.raises(ValueError, match="l2 or cosine"):
        RoutingIndex.build(VECTORS, "ip", degree=8).refine()
