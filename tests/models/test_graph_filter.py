"""Laws of the filter: its scores, its features, its number of weights, its collapsed space."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from l2route.graph.graph import Graph
from l2route.models.collapse import space_of
from l2route.models.features import principal_axes, vertex_features
from l2route.models.graph_filter import GraphFilter
from l2route.models.start import Start

N, DIM, SHARPNESS = 60, 6, 7.0


def make_filter(dim: int | None) -> tuple[GraphFilter, NDArray[np.float32]]:
    """A filter with two hubs and random weights, and queries."""
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(N, DIM)) * np.arange(1, DIM + 1) / 8).astype(np.float32)
    neighbors = rng.integers(0, N, (N, 4)).astype(np.int32)
    axes = principal_axes(vectors)
    graph = Graph(neighbors, np.zeros(1, np.int32))
    features = vertex_features(graph, vectors @ axes, with_products=dim is not None)
    matrix = None if dim is None else np.ascontiguousarray(axes.T[:dim])
    start = Start(vectors, SHARPNESS, matrix)
    model = GraphFilter(start, features, axes, hubs=np.array([3, 8], dtype=np.int64))
    move(model)
    return model, rng.normal(size=(5, DIM)).astype(np.float32)


@torch.no_grad()
def move(model: GraphFilter) -> None:
    """Add noise to every weight that is learned."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def naive_scores(model: GraphFilter, queries: NDArray[np.float32]) -> NDArray[np.float64]:
    """Scores by the formula in the class's docstring, vertex by vertex [n_queries, n]."""
    state = {name: value.numpy().astype(np.float64) for name, value in model.state_dict().items()}
    rows, offset = (part.numpy().astype(np.float64) for part in model.vertices())
    weights = model.get_buffer("origin").numpy() + state["along"]  # [n_groups, dim]
    scores = np.empty((len(queries), N))
    for v in range(N):
        row = rows[v].copy()
        shift = np.zeros(DIM + 1)
        if v in model.hubs:
            shift = state["shift"][model.hubs.tolist().index(v)]
        row[:DIM] += shift[:-1]
        groups = row[: weights.size].reshape(-1, DIM)
        singles = row[weights.size :][: len(state["single"])]  # products are in the bias only
        filtered = sum(w * group for w, group in zip(weights, groups, strict=True))
        filtered = filtered + sum(s * u for s, u in zip(singles, state["single"], strict=True))
        routed = SHARPNESS * state["mixing"] @ filtered  # f(v) [d]
        bias = offset[v] + SHARPNESS * (row @ state["bias"] + shift[-1])
        scores[:, v] = queries.astype(np.float64) @ state["matrix"].T @ routed + bias
    return scores


@pytest.mark.parametrize("dim", [None, 2, DIM])
def test_scores_follow_the_formula(dim: int | None) -> None:
    """Weights applied to queries give the same scores as weights applied to vertices."""
    model, queries = make_filter(dim)
    with torch.no_grad():
        rows, offset = (part.clone() for part in model.vertices())
        ids, shifts = model.shifts()
        rows[ids, :DIM] += shifts[:, :-1]
        offset[ids] += shifts[:, -1]
        got = model.queries(torch.from_numpy(queries)) @ rows.T + offset
    np.testing.assert_allclose(got, naive_scores(model, queries), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dim", [None, 2, DIM])
def test_a_collapsed_filter_has_the_same_scores(dim: int | None) -> None:
    """The collapsed space, vectors of d dimensions, has the scores of the formula."""
    model, queries = make_filter(dim)
    space = space_of(model, DIM, dim or DIM, 1.0, 8)
    mapped = queries if space.query_matrix is None else queries @ space.query_matrix.T
    got = mapped @ space.rows[:, : dim or DIM].T + space.bias
    np.testing.assert_allclose(got, naive_scores(model, queries), rtol=1e-3, atol=1e-3)


def test_products_of_features() -> None:
    """Products are x∘x, x∘(Ax − x) and (Ax − x)∘(Ax − x), centred, of mean squared length 1."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(N, DIM)).astype(np.float32)
    neighbors = rng.integers(0, N, (N, 4)).astype(np.int32)
    features = vertex_features(Graph(neighbors, np.zeros(1, np.int32)), vectors, with_products=True)
    means = np.stack([np.vstack([vectors[[v]], vectors[neighbors[v]]]).mean(0) for v in range(N)])
    x, step = vectors - vectors.mean(0), (means - vectors) - (means - vectors).mean(0)
    got = features.rows[:, -3 * DIM :].reshape(N, 3, DIM)
    assert features.n_products == 3
    for i, product in enumerate((x * x, x * step, step * step)):
        product = product - product.mean(0)
        wanted = product / np.sqrt((product**2).sum(1).mean())
        np.testing.assert_allclose(got[:, i], wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dim", [None, 2])
def test_a_filter_has_few_weights(dim: int | None) -> None:
    """One weight per axis and group, none per pair of axes; matrices are learned only if d < D."""
    model, _ = make_filter(dim)
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    n_groups, n_singles = 5, 2
    n_products = 0 if dim is None else 3
    n_features = (n_groups + n_products) * DIM + n_singles
    maps = 0 if dim is None else 2 * dim * DIM
    assert learned == (n_groups + n_singles) * DIM + n_features + 2 * (DIM + 1) + maps


@pytest.mark.parametrize("dim", [None, 2])
@pytest.mark.parametrize("spread", [0.0, 1e-7, 1e-5])
def test_scores_ignore_axes_along_which_vectors_do_not_differ(
    dim: int | None, spread: float
) -> None:
    """A query's coordinate along such an axis does not change differences of scores."""
    vectors, neighbors = draw_flat(spread)
    axes = principal_axes(vectors)
    features = vertex_features(Graph(neighbors, np.zeros(1, np.int32)), vectors @ axes)
    matrix = None if dim is None else np.ascontiguousarray(axes.T[:dim])
    start = Start(vectors, SHARPNESS, matrix)
    model = GraphFilter(start, features, axes, hubs=np.array([3, 8], dtype=np.int64))
    move(model)
    space = space_of(model, DIM, dim or DIM, 1.0, 8)
    here = np.random.default_rng(2).normal(size=(5, DIM)).astype(np.float32)
    here[:, 2] = 3.0
    there = here.copy()
    there[:, 2] += 50.0

    def differences(queries: NDArray[np.float32]) -> NDArray[np.float32]:
        mapped = queries if space.query_matrix is None else queries @ space.query_matrix.T
        scores = mapped @ space.rows[:, : space.dim].T + space.bias
        return np.asarray(scores - scores[:, :1])

    np.testing.assert_allclose(differences(there), differences(here), atol=0.02)
    assert differences(here).std() > 1


def draw_flat(spread: float) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Vectors whose third coordinates hardly differ [N, DIM], and random neighbours [N, 4]."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(N, DIM))
    vectors[:, 2] = 3 + spread * vectors[:, 2]
    return vectors.astype(np.float32), rng.integers(0, N, (N, 4)).astype(np.int32)
