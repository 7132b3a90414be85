"""Laws of equal vectors: grouped exactly, reachable, and few in the lists of others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.metrics import recall_at
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import METRICS, Metric
from l2route.graph import duplicates
from l2route.graph.build import GRAPH_KINDS, GraphKind
from l2route.graph.duplicates import FAN_OUT, Duplicates
from l2route.graph.graph import Graph
from l2route.graph.report import hops_from, report
from l2route.search.base import BaseVectors

KINDS_AND_METRICS = [
    (kind, metric) for kind in GRAPH_KINDS for metric in METRICS if (kind, metric) != ("nsg", "ip")
]
CROWDED = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 60), st.integers(1, 3)),
    elements=st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-45]),
)
"""Vectors of few distinct values, with many repeats and zeros of both signs."""


def slow_first(vectors: NDArray[np.float32]) -> list[int]:
    """For each row, the first row that equals it."""
    seen: dict[tuple[float, ...], int] = {}
    return [seen.setdefault(tuple(row), at) for at, row in enumerate(vectors.tolist())]


@given(vectors=CROWDED, block=st.sampled_from([1, 7, 100]))
def test_equal_vectors_are_those_of_the_slow_twin(vectors: NDArray[np.float32], block: int) -> None:
    """The owner of every row is the first row that equals it; 0 and −0 are equal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_BLOCK", block)
        found = Duplicates.of(vectors)
    expected = slow_first(vectors)
    assert found.first[found.owners].tolist() == expected
    assert found.first.tolist() == sorted(set(expected))
    assert found.n_copies == len(vectors) - len(set(expected))


def test_equal_hashes_are_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different vectors with the same hash are not grouped."""
    vectors = np.array([[1.0], [2.0], [1.0], [3.0]], dtype=np.float32)
    monkeypatch.setattr(duplicates, "_hashes", lambda rows: np.zeros(len(rows), dtype=np.uint64))
    found = Duplicates.of(vectors)
    assert found.first.tolist() == [0, 1, 3]
    assert found.owners.tolist() == [0, 1, 0, 2]


@given(vectors=CROWDED, width=st.integers(1, 9), seed=st.integers(0, 999))
def test_copies_are_reached_through_their_owner(
    vectors: NDArray[np.float32], width: int, seed: int
) -> None:
    """Copies are reachable from the first vector of a group and lead back to it.

    They take at most one place of its list.
    """
    found = Duplicates.of(vectors)
    n_distinct, rng = len(found.first), np.random.default_rng(seed)
    given_width = int(rng.integers(1, width + 1))
    lists = np.full((n_distinct, given_width), -1, dtype=np.int32)
    for row in range(n_distinct):
        others = rng.permutation(np.delete(np.arange(n_distinct), row))[:given_width]
        lists[row, : len(others)] = others
    spread = found.spread(lists, width)
    graph = Graph(spread, np.zeros(1, dtype=np.int32))
    assert spread.shape == (len(vectors), width)
    for row, owner in enumerate(found.first[found.owners].tolist()):
        ids = spread[row][spread[row] >= 0].tolist()
        assert len(set(ids) - {row}) == len(ids)
        assert hops_from(graph, np.array([owner], dtype=np.int32))[row] >= 0
        if row != owner:
            assert all(found.owners[each] == found.owners[row] for each in ids)
            assert owner in ids or width == 1
            assert len(ids) <= FAN_OUT + 1
        else:
            before = found.first[lists[found.owners[row]][lists[found.owners[row]] >= 0]]
            assert len(set(before.tolist()) - set(ids)) <= 1
            assert len([each for each in ids if each not in found.first]) <= 1


@pytest.mark.parametrize(("kind", "metric"), KINDS_AND_METRICS)
def test_a_crowd_of_copies_can_be_searched(kind: GraphKind, metric: Metric) -> None:
    """With 2,000 copies of one vector all vertices are reachable, and recall stays high.

    A search does not score all copies.
    """
    rng = np.random.default_rng(0)
    some = rng.normal(size=(500, 12)).astype(np.float32)
    vectors = np.concatenate([some, some, np.repeat(some[:1], 2000, axis=0)])
    rng.shuffle(vectors)
    index = RoutingIndex.build(vectors, metric, graph=kind, degree=16, ef_construction=60)
    queries = rng.normal(size=(100, 12)).astype(np.float32)
    truth = exact_neighbors(vectors, queries, 10, metric)
    result = index.search(queries, k=10, ef=100)
    distances = index.base.exact_distances(queries, result.ids)
    assert report(index.graph).n_unreachable == 0
    assert recall_at(distances, truth.distances, 10) > 0.97
    assert result.n_computed.mean() < 700  # not all copies are scored
    own = index.search(vectors[:200], k=1, ef=50).distances
    nearest = exact_neighbors(vectors, vectors[:200], 1, metric).distances
    assert (own <= nearest + 1e-5).mean() > 0.97


@settings(max_examples=25)
@given(
    vectors=CROWDED,
    kind=st.sampled_from(GRAPH_KINDS),
    metric=st.sampled_from(METRICS),
    refine=st.sampled_from([None, True, False]),
    entry=st.sampled_from([None, "medoid", "medoids", "longest", 0]),
)
def test_what_is_built_is_reached_from_its_entries(
    vectors: NDArray[np.float32],
    kind: GraphKind,
    metric: Metric,
    refine: bool | None,
    entry: str | int | None,
) -> None:
    """In any index that is built, all vertices are reachable and exhaustive search is exact."""
    is_refused = (
        (kind == "nsg" and (metric == "ip" or len(vectors) < 10))
        or (kind.endswith("knn") and len(vectors) < 2)
        or (kind == "hnsw" and entry not in (None, "medoid"))
    )
    assume(not is_refused)
    index = RoutingIndex.build(
        vectors,
        metric,
        graph=kind,
        degree=8,
        ef_construction=20,
        entry=entry,  # type: ignore[arg-type] # Hypothesis widens it
        refine=refine,
    )
    facts = report(index.graph)
    assert facts.n_unreachable == 0
    assert facts.max_degree <= 8
    k = min(5, len(vectors))
    everything = index.search(vectors, k=k, ef=len(vectors))
    expected = exact_neighbors(BaseVectors.of(vectors, metric).vectors(), vectors, k, metric)
    np.testing.assert_allclose(everything.distances, expected.distances, atol=1e-5)


def test_refining_keeps_copies_behind_their_owner() -> None:
    """After refining, copies still take few places; entries and upper layers stay."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(400, 8)).astype(np.float32)
    vectors[50:250] = vectors[7]
    index = RoutingIndex.build(vectors, graph="hnsw", degree=8, ef_construction=40)
    upper, entries = index.graph.upper, index.graph.entries
    index.refine()
    assert index.graph.upper is upper
    assert index.graph.entries is entries
    assert report(index.graph).n_unreachable == 0
    group = [7, *range(50, 250)]
    outside = np.delete(index.graph.neighbors, group, axis=0)
    assert np.isin(outside, group[1:]).sum() <= 1  # at most one edge, to an unreachable copy
