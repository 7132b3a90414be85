"""Laws of entry points."""

from __future__ import annotations

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from graphs import built
from l2route.graph.build import GraphKind, GraphOptions, build_graph
from l2route.graph.entry import Entry, longest, medoid, medoids
from l2route.graph.knn import knn_lists


@pytest.mark.parametrize(
    ("entry", "expected"),
    [(7, [7]), ([7], [7]), ((4, 9, 2), [4, 9, 2]), (np.int64(7), [7]), (np.array([4, 9]), [4, 9])],
)
@pytest.mark.parametrize("kind", ["nsw", "nsg", "knn"])
def test_entry_is_where_a_search_starts(
    vectors: NDArray[np.float32], kind: GraphKind, entry: Entry, expected: list[int]
) -> None:
    """A graph has the given entry points, in their order."""
    graph = built(vectors, kind=kind, entry=entry)
    assert graph.entries.tolist() == expected


def test_hnsw_and_nsg_start_where_faiss_does(vectors: NDArray[np.float32]) -> None:
    """By default HNSW is entered in its top layer and NSG at faiss's entry point."""
    hnsw = built(vectors, kind="hnsw")
    assert np.isin(hnsw.entries, hnsw.upper[0].vertices).all()
    index = faiss.IndexNSGFlat(12, 16)
    index.nsg.rng = faiss.RandomGenerator(0)
    index.build(vectors, knn_lists(vectors, "l2", 64, exact=True))
    assert built(vectors, kind="nsg").entries.tolist() == [index.nsg.enterpoint]


@given(
    base=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 30), st.integers(1, 6)),
        elements=st.floats(-10, 10, width=32),
    )
)
def test_medoid_is_nearest_to_the_mean(base: NDArray[np.float32]) -> None:
    """No vertex is nearer to the mean than the medoid, up to rounding."""
    exact = base.astype(np.float64)
    distances = ((exact - exact.mean(axis=0)) ** 2).sum(axis=1)
    assert distances[medoid(base)] <= distances.min() + 1e-4


def test_medoids_are_one_of_each_cluster() -> None:
    """Medoids cover most of 32 clusters, and are all vertices if there are fewer than 32."""
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(32), 40)
    base = (rng.normal(size=(32, 6))[clusters] * 100 + rng.normal(size=(1280, 6))).astype(
        np.float32
    )
    found = medoids(base, seed=3)
    assert (found[1:] > found[:-1]).all()
    assert len(set(clusters[found].tolist())) >= 24  # k-means may merge near clusters
    np.testing.assert_array_equal(found, medoids(base, seed=3))
    assert medoids(base[:5]).tolist() == [0, 1, 2, 3, 4]
    graph = build_graph(base, options=GraphOptions("knn", 8, entry="medoids"))
    np.testing.assert_array_equal(graph.entries, medoids(base))


@pytest.mark.parametrize(
    "base",
    [
        np.ones((1, 3)),
        np.ones((40, 3)),
        np.eye(5),
        np.repeat(np.eye(5), 20, axis=0),
        np.full((50, 4), 3e38) * np.linspace(0.1, 1, 50)[:, None],  # squares overflow
        np.full((50, 4), 1e-30) * np.linspace(0.1, 1, 50)[:, None],  # squares underflow
    ],
)
@pytest.mark.parametrize("entry", ["medoids", "longest"])
def test_entries_of_awkward_vectors_are_entries(base: NDArray[np.float64], entry: Entry) -> None:
    """One vector, copies, few vectors, and values without float32 squares have valid entries."""
    entries = built(base, degree=4, entry=entry, seed=-7).entries
    assert 1 <= len(entries) <= 32
    assert len(np.unique(base[entries], axis=0)) == len(entries)


def test_longest_are_the_longest(vectors: NDArray[np.float32]) -> None:
    """The entries for "longest" are the 32 longest vectors, by ascending id."""
    found = longest(vectors)
    lengths = np.linalg.norm(vectors, axis=1)
    assert found.tolist() == sorted(np.argsort(-lengths)[:32].tolist())
    assert built(vectors, "ip", entry="longest").entries.tolist() == found.tolist()
