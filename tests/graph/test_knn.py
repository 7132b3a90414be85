"""Laws of nearest-neighbour lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from graphs import built
from l2route.data.vectors import METRICS, normalize
from l2route.graph.build import GraphKind
from l2route.graph.knn import knn_lists


def naive_distances(base: NDArray[np.float32], metric: str) -> NDArray[np.float64]:
    """All distances [n, n]; that of a vector to itself is inf."""
    exact = base.astype(np.float64)
    if metric == "ip":
        distances = -exact @ exact.T
    else:
        distances = ((exact[:, None] - exact[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(distances, np.inf)
    return distances


def check_knn_lists(base: NDArray[np.float32], k: int, metric: str, exact: bool) -> None:
    """Compare lists with brute force; of equally near vectors any may be listed."""
    lists = knn_lists(base, metric, k, exact=exact)  # type: ignore[arg-type]
    k = min(k, len(base) - 1)
    assert lists.shape == (len(base), k)
    distances = naive_distances(base, metric)
    for vertex, row in enumerate(lists):
        assert len(set(row.tolist()) - {vertex}) == k
        np.testing.assert_array_equal(distances[vertex, row], np.sort(distances[vertex])[:k])


WITH_TWINS = hnp.arrays(
    np.float32,
    st.tuples(st.integers(2, 40), st.integers(1, 5)),
    elements=st.integers(-2, 2).map(float),
)
"""Vectors of small integers: distances are exact, and many vectors are equal."""


@pytest.mark.parametrize("metric", ["l2", "ip"])
@given(base=WITH_TWINS, k=st.integers(1, 12))
def test_knn_lists_are_those_of_brute_force(base: NDArray[np.float32], k: int, metric: str) -> None:
    """Lists have the k nearest other vectors, nearest first, even if many are equal."""
    check_knn_lists(base, k, metric, exact=True)


@pytest.mark.parametrize("metric", ["l2", "ip"])
@settings(max_examples=8)
@given(base=WITH_TWINS, k=st.integers(1, 12))
def test_an_inverted_file_in_whole_is_exact(base: NDArray[np.float32], k: int, metric: str) -> None:
    """Approximate lists are exact if every list of the inverted file is searched."""
    check_knn_lists(base, k, metric, exact=False)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["knn", "approximate-knn"])
def test_knn_graph_has_the_nearest_as_neighbors(
    vectors: NDArray[np.float32], kind: GraphKind, metric: str
) -> None:
    """The neighbours in a k-NN graph are the nearest vertices in its metric, nearest first."""
    base = normalize(vectors) if metric == "cosine" else vectors
    nearest = np.argsort(naive_distances(base, metric), axis=1)[:, :6]
    np.testing.assert_array_equal(built(vectors, metric, kind=kind, degree=6).neighbors, nearest)


def test_an_inverted_file_in_part_finds_most_neighbors() -> None:
    """With more clusters than are searched, a list has nearly all true neighbours."""
    clustered = np.random.default_rng(2).normal(size=(2000, 2)).astype(np.float32)
    exact, found = (
        built(clustered, kind=kind, degree=8).neighbors for kind in ("knn", "approximate-knn")
    )
    shared = [len(np.intersect1d(a, b)) for a, b in zip(exact, found, strict=True)]
    assert np.mean(shared) > 7.9
