"""Laws of refining: lists equal those of a slow twin, and all vertices are reachable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route import RoutingIndex, _core, from_faiss, load
from l2route.data.metrics import recall_at
from l2route.data.public import demo_words
from l2route.data.truth import Truth, exact_neighbors
from l2route.graph.graph import Graph, UpperLayer, compact_rows
from l2route.graph.report import report
from l2route.rewiring import connect as reachability
from l2route.rewiring.refine import refine_graph
from l2route.search.base import BaseVectors
from l2route.search.layout import pad_rows
from l2route.search.searcher import Searcher

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(600, 12)).astype(np.float32)


def slow_choice(
    vectors: NDArray[np.float32],
    vertex: int,
    candidates: set[int],
    degree: int,
    alpha: float | None,
) -> list[int]:
    """Keep candidates from near to far, unless a kept one equals them or is much nearer to them.

    All of them are kept if alpha is None.
    """

    def squared(a: int, b: int) -> np.float32:
        return ((vectors[a] - vectors[b]) ** 2).sum(dtype=np.float32)

    taken: list[int] = []
    for one in sorted(candidates, key=lambda other: (squared(vertex, other), other)):
        if len(taken) == degree:
            break
        if alpha is None or not any(
            squared(one, other) == 0
            or np.float32(alpha) * squared(one, other) < squared(vertex, one)
            for other in taken
        ):
            taken.append(one)
    return taken


def slow_lists(
    vectors: NDArray[np.float32], candidates: NDArray[np.int32], degree: int, alpha: float
) -> list[list[int]]:
    """Prune candidates, add reverse edges, and prune again if there are too many."""
    n = len(vectors)
    own = [set(candidates[v].tolist()) - {-1, v} for v in range(n)]
    chosen = [slow_choice(vectors, v, own[v], degree, alpha) for v in range(n)]
    lists = []
    for v in range(n):
        both = {*chosen[v], *(u for u in range(n) if v in chosen[u])}
        is_full = len(both) > degree
        lists.append(slow_choice(vectors, v, both, degree, alpha if is_full else None))
    return lists


def recalls_of_refining(
    index: RoutingIndex, queries: NDArray[Any], truth: Truth, budget: int
) -> list[float]:
    """Recall@10 within a budget before the index is refined, and after."""
    recalls = []
    for refine in (lambda: None, index.refine):
        refine()
        found = index.search(queries, k=10, budget=budget)
        recalls.append(recall_at(found.distances, truth.distances, 10))
    return recalls


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
    """Pruned lists equal those of the twin, with ties, equal vectors and repeated candidates.

    Vectors are whole numbers, so that sums are exact.
    """
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-3, 4, size=(n, 3)).astype(np.float32)
    candidates = rng.integers(-1, n, size=(n, width)).astype(np.int32)
    expected = slow_lists(vectors, candidates, degree, alpha)
    for n_threads in (1, 2):
        lists = _core.pruned_lists(
            rows=_core.Rows(pad_rows(vectors), "l2", simd=simd),
            candidates=candidates,
            degree=degree,
            alpha=alpha,
            n_threads=n_threads,
        )
        assert lists.shape == (n, degree)
        assert [[one for one in row.tolist() if one >= 0] for row in lists] == expected


@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 60),
    width=st.integers(1, 6),
    n_clusters=st.integers(1, 5),
    density=st.sampled_from([0.05, 0.3, 1.0]),
    has_layer=st.booleans(),
)
def test_nobody_is_lost(
    seed: int, n: int, width: int, n_clusters: int, density: float, has_layer: bool
) -> None:
    """After refining, all vertices are reachable and lists have no repeats or self loops."""
    rng = np.random.default_rng(seed)
    clusters = 100 * rng.normal(size=(n_clusters, 2))
    vectors = clusters[rng.integers(0, n_clusters, n)] + rng.normal(size=(n, 2))
    drawn = rng.integers(0, n, size=(n, width))
    neighbors = compact_rows(np.where(rng.random((n, width)) < density, drawn, -1))
    vertices = np.arange(n, dtype=np.int32)
    layer = UpperLayer(vertices, rng.integers(0, n, size=(n, 2)).astype(np.int32))
    graph = Graph(neighbors, vertices[:1], (layer,) if has_layer else ())
    refined = refine_graph(graph, BaseVectors.of(vectors, "l2"), degree=width + 2)
    assert refined.neighbors.shape == (n, min(width + 2, max(1, n - 1)))
    assert (refined.neighbors != vertices[:, None]).all()
    for row in refined.neighbors:
        ids = row[row >= 0].tolist()
        assert len(set(ids)) == len(ids)
    assert report(refined).n_unreachable == 0


def test_lost_parts_are_taken_in_by_one_edge_each() -> None:
    """An unreachable component gets one edge, to its vertex nearest to the rest."""
    vectors = np.array([[0.0], [1.0], [2.0], [51.0], [50.0], [91.0], [90.0]])
    rows = [[1, 2], [0, 2], [1, 0], [4, -1], [3, -1], [6, -1], [5, -1]]
    graph = Graph(np.array(rows, dtype=np.int32), np.zeros(1, dtype=np.int32))
    refined = refine_graph(graph, BaseVectors.of(vectors, "l2"), n_candidates=1)
    assert report(graph).n_unreachable == 4
    assert report(refined).n_unreachable == 0
    edges = [(v, u) for v, row in enumerate(refined.neighbors.tolist()) for u in row if u >= 0]
    for part, nearest in (((3, 4), 4), ((5, 6), 6)):
        assert [u for v, u in edges if v not in part and u in part] == [nearest]


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block size of searches does not affect the graph; progress is reported per block."""
    base = BaseVectors.of(VECTORS[:50], "l2")
    drawn = np.random.default_rng(1).integers(0, 10, (50, 4))
    drawn[10:] = -1
    graph = Graph(compact_rows(drawn), np.zeros(1, dtype=np.int32))
    n_searched: list[int] = []
    nearest_found = reachability.nearest_found

    def spy(searcher: Searcher, ids: NDArray[np.int64], *rest: Any) -> Any:
        n_searched.append(len(ids))
        return nearest_found(searcher, ids, *rest)

    monkeypatch.setattr(reachability, "nearest_found", spy)
    whole = refine_graph(graph, base, degree=3, n_candidates=2)
    reported: list[tuple[int, int]] = []
    monkeypatch.setattr(reachability, "BLOCK", 7)
    parts = refine_graph(
        graph,
        base,
        degree=3,
        n_candidates=2,
        progress=lambda done, total: reported.append((done, total)),
    )
    np.testing.assert_array_equal(parts.neighbors, whole.neighbors)
    assert n_searched[0] > 7
    assert reported == [(min(50, done), 50) for done in range(0, 57, 7)]


