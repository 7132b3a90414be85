"""Laws of removing vertices from a graph, as for deleted elements of hnswlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hnswlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route.data.truth import exact_neighbors
from l2route.data.vectors import METRICS, Metric
from l2route.graph.graph import Graph, UpperLayer, compact_rows
from l2route.graph.report import hops_from
from l2route.interop.hnswlib_import import from_hnswlib, import_hnswlib
from l2route.rewiring.remove import remove_vertices
from l2route.search.base import BaseVectors
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import original_space

N, DIM = 600, 10
VECTORS = np.random.default_rng(0).normal(size=(N, DIM)).astype(np.float32)
QUERIES = np.random.default_rng(1).normal(size=(50, DIM)).astype(np.float32)
LABELS = np.random.default_rng(3).permutation(N) * 10**10 + 7


def random_graph(rng: np.random.Generator, n: int, width: int) -> Graph:
    """Random neighbours, some short lists, and an upper layer of every third vertex."""

    def lists(among: NDArray[np.int64]) -> NDArray[np.int32]:
        drawn = rng.choice(among, size=(len(among), width))
        drawn[(drawn == among[:, None]) | (rng.random(drawn.shape) < 0.3)] = -1
        for row in drawn:
            row[np.setdiff1d(np.arange(width), np.unique(row, return_index=True)[1])] = -1
        return compact_rows(drawn)

    above = np.arange(0, n, 3)
    layer = UpperLayer(above.astype(np.int32), lists(above))
    return Graph(lists(np.arange(n)), rng.choice(above, 1).astype(np.int32), (layer,))


def reachable_before(graph: Graph, removed: NDArray[np.bool_]) -> set[int]:
    """Remaining vertices that are reachable in the graph before the removal."""
    seen, waiting = set(graph.entries.tolist()), graph.entries.tolist()
    while waiting:
        for vertex in graph.neighbors[waiting.pop()].tolist():
            if vertex >= 0 and vertex not in seen:
                seen.add(vertex)
                waiting.append(vertex)
    return {vertex for vertex in seen if not removed[vertex]}


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 40),
    width=st.integers(1, 5),
    share=st.floats(0, 1),
    metric=st.sampled_from(METRICS),
)
def test_what_was_reached_is_reached(
    seed: int, n: int, width: int, share: float, metric: Metric
) -> None:
    """Remaining vertices that were reachable stay so; lists keep their width.

    No list has repeats or self loops.
    """
    rng = np.random.default_rng(seed)
    base = BaseVectors.of(rng.normal(size=(n, 3)), metric)
    graph, removed = random_graph(rng, n, width), rng.random(n) < share
    removed[rng.integers(n)] = False
    left = remove_vertices(graph, base, removed)
    kept = np.flatnonzero(~removed)
    now = set(kept[hops_from(left, left.entries) >= 0].tolist())
    assert reachable_before(graph, removed) <= now
    assert left.neighbors.shape == (len(kept), width)
    for vertex, row in enumerate(left.neighbors.tolist()):
        used = [neighbor for neighbor in row if neighbor >= 0]
        assert len(set(used)) == len(used)
        assert vertex not in used
    if not removed.any():
        np.testing.assert_array_equal(left.neighbors, graph.neighbors)


def test_a_vertex_gives_its_place_to_its_nearest_neighbours() -> None:
    """0 → 1 → (2, 3) becomes 0 → (3, 2) without 1, nearest to 1 first; 4 → 0 stays."""
    vectors = np.array([[0], [10], [13], [11], [-1]], dtype=np.float32)
    neighbors = np.array([[1, -1], [2, 3], [-1, -1], [-1, -1], [0, -1]], dtype=np.int32)
    graph = Graph(neighbors, np.array([4], dtype=np.int32))
    removed = np.arange(5) == 1
    left = remove_vertices(graph, BaseVectors.of(vectors, "l2"), removed)
    assert left.neighbors.tolist() == [[2, 1], [-1, -1], [-1, -1], [0, -1]]
    assert left.entries.tolist() == [3]


def test_a_chain_of_gone_vertices_is_crossed() -> None:
    """A chain of removed vertices becomes one edge, however long it is."""
    n = 50
    neighbors = np.arange(1, n + 1, dtype=np.int32)[:, None]
    neighbors[-1] = -1
    removed = np.ones(n, dtype=bool)
    removed[[0, n - 1]] = False
    base = BaseVectors.of(np.arange(n, dtype=np.float32)[:, None], "l2")
    left = remove_vertices(Graph(neighbors, np.zeros(1, np.int32)), base, removed)
    assert left.neighbors.tolist() == [[1], [-1]]


def test_nothing_left_is_refused() -> None:
    """The removal of all vertices is refused."""
    base = BaseVectors.of(np.ones((2, 3)), "l2")
    graph = Graph(np.array([[1], [0]], dtype=np.int32), np.zeros(1, np.int32))
    with pytest.raises(ValueError, match="expected a vertex to remain, got all 2 to remove"):
        remove_vertices(graph, base, np.ones(2, dtype=bool))


def test_entries_and_layers_that_are_gone_are_replaced() -> None:
    """A removed entry is replaced by the nearest vertex of the highest remaining layer."""
    rng = np.random.default_rng(0)
    graph = random_graph(rng, 30, 4)
    base = BaseVectors.of(rng.normal(size=(30, 3)), "l2")
    removed = np.zeros(30, dtype=bool)
    removed[graph.entries] = True
    left = remove_vertices(graph, base, removed)
    kept, layer = np.flatnonzero(~removed), graph.upper[0].vertices
    others = np.setdiff1d(layer, graph.entries)
    apart = ((base.vectors()[others] - base.vectors()[graph.entries]) ** 2).sum(axis=1)
    assert kept[left.entries].tolist() == [others[apart.argmin()]]
    removed[layer] = True
    flat = remove_vertices(graph, base, removed)
    assert flat.upper == ()
    rest = BaseVectors.of(base.vectors()[~removed], "l2")
    Searcher(flat, original_space(rest), rest).search(rest.vectors(), 1, limits=Limits(ef=30))


def hnswlib_index(space: str, m: int = 16, **options: Any) -> Any:
    """An hnswlib index with large labels in random order."""
    index = hnswlib.Index(space, DIM)
    index.init_index(N, M=m, ef_construction=60, random_seed=1, **options)
    index.add_items(VECTORS, LABELS, num_threads=1)
    return index


def with_deleted(space: str, share: float) -> tuple[Any, NDArray[np.int64]]:
    """An index with a share of elements deleted, including its entry, and the remaining rows."""
    index = hnswlib_index(space)
    state = index.__getstate__()[0]
    at = state["label_lookup_internal"].tolist().index(state["enterpoint_node"])
    entry = np.flatnonzero(state["label_lookup_external"][at] == LABELS)
    order = np.random.default_rng(4).permutation(np.setdiff1d(np.arange(N), entry))
    removed = np.concatenate([entry, order[: round(share * N) - 1]])
    for label in LABELS[removed]:
        index.mark_deleted(label)
    return index, np.setdiff1d(np.arange(N), removed)


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("share", [0.02, 0.4, 0.9, 0.998])
@pytest.mark.parametrize("space", METRICS)
def test_deleted_elements_are_no_answers(
    tmp_path: Path, space: Metric, share: float, saved: bool
) -> None:
    """An exhaustive search finds the nearest of the elements that are not deleted."""
    index, left = with_deleted(space, share)
    index.save_index(str(tmp_path / "index"))
    taken = from_hnswlib(tmp_path / "index", metric=space) if saved else from_hnswlib(index)
    assert len(taken) == len(left)
    found = taken.search(QUERIES, k=1, ef=N).ids
    true = exact_neighbors(VECTORS[left], QUERIES, 1, space).ids
    assert (found == LABELS[left][true]).mean() >= (0.95 if space == "ip" else 1.0)
    assert set(found.ravel().tolist()) <= set(LABELS[left].tolist())


@pytest.mark.parametrize("space", METRICS)
def test_hnswlib_with_deleted_elements_and_import_agree(space: str) -> None:
    """Hnswlib and the imported index give the same answers if elements are deleted."""
    index, _ = with_deleted(space, 0.3)
    index.set_ef(N)
    theirs = index.knn_query(QUERIES, 8)[0].astype(np.int64)
    found = from_hnswlib(index).search(QUERIES, k=8, ef=N).ids
    assert (found == theirs).mean() > 0.99


def test_deletions_taken_back_leave_no_trace() -> None:
    """An index with all elements deleted is refused; undeleting all restores the graph."""
    index = hnswlib_index("l2")
    before = import_hnswlib(index).graph
    for label in LABELS:
        index.mark_deleted(label)
    with pytest.raises(ValueError, match="expected elements that are not deleted"):
        import_hnswlib(index)
    for label in LABELS:
        index.unmark_deleted(label)
    after = import_hnswlib(index).graph
    np.testing.assert_array_equal(after.neighbors, before.neighbors)


def test_replaced_elements_have_their_new_labels() -> None:
    """Elements that replace deleted ones are imported with their new vectors and labels."""
    index = hnswlib_index("l2", allow_replace_deleted=True)
    for row in (3, 4, 5):
        index.mark_deleted(LABELS[row])
    index.add_items(VECTORS[3:4] + 0.5, [1], replace_deleted=True)
    index.add_items(VECTORS[5:6] + 0.25, [LABELS[5]], replace_deleted=True)
    taken = from_hnswlib(index)
    moved = np.stack([VECTORS[3] + 0.5, VECTORS[5] + 0.25, VECTORS[7]])
    found = taken.search(moved, k=1, ef=N).ids[:, 0]
    assert found.tolist() == [1, LABELS[5], LABELS[7]]
    index.set_ef(N)
    theirs = index.knn_query(VECTORS, 1)[0].astype(np.int64)
    np.testing.assert_array_equal(taken.search(VECTORS, k=1, ef=N).ids, theirs)


def test_a_label_of_two_elements_is_refused() -> None:
    """A label of two elements, which hnswlib permits, is refused."""
    index = hnswlib_index("l2", allow_replace_deleted=True)
    index.mark_deleted(LABELS[3])
    index.add_items(VECTORS[:1] + 9, [LABELS[5]], replace_deleted=True)
    with pytest.raises(ValueError, match=f"expected distinct labels, got {LABELS[5]} for"):
        import_hnswlib(index)
