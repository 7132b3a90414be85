"""Laws of routing spaces: their scores and shapes."""

import numpy as np
import pytest

from indexes import SmallWorld
from l2route.data.vectors import Metric
from l2route.graph.build import GraphOptions, build_graph
from l2route.search.base import BaseVectors
from l2route.search.layout import pad_rows, padded_dim
from l2route.search.limits import Limits
from l2route.search.origin import with_origin
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, original_space, pca_space


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("projected", [False, True])
def test_scores_with_an_origin_are_distances(metric: Metric, projected: bool) -> None:
    """Calibrated inner products are squared distances, for any scale and common offset."""
    rng = np.random.default_rng(0)
    base = BaseVectors.of(rng.normal(size=(500, 8)) + 1, metric)
    vectors = base.vectors()
    matrix = np.linalg.qr(rng.normal(size=(8, 8)))[0][:4].astype(np.float32) if projected else None
    routed = vectors if matrix is None else vectors @ matrix.T  # [n, d]
    dim = routed.shape[1]
    rows = pad_rows(7 * routed - rng.normal(size=dim).astype(np.float32))
    bias = (2.5 - 3.5 * (routed**2).sum(axis=1)).astype(np.float32)
    space = RoutingSpace(rows, dim, "ip", matrix, bias)
    calibrated = with_origin(space, base)
    assert calibrated.origin is not None
    queries = routed[:20]
    squares = (queries**2).sum(axis=1)[:, None]
    scores = queries @ calibrated.rows[:, :dim].T + calibrated.bias  # [20, n]
    true = ((queries[:, None] - routed) ** 2).sum(axis=2)
    np.testing.assert_allclose(calibrated.origin * squares / 2 - scores, 3.5 * true, atol=1e-3)
    np.testing.assert_array_equal(space.rows, rows)
    products = BaseVectors.of(vectors, "ip")
    assert with_origin(space, products).origin is None
    assert with_origin(original_space(products), products).origin is None


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_pca_space_keeps_the_scores_it_can(metric: str) -> None:
    """On vectors of low rank, PCA to that rank has the answers of the original space."""
    rng = np.random.default_rng(2)
    vectors = (rng.normal(size=(300, 3)) @ rng.normal(size=(3, 10))).astype(np.float32)
    base = BaseVectors.of(vectors, metric)  # type: ignore[arg-type] # a parameter of the test
    graph = build_graph(vectors, metric, GraphOptions("knn", degree=12))
    queries = vectors[:30] + 0.1 * vectors[30:60]
    exact = Searcher(graph, original_space(base), base).search(queries, 5, limits=Limits(300))
    compressed = Searcher(graph, pca_space(base, 3), base).search(
        queries, 5, limits=Limits(300, rerank=20)
    )
    np.testing.assert_allclose(exact.distances, compressed.distances, rtol=1e-3, atol=1e-4)


def test_spaces_and_searchers_refuse_what_does_not_fit(small_world: SmallWorld) -> None:
    """Inconsistent shapes are refused with what was expected."""
    base, graph, space = small_world.base, small_world.graph, small_world.space
    with pytest.raises(ValueError, match=r"expected rows \[1000, 16\], got \(1000, 15\)"):
        RoutingSpace(base.rows[:, :15], 12, "l2")
    with pytest.raises(ValueError, match="expected scorer l2 or ip"):
        RoutingSpace(base.rows, 12, "cosine")  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(ValueError, match=r"expected a bias \[1000\]"):
        RoutingSpace(base.rows, 12, "ip", bias=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"expected a query matrix \[12, \*\]"):
        RoutingSpace(base.rows, 12, "ip", query_matrix=np.zeros((3, 12), np.float32))
    with pytest.raises(ValueError, match="routing vectors and vectors, one per vertex"):
        Searcher(graph, space, BaseVectors.of(base.vectors()[:5], "l2"))
    wrong_matrix = RoutingSpace(base.rows, 12, "ip", np.zeros((12, 5), np.float32))
    with pytest.raises(ValueError, match=r"for queries of 12 dimensions, got .* of 5"):
        Searcher(graph, wrong_matrix, base)
    no_matrix = RoutingSpace(np.zeros((1000, padded_dim(3)), np.float32), 3, "ip")
    with pytest.raises(ValueError, match=r"for queries of 12 dimensions, got .* of 3"):
        Searcher(graph, no_matrix, base)
    with pytest.raises(ValueError, match=r"expected a PCA dimension in \[1, 12\), got 12"):
        pca_space(base, 12)
    with pytest.raises(ValueError, match=r"expected a SIMD level of auto, .*portable, got 'mmx'"):
        Searcher(graph, space, base, simd="mmx")
