"""Laws of spaces that know the queries: the best inner products of fewer dimensions."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from encoding import assert_rows_of
from l2route import RoutingIndex, load
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import METRICS, Metric, normalize
from l2route.search import query_aware
from l2route.search.base import BaseVectors
from l2route.search.codes import COMPRESSIONS, Compression, compress_space, decode_rows
from l2route.search.encode import encode_vertices
from l2route.search.query_aware import query_aware_space
from l2route.search.space import RoutingSpace, pca_space
from l2route.search.vertex_map import LinearMap

NOWHERE = np.zeros((0, 0), dtype=np.int32)
"""Lists for spaces that do not look at neighbours."""


def drawn(seed: int, n: int, dim: int, spread: float = 3.0) -> NDArray[np.float32]:
    """Vectors of correlated coordinates with a mean [n, dim]."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(dim, dim)) * np.geomspace(spread, 1 / spread, dim)
    return (rng.normal(size=(n, dim)) @ mixing.T + rng.normal(size=dim)).astype(np.float32)


def scores_of(space: RoutingSpace, queries: NDArray[np.float32]) -> NDArray[np.float64]:
    """Scores of queries and all vertices, larger is better [n_queries, n]."""
    assert space.query_matrix is not None
    routed = queries.astype(np.float64) @ space.query_matrix.T
    routed = routed if space.centre is None else routed - space.centre
    scores = routed @ decode_rows(space).astype(np.float64).T
    return scores if space.bias is None else scores + space.bias


def share_found(space: RoutingSpace, base: BaseVectors, queries: NDArray[np.float32]) -> float:
    """Share of the ten nearest among the 40 best by a space."""
    near = exact_neighbors(base.vectors(), queries, 10, base.metric).ids
    if space.scorer == "l2":
        space = compress_space(space, "int8")
    best = np.argsort(-scores_of(space, queries), axis=1)[:, :40]
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(near, best, strict=True)]))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(2, 12), short=st.integers(1, 11))
def test_inner_products_are_the_best_of_their_rank(seed: int, dim: int, short: int) -> None:
    """They are those of the truncated singular values of all centred inner products."""
    short = min(short, dim - 1)
    vectors, queries = drawn(seed, 80, dim), drawn(seed + 1, 60, dim)
    before, query_aware.PRIOR = query_aware.PRIOR, 0.0
    try:
        space = query_aware_space(BaseVectors.of(vectors, "ip"), queries, short)
    finally:
        query_aware.PRIOR = before
    centred = [each - each.mean(axis=0, dtype=np.float64) for each in (queries, vectors)]
    products = centred[0] @ centred[1].T  # [n_queries, n]
    left, lengths, right = np.linalg.svd(products, full_matrices=False)
    expected = (left[:, :short] * lengths[:short]) @ right[:short]
    by = space.vertex_map
    assert isinstance(by, LinearMap)
    assert space.query_matrix is not None
    got = centred[0] @ space.query_matrix.T @ (centred[1] @ by.matrix.T).T
    np.testing.assert_allclose(got, expected, atol=1e-3 * np.abs(products).max())


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_vectors_of_few_dimensions_are_ranked_exactly(metric: Metric, offset: float) -> None:
    """Where vectors vary along three axes only, scores of three dimensions rank by the metric."""
    rng = np.random.default_rng(0)
    flat = drawn(1, 300, 3) @ rng.normal(size=(3, 9)).astype(np.float32) + np.float32(offset)
    flat[:, 4] = 2.0
    queries = drawn(2, 100, 9) + np.float32(offset)
    base = BaseVectors.of(flat, metric)
    # Unit vectors have lengths of their own, and vary along one more axis.
    space = query_aware_space(base, queries, 4 if metric == "cosine" else 3)
    asked = normalize(queries) if metric == "cosine" else queries
    exact = asked.astype(np.float64) @ base.vectors().T.astype(np.float64)
    if metric == "l2":
        exact -= 0.5 * (base.vectors().astype(np.float64) ** 2).sum(axis=1)
    got = scores_of(space, asked)
    apart = (got - got.mean(axis=1, keepdims=True)) - (exact - exact.mean(axis=1, keepdims=True))
    assert np.abs(apart).max() < 0.01 * exact.std(axis=1).mean()