def test_one_candidate_is_one_other() -> None:
    """The vertex itself does not count as a candidate."""
    base = BaseVectors.of(np.array([[0.0], [10.0], [20.0], [30.5]]), "l2")
    star = np.array([[1, 2, 3], [0, -1, -1], [0, -1, -1], [0, -1, -1]], dtype=np.int32)
    refined = refine_graph(Graph(star, np.zeros(1, dtype=np.int32)), base, n_candidates=1)
    assert refined.neighbors[3, 0] == 2
    assert refined.neighbors[2, 0] == 1


@pytest.mark.parametrize("n_twins", [60, 200])
def test_a_crowd_of_twins_lets_walks_out(n_twins: int) -> None:
    """A search from an entry with more copies than list places finds other vectors."""
    vectors = RNG.normal(size=(1500, 12)).astype(np.float32)
    vectors[:n_twins] = 0
    index = RoutingIndex.build(vectors, degree=16, entry=0)
    index.refine()
    assert index.info()["graph"]["n_unreachable"] == 0
    others = vectors[n_twins:]
    found = index.search(others, k=1, ef=40)
    assert (found.ids[:, 0] == np.arange(n_twins, 1500)).mean() > 0.95


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_the_same_for_any_number_of_threads(metric: str) -> None:
    """The refined graph does not depend on the number of threads, and float16 changes little."""
    indexes = [RoutingIndex.build(VECTORS, metric, degree=8) for _ in range(3)]
    indexes[2].compress(None, vectors="float16")
    for index, n_threads in zip(indexes, (1, 3, 1), strict=True):
        index.refine(n_threads=n_threads)
    one, three, half = (index.graph.neighbors for index in indexes)
    np.testing.assert_array_equal(one, three)
    assert (one == half).mean() > 0.95
    found = indexes[0].search(VECTORS, k=3, ef=len(VECTORS))
    expected = exact_neighbors(VECTORS, VECTORS, 3, metric)
    np.testing.assert_allclose(found.distances, expected.distances, atol=1e-5)


def test_upper_layers_entries_labels_and_spaces_stay(tmp_path: Path) -> None:
    """Refining drops settings and losses and keeps all else, also when saved and loaded."""
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


