"""Laws of networks: untrained scores, neighbourhood means, gradients, seeds and shapes."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from l2route.graph.graph import Graph
from l2route.models.features import vertex_features
from l2route.models.networks import (
    FeedForward,
    FilterNetwork,
    GraphNetwork,
    NeighborhoodMean,
    place_type,
    standardize,
)
from l2route.models.start import Start

N, DIM, SHARPNESS = 200, 12, 40.0
Network = GraphNetwork | FeedForward | FilterNetwork
Make = Callable[..., Network]
Matrix = NDArray[np.float32]


def make_vectors(n: int = N, dim: int = DIM, seed: int = 0) -> NDArray[np.float32]:
    """Vectors of root-mean-square length 1, neither centred nor of one length."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, dim)) * rng.uniform(0.5, 2, size=(n, 1)) + 0.2
    return (vectors / np.sqrt((vectors**2).sum(axis=1).mean())).astype(np.float32)


def make_neighbors(n: int = N, width: int = 5, seed: int = 0) -> NDArray[np.int32]:
    """Lists of 0 to `width` neighbours, padded with −1; a neighbour may be repeated."""
    rng = np.random.default_rng(seed)
    neighbors = rng.integers(0, n, (n, width)).astype(np.int32)
    neighbors[np.arange(width) >= rng.integers(0, width + 1, (n, 1))] = -1
    return neighbors


def make_matrix(dim: int, seed: int = 0) -> NDArray[np.float32]:
    """Orthonormal rows [dim, DIM], as PCA's are."""
    square = np.random.default_rng(seed).normal(size=(DIM, DIM))
    return np.ascontiguousarray(np.linalg.qr(square)[0][:dim], dtype=np.float32)


def graph_network(query_matrix: Matrix | None = None, seed: int = 0) -> GraphNetwork:
    """A small network with convolutions."""
    start = Start(make_vectors(), SHARPNESS, query_matrix, seed=seed)
    return GraphNetwork(start, make_neighbors(), n_filters=16, hidden_dim=24)


def feed_forward(query_matrix: Matrix | None = None, seed: int = 0) -> FeedForward:
    """A small network without convolutions."""
    return FeedForward(Start(make_vectors(), SHARPNESS, query_matrix, seed=seed), hidden_dim=24)


def filter_network(query_matrix: Matrix | None = None, seed: int = 0) -> FilterNetwork:
    """A small filter with a hidden layer."""
    vectors = make_vectors()
    features = vertex_features(Graph(make_neighbors(), np.zeros(1, dtype=np.int32)), vectors)
    start = Start(vectors, SHARPNESS, query_matrix, seed=seed)
    return FilterNetwork(start, features.rows, hidden_dim=24)


each = pytest.mark.parametrize("make", [graph_network, feed_forward, filter_network])


def scores_of(model: Network, queries: NDArray[np.float32]) -> Tensor:
    """Scores of all vertices for all queries [batch, n]."""
    vectors, bias = model.vertices()
    return model.queries(torch.from_numpy(queries)) @ vectors.T + bias


def stir(model: Network) -> None:
    """Give the last layer random weights: at zero it would hide the layers below."""
    with torch.no_grad():
        model.network[-1].weight.normal_(0, 0.1, generator=torch.Generator().manual_seed(0))


def assert_ranks_like_l2(
    scores: Tensor, vectors: NDArray[np.float32], queries: NDArray[np.float32]
) -> None:
    """Scores are −α/2 times squared distances, up to a constant of the query."""
    wide, probes = vectors.astype(np.float64), queries.astype(np.float64)
    expected = -SHARPNESS / 2 * ((probes[:, None] - wide) ** 2).sum(axis=2)  # [batch, n]
    got = scores.detach().numpy().astype(np.float64)
    gap = got - expected
    np.testing.assert_allclose(gap - gap.mean(axis=1, keepdims=True), 0, atol=1e-4)
    np.testing.assert_array_equal(got.argsort(axis=1), expected.argsort(axis=1))


@each
def test_a_fresh_model_ranks_like_l2(make: Make) -> None:
    """An untrained model ranks all vertices by their distance to the query."""
    queries = make_vectors(9, seed=1)
    model = make()
    assert_ranks_like_l2(scores_of(model, queries), make_vectors(), queries)
    assert torch.equal(model.vertices()[0], SHARPNESS * torch.from_numpy(make_vectors()))


@each
@pytest.mark.parametrize("dim", [3, DIM])
def test_a_fresh_model_ranks_like_projected_l2(make: Make, dim: int) -> None:
    """An untrained model with a query matrix ranks by distance between projections."""
    queries, matrix = make_vectors(9, seed=1), make_matrix(dim)
    scores = scores_of(make(matrix), queries)
    assert_ranks_like_l2(scores, make_vectors() @ matrix.T, queries @ matrix.T)


def test_unit_vectors_have_no_bias() -> None:
    """If all vectors have the same length, an untrained model has biases of 0."""
    vectors = np.eye(4, dtype=np.float32)
    assert not FeedForward(Start(vectors, SHARPNESS)).vertices()[1].any()


