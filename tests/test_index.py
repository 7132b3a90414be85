"""Laws of an index: building and searching."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from indexes import (
    DIM,
    QUERIES,
    VALIDATION,
    VECTORS,
    N,
    built,
    labelled,
    same_results,
    with_everything,
)
from l2route.data.truth import exact_distances, exact_neighbors
from l2route.data.vectors import METRICS
from l2route.graph.build import GraphOptions, build_graph
from l2route.graph.graph import Graph
from l2route.graph.report import report
from l2route.index import RoutingIndex
from l2route.search.base import BaseVectors
from l2route.search.limits import DEFAULT_BUDGET
from l2route.search.result import SearchResult
from l2route.search.space import pca_space


def test_eight_threads_get_the_answers_of_one(index: RoutingIndex) -> None:
    """Concurrent searches with any number of threads each give the same answers as one."""
    cases = [
        {"k": 3 + i % 3, "budget": 60 + 10 * (i % 5), "n_threads": i % 3, "trace": i % 4 == 0}
        for i in range(32)
    ]
    expected = [index.search(QUERIES, **case) for case in cases]  # type: ignore[arg-type]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda case: index.search(QUERIES, **case), cases)
        assert all(map(same_results, found, expected))


def true_ids(index: RoutingIndex, result: SearchResult) -> NDArray[np.int64]:
    """Answers by row number."""
    if index.labels is None:
        return result.ids
    rows = {label: row for row, label in enumerate(index.labels.tolist())} | {-1: -1}
    return np.vectorize(rows.__getitem__, otypes=[np.int64])(result.ids)


@settings(max_examples=25)
@given(
    k=st.integers(1, 60),
    budget=st.none() | st.integers(1, 600),
    ef=st.none() | st.integers(1, 600),
    rerank=st.none() | st.integers(-1, 50),
    space=st.integers(0, 2),
)
def test_answers_are_ordered_true_and_paid_for(
    index: RoutingIndex,
    k: int,
    budget: int | None,
    ef: int | None,
    rerank: int | None,
    space: int,
) -> None:
    """Answers are distinct, with true distances, ordered by distance and then by id.

    Missing answers are −1 and inf at the end. The cost is as counted, and within the budget.
    """
    name = index.spaces[space % len(index.spaces)].name
    try:
        result = index.search(QUERIES, k, budget=budget, ef=ef, rerank=rerank, space=name)
    except ValueError as error:
        assert str(error).startswith("expected")  # noqa: PT017 # too small a budget is refused
        return
    assert result.ids.shape == result.distances.shape == (len(QUERIES), k)
    missing = result.ids < 0
    assert (missing[:, :-1] <= missing[:, 1:]).all()
    assert (result.ids[missing] == -1).all()
    assert np.isposinf(result.distances[missing]).all()
    assert np.isfinite(result.distances[~missing]).all()
    ids = true_ids(index, result)
    for row, distances in zip(ids.tolist(), result.distances.tolist(), strict=True):
        answers = [(d, i) for d, i in zip(distances, row, strict=True) if i >= 0]
        assert answers == sorted(set(answers))
    true = exact_distances(index.base.vectors(), QUERIES, ids, index.base.metric)
    np.testing.assert_allclose(result.distances, true, rtol=1e-4, atol=1e-5)
    share = index.searcher(name).space.dim / DIM
    cost = result.n_routing * share + result.n_projection + result.n_rerank
    np.testing.assert_allclose(result.n_computed, cost)
    if budget is not None or ef is None:
        assert (result.n_computed <= (budget or DEFAULT_BUDGET)).all()


@pytest.mark.parametrize("metric", METRICS)
def test_exhaustive_search_is_exact(metric: str) -> None:
    """A search that may visit all vertices finds the true neighbours."""
    for kind in ("nsw", "hnsw"):
        index = built(metric=metric, graph=kind, degree=32, ef_construction=100)
        assert report(index.graph).n_unreachable == 0
        truth = exact_neighbors(VECTORS, QUERIES, 10, metric)
        for limit in ({"ef": N}, {"budget": N}):
            found = index.search(QUERIES, k=10, **limit)
            np.testing.assert_array_equal(found.ids, truth.ids)
            np.testing.assert_allclose(found.distances, truth.distances, rtol=1e-4, atol=1e-5)
        if metric != "ip":
            assert index.search(VECTORS, k=1, ef=N).ids[:, 0].tolist() == list(range(N))


def disconnected() -> RoutingIndex:
    """Four vertices in two components, of which only {0, 1} is reachable."""
    neighbors = np.array([[1, -1], [0, -1], [3, -1], [2, -1]], dtype=np.int32)
    base = BaseVectors.of(np.arange(4.0)[:, None], "l2")
    return RoutingIndex(base, Graph(neighbors, np.zeros(1, dtype=np.int32)))


def test_no_cosine_distance_is_negative() -> None:
    """Cosine distances are never negative, neither by rounding nor with float16 vectors."""
    index = built(metric="cosine", graph="nsg")
    for vectors in (None, "float16"):
        index.compress(None, vectors=vectors)
        found = index.search(VECTORS, 3, ef=50)
        assert found.distances.min() >= 0
        assert (found.ids[:, 0] == np.arange(N)).all()


def test_rows_are_found_by_what_answers_call_them() -> None:
    """`rows_of` inverts labels and keeps −1; unknown ids are refused."""
    vectors = np.arange(5.0)[:, None]
    graph = RoutingIndex.build(vectors, degree=4).graph
    base = BaseVectors.of(vectors, "l2")
    plain = RoutingIndex(base, graph)
    named = RoutingIndex(base, graph, labels=np.array([7, -5, 3, 100, 0]))
    assert plain.rows_of([[4, -1], [0, 2]]).tolist() == [[4, -1], [0, 2]]
    assert named.rows_of([[100, -1], [0, -5]]).tolist() == [[3, -1], [4, 1]]
    for index, unknown in ((plain, 5), (plain, -2), (named, 4), (named, 101)):
        with pytest.raises(ValueError, match=f"got {unknown}"):
            index.rows_of([0, unknown])
    with pytest.raises(ValueError, match="integer"):
        plain.rows_of([0.5])


def test_what_is_not_found_is_told_at_the_end() -> None:
    """If fewer than k vertices are found, ids end in −1 and distances in inf."""
    for limit in ({"ef": 10}, {"budget": 10}, {}):
        result = disconnected().search([[3.0]], k=4, **limit)
        assert result.ids.tolist() == [[1, 0, -1, -1]]
        assert result.distances.tolist() == [[4.0, 9.0, np.inf, np.inf]]
    assert disconnected().search([[3.0]], k=4, budget=1).ids.tolist() == [[0, -1, -1, -1]]
    assert built().search(QUERIES, k=N + 7, ef=N).ids[:, N:].tolist() == [[-1] * 7] * 40


def test_one_query_may_have_one_axis(index: RoutingIndex) -> None:
    """A single query [dim] is a batch of one."""
    expected = index.search(QUERIES[:1], k=5)
    assert same_results(index.search(QUERIES[0], k=5), expected)


def test_queries_may_be_lists_or_of_any_real_type() -> None:
    """Queries may be lists, one list or arrays of any real dtype."""
    index = built()
    expected = index.search(QUERIES[:1], k=5)
    for query in (QUERIES[:1].tolist(), QUERIES[0].tolist(), QUERIES[:1].astype(np.float64)):
        assert same_results(index.search(query, k=5), expected)
    whole = np.rint(QUERIES * 3)
    assert same_results(index.search(whole.astype(np.int8)), index.search(whole))


def test_strided_queries_are_queries(index: RoutingIndex) -> None:
    """Queries may be strided views."""
    wide = np.zeros((80, DIM + 3), dtype=np.float32)
    wide[::2, 2:-1] = QUERIES
    assert same_results(index.search(wide[::2, 2:-1]), index.search(QUERIES))


BAD_SEARCHES: dict[str, tuple[dict[str, Any], str]] = {
    "nan": ({"queries": np.full((1, DIM), np.nan)}, "finite float32, got NaN or inf in row 0"),
    "inf": ({"queries": np.full((1, DIM), -np.inf)}, "finite float32, got NaN or inf in row 0"),
    "beyond float32": ({"queries": np.full((1, DIM), 1e39)}, "finite float32, got"),
    "dimension": ({"queries": np.zeros((3, DIM - 1))}, rf"\[\*, {DIM}\], got \[\*, {DIM - 1}\]"),
    "padded": ({"queries": np.zeros((3, 16))}, rf"\[\*, {DIM}\], got \[\*, 16\]"),
    "one axis": ({"queries": np.zeros(DIM + 1)}, rf"\[\*, {DIM}\], got \[\*, {DIM + 1}\]"),
    "three axes": ({"queries": np.zeros((2, 3, DIM))}, r"got shape \[2, 3, 12\]"),
    "no axis": ({"queries": np.float32(1)}, r"got shape \[\]"),
    "no query": ({"queries": []}, rf"\[\*, {DIM}\], got \[\*, 0\]"),
    "nothing of the wrong dimension": ({"queries": np.zeros((0, 7))}, r"got \[\*, 7\]"),
    "too long": ({"queries": np.full((2, DIM), 1e30)}, "a length of at most .*, got .* in row 0"),
    "ragged": ({"queries": [[1.0], [1.0, 2.0]]}, r"queries \[1\] in all rows, got \[2\] in row 1"),
    "complex": ({"queries": np.zeros((1, DIM), complex)}, "got dtype complex128"),
    "objects": ({"queries": np.zeros((1, DIM), object)}, "got dtype object"),
    "words": ({"queries": "queries"}, "got dtype"),
    "nothing": ({"queries": None}, "got dtype object"),
    "k 0": ({"k": 0}, "k of at least 1, got 0"),
    "k -3": ({"k": -3}, "k of at least 1, got -3"),
    "ef 0": ({"ef": 0}, "ef of at least 1, got 0"),
    "ef -1": ({"ef": -1}, "ef of at least 1, got -1"),
    "budget 0": ({"budget": 0}, "a budget .* got 0"),
    "budget -9": ({"budget": -9}, "a budget .* got -9"),
    "space": ({"space": "pca99"}, "a space of original, .*, got 'pca99'"),
    "threads": ({"n_threads": -1}, "n_threads of at least 0, got -1"),
}


BAD_RERANKS: dict[str, tuple[dict[str, Any], str]] = {
    "all for the rerank": ({"budget": 37, "rerank": 32}, "32 for rerank and 5 .* got 37"),
    "all for the default": ({"budget": 37}, "32 for rerank and 5 for the projection, got 37"),
    "all for k": ({"budget": 100, "k": 96}, "96 for rerank and 5 for the projection, got 100"),
    "all for the projection": ({"budget": 6, "rerank": 1}, "at least 7, .* projection, got 6"),
    "no rerank": ({"budget": 100, "rerank": 0}, "rerank of at least 1"),
    "no rerank with a beam": ({"ef": 10, "rerank": 0}, "rerank of at least 1"),
    "negative rerank": ({"budget": 100, "rerank": -1}, "rerank of at least .*-1"),
}


@pytest.mark.parametrize("fault", BAD_SEARCHES | BAD_RERANKS)
def test_bad_search_is_refused(fault: str) -> None:
    """Wrong arguments are a ValueError with what was expected and found."""
    given_, message = (BAD_SEARCHES | BAD_RERANKS)[fault]
    with pytest.raises(ValueError, match=f"expected .*{message}"):
        built(pca_dim=5).search(**{"queries": QUERIES} | given_)


@pytest.mark.parametrize(
    "given_",
    [
        {"budget": 256.0},
        {"budget": "256"},
        {"k": 2.5},
        {"ef": 2.5},
        {"k": None},
        {"n_threads": 1.5},
    ],
    ids=str,
)
def test_numbers_that_are_no_integers_are_refused(given_: dict[str, Any]) -> None:
    """A count that is not an integer is a TypeError or a ValueError."""
    with pytest.raises((TypeError, ValueError)):
        built().search(QUERIES, **given_)


def test_integers_of_numpy_are_integers() -> None:
    """Counts may be integers of numpy."""
    index = built(pca_dim=5)
    counts = {"k": 5, "budget": 90, "ef": 30, "rerank": 20, "n_threads": 1}
    as_numpy = {name: np.int64(count) for name, count in counts.items()}
    assert same_results(index.search(QUERIES, **as_numpy), index.search(QUERIES, **counts))  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [1, 10, 300])
def test_a_search_that_is_told_nothing_has_a_budget(k: int) -> None:
    """The default budget is 256, or twice the cost of rerank and projection if that is more."""
    index = built()
    assert index.search(QUERIES, k).n_computed.max() == DEFAULT_BUDGET
    index.compress("int4")  # queries are rotated into 128 dimensions
    n_rotation = 4 * (128 + 128 * 7) // (2 * DIM) + 1  # in distances of 2 · DIM operations
    assert index.spaces[-1].n_projection == n_rotation
    found = index.search(QUERIES, k)
    budget = max(DEFAULT_BUDGET, 2 * (n_rotation + max(k, 32)))
    assert 0.45 * budget < found.n_computed.max() <= budget


@pytest.mark.parametrize("limit", [10**6, sys.maxsize, 2**64, 10**30])
def test_a_limit_beyond_the_graph_is_no_limit(limit: int) -> None:
    """With a budget or a beam larger than the graph, a search visits the whole graph."""
    for index in (built(), built(pca_dim=5)):
        whole = index.search(QUERIES, ef=N)
        assert np.array_equal(index.search(QUERIES, ef=limit).ids, whole.ids)
        assert np.array_equal(index.search(QUERIES, budget=limit, rerank=N).ids, whole.ids)


def run_apart(script: str) -> str:
    """Run a script in another process, since it may crash; return its output."""
    prelude = "import numpy as np\nfrom l2route import RoutingIndex\n"
    result = subprocess.run(
        [sys.executable, "-c", prelude + script], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to limit the memory")
def test_more_threads_than_there_are_is_no_crash() -> None:
    """If the system refuses threads, a search answers or raises an exception."""
    run_apart("""