def test_learned_spaces_are_for_one_graph() -> None:
    """An index with a learned space cannot be refined, and stays as it is."""
    index = RoutingIndex.build(VECTORS, degree=8)
    bias = np.zeros(600, dtype=np.float32)
    space = replace(index.spaces[0], name="learned-int8", bias=bias, is_exact=False)
    index = RoutingIndex(index.base, index.graph, [space])
    graph = index.graph
    with pytest.raises(ValueError, match="refine before learning"):
        index.refine()
    assert index.graph is graph


def test_refining_that_fails_leaves_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """If refining fails, graph and searchers stay as they were."""
    index = RoutingIndex.build(VECTORS, degree=8)
    graph, expected = index.graph, index.search(VECTORS[:20], ef=20).ids

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("l2route.state.changes.Searcher", fail)
    with pytest.raises(MemoryError):
        index.refine()
    assert index.graph is graph
    np.testing.assert_array_equal(index.search(VECTORS[:20], ef=20).ids, expected)


def test_numbers_beyond_all_measure_are_cut() -> None:
    """Degree, candidates and threads beyond their maximum are reduced to it."""
    index = RoutingIndex.build(VECTORS[:30], degree=8)
    index.refine(degree=10**6, n_candidates=10**6, alpha=100.0, n_threads=10**6)
    assert index.graph.neighbors.shape == (30, 29)
    alone = RoutingIndex.build(VECTORS[:1], degree=8)
    alone.refine()
    assert alone.search(VECTORS[:1], k=1).ids.tolist() == [[0]]


def test_graphs_of_others_can_be_refined() -> None:
    """Refining raises the recall of an imported faiss graph at the same budget."""
    import faiss

    theirs = faiss.IndexHNSWFlat(12, 8)
    theirs.hnsw.efConstruction = 20
    theirs.add(VECTORS)
    index = from_faiss(theirs)
    truth = exact_neighbors(VECTORS, VECTORS, 10)

    before, after = recalls_of_refining(index, VECTORS, truth, budget=100)
    assert after > before + 0.02


def test_words_are_found_with_fewer_distances() -> None:
    """Recall@10 at a budget of 300, before and after refining, is as measured earlier.

    The data are 1,000 queries among 10,000 words.
    """
    data = demo_words(n_base=10_000, n_learn=1, n_query=1_000).dataset
    truth = exact_neighbors(data.base, data.query, 10)
    index = RoutingIndex.build(data.base, graph="nsw", entry="medoids", refine=False)
    recalls = recalls_of_refining(index, data.query, truth, budget=300)
    assert recalls == pytest.approx([0.7206, 0.7725], abs=0.02)


@pytest.mark.parametrize(
    "wrong",
    [
        {"degree": 0},
        {"degree": 1},
        {"n_candidates": 0},
        {"n_threads": -1},
        {"alpha": 0.9},
        {"alpha": np.nan},
        {"alpha": np.inf},
    ],
)
def test_wrong_numbers_are_refused(wrong: dict[str, float]) -> None:
    """Arguments out of range are refused, and the index stays as it is."""
    index = RoutingIndex.build(VECTORS, degree=8)
    graph = index.graph
    with pytest.raises(ValueError, match="expected"):
        index.refine(**wrong)
    assert index.graph is graph


def test_inner_products_are_refined_too() -> None:
    """Under ip, with vectors of many lengths, refining raises the recall at the same budget."""
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(3000, 24)) * np.exp(0.5 * rng.normal(size=(3000, 1)))
    queries = rng.normal(size=(200, 24))
    truth = exact_neighbors(vectors, queries, 10, "ip")
    index = RoutingIndex.build(vectors, "ip", graph="nsw", degree=16, entry="medoid", refine=False)

    before, after = recalls_of_refining(index, queries, truth, budget=500)
    assert after > before + 0.02


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_vectors_can_be_refined(n: int) -> None:
    """One, two or three vectors can be refined."""
    index = RoutingIndex.build(VECTORS[:n], degree=8)
    index.refine()
    assert index.graph.neighbors.shape[1] == max(1, min(8, n - 1))
    assert report(index.graph).n_unreachable == 0


def test_a_list_of_one_place_becomes_one_of_two() -> None:
    """A chain, which has one neighbour per vertex, gets lists of two."""
    chain = np.roll(np.arange(100, dtype=np.int32), -1)[:, None]
    graph = Graph(np.ascontiguousarray(chain), np.zeros(1, dtype=np.int32))
    refined = refine_graph(graph, BaseVectors.of(VECTORS[:100], "l2"))
    assert refined.neighbors.shape == (100, 2)
    assert report(refined).n_unreachable == 0