def naive_mean(features: NDArray[np.float64], neighbors: NDArray[np.int32]) -> NDArray[np.float64]:
    """Mean over each vertex and its neighbours, in a loop [n, width]."""
    lists = [[v, *(u for u in row if u >= 0)] for v, row in enumerate(neighbors.tolist())]
    return np.stack([features[members].mean(axis=0) for members in lists])


@pytest.mark.parametrize("width", [1, 5, 16])
def test_neighborhood_mean_equals_a_loop(width: int) -> None:
    """Means are over a vertex and its neighbours; −1 is skipped anywhere in the list."""
    features, neighbors = make_vectors(dim=7), make_neighbors(width=width)
    neighbors[::3, 0] = -1
    neighbors[5] = -1
    got = NeighborhoodMean(neighbors)(torch.from_numpy(features))
    np.testing.assert_allclose(got, naive_mean(features, neighbors), rtol=1e-5, atol=1e-6)


def test_neighborhood_mean_has_the_loops_gradient() -> None:
    """The gradient is that of the mean written as a matrix."""
    features, neighbors = make_vectors(dim=7), make_neighbors()
    gradients = make_vectors(dim=7, seed=2)
    leaf = torch.from_numpy(features).requires_grad_()
    NeighborhoodMean(neighbors)(leaf).backward(torch.from_numpy(gradients))
    matrix = naive_mean(np.eye(N), neighbors)  # the mean as a matrix [n, n]
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad, matrix.T @ gradients, rtol=1e-5, atol=1e-5)


def naive_vertices(model: GraphNetwork) -> tuple[Tensor, Tensor]:
    """The network of the paper's figure, step by step: vectors [n, d] and biases [n]."""
    matrix = torch.from_numpy(naive_mean(np.eye(N), make_neighbors())).float()  # [n, n]
    hidden = standardize(make_vectors())  # [n, D]
    for block in model.blocks:
        filtered = matrix @ (hidden @ block.convolution.weight.T) + block.convolution.bias
        dense = block.dense(torch.nn.functional.elu(filtered))  # [n, D]
        hidden = block.norm(hidden + dense)  # [n, D]
    first, _, last = model.network
    correction = last(torch.nn.functional.elu(first(hidden)))  # [n, d + 1]
    rows, bias = model.space.rows + correction[:, :-1], model.space.bias + correction[:, -1]
    return SHARPNESS * rows, SHARPNESS * bias


def test_graph_network_is_the_papers() -> None:
    """Three blocks of convolution, ELU, linear map, residual and norm; then two layers."""
    model = graph_network()
    stir(model)
    assert len(model.blocks) == 3
    for got, expected in zip(model.vertices(), naive_vertices(model), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-3)


def test_a_vertex_sees_as_many_hops_as_blocks() -> None:
    """A vertex's vector depends on as many hops around it as there are blocks."""
    chain = np.append(np.arange(1, 10), -1).astype(np.int32)[:, None]
    vectors = make_vectors(10)
    model = GraphNetwork(Start(vectors, 1.0), chain, n_filters=8, hidden_dim=8)
    stir(model)
    model.features.requires_grad_()
    model.smoothed = model.mean(model.features)
    model.vertices()[0][2].sum().backward()
    assert model.features.grad is not None
    touched = model.features.grad.abs().sum(dim=1) > 0
    assert touched.nonzero().flatten().tolist() == [2, 3, 4, 5]


@each
@pytest.mark.parametrize("dim", [3, DIM])
def test_gradients_reach_every_parameter(make: Make, dim: int) -> None:
    """Once the last layer is not zero, every parameter has a gradient."""
    model = make(None if dim == DIM else make_matrix(dim))
    stir(model)
    scores_of(model, make_vectors(9, seed=1)).log_softmax(dim=1)[:, 0].sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@each
def test_the_last_layer_learns_first(make: Make) -> None:
    """In an untrained model the last layer, which is zero, has a gradient."""
    model = make()
    scores_of(model, make_vectors(9, seed=1)).log_softmax(dim=1)[:, 0].sum().backward()
    assert model.network[-1].weight.grad.abs().max() > 0


@each
def test_one_step_improves_what_is_learned(make: Make) -> None:
    """A step along the gradient raises the objective."""
    model, queries = make(), make_vectors(9, seed=1)

    def loss() -> Tensor:
        return -scores_of(model, queries).log_softmax(dim=1)[:, 0].mean()

    before = loss()
    before.backward()
    torch.optim.SGD(model.parameters(), lr=1e-5).step()
    assert loss() < before


def weights(model: Network) -> dict[str, Tensor]:
    """A copy of a model's parameters."""
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