import resource
from pathlib import Path
index = RoutingIndex.build(np.random.default_rng(0).normal(size=(100, 8)))
queries = np.random.default_rng(1).normal(size=(8000, 8))
expected = index.search(queries, n_threads=1).ids
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)
try:
    found = index.search(queries, n_threads=1000).ids
except (RuntimeError, MemoryError, OSError):
    pass
else:
    assert (found == expected).all()
""")


def test_labels_are_what_answers_are_called() -> None:
    """Answers have labels, missing ones −1; traces have row numbers."""
    index = labelled()
    assert index.labels is not None
    plain = RoutingIndex(index.base, index.graph)
    found, rows = (i.search(QUERIES, k=50, budget=30, trace=True) for i in (index, plain))
    np.testing.assert_array_equal(true_ids(index, found), rows.ids)
    assert (rows.ids < 0).any()
    assert found.trace is not None
    assert rows.trace is not None
    np.testing.assert_array_equal(found.trace.vertices, rows.trace.vertices)


def test_parts_that_do_not_fit_are_refused() -> None:
    """Different numbers of vectors and vertices, and repeated names of spaces, are refused."""
    base = BaseVectors.of(VECTORS, "l2")
    graph = build_graph(VECTORS, "l2", GraphOptions("knn", 8))
    with pytest.raises(ValueError, match="expected spaces with distinct names, got"):
        RoutingIndex(base, graph, [pca_space(base, 3), pca_space(base, 3)])
    with pytest.raises(ValueError, match="routing vectors and vectors, one per vertex, got"):
        RoutingIndex(BaseVectors.of(VECTORS[:50], "l2"), graph)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "l3"}, r"expected metric .*, got 'l3'"),
        ({"graph": "tree"}, r"expected a graph out of .*, got 'tree'"),
        ({"graph": "nsw", "degree": 7}, "expected an even degree of at least 4, got 7"),
        ({"pca_dim": 0}, r"expected a PCA dimension in \[1, 12\), got 0"),
        ({"pca_dim": DIM}, r"expected a PCA dimension in \[1, 12\), got 12"),
        ({"entry": N}, r"expected entries in \[0, 400\), got \[400\]"),
        ({"n_threads": -2}, "expected n_threads of at least 0, got -2"),
    ],
)
def test_bad_build_is_refused(options: dict[str, Any], message: str) -> None:
    """The error for a wrong option of `build` names what was expected and found."""
    with pytest.raises(ValueError, match=message):
        built(**options)


def test_info_says_what_the_index_is() -> None:
    """`info` has size, metric, graph, spaces, labels and memory in plain values."""
    index = with_everything()
    info = index.info()
    assert (info["n_vertices"], info["dim"], info["metric"]) == (N, DIM, "l2")
    assert info["graph"] == asdict(report(index.graph))
    codes = {"code_bits": 8, "inlined": False, "rerank": 32, "model": None, "gain": None}
    codes |= {"rerank_grows": False, "vertex_map": "projection", "n_rotated": None}
    floats = {"dtype": "float32", **codes}
    assert info["spaces"] == [
        {"name": "original", "dim": DIM, "scorer": "l2", "origin": 0.0, **floats},
        {"name": "pca6", "dim": 6, "scorer": "l2", "origin": 0.0, **floats},
        {
            "name": "biased",
            "dim": DIM,
            "scorer": "ip",
            "origin": None,
            **floats,
            "vertex_map": None,
        },
        {
            "name": "original-int8",
            "dim": DIM,
            "scorer": "ip",
            "dtype": "uint8",
            "origin": 1.0,
            **codes,
        },
    ]
    assert (info["vectors"], info["n_validation"]) == ("float32", len(VALIDATION))
    assert info["settings"] == [asdict(index.setting(0.9, k=5))]
    assert [loss["space"] for loss in info["losses"]] == ["original-int8"]
    assert info["labelled"] is True
    assert built().info()["labelled"] is False
    json.dumps(info)
    plain = built(entry=0)  # rows of 16 floats, 8 neighbours, and an entry
    assert plain.info()["bytes_per_vector"] == 4 * 16 + 4 * 8 + 4 / N
