"""Laws of an index: built, searched, saved and loaded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import hnswlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route.compression import Compression
from l2route.data import METRICS
from l2route.graph import GRAPH_KINDS, Graph, GraphOptions, build_graph, report
from l2route.imports import from_hnswlib
from l2route.index import DEFAULT_BUDGET, RoutingIndex, load
from l2route.search import SearchResult
from l2route.spaces import BaseVectors, Budget, RoutingSpace, pca_space
from l2route.storage import META, read_index, write_index
from l2route.truth import exact_distances, exact_neighbors

N, DIM = 400, 12
GOLDEN = Path(__file__).parent / "golden"
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(N, DIM)).astype(np.float32)
QUERIES = RNG.normal(size=(40, DIM)).astype(np.float32)
VALIDATION = RNG.normal(size=(50, DIM)).astype(np.float32)


def built(**options: Any) -> RoutingIndex:
    """An index built with less than the usual effort."""
    return RoutingIndex.build(VECTORS, **{"ef_construction": 40, "degree": 8} | options)


def labelled(metric: str = "l2") -> RoutingIndex:
    """An index with labels and upper layers, out of hnswlib."""
    index = hnswlib.Index(metric, DIM)
    index.init_index(N, M=8, ef_construction=40, random_seed=1)
    index.add_items(VECTORS, np.random.default_rng(1).permutation(N) * 10 + 3, num_threads=1)
    return from_hnswlib(index)


def with_everything() -> RoutingIndex:
    """An index with upper layers, labels, spaces by PCA, with a bias and of codes, and settings."""
    base = BaseVectors.of(VECTORS, "l2")
    graph = build_graph(VECTORS, "l2", GraphOptions("hnsw", 8, 40))
    bias = np.linspace(-0.1, 0.1, N, dtype=np.float32)
    spaces = [pca_space(base, 6), RoutingSpace(base.rows, DIM, "ip", bias=bias, name="biased")]
    index = RoutingIndex(base, graph, spaces, np.arange(N) * 7)
    index.validate_with(VALIDATION)
    index.compress("int8", space="original")
    index.setting(0.9, k=5)
    return index


def compressed(routing: Compression | None, vectors: Literal["float16"] | None) -> RoutingIndex:
    """An index of a PCA space with fewer bytes."""
    index = built(pca_dim=5)
    index.compress(routing, vectors)
    return index


INDEXES: dict[str, Callable[[], RoutingIndex]] = {
    **{kind: lambda kind=kind: built(graph=kind) for kind in GRAPH_KINDS},  # type: ignore[misc]
    "ip": lambda: built(metric="ip"),
    "cosine": lambda: built(metric="cosine", graph="hnsw"),
    "pca": lambda: built(pca_dim=5),
    "pca of ip": lambda: built(pca_dim=5, metric="ip"),
    "pca of cosine": lambda: built(pca_dim=5, metric="cosine", graph="nsg"),
    "labelled": labelled,
    "entries": lambda: built(entry=[3, 99, 200]),
    "everything": with_everything,
    **{
        f"{routing} and {vectors}": lambda routing=routing, vectors=vectors: compressed(  # type: ignore[misc]
            routing, vectors
        )
        for routing in (None, "int8", "float16")
        for vectors in (None, "float16")
        if routing or vectors
    },
}


@pytest.fixture(scope="module", params=INDEXES)
def index(request: pytest.FixtureRequest) -> RoutingIndex:
    """Every kind of index."""
    return INDEXES[request.param]()


def same_results(a: SearchResult, b: SearchResult) -> bool:
    """Whether answers and costs are the same, bit by bit."""
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("ids", "distances", "n_computed", "n_routing", "n_rerank", "n_hops")
    )


def same_answers(a: RoutingIndex, b: RoutingIndex) -> bool:
    """Whether two indexes have the same spaces and answer alike in each, by budget and by beam."""
    return a.info() == b.info() and all(
        same_results(
            a.search(QUERIES, k=5, space=space.name, **limit),
            b.search(QUERIES, k=5, space=space.name, **limit),
        )
        for space in a.spaces
        for limit in ({"budget": 100}, {"ef": 20})
    )


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("mmap", [True, False])
def test_loaded_index_answers_as_the_saved(
    index: RoutingIndex, tmp_path: Path, mmap: bool, verify: bool
) -> None:
    """An index that is saved and loaded gives the same answers at the same cost."""
    index.save(tmp_path / "index")
    loaded = load(tmp_path / "index", mmap=mmap, verify=verify)
    assert same_answers(loaded, index)
    assert len(loaded) == N
    np.testing.assert_array_equal(loaded.base.vectors(), index.base.vectors())
    assert isinstance(loaded.base.rows, np.memmap) == mmap


def test_saving_a_loaded_index_writes_the_same_files(index: RoutingIndex, tmp_path: Path) -> None:
    """An index saved after loading is the same file by file."""
    index.save(tmp_path / "a")
    load(tmp_path / "a", mmap=True).save(tmp_path / "b")
    a, b = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in "ab")
    assert a == b


def test_building_is_reproducible(tmp_path: Path) -> None:
    """The same vectors, options and seed give the same files."""
    for name, options in {"a": {}, "b": {"pca_dim": 5}, "c": {"graph": "hnsw"}}.items():
        for copy in "12":
            built(seed=5, **options).save(tmp_path / (name + copy))
        first, second = ((tmp_path / (name + copy) / META).read_text() for copy in "12")
        assert first == second


def test_saving_over_an_index_replaces_it(tmp_path: Path) -> None:
    """The last index saved is the one that loads; a path may be a string."""
    first, second = with_everything(), built(metric="ip")
    first.save(str(tmp_path))
    second.save(str(tmp_path))
    assert same_answers(load(str(tmp_path)), second)


def test_a_mapped_index_outlives_its_files(tmp_path: Path) -> None:
    """A mapped index answers as before while others are saved over it, or all is deleted."""
    path = tmp_path / "index"
    old, new = with_everything(), built(graph="hnsw")
    old.save(path)
    mapped = load(path, mmap=True)
    new.save(path)
    assert same_answers(mapped, old)
    assert same_answers(load(path), new)
    mapped.save(path)
    assert same_answers(load(path), old)
    shutil.rmtree(path)
    assert same_answers(mapped, old)


def test_searching_goes_on_while_others_save(tmp_path: Path) -> None:
    """Threads that search a mapped index see nothing of saves over its directory."""
    old, new = with_everything(), built()
    old.save(tmp_path)
    mapped = load(tmp_path, mmap=True)
    expected = old.search(QUERIES)
    with ThreadPoolExecutor(4) as pool:
        searches = [pool.submit(mapped.search, QUERIES) for _ in range(40)]
        for _ in range(5):
            new.save(tmp_path)
            old.save(tmp_path)
        assert all(same_results(search.result(), expected) for search in searches)


def test_eight_threads_get_the_answers_of_one(index: RoutingIndex) -> None:
    """Searches at the same time, of any number of threads each, do not disturb each other."""
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
    """Answers are distinct, and ordered by their true distances, ties by id.

    What is missing stands at the end as −1 and inf. The cost is as counted, and in the budget.
    """
    name = index.spaces[space % len(index.spaces)].name
    try:
        result = index.search(QUERIES, k, budget, ef, rerank, name)
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
    """A search that may visit every vertex finds the true neighbours, and every vector itself."""
    for kind in ("nsw", "hnsw"):
        index = built(metric=metric, graph=kind, degree=32, ef_construction=100)
        assert report(index.graph).n_unreachable == 0
        truth = exact_neighbors(VECTORS, QUERIES, 10, metric)
        for limit in ({"ef": N}, {"budget": N}, {"budget": Budget(N)}):
            found = index.search(QUERIES, k=10, **limit)
            np.testing.assert_array_equal(found.ids, truth.ids)
            np.testing.assert_allclose(found.distances, truth.distances, rtol=1e-4, atol=1e-5)
        if metric != "ip":
            assert index.search(VECTORS, k=1, ef=N).ids[:, 0].tolist() == list(range(N))


def island() -> RoutingIndex:
    """Four vertices; the walk from 0 knows 1, and 2 and 3 know each other."""
    neighbors = np.array([[1, -1], [0, -1], [3, -1], [2, -1]], dtype=np.int32)
    base = BaseVectors.of(np.arange(4.0)[:, None], "l2")
    return RoutingIndex(base, Graph(neighbors, np.zeros(1, dtype=np.int32)))


def test_renumbering_changes_no_answer(index: RoutingIndex, tmp_path: Path) -> None:
    """The same ids, distances and costs in every space, saved and loaded too; settings stay."""
    index.save(tmp_path / "before")
    again = load(tmp_path / "before")
    again.renumber()
    before, after = index.info(), again.info()
    for facts in (before, after):
        facts["graph"].pop("entries")
        facts.pop("bytes_per_vector"), facts.pop("labelled")
    assert after == before
    again.save(tmp_path / "after")
    for other in (again, load(tmp_path / "after")):
        for space in index.spaces:
            for limit in ({"budget": 100}, {"ef": 20}):
                a = index.search(QUERIES, k=5, space=space.name, **limit)
                b = other.search(QUERIES, k=5, space=space.name, **limit)
                assert same_results(a, b)
    if index.validation is not None:
        assert again.validation is not None
        found = index.searcher().search(index.validation.queries, 5, ef=20).ids
        renamed = again.searcher().search(index.validation.queries, 5, ef=20).ids
        assert index.validation.recall(found) == again.validation.recall(renamed)


def test_rows_are_found_by_what_answers_call_them() -> None:
    """With labels and without; −1 stays, strangers are refused."""
    vectors = np.arange(5.0)[:, None]
    graph = RoutingIndex.build(vectors, degree=4).graph
    base = BaseVectors.of(vectors, "l2")
    plain = RoutingIndex(base, graph)
    named = RoutingIndex(base, graph, labels=np.array([7, -5, 3, 100, 0]))
    assert plain.rows_of([[4, -1], [0, 2]]).tolist() == [[4, -1], [0, 2]]
    assert named.rows_of([[100, -1], [0, -5]]).tolist() == [[3, -1], [4, 1]]
    for index, stranger in ((plain, 5), (plain, -2), (named, 4), (named, 101)):
        with pytest.raises(ValueError, match=f"got {stranger}"):
            index.rows_of([0, stranger])
    with pytest.raises(ValueError, match="integer"):
        plain.rows_of([0.5])


def test_what_is_not_found_is_told_at_the_end() -> None:
    """Fewer than k found: ids −1 and distances inf at the end, never an exception."""
    for limit in ({"ef": 10}, {"budget": 10}, {}):
        result = island().search([[3.0]], k=4, **limit)
        assert result.ids.tolist() == [[1, 0, -1, -1]]
        assert result.distances.tolist() == [[4.0, 9.0, np.inf, np.inf]]
    assert island().search([[3.0]], k=4, budget=1).ids.tolist() == [[0, -1, -1, -1]]
    assert built().search(QUERIES, k=N + 7, ef=N).ids[:, N:].tolist() == [[-1] * 7] * 40


def test_one_query_may_have_one_axis(index: RoutingIndex) -> None:
    """A single query [dim] is a batch of one."""
    expected = index.search(QUERIES[:1], k=5)
    assert same_results(index.search(QUERIES[0], k=5), expected)


def test_queries_may_be_lists_or_of_any_real_type() -> None:
    """Nested lists are queries, one list is one query, and numbers of any real type will do."""
    index = built()
    expected = index.search(QUERIES[:1], k=5)
    for query in (QUERIES[:1].tolist(), QUERIES[0].tolist(), QUERIES[:1].astype(np.float64)):
        assert same_results(index.search(query, k=5), expected)
    whole = np.rint(QUERIES * 3)
    assert same_results(index.search(whole.astype(np.int8)), index.search(whole))


def test_strided_queries_are_queries(index: RoutingIndex) -> None:
    """Queries may be any view: every other one, or columns of a wider array."""
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
    "no queries": ({"queries": np.zeros((0, DIM))}, r"got \[0, 12\]"),
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
    "all for the projection": ({"budget": 5, "rerank": 0}, "5 for the projection, got 5"),
    "no rerank": ({"budget": 100, "rerank": 0}, "rerank of at least 1"),
    "no rerank in a Budget": ({"budget": Budget(100, 0)}, "rerank of at least 1"),
    "negative rerank": ({"budget": 100, "rerank": -1}, "rerank of at least .*-1"),
}


@pytest.mark.parametrize("fault", BAD_SEARCHES | BAD_RERANKS)
def test_bad_search_is_refused(fault: str) -> None:
    """Bad input gets a ValueError that says what was expected and what came."""
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
    """A count that is no integer is a TypeError or a ValueError, not a failure inside."""
    with pytest.raises((TypeError, ValueError)):
        built().search(QUERIES, **given_)


def test_integers_of_numpy_are_integers() -> None:
    """Counts may be numpy's integers."""
    index = built(pca_dim=5)
    counts = {"k": 5, "budget": 90, "ef": 30, "rerank": 20, "n_threads": 1}
    as_numpy = {name: np.int64(count) for name, count in counts.items()}
    assert same_results(index.search(QUERIES, **as_numpy), index.search(QUERIES, **counts))  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [10**6, sys.maxsize, 2**64, 10**30])
