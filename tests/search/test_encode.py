"""Laws of encoding: vertices get the rows of the space, whenever they come."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from encoding import assert_rows_of, random_filter
from l2route.data.vectors import METRICS, Metric
from l2route.search.base import BaseVectors
from l2route.search.codes import (
    COMPRESSIONS,
    LARGEST_CODES,
    Compression,
    compress_space,
    decode_rows,
    to_float16,
)
from l2route.search.encode import check_encodes, encode_vertices
from l2route.search.space import RoutingSpace, original_space, pca_space
from l2route.search.surroundings import neighborhood_means

NOWHERE = np.zeros((0, 0), dtype=np.int32)
"""Lists for spaces that do not look at neighbours."""


def drawn(seed: int, n: int, dim: int, metric: Metric) -> BaseVectors:
    """Vectors with a mean, as unit vectors if the metric wants them."""
    return BaseVectors.of(np.random.default_rng(seed).normal(0.3, 1, (n, dim)), metric)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(20, 60),
    dim=st.integers(2, 20),
    pca_dim=st.none() | st.integers(1, 19),
    metric=st.sampled_from(METRICS),
    compression=st.none() | st.sampled_from(COMPRESSIONS),
)
def test_vertices_of_a_space_get_its_rows(
    seed: int,
    n: int,
    dim: int,
    pca_dim: int | None,
    metric: Metric,
    compression: Compression | None,
) -> None:
    """Encoding what an original, PCA or compressed space was made from gives its rows."""
    base = drawn(seed, n, dim, metric)
    space = original_space(base) if pca_dim is None else pca_space(base, min(pca_dim, dim - 1))
    if compression is not None:
        space = compress_space(space, compression)
    ids = np.random.default_rng(seed).integers(0, n, 7)
    assert_rows_of(space, ids, *encode_vertices(space, base, NOWHERE, ids))


def test_rows_of_half_floats_are_kept() -> None:
    """The original space of half floats encodes vertices bit by bit as they are stored."""
    base = to_float16(drawn(0, 30, 5, "l2"))
    rows, bias = encode_vertices(original_space(base), base, NOWHERE, np.arange(30))
    np.testing.assert_array_equal(rows, base.rows)
    assert bias is None


@pytest.mark.parametrize("compression", ["int8", "int4", "int2"])
def test_values_out_of_range_are_clipped(compression: Compression) -> None:
    """A vector far outside gets the outermost codes, in all of its dimensions."""
    base = drawn(0, 200, 6, "l2")
    space = compress_space(original_space(base), compression)
    assert space.codes is not None
    far = BaseVectors.of(1e6 * np.random.default_rng(0).normal(size=(1, 6)), "l2")
    rows, _ = encode_vertices(space, far, NOWHERE, np.arange(1))
    decoded = decode_rows(replace(space, rows=rows, bias=None))[0]
    largest = LARGEST_CODES[space.codes.bits]
    ends = np.stack([space.codes.offset, space.codes.offset + largest * space.codes.scale])
    assert (np.abs(decoded - ends).min(axis=0) <= 1e-5 * np.abs(ends).max()).all()


def test_a_space_without_a_vertex_map_is_refused() -> None:
    """The error names the space, the model that it was learned by, and what to do."""
    base = drawn(0, 10, 4, "l2")
    space = RoutingSpace(base.rows, 4, "ip", name="mine")
    with pytest.raises(ValueError, match=r"got mine, whose vertex map is not known.*learn again"):
        encode_vertices(space, base, NOWHERE, np.arange(2))
    learned = replace(space, name="learned-int8", model="some.Network")
    with pytest.raises(ValueError, match=r"got learned-int8, learned by some\.Network, which has"):
        check_encodes(learned)


def naive_means(
    vectors: NDArray[np.float32], lists: NDArray[np.int32], n_hops: int
) -> list[NDArray[np.float64]]:
    """x, A·x, … of all vertices, one at a time."""
    means = [vectors.astype(np.float64)]
    for _ in range(n_hops):
        before = means[-1]
        means.append(
            np.stack([before[[v, *near[near >= 0]]].mean(axis=0) for v, near in enumerate(lists)])
        )
    return means


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 30),
    dim=st.integers(1, 20),
    width=st.integers(0, 5),
    m=st.integers(0, 40),
    n_hops=st.integers(0, 3),
)
def test_means_of_some_are_those_of_all(
    seed: int, n: int, dim: int, width: int, m: int, n_hops: int
) -> None:
    """Means over neighbourhoods equal the naive ones; rows that are not used are not read."""
    rng = np.random.default_rng(seed)
    base = drawn(seed, n, dim, "l2")
    lists = rng.integers(-1, n, (n, width)).astype(np.int32)
    slots = rng.integers(0, n, m)
    garbage = np.full((3, base.rows.shape[1]), np.nan, dtype=np.float32)
    roomy = BaseVectors(np.concatenate([base.rows, garbage]), dim, "l2")
    got = neighborhood_means(roomy, lists, slots, n_hops)
    assert len(got) == n_hops + 1
    for mean, wanted in zip(got, naive_means(base.vectors(), lists, n_hops), strict=True):
        np.testing.assert_allclose(mean, wanted[slots], rtol=1e-4, atol=1e-5)


def test_a_filter_with_arrays_that_do_not_fit_is_refused() -> None:
    """The error names the array, and what was expected."""
    good = random_filter(4, 3)
    arrays = {each.name: getattr(good, each.name) for each in fields(good)}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            continue
        wrong = np.ones((*array.shape[:-1], array.shape[-1] + 1), dtype=np.float32)
        with pytest.raises(ValueError, match=r"^expected \w+ of a filter \["):
            replace(good, **{name: wrong})
    with pytest.raises(ValueError, match=r"expected a filter that maps \[4, 4\], got \[4, 3\]"):
        RoutingSpace(np.ones((1, 16), dtype=np.float32), 4, "ip", vertex_map=good)
