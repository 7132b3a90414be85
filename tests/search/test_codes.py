"""Laws of compressed vectors: encoding, spaces and indexes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route.data.vectors import METRICS
from l2route.index import RoutingIndex, load
from l2route.search.base import BaseVectors
from l2route.search.codes import (
    CLIPPED,
    COMPRESSIONS,
    LARGEST_CODES,
    Compression,
    centred,
    compress_space,
    decode_rows,
    encode,
    fit_codes,
    to_float16,
)
from l2route.search.encode import encode_space, encode_vertices
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, original_space, pca_space

N, DIM = 600, 20
VECTORS = np.random.default_rng(0).normal(size=(N, DIM)).astype(np.float32)
QUERIES = np.random.default_rng(1).normal(size=(60, DIM)).astype(np.float32)


def built(**options: Any) -> RoutingIndex:
    """A small index with validation queries."""
    index = RoutingIndex.build(VECTORS, **{"ef_construction": 40, "degree": 8} | options)
    index.validate_with(np.random.default_rng(2).normal(size=(80, DIM)))
    return index


def n_shared(ids: NDArray[np.int64], others: NDArray[np.int64]) -> float:
    """Mean number of ids that two answers to a query share."""
    return float(np.mean([len(np.intersect1d(*pair)) for pair in zip(ids, others, strict=True)]))


@pytest.mark.parametrize("offset", [4.0, 100.0])
def test_queries_may_differ_where_vectors_do_not(offset: float) -> None:
    """A column that is constant in all vectors takes no digits from the codes of queries."""
    vectors, queries = VECTORS.copy(), QUERIES.copy()
    vectors[:, 0], queries[:, 0] = 1.0, -offset
    base = BaseVectors.of(vectors, "l2")
    graph = RoutingIndex.build(vectors, degree=32).graph
    spaces = (original_space(base), compress_space(original_space(base), "int8"))
    exact, coded = (
        Searcher(graph, space, base).search(queries, 10, limits=Limits(ef=N, rerank=15)).ids
        for space in spaces
    )
    assert n_shared(exact, coded) > 9.9


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_few_vectors_may_differ_where_most_do_not(offset: float, sign: int) -> None:
    """Of a column that is zero in all but a few of many vectors, those have codes too."""
    vectors = np.zeros((4000, 3), dtype=np.float32)
    vectors[:, 1] = np.random.default_rng(0).normal(size=4000)
    vectors[:1, 0] = sign * 0.3
    codes = fit_codes(vectors + np.float32(offset))
    decoded = codes.offset + codes.scale * encode(vectors + np.float32(offset), codes)
    np.testing.assert_allclose(decoded[:, [0, 2]], vectors[:, [0, 2]] + offset, atol=0.002)
    assert 0 < codes.scale[2] < 1e-3 * codes.scale[1]


@given(
    st.integers(1, 40), st.integers(1, 9), st.floats(-100, 100), st.floats(0, 100), st.integers(0)
)
def test_codes_stand_for_their_values(
    n: int, dim: int, mean: float, spread: float, seed: int
) -> None:
    """Decoded values are within half a step of the values, clipped to the quantiles."""
    vectors = np.random.default_rng(seed).normal(mean, spread, (n, dim)).astype(np.float32)
    for bits in (2, 4, 8):
        codes = fit_codes(vectors, bits)
        numbers = encode(vectors, codes)
        ends = np.quantile(vectors, [CLIPPED[bits], 1 - CLIPPED[bits]], axis=0)
        error = np.abs(codes.offset + codes.scale * numbers - np.clip(vectors, *ends))
        assert numbers.max() <= LARGEST_CODES[bits]
        assert (error <= codes.scale * 0.5 + 1e-4 * (1 + abs(mean))).all()


@given(
    st.integers(1, 30), st.integers(1, 9), st.floats(-100, 100), st.floats(0.01, 10), st.integers(0)
)
def test_centring_changes_no_scores(
    n: int, dim: int, mean: float, origin: float, seed: int
) -> None:
    """Scores plus origin·|q|²/2 are the same before and after, for any centre."""
    rng = np.random.default_rng(seed)
    vectors, queries = rng.normal(mean, 1, (2, n, dim)).astype(np.float32)
    bias = rng.normal(size=n).astype(np.float32)
    centre = rng.normal(mean, 1, dim).astype(np.float32)
    rows, biases = centred(vectors, bias, centre, origin)
    before = 0.5 * origin * np.square(queries.astype(np.float64)).sum(axis=1)[:, None]
    before = before - queries.astype(np.float64) @ vectors.T - bias
    moved = queries.astype(np.float64) - centre
    after = 0.5 * origin * np.square(moved).sum(axis=1)[:, None] - moved @ rows.T - biases
    size = 1 + np.abs(rows).max() * np.abs(moved).max() * dim + np.abs(biases).max()
    np.testing.assert_allclose(after, before, atol=1e-5 * size)


@pytest.mark.parametrize("offset", [0, 100, 10_000])
@pytest.mark.parametrize("compression", ["int4", "int8"])
def test_codes_are_exact_far_from_the_origin(compression: Compression, offset: float) -> None:
    """Codes rank as well as near the origin, and distances to encoded new vectors too."""
    base = BaseVectors.of(VECTORS + offset, "l2")
    index = RoutingIndex.build(VECTORS, degree=8, ef_construction=40)
    least = 0.95 if compression == "int8" else 0.75
    for space in (original_space(base), pca_space(base, 15)):
        smaller = compress_space(space, compression)
        anew = encode_space(smaller, base, index.graph)
        found = [
            Searcher(index.graph, each, base).search(
                QUERIES + offset, 10, limits=Limits(ef=N, rerank=10), n_threads=1
            )
            for each in (space, smaller, anew)
        ]
        for each in found[1:]:
            assert n_shared(each.ids, found[0].ids) > least * 10


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("metric", METRICS)
def test_a_compressed_space_ranks_alike(compression: str, metric: str) -> None:
    """Exhaustive searches before and after compression share most of the first 100 answers.

    Measured: at least 93.3 with two bits, 97 with four or more.
    """
    base = BaseVectors.of(VECTORS, metric)  # type: ignore[arg-type] # parametrized
    index = RoutingIndex.build(VECTORS, metric, degree=8, ef_construction=40)
    biased = RoutingSpace(base.rows, DIM, "ip", None, np.linspace(-1, 1, N, dtype=np.float32))
    for space in (original_space(base), pca_space(base, 9), biased):
        smaller = compress_space(space, compression)  # type: ignore[arg-type] # the same
        assert smaller.rows[0].nbytes < space.rows[0].nbytes or space.dim < 20
        found = []
        for each in (space, smaller):
            searcher = Searcher(index.graph, each, base)
            ids = searcher.search(QUERIES, 100, limits=Limits(ef=N, rerank=100)).ids
            found.append(ids)
        assert n_shared(*found) > (91 if compression == "int2" else 96)


@pytest.mark.parametrize("compression", ["int4", "int8"])
@pytest.mark.parametrize("scale", [2.0**-60, 2.0**40])
def test_codes_know_no_scale(compression: Compression, scale: float) -> None:
    """Scaling vectors and queries by a power of two does not change the answers of codes."""
    found = []
    for factor in (1.0, scale):
        index = RoutingIndex.build(VECTORS * np.float32(factor), degree=8, ef_construction=40)
        index.compress(compression)
        found.append(index.search(QUERIES * np.float32(factor), 10, ef=40, rerank=10).ids)
    np.testing.assert_array_equal(*found)


def test_a_space_is_compressed_once() -> None:
    """Codes cannot be compressed again, and values beyond the range of float16 are refused."""
    space = original_space(BaseVectors.of(VECTORS, "l2"))
    with pytest.raises(ValueError, match="expected a space of float32, got uint8"):
        compress_space(compress_space(space, "int8"), "int8")
    expected = "expected compression int2, int4, int8, float16, got 'int3'"
    with pytest.raises(ValueError, match=expected):
        compress_space(space, "int3")  # type: ignore[arg-type] # on purpose
    with pytest.raises(ValueError, match="expected values that a half float can hold, got 70000"):
        to_float16(BaseVectors.of(np.full((3, 2), 7e4), "l2"))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("vectors", [None, "float16"])
def test_compressing_loses_little(metric: str, vectors: Any) -> None:
    """Compression to int8 costs less than two points of recall@10; `info` reports both recalls."""
    index = built(metric=metric)
    before = index.info()
    index.compress("int8", vectors=vectors)
    after = index.info()
    (loss,) = after["losses"]
    assert loss["space"] == index.spaces[-1].name == "original-int8"
    assert loss["before"] > 0.9
    assert abs(loss["after"] - loss["before"]) < 0.02
    if vectors is not None:
        assert after["vectors"] == "float16"
        assert index.spaces[0].rows.dtype == np.float16
    saved = before["bytes_per_vector"] - after["bytes_per_vector"]
    codes = 64 + 4  # with a bias under l2
    assert saved == pytest.approx((64 if vectors else 0) - codes, abs=5)


def test_a_compressed_space_takes_the_place_of_its_source() -> None:
    """A compressed space replaces its source, unless that is the original space."""
    index = built(pca_dim=7)
    index.compress("int8")
    assert [space.name for space in index.spaces] == ["original", "pca7-int8"]
    index.compress("float16", space="original")
    assert [space.name for space in index.spaces] == ["original", "pca7-int8", "original-float16"]
    index.compress("float16", space="original")  # again: the same
    assert [space.name for space in index.spaces] == ["original", "pca7-int8", "original-float16"]
    assert [loss["space"] for loss in index.info()["losses"]] == ["pca7-int8", "original-float16"]
    index.compress(None, vectors="float16")
    assert index.base.rows.dtype == np.float16
    (loss,) = index.info()["losses"]  # losses measured with other vectors are dropped
    assert loss["space"] == index.spaces[-1].name
    assert loss["before"] >= loss["after"] - 0.01 > 0.5
    with pytest.raises(
        ValueError, match="expected routing int2, int4, int8 or float16 to be inlined"
    ):
        index.compress(None, inlined=True)
    with pytest.raises(ValueError, match="expected vectors float16 or None, got 'int8'"):
        index.compress(vectors="int8")  # type: ignore[arg-type] # on purpose
    with pytest.raises(ValueError, match="expected a space of original"):
        index.compress(space="pca7")


def test_without_queries_nothing_is_measured() -> None:
    """Without validation queries, compression works and measures no loss."""
    index = RoutingIndex.build(VECTORS, ef_construction=40)
    index.compress()
    assert index.info()["losses"] == []


def test_distances_of_halved_vectors_are_theirs() -> None:
    """With float16 vectors, distances are those to the rounded vectors."""
    index = built()
    index.compress("int8", vectors="float16")
    found = index.search(QUERIES, k=3, ef=50)
    rounded = VECTORS.astype(np.float16).astype(np.float64)
    expected = ((QUERIES[:, None].astype(np.float64) - rounded[found.ids]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-4)


@pytest.mark.parametrize(("compression", "dim", "bits"), [("int4", 128, 4), ("int2", 256, 2)])
def test_codes_of_few_bits_are_saved(
    compression: Compression, dim: int, bits: int, tmp_path: Path
) -> None:
    """A loaded index of codes of 4 or 2 bits answers like the saved one."""
    index = built()
    index.compress(compression, vectors="float16")
    space = index.spaces[-1]
    assert space.codes is not None
    assert (space.dim, space.codes.bits, space.rows.shape[1]) == (dim, bits, 64)
    index.save(tmp_path / "index")
    again = load(tmp_path / "index")
    for limit in ({"ef": 20}, {"slack": 0.2}, {"budget": 400}):
        a, b = index.search(QUERIES, 5, **limit), again.search(QUERIES, 5, **limit)
        np.testing.assert_array_equal(a.ids, b.ids)
        np.testing.assert_array_equal(a.n_computed, b.n_computed)
    assert again.info() == index.info()


@pytest.mark.parametrize("compression", ["int2", "int4"])
def test_corrections_mend_the_ranking(compression: Compression) -> None:
    """Of vectors and queries alike, corrected biases rank more of the ten nearest first.

    Measured: 7.6 to 7.9 of ten with two bits, 9.3 to 9.4 with four.
    """
    rng = np.random.default_rng(0)
    base = BaseVectors.of(rng.normal(size=(2000, 64)) * rng.uniform(0.5, 2, (2000, 1)), "l2")
    queries = base.vectors()[:200] + rng.normal(size=(200, 64)).astype(np.float32) / 2
    space = compress_space(original_space(base), compression)
    centre, rotation, by_bias = space.centre, space.rotation, space.bias
    assert centre is not None
    assert rotation is not None
    assert by_bias is not None
    vectors = rotation(base.vectors()) - centre
    plain = replace(space, bias=(-0.5 * np.square(vectors).sum(axis=1)).astype(np.float32))
    nearest = np.argsort(
        np.square(queries[:, None] - base.vectors()[None]).sum(axis=2), axis=1, kind="stable"
    )[:, :10]
    found = [
        np.argsort(
            -(rotation(queries) - centre) @ decode_rows(each).T - each.bias, axis=1, kind="stable"
        )[:, :10]
        for each in (plain, space)
    ]
    shares = [n_shared(each, nearest) for each in found]
    assert shares[1] > shares[0] + 0.05


def test_a_vector_far_outside_is_not_near() -> None:
    """A correction is bounded: a vector far beyond the range of codes stays far from queries."""
    vectors = np.concatenate([VECTORS, np.full((1, DIM), 1e3, np.float32)])
    space = compress_space(original_space(BaseVectors.of(VECTORS, "l2")), "int2")
    outside = BaseVectors.of(vectors, "l2")
    nowhere = np.full((N + 1, 1), -1, np.int32)
    _, bias = encode_vertices(space, outside, nowhere, np.arange(N + 1))
    assert bias is not None
    assert bias[-1] < 100 * bias[:-1].min() < 0


def test_slack_means_the_same_in_codes() -> None:
    """Walks with the same slack are about as long in every compressed space."""
    index = built(degree=16)
    lengths = [index.search(QUERIES, 5, slack=0.1).n_routing.mean()]
    for compression in COMPRESSIONS:
        index.compress(compression, space="original")
        lengths.append(index.search(QUERIES, 5, slack=0.1).n_routing.mean())
    assert max(lengths) / min(lengths) < 1.1


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("graph", ["nsw", "hnsw"])
def test_codes_beside_each_other_change_nothing_but_the_memory(
    compression: Any, graph: Any, tmp_path: Path
) -> None:
    """Inlining changes only the memory: answers, counts and walks stay the same.

    The copies are counted in `n_bytes`, and made again on loading.
    """
    index = built(graph=graph, degree=8)
    plain, near = (RoutingIndex(index.base, index.graph) for _ in range(2))
    plain.compress(compression)
    near.compress(compression, inlined=True)
    near.save(tmp_path / "near")
    loaded = load(tmp_path / "near")
    for other in (near, loaded):
        for limit in ({"ef": 20}, {"slack": 0.2}, {"budget": 400}, {"budget": 500, "ef": 9}):
            a = plain.search(QUERIES, 5, trace=True, **limit)
            b = other.search(QUERIES, 5, trace=True, **limit)
            np.testing.assert_array_equal(a.ids, b.ids)
            np.testing.assert_array_equal(a.n_computed, b.n_computed)
            assert a.trace is not None
            assert b.trace is not None
            np.testing.assert_array_equal(a.trace.vertices, b.trace.vertices)
    space = near.spaces[-1]
    copies = space.rows[0].nbytes + (0 if space.bias is None else 4)
    assert near.n_bytes - plain.n_bytes == N * index.graph.neighbors.shape[1] * copies
    assert near.info()["spaces"][-1]["inlined"] is True
    near.renumber()
    np.testing.assert_array_equal(
        near.search(QUERIES, 5, ef=20).ids, plain.search(QUERIES, 5, ef=20).ids
    )


def test_too_many_neighbours_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inlining more neighbours than the core can number is refused before any copy is made."""
    index = RoutingIndex.build(np.random.default_rng(0).normal(size=(50, 8)), degree=8)
    monkeypatch.setattr("l2route.search.rows.MAX_INLINED", index.graph.neighbors.size - 1)
    for module in ("search.rows.aligned_rows", "state.changes.compress_space"):
        monkeypatch.delattr(f"l2route.{module}")
    expected = "expected at most 399 neighbours to be inlined, got 400"
    with pytest.raises(ValueError, match=expected):
        index.compress("int8", inlined=True)
    space = RoutingSpace(index.base.rows, 8, "l2", name="near", inlined=True)
    with pytest.raises(ValueError, match=expected):
        Searcher(index.graph, space, index.base)