def test_a_limit_beyond_the_graph_is_no_limit(limit: int) -> None:
    """A budget or a beam larger than the graph, however large, lets the whole graph be walked."""
    for index in (built(), built(pca_dim=5)):
        whole = index.search(QUERIES, ef=N)
        assert np.array_equal(index.search(QUERIES, ef=limit).ids, whole.ids)
        assert np.array_equal(index.search(QUERIES, budget=limit, rerank=N).ids, whole.ids)


def run_apart(script: str) -> str:
    """Run a script that may crash in a process of its own; return what it printed."""
    prelude = "import numpy as np\nfrom l2route import RoutingIndex\n"
    result = subprocess.run(
        [sys.executable, "-c", prelude + script], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


@pytest.mark.parametrize("k", [2**60, 2**61, 2**63, 2**64])
def test_k_beyond_memory_is_refused(k: int) -> None:
    """A k whose answers no memory can hold is an error and not a crash."""
    said = run_apart(f"""
index = RoutingIndex.build(np.random.default_rng(0).normal(size=(100, 8)))
try:
    index.search(np.zeros((8, 8)), k={k})
except (ValueError, MemoryError):
    print("refused")
else:
    raise AssertionError("not refused")
""")
    assert said == "refused\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to limit the memory")
def test_more_threads_than_there_are_is_no_crash() -> None:
    """A search that the system gives too few threads answers, or fails with an exception."""
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
    """Answers carry labels, a missing one stays −1, and a trace has row numbers."""
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
    """Labels, spaces and vectors must be as many as vertices; spaces have different names."""
    base = BaseVectors.of(VECTORS, "l2")
    graph = build_graph(VECTORS, "l2", GraphOptions("knn", 8))
    with pytest.raises(ValueError, match=r"expected labels \[400\], got \[399\]"):
        RoutingIndex(base, graph, labels=np.arange(N - 1))
    with pytest.raises(ValueError, match="expected distinct spaces, got"):
        RoutingIndex(base, graph, [pca_space(base, 3), pca_space(base, 3)])
    with pytest.raises(ValueError, match="expected as many routing vectors"):
        RoutingIndex(BaseVectors.of(VECTORS[:50], "l2"), graph)
    with pytest.raises(ValueError, match="expected labels"):
        RoutingIndex(base, graph, labels=np.arange(N) / 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "l3"}, r"expected metric .*, got 'l3'"),
        ({"graph": "tree"}, r"expected graph one of .*, got 'tree'"),
        ({"degree": 7}, "expected an even degree of at least 4, got 7"),
        ({"pca_dim": 0}, r"expected a PCA dimension in \[1, 12\), got 0"),
        ({"pca_dim": DIM}, r"expected a PCA dimension in \[1, 12\), got 12"),
        ({"entry": N}, r"expected entries in \[0, 400\), got \[400\]"),
        ({"n_threads": -2}, "expected n_threads of at least 0, got -2"),
    ],
)
def test_bad_build_is_refused(options: dict[str, Any], message: str) -> None:
    """A bad option of `build` is named, with what was expected and what came."""
    with pytest.raises(ValueError, match=message):
        built(**options)