def test_with_queries_like_the_base_it_is_pca() -> None:
    """If queries are the base vectors, both matrices are the projection of PCA, up to signs."""
    vectors = drawn(3, 2000, 8)
    base = BaseVectors.of(vectors, "l2")
    space, plain = query_aware_space(base, vectors, 3), pca_space(base, 3)
    by = space.vertex_map
    assert isinstance(by, LinearMap)
    assert plain.query_matrix is not None
    projector = plain.query_matrix.T @ plain.query_matrix
    assert space.query_matrix is not None
    np.testing.assert_allclose(space.query_matrix.T @ by.matrix, projector, atol=2e-3)


@pytest.mark.parametrize("n_queries", [1, 5, 2000])
def test_queries_of_another_kind_are_known(n_queries: int) -> None:
    """With many queries more of the nearest are found than by PCA; with few not fewer."""
    rng = np.random.default_rng(0)
    base = BaseVectors.of(rng.normal(size=(3000, 24)) * np.linspace(2, 1, 24), "l2")
    asked = (rng.normal(size=(n_queries + 200, 24)) * np.linspace(0.2, 2, 24)).astype(np.float32)
    space = query_aware_space(base, asked[200:], 12)
    aware, plain = (share_found(each, base, asked[:200]) for each in (space, pca_space(base, 12)))
    assert aware > plain + 0.1 if n_queries == 2000 else aware > plain - 0.02


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "vectors",
    [
        np.ones((30, 6)),
        np.eye(6)[[0, 1] * 10] + 1,
        np.column_stack([np.arange(1, 31), np.ones((30, 5))]),
        1e4 + drawn(0, 40, 6),
    ],
)
def test_singular_moments_are_finite(vectors: NDArray[np.float64], metric: Metric) -> None:
    """Equal vectors, constant columns and one query give finite rows, biases and matrices."""
    base = BaseVectors.of(vectors, metric)
    for queries in (np.ones((1, 6)), np.ones((50, 6)), drawn(1, 50, 6)):
        space = query_aware_space(base, queries, 3)
        assert space.bias is not None
        assert space.query_matrix is not None
        for each in (space.rows, space.bias, space.query_matrix):
            assert np.isfinite(each).all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    metric=st.sampled_from(METRICS),
    compression=st.none() | st.sampled_from(COMPRESSIONS),
)
def test_vertices_get_the_rows_of_the_space(
    seed: int, metric: Metric, compression: Compression | None
) -> None:
    """Encoding what the space was made from gives its rows and biases, compressed or not."""
    base = BaseVectors.of(drawn(seed, 50, 7), metric)
    space = query_aware_space(base, drawn(seed + 1, 40, 7), 4)
    if compression is not None:
        space = compress_space(space, compression)
    ids = np.random.default_rng(seed).integers(0, 50, 9)
    assert_rows_of(space, ids, *encode_vertices(space, base, NOWHERE, ids))


@pytest.mark.parametrize("compression", [None, "int8"])
def test_an_index_keeps_it(compression: Compression | None, tmp_path: Path) -> None:
    """A saved index has the same answers, and vectors added to it are found by their queries."""
    vectors, queries = drawn(5, 500, 12), drawn(6, 300, 12)
    index = RoutingIndex.build(vectors, degree=12)
    space = query_aware_space(index.base, queries, 8)
    index = RoutingIndex(index.base, index.graph, [space])
    if compression is not None:
        index.compress(compression)
    name = "aware8" if compression is None else f"aware8-{compression}"
    assert index.spaces[-1].name == name
    index.save(tmp_path / "index")
    opened = load(tmp_path / "index")
    first, second = (each.search(queries, 5, ef=50) for each in (index, opened))
    np.testing.assert_array_equal(first.ids, second.ids)
    near = exact_neighbors(vectors, queries, 5).ids
    assert np.mean([np.isin(a, b).mean() for a, b in zip(first.ids, near, strict=True)]) > 0.95
    added = opened.add(queries[:40])
    found = opened.search(queries[:40], 1, ef=50, space=name)
    assert (found.ids[:, 0] == added).mean() > 0.95


def test_bad_input_is_refused() -> None:
    """The dimension is below that of the vectors, and queries have that of the vectors."""
    base = BaseVectors.of(drawn(0, 20, 5), "l2")
    for dim in (0, 5):
        with pytest.raises(ValueError, match=rf"expected a query-aware dimension in .* got {dim}"):
            query_aware_space(base, drawn(1, 10, 5), dim)
    with pytest.raises(ValueError, match=r"expected queries \[\*, 5\], got \[\*, 4\]"):
        query_aware_space(base, drawn(1, 10, 4), 2)
