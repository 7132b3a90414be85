"""Laws of extreme sizes: number of answers, number of queries, length of vectors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from indexes import DIM, QUERIES, VECTORS, N, built, same_results
from l2route import _core
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import MAX_LENGTH, METRICS, Metric, normalize
from l2route.index import RoutingIndex
from l2route.search.limits import MAX_K
from test_index import disconnected, run_apart


@pytest.mark.parametrize("k", [10**9, 2**31 - 1, 2**60, 2**61, 2**63, 2**64])
@pytest.mark.parametrize("limit", ["ef=5", "budget=50", "slack=0.1"])
def test_k_beyond_memory_is_refused(k: int, limit: str) -> None:
    """A k whose answers exceed memory is a ValueError, raised before anything is allocated."""
    printed = run_apart(f"""
import resource
import l2route.search.searcher
l2route.search.searcher.available_bytes = lambda: 8 << 30
index = RoutingIndex.build(np.random.default_rng(0).normal(size=(100, 8)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for queries in (np.zeros((8, 8)), np.zeros(8, dtype=np.float32)):
    try:
        index.search(queries, k={k}, {limit})
    except ValueError as error:
        assert str(error).startswith("expected"), error
        print("refused")
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
""")
    assert printed == "refused\n" * 2


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    k=st.integers(1, 30) | st.integers(1, 10**6) | st.integers(1, 10**25),
    n_queries=st.integers(0, 5),
    limit=st.sampled_from([{"ef": 5}, {"ef": 600}, {"budget": 390}, {"slack": 0.1}, {}]),
)
def test_any_k_is_answered_or_refused(
    monkeypatch: pytest.MonkeyPatch, k: int, n_queries: int, limit: dict[str, Any]
) -> None:
    """A k is answered if its answers fit in a quarter of free memory, and refused otherwise.

    Missing answers are −1 and inf.
    """
    monkeypatch.setattr("l2route.search.searcher.available_bytes", lambda: 64 << 20)
    index = disconnected()
    queries = np.full((n_queries, 1), 3.0)
    try:
        found = index.search(queries, k, **limit)
    except ValueError as error:
        assert k > MAX_K or 12 * k * n_queries > 16 << 20  # a refusal needs a reason
        assert str(error).startswith("expected")  # noqa: PT017
        return
    assert found.ids.shape == found.distances.shape == (n_queries, k)
    padding = [-1] * min(k - 2, 50)
    for ids, distances in zip(found.ids, found.distances, strict=True):
        assert ids[:52].tolist() == [1, 0, *padding][:k]
        assert (ids[2:] == -1).all()
        assert np.isposinf(distances[2:]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_queries_have_no_answers(index: RoutingIndex, dtype: type) -> None:
    """Queries [0, dim] are answered by arrays [0, k]."""
    found = index.search(np.zeros((0, DIM), dtype), k=7, trace=True)
    assert found.ids.shape == found.distances.shape == (0, 7)
    assert found.n_computed.shape == found.n_routing.shape == found.n_hops.shape == (0,)
    assert found.trace is not None
    assert found.trace.offsets.tolist() == [0]


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_vectors_without_finite_distances_are_refused(metric: str) -> None:
    """Vectors and queries whose distances would overflow float32 are refused."""
    message = r"of a length of at most 1.44115e\+17, got .* in row 3"
    for size in (1e18, 1e30, 3e38):
        long = VECTORS.copy()
        long[3] = size
        with pytest.raises(ValueError, match=f"vectors {message}"):
            RoutingIndex.build(long, metric, degree=8)
        index = built(metric=metric)
        for call in (index.search, index.validate_with, index.plan()):
            for queries in (long, long.astype(np.float64)):
                with pytest.raises(ValueError, match=f"queries {message}"):
                    call(queries)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("routing", [None, "int8", "int4"])
def test_the_longest_vectors_have_finite_distances(
    metric: str, routing: Literal["int8", "int4"] | None
) -> None:
    """Vectors just below the maximum length have finite distances and right answers."""
    lengths = np.linalg.norm(VECTORS, axis=1, keepdims=True)
    longest = (VECTORS / lengths * MAX_LENGTH * 0.999).astype(np.float32)
    queries = -longest[:20]
    index = RoutingIndex.build(longest, metric, degree=32, ef_construction=100)
    if routing is not None:
        index.compress(routing)
    found = index.search(queries, k=10, ef=N)
    assert np.isfinite(found.distances).all()
    truth = exact_neighbors(VECTORS / lengths, -(VECTORS / lengths)[:20], 10, metric)
    assert np.mean([len(set(a) & set(b)) for a, b in zip(found.ids, truth.ids, strict=True)]) > 9


@settings(max_examples=60)
@given(
    queries=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.just(DIM)),
        elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
    ),
    metric=st.sampled_from(METRICS),
)
def test_the_core_refuses_the_queries_that_numpy_refuses(
    queries: NDArray[np.float32], metric: Metric
) -> None:
    """The error of the core names the first row with a NaN or infinity, or that is too long."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt((queries.astype(np.float64) ** 2).sum(axis=1))
    is_bad = ~np.isfinite(queries).all(axis=1)
    is_long = lengths > MAX_LENGTH if metric != "cosine" else np.zeros(len(queries), dtype=bool)
    try:
        found = BY_METRIC[metric].search(queries, k=3, ef=10)
    except ValueError as error:
        row = int(np.argmax(is_bad | is_long))
        kind = "finite float32, got NaN or inf" if is_bad[row] else "a length of at most"
        assert kind in str(error)  # noqa: PT017 # an error is allowed here
        assert str(error).endswith(f"in row {row}")  # noqa: PT017
        assert (is_bad | is_long).any()
        return
    assert not (is_bad | is_long).any()
    assert np.isfinite(found.distances).all()


BY_METRIC = {metric: built(metric=metric) for metric in METRICS}


@given(
    queries=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 40)),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    )
)
def test_the_core_normalizes_as_numpy_does(queries: NDArray[np.float32]) -> None:
    """The core normalises in double precision, like numpy, without overflow or underflow.

    The order of additions may differ, which changes at most one unit in the last place.
    """
    np.testing.assert_array_max_ulp(_core.normalized(queries), normalize(queries), 1)


def test_queries_are_normalized_for_cosine(index: RoutingIndex) -> None:
    """Under cosine the length of a query does not change its answers."""
    if index.base.metric != "cosine":
        return
    expected = index.search(QUERIES, k=5, ef=20)
    for scale in (2.0**-100, 2.0**100):
        assert same_results(index.search(QUERIES * np.float32(scale), k=5, ef=20), expected)
