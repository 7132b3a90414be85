"""Laws of learned vertex maps: they give the vertices that were learned from their rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from encoding import assert_rows_of
from l2route.data.vectors import METRICS, Metric
from l2route.graph.graph import Graph, compact_rows
from l2route.index import RoutingIndex, load
from l2route.models.collapse import space_of
from l2route.models.features import principal_axes, vertex_features
from l2route.models.graph_filter import GraphFilter
from l2route.models.protocol import unit_scale
from l2route.models.start import Start
from l2route.search.base import BaseVectors
from l2route.search.codes import COMPRESSIONS, Compression, compress_space
from l2route.search.encode import encode_space, encode_vertices
from l2route.search.origin import with_origin
from l2route.search.space import RoutingSpace, original_space, pca_space

HUBS = np.array([3, 8], dtype=np.int64)


def learned(
    seed: int, n: int, dim: int, routing_dim: int | None, metric: Metric, flat: bool = False
) -> tuple[BaseVectors, Graph, RoutingSpace]:
    """A space of a filter with random weights and two hubs, over a random graph."""
    rng = np.random.default_rng(seed)
    spread = np.arange(1, dim + 1) / dim
    if flat:
        spread[0] = 0.0
    base = BaseVectors.of(rng.normal(0.5, 1, (n, dim)) * spread + 0.2, metric)
    lists = compact_rows(rng.integers(-1, n, (n, 4)).astype(np.int32))
    graph = Graph(lists, np.zeros(1, np.int32))
    plain = original_space(base) if routing_dim is None else pca_space(base, routing_dim)
    scale = unit_scale(base.vectors())
    vectors = np.ascontiguousarray(base.vectors()) * np.float32(scale)
    axes = principal_axes(vectors)
    features = vertex_features(graph, vectors @ axes, with_products=routing_dim is not None)
    start = Start(vectors, 7.0, plain.query_matrix, plain.scorer)
    model = GraphFilter(start, features, axes, hubs=HUBS)
    generator = torch.Generator().manual_seed(seed % 2**31)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return base, graph, with_origin(space_of(model, dim, routing_dim or dim, scale, 8, base), base)


def in_degrees(graph: Graph) -> NDArray[np.int64]:
    """How many lists each vertex is in [n]; once per place."""
    return np.bincount(graph.neighbors[graph.neighbors >= 0], minlength=graph.n_vertices)


def assert_encodes(base: BaseVectors, graph: Graph, space: RoutingSpace) -> None:
    """All vertices get their rows, in one call and one by one."""
    ids, degrees = np.arange(graph.n_vertices), in_degrees(graph)
    got = encode_vertices(space, base, graph.neighbors, ids, degrees)
    assert_rows_of(space, ids, *got)
    for v in ids[:5]:
        one = np.array([v])
        assert_rows_of(
            space, one, *encode_vertices(space, base, graph.neighbors, one, degrees[one])
        )


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(30, 60),
    dim=st.integers(3, 20),
    routing_dim=st.none() | st.integers(1, 19),
    metric=st.sampled_from(METRICS),
    compression=st.none() | st.sampled_from(COMPRESSIONS),
    flat=st.booleans(),
)
def test_vertices_that_were_learned_from_get_their_rows(
    seed: int,
    n: int,
    dim: int,
    routing_dim: int | None,
    metric: Metric,
    compression: Compression | None,
    flat: bool,
) -> None:
    """A learned space encodes what it was learned from, on the same graph, as it is in it."""
    short = None if routing_dim is None else min(routing_dim, dim - 1)
    base, graph, space = learned(seed, n, dim, short, metric, flat)
    if compression is not None:
        space = compress_space(space, compression)
    assert_encodes(base, graph, space)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("routing_dim", [None, 5])
def test_an_index_that_changes_or_is_saved_still_encodes(
    metric: Metric, routing_dim: int | None, tmp_path: Path
) -> None:
    """Compressing, renumbering, saving and loading keep the map."""
    base, graph, space = learned(1, 80, 12, routing_dim, metric)
    index = RoutingIndex(base, graph, [space])
    for compression in (None, "int4"):
        if compression is not None:
            index.compress("int4")
        index.renumber()
        index.save(tmp_path / "index")
        index = load(tmp_path / "index")
        assert index.spaces[-1].model == "l2route.models.graph_filter.GraphFilter"
        assert_encodes(index.base, index.graph, index.spaces[-1])


def test_a_vertex_that_nothing_points_to_has_an_average_in_degree() -> None:
    """Without in-degrees, vertices are encoded as if theirs were average."""
    base, graph, space = learned(2, 50, 6, None, "l2")
    ids, degrees = np.arange(50), in_degrees(graph)
    space = replace(space, codes=None)
    mean = np.expm1(np.log1p(degrees).mean())
    wanted, bias = encode_vertices(space, base, graph.neighbors, ids, np.full(50, mean))
    got, same = encode_vertices(space, base, graph.neighbors, ids)
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(same, bias, rtol=1e-3, atol=1e-3)


def test_an_equal_vertex_gets_the_same_row() -> None:
    """A vertex with the vector and list of another one gets that one's row."""
    base, graph, space = learned(3, 50, 6, None, "l2")
    twin = 20
    rows = np.concatenate([base.rows, base.rows[[twin]]])
    neighbors = np.concatenate([graph.neighbors, graph.neighbors[[twin]]])
    degree = in_degrees(graph)[[twin]]
    new = encode_vertices(space, replace(base, rows=rows), neighbors, np.array([50]), degree)
    assert_rows_of(space, [twin], *new)


@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
def test_a_space_encoded_anew_has_scales_of_its_own(compression: Compression | None) -> None:
    """Vertices are encoded as if nothing pointed to them; codes are fitted to what comes out."""
    base, graph, space = learned(4, 60, 6, None, "l2")
    vectors, bias = encode_vertices(space, base, graph.neighbors, np.arange(60))
    wanted = replace(space, rows=vectors, bias=bias)
    if compression is not None:
        space, wanted = (compress_space(each, compression) for each in (space, wanted))
    anew = encode_space(space, base, graph)
    assert_rows_of(wanted, np.arange(60), anew.rows, anew.bias)
    if anew.codes is not None:
        assert wanted.codes is not None
        np.testing.assert_allclose(anew.codes.scale, wanted.codes.scale, rtol=1e-4)
        np.testing.assert_allclose(anew.codes.offset, wanted.codes.offset, rtol=1e-3, atol=1e-3)