@each
def test_same_seed_same_weights(make: Make) -> None:
    """Weights depend on the seed alone, and making a model draws nothing from torch's generator."""
    torch.manual_seed(1)
    first = weights(make(seed=3))
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), drawn)
    again, other = weights(make(seed=3)), weights(make(seed=4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@each
def test_a_state_holds_parameters_only(make: Make) -> None:
    """The state has no vectors or graph, and loading it restores all that was learned."""
    model, fresh = make(seed=1), make(seed=2)
    stir(model)
    assert set(model.state_dict()) == set(weights(model))
    fresh.load_state_dict(model.state_dict())
    for got, expected in zip(fresh.vertices(), model.vertices(), strict=True):
        assert torch.equal(got, expected)


@each
@pytest.mark.parametrize("dim", [1, 3, DIM])
def test_shapes(make: Make, dim: int) -> None:
    """Vectors [n, d], biases [n], queries [batch, d], all float32."""
    model = make(None if dim == DIM else make_matrix(dim))
    stir(model)
    vectors, bias = model.vertices()
    queries = model.queries(torch.zeros(4, DIM))
    assert (vectors.shape, bias.shape, queries.shape) == ((N, dim), (N,), (4, dim))
    assert {vectors.dtype, bias.dtype, queries.dtype} == {torch.float32}


@each
def test_queries_are_mapped_linearly(make: Make) -> None:
    """The query map is linear, and the identity without a query matrix."""
    model = make(make_matrix(3))
    some, more = torch.from_numpy(make_vectors(4, seed=1)), torch.from_numpy(make_vectors(4))
    together = model.queries(2 * some - more)
    torch.testing.assert_close(together, 2 * model.queries(some) - model.queries(more))
    assert not model.queries(torch.zeros(1, DIM)).any()
    identity = make()
    assert torch.equal(identity.queries(some), some)


def test_features_are_standard() -> None:
    """Features are centred and of variance 1; vectors that are all alike become zeros."""
    features = standardize(make_vectors())
    torch.testing.assert_close(features.mean(dim=0), torch.zeros(DIM), rtol=0, atol=1e-6)
    assert features.square().mean().item() == pytest.approx(1, abs=1e-5)
    assert not standardize(np.ones((5, 2), np.float32)).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query_matrix": make_matrix(3)[:, 1:]}, r"matrix float32 \[d, 12\] .* got .*\(3, 11\)"),
        ({"query_matrix": make_matrix(3)[0]}, r"matrix float32 \[d, 12\] .* got .*\(12,\)"),
        ({"query_matrix": make_matrix(3).astype(float)}, "got float64"),
        ({"query_matrix": make_matrix(0)}, r"with d of at least 1, got .*\(0, 12\)"),
        ({"sharpness": 0.0}, "expected a finite sharpness above 0, got 0.0"),
        ({"sharpness": float("nan")}, "expected a finite sharpness above 0, got nan"),
        ({"vectors": make_vectors().astype(float)}, "expected vectors float32"),
        ({"vectors": make_vectors()[0]}, r"expected vectors float32 \[n, D\]"),
        ({"vectors": np.full((N, DIM), np.nan, np.float32)}, "expected finite vectors"),
    ],
)
def test_a_bad_start_is_refused(options: dict[str, object], message: str) -> None:
    """Vectors, query matrix and sharpness are checked; the error names what was found."""
    with pytest.raises(ValueError, match=message):
        Start(**{"vectors": make_vectors(), "sharpness": SHARPNESS, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbors": make_neighbors()[:-1]}, r"expected neighbors int32 \[200, width\]"),
        ({"neighbors": make_neighbors().astype(np.int64)}, "expected neighbors int32"),
        ({"neighbors": make_neighbors() + 5}, r"expected neighbors in \[-1, 200\)"),
        ({"neighbors": make_neighbors() - 1}, r"expected neighbors in \[-1, 200\)"),
        ({"n_filters": 0}, "expected n_filters of at least 1, got 0"),
        ({"n_blocks": 0}, "expected n_blocks of at least 1, got 0"),
        ({"hidden_dim": 0}, "expected hidden_dim of at least 1, got 0"),
    ],
)
def test_bad_sizes_and_neighbors_are_refused(options: dict[str, object], message: str) -> None:
    """Neighbour lists and layer widths are checked; the error names what was found."""
    start = Start(make_vectors(), SHARPNESS)
    with pytest.raises(ValueError, match=message):
        GraphNetwork(start, **{"neighbors": make_neighbors(), **options})
    if options.keys() == {"hidden_dim"}:
        with pytest.raises(ValueError, match=message):
            FeedForward(start, **options)


def test_edge_offsets_are_32_bits_wide_if_that_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets are int32 below 2³¹ edges and int64 above; means and gradients are the same."""
    assert place_type(2**31 - 1) is np.int32
    assert place_type(2**31) is np.int64
    rng = np.random.default_rng(0)
    neighbors = rng.integers(-1, 30, (30, 5)).astype(np.int32)
    found = []
    for dtype in (np.int32, np.int64):
        monkeypatch.setattr("l2route.models.networks.place_type", lambda n, dtype=dtype: dtype)
        mean = NeighborhoodMean(neighbors)
        assert mean.starts.numpy().dtype == mean.members.numpy().dtype == dtype
        features = torch.from_numpy(np.arange(90, dtype=np.float32).reshape(30, 3))
        features.requires_grad_()
        means = mean(features)
        means.square().sum().backward()
        found.append((means.detach(), features.grad))
    for narrow, wide in zip(*found, strict=True):
        torch.testing.assert_close(narrow, wide, rtol=0, atol=0)