def test_info_says_what_the_index_is() -> None:
    """Size, dimension, metric, graph, spaces, labels and memory, in plain values."""
    index = with_everything()
    info = index.info()
    assert (info["n_vertices"], info["dim"], info["metric"]) == (N, DIM, "l2")
    assert info["graph"] == asdict(report(index.graph))
    codes = {"code_bits": 8, "inlined": False, "rerank": 32}
    floats = {"dtype": "float32", **codes}
    assert info["spaces"] == [
        {"name": "original", "dim": DIM, "scorer": "l2", "origin": 0.0, **floats},
        {"name": "pca6", "dim": 6, "scorer": "l2", "origin": 0.0, **floats},
        {"name": "biased", "dim": DIM, "scorer": "ip", "origin": None, **floats},
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
    plain = built()  # rows of 16 floats, 8 neighbours, and an entry
    assert plain.info()["bytes_per_vector"] == 4 * 16 + 4 * 8 + 4 / N


Edit = Callable[[dict[str, Any], dict[str, NDArray[Any]]], Any]


def set_layer(vertices: list[int]) -> Edit:
    """Give the last upper layer other vertices, with no neighbours but the last of them."""
    neighbors = np.full((len(vertices), 4), vertices[-1], dtype=np.int32)

    def edit(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        meta["n_layers"] = 1
        arrays["entries"] = np.array(vertices[:1], dtype=np.int32)
        arrays["layer0_vertices"] = np.array(vertices, dtype=np.int32)
        arrays["layer0_neighbors"] = neighbors

    return edit


BAD_INDEXES: dict[str, Edit] = {
    "no dim": lambda meta, _: meta.pop("dim"),
    "dim 0": lambda meta, _: meta.update(dim=0),
    "dim -1": lambda meta, _: meta.update(dim=-1),
    "dim 40": lambda meta, _: meta.update(dim=40),
    "dim text": lambda meta, _: meta.update(dim="twelve"),
    "dim infinite": lambda meta, _: meta.update(dim=float("inf")),
    "dim list": lambda meta, _: meta.update(dim=[12]),
    "metric": lambda meta, _: meta.update(metric="hamming"),
    "metric list": lambda meta, _: meta.update(metric=["l2"]),
    "no spaces": lambda meta, _: meta.pop("spaces"),
    "spaces text": lambda meta, _: meta.update(spaces="pca"),
    "spaces number": lambda meta, _: meta.update(spaces=3),
    "space too many": lambda meta, _: meta["spaces"].append(meta["spaces"][0]),
    "space called original": lambda meta, _: meta["spaces"][0].update(name="original"),
    "space of another dim": lambda meta, _: meta["spaces"][0].update(dim=7),
    "space of dim -1": lambda meta, _: meta["spaces"][0].update(dim=-1),
    "space of another scorer": lambda meta, _: meta["spaces"][0].update(scorer="l1"),
    "space without matrix": lambda _, arrays: arrays.pop("space0_matrix"),
    "space of no dim": lambda meta, arrays: (
        meta["spaces"][0].update(dim=0),
        arrays.update(
            space0_rows=np.zeros((N, 0), np.float32), space0_matrix=np.zeros((0, DIM), np.float32)
        ),
    ),
    "matrix too wide": lambda _, arrays: arrays.update(space0_matrix=np.zeros((6, 16), "f4")),
    "matrix float64": lambda _, arrays: arrays.update(space0_matrix=np.zeros((6, DIM))),
    "rows too few": lambda _, arrays: arrays.update(space0_rows=arrays["space0_rows"][1:]),
    "bias too short": lambda _, arrays: arrays.update(space1_bias=np.zeros(3, "f4")),
    "bias matrix": lambda _, arrays: arrays.update(space1_bias=np.zeros((N, 1), "f4")),
    "no vectors": lambda _, arrays: arrays.pop("vectors"),
    "vectors too few": lambda _, arrays: arrays.update(vectors=arrays["vectors"][1:]),
    "vectors unpadded": lambda _, arrays: arrays.update(vectors=np.zeros((N, DIM), "f4")),
    "vectors float64": lambda _, arrays: arrays.update(vectors=np.zeros((N, 16))),
    "vectors list": lambda _, arrays: arrays.update(vectors=np.zeros(N, "f4")),
    "no neighbors": lambda _, arrays: arrays.pop("neighbors"),
    "neighbors too many": lambda _, arrays: arrays.update(neighbors=np.zeros((N + 1, 4), "i4")),
    "neighbors int64": lambda _, arrays: arrays.update(neighbors=np.zeros((N, 4), "i8")),
    "neighbors beyond": lambda _, arrays: arrays.update(neighbors=np.full((N, 4), N, "i4")),
    "neighbors below": lambda _, arrays: arrays.update(neighbors=np.full((N, 4), -2, "i4")),
    "neighbors with gaps": lambda _, arrays: arrays.update(
        neighbors=np.tile(np.array([-1, 3], "i4"), (N, 1))
    ),
    "no entries": lambda _, arrays: arrays.pop("entries"),
    "entries empty": lambda _, arrays: arrays.update(entries=np.zeros(0, "i4")),
    "entries beyond": lambda _, arrays: arrays.update(entries=np.array([N], "i4")),
    "entries below": lambda _, arrays: arrays.update(entries=np.array([-1], "i4")),
    "labels too few": lambda _, arrays: arrays.update(labels=np.arange(3)),
    "labels float": lambda _, arrays: arrays.update(labels=np.zeros(N)),
    "codes of eight bits": lambda _, arrays: arrays.update(
        space2_rows=arrays["space2_rows"] + np.uint8(128)
    ),
    "codes without steps": lambda _, arrays: arrays.pop("space2_steps"),
    "codes without lowest": lambda _, arrays: arrays.pop("space2_lowest"),
    "codes of three bits": lambda meta, _: meta["spaces"][2].update(code_bits=3),
    "codes of four bits": lambda meta, _: meta["spaces"][2].update(code_bits=4, dim=200),
    "origin infinite": lambda meta, _: meta["spaces"][2].update(origin=float("inf")),
    "origin text": lambda meta, _: meta["spaces"][2].update(origin="here"),
    "codes by l2": lambda meta, _: meta["spaces"][2].update(scorer="l2"),
    "codes of int8": lambda _, arrays: arrays.update(
        space2_rows=arrays["space2_rows"].view(np.int8)
    ),
    "codes too narrow": lambda _, arrays: arrays.update(
        space2_rows=np.ascontiguousarray(arrays["space2_rows"][:, :16])
    ),
    "steps of floats": lambda _, arrays: arrays.update(space1_steps=np.ones(DIM, "f4")),
    "steps too few": lambda _, arrays: arrays.update(space2_steps=np.ones(DIM - 1, "f4")),
    "steps matrix": lambda _, arrays: arrays.update(space2_steps=np.ones((DIM, 1), "f4")),
    "validation of another dim": lambda _, arrays: arrays.update(
        validation_queries=np.zeros((50, DIM + 1), "f4")
    ),
    "validation without neighbors": lambda _, arrays: arrays.pop("validation_neighbors"),
    "validation neighbors too few": lambda _, arrays: arrays.update(
        validation_neighbors=arrays["validation_neighbors"][1:]
    ),
    "validation neighbors int64": lambda _, arrays: arrays.update(
        validation_neighbors=arrays["validation_neighbors"].astype("i8")
    ),
    "settings text": lambda meta, _: meta.update(settings="wide"),
    "setting without k": lambda meta, _: meta["settings"][0].pop("k"),
    "setting of no width": lambda meta, _: meta["settings"][0].update(ef=None, slack=None),
    "setting of two": lambda meta, _: meta["settings"][0].update(ef=5, slack=0.1),
    "setting of ef -1": lambda meta, _: meta["settings"][0].update(ef=-1, slack=None),
    "setting of ef infinite": lambda meta, _: meta["settings"][0].update(ef=float("inf")),
    "setting of slack nan": lambda meta, _: meta["settings"][0].update(ef=None, slack=float("nan")),
    "losses number": lambda meta, _: meta.update(losses=3),
    "layers too many": lambda meta, _: meta.update(n_layers=10**18),
    "layers infinite": lambda meta, _: meta.update(n_layers=float("inf")),
    "layers text": lambda meta, _: meta.update(n_layers="many"),
    "layer beyond": set_layer([3, N]),
    "layer below": set_layer([-1, 3]),
    "layer descending": set_layer([3, 2]),
    "layer that wraps": set_layer([3, 1 - 2**31, 0]),
    "layer without the entry": lambda _, arrays: arrays.update(
        entries=np.setdiff1d(np.arange(N, dtype="i4"), arrays["layer0_vertices"])[:1]
    ),
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved index that has all an index can have."""
    path = tmp_path_factory.mktemp("index") / "everything"
    with_everything().save(path)
    return path


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("fault", BAD_INDEXES)
def test_an_inconsistent_index_is_refused(
    everything: Path, tmp_path: Path, fault: str, mmap: bool
) -> None:
    """Files whose checksums hold but whose contents do not fit are a ValueError with the path."""
    meta, arrays = read_index(everything)
    for key in ("format", "schema", "arrays"):
        del meta[key]
    BAD_INDEXES[fault](meta, arrays)
    write_index(tmp_path / "bad", meta, arrays)
    with pytest.raises(ValueError, match=r"bad: expected"):
        load(tmp_path / "bad", mmap=mmap)


def test_an_index_of_another_schema_says_so(everything: Path, tmp_path: Path) -> None:
    """An index of a later version is refused by name and number, not misread."""
    shutil.copytree(everything, tmp_path / "index")
    meta = json.loads((tmp_path / "index" / META).read_text())
    (tmp_path / "index" / META).write_text(json.dumps(meta | {"schema": 2}))
    with pytest.raises(ValueError, match=r"index/meta\.json: expected schema 1, got 2"):
        load(tmp_path / "index")
    with pytest.raises(FileNotFoundError, match="expected an index directory"):
        load(tmp_path / "absent")


def golden_index() -> RoutingIndex:
    """What the golden index was when it was made: layers, labels and a PCA space, in little."""
    vectors = np.random.default_rng(1905).integers(-8, 9, (60, 6)).astype(np.float32)
    base = BaseVectors.of(vectors, "l2")
    graph = build_graph(vectors, "l2", GraphOptions("hnsw", 4, 20))
    return RoutingIndex(base, graph, [pca_space(base, 3)], np.arange(60) * 11 + 1000)


GOLDEN_SEARCHES: list[dict[str, Any]] = [
    {"k": 5, "space": "original", "budget": 30},
    {"k": 5, "space": "original", "ef": 12},
    {"k": 40, "space": "original", "budget": 25},
    {"k": 3, "space": "pca3", "budget": 35, "rerank": 12},
    {"k": 3, "space": "pca3", "ef": 10},
]


def write_golden() -> None:
    """Write the golden index and its answers; see the test below."""
    index = golden_index()
    index.save(GOLDEN / "schema1")
    queries = np.random.default_rng(1910).integers(-8, 9, (6, 6)).astype(np.float32)
    answers = []
    for search in GOLDEN_SEARCHES:
        found = index.search(queries, **search)
        distances = np.where(found.ids < 0, -1, found.distances)
        counts = {name: getattr(found, name).tolist() for name in ("n_routing", "n_hops")}
        ids = {"ids": found.ids.tolist(), "distances": distances.tolist()}
        answers.append({"search": search, **ids, **counts})
    document = {"queries": queries.tolist(), "answers": answers}
    (GOLDEN / "schema1.json").write_text(json.dumps(document) + "\n")


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("mmap", [True, False])
def test_an_index_of_schema_1_is_read_for_ever(mmap: bool, verify: bool) -> None:
    """The index in golden/schema1 loads and answers as in golden/schema1.json.

    Both were made once, by version 0.1.0, with `python -c "import test_index as t;
    t.write_golden()"` in this directory. They are not made again: a new schema gets files of its
    own beside them, and this test runs for each. Vectors are small integers, so distances are
    exact on any machine; −1 stands for the infinite distance of what was not found.
    """
    index = load(GOLDEN / "schema1", mmap=mmap, verify=verify)
    golden = json.loads((GOLDEN / "schema1.json").read_text())
    assert len(golden["answers"]) == len(GOLDEN_SEARCHES)
    for expected in golden["answers"]:
        found = index.search(golden["queries"], **expected["search"])
        assert found.ids.tolist() == expected["ids"]
        distances = np.where(found.ids < 0, -1, found.distances)
        assert distances.tolist() == expected["distances"]
        assert found.n_routing.tolist() == expected["n_routing"]
        assert found.n_hops.tolist() == expected["n_hops"]
    assert index.info()["graph"]["n_layers"] > 0
    assert index.info()["labelled"]
