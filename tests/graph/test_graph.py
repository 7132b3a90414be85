"""Laws of similarity graphs."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from dataclasses import replace
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from l2route import _core
from l2route.data.vectors import METRICS, normalize
from l2route.graph.build import GRAPH_KINDS, GraphKind, GraphOptions, build_graph, graph_of_hnsw
from l2route.graph.entry import Entry, longest, medoid, medoids
from l2route.graph.graph import Graph, UpperLayer, compact_rows
from l2route.graph.knn import knn_lists
from l2route.graph.report import hops_from, report
from l2route.rewiring.renumber import renumber_graph

KINDS_AND_METRICS = [
    (kind, metric) for kind in GRAPH_KINDS for metric in METRICS if (kind, metric) != ("nsg", "ip")
]
HANG_SECONDS = 15
"""A build of a few hundred vectors takes under a second; faiss's endless loops take for ever."""


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float32]:
    """Vectors without ties [500, 12]."""
    return np.random.default_rng(0).normal(size=(500, 12)).astype(np.float32)


def built(vectors: object, metric: str = "l2", **options: Any) -> Graph:
    """Build with an eighth of the usual effort."""
    return build_graph(vectors, metric, GraphOptions(**{"ef_construction": 40} | options))


def equal(a: Graph, b: Graph) -> bool:
    """Whether two graphs are the same in every layer."""
    return (
        np.array_equal(a.neighbors, b.neighbors)
        and np.array_equal(a.entries, b.entries)
        and len(a.upper) == len(b.upper)
        and all(
            np.array_equal(x.vertices, y.vertices) and np.array_equal(x.neighbors, y.neighbors)
            for x, y in zip(a.upper, b.upper, strict=True)
        )
    )


def graph_of(rows: list[list[int]], entries: list[int], width: int | None = None) -> Graph:
    """Make a graph of neighbour lists."""
    width = width or max(1, *map(len, rows))
    padded = [row + [-1] * (width - len(row)) for row in rows]
    return Graph(np.array(padded, dtype=np.int32), np.array(entries, dtype=np.int32))


@pytest.mark.parametrize(("kind", "metric"), KINDS_AND_METRICS)
def test_every_kind_builds_for_every_metric(
    vectors: NDArray[np.float32], kind: GraphKind, metric: str
) -> None:
    """A vertex has at most `degree` neighbours, all different and none itself."""
    graph = built(vectors, metric, kind=kind, degree=8)
    assert graph.n_vertices == len(vectors)
    assert graph.neighbors.shape[1] <= 8
    for vertex, row in enumerate(graph.neighbors.tolist()):
        row = [neighbor for neighbor in row if neighbor >= 0]
        assert len(set(row)) == len(row) > 0
        assert vertex not in row
    for layer in graph.upper:
        assert layer.neighbors.shape[1] <= 4


@pytest.mark.parametrize(("kind", "metric"), KINDS_AND_METRICS)
def test_graph_is_made_by_its_seed(
    vectors: NDArray[np.float32], kind: GraphKind, metric: str
) -> None:
    """The same seed gives the same graph, bit by bit."""
    a, b = (built(vectors, metric, kind=kind, degree=8, seed=3) for _ in range(2))
    assert equal(a, b)


@pytest.mark.parametrize("kind", ["nsw", "hnsw"])
def test_another_seed_gives_another_graph(vectors: NDArray[np.float32], kind: GraphKind) -> None:
    """The layers of HNSW are drawn by the seed, and the bottom layer depends on them."""
    a, b = (built(vectors, kind=kind, degree=8, seed=seed) for seed in (1, 2))
    assert not np.array_equal(a.neighbors, b.neighbors)


@pytest.mark.parametrize("kind", ["knn", "approximate-knn"])
def test_threads_do_not_change_knn_graphs(vectors: NDArray[np.float32], kind: GraphKind) -> None:
    """k-NN graphs are the same for any number of threads."""
    a, b = (built(vectors, kind=kind, n_threads=n) for n in (1, 2))
    assert equal(a, b)


def test_building_leaves_the_threads_of_faiss_alone(vectors: NDArray[np.float32]) -> None:
    """The number of threads that faiss has elsewhere is what it was, also after an error."""
    before = faiss.omp_get_max_threads()
    built(vectors, kind="knn", n_threads=before + 1)
    with pytest.raises(ValueError, match="nsg"):
        built(vectors, "ip", kind="nsg", n_threads=before + 1)
    assert faiss.omp_get_max_threads() == before


@pytest.mark.parametrize("metric", METRICS)
def test_nsw_is_the_bottom_layer_of_hnsw(vectors: NDArray[np.float32], metric: str) -> None:
    """NSW is HNSW of the same seed without its upper layers, entered at the medoid."""
    nsw, hnsw = (built(vectors, metric, kind=kind, degree=8) for kind in ("nsw", "hnsw"))
    assert np.array_equal(nsw.neighbors, hnsw.neighbors)
    assert nsw.upper == ()
    assert len(hnsw.upper) > 0
    base = normalize(vectors) if metric == "cosine" else vectors
    assert nsw.entries.tolist() == [medoid(base)]


def test_hnsw_is_that_of_faiss(vectors: NDArray[np.float32]) -> None:
    """To the last edge, of vectors that are all different, added in a hundred parts."""
    index = faiss.IndexHNSWFlat(12, 8)
    index.hnsw.efConstruction = 40
    index.hnsw.rng = faiss.RandomGenerator(3)
    for part in np.array_split(vectors, 100):
        index.add(part)
    assert equal(built(vectors, kind="hnsw", degree=16, seed=3), graph_of_hnsw(index.hnsw))


def test_cosine_is_l2_on_unit_vectors(vectors: NDArray[np.float32]) -> None:
    """A graph by cosine is the graph by l2 of the normalised vectors."""
    scaled = vectors * np.linspace(0.1, 9, len(vectors), dtype=np.float32)[:, None]
    assert equal(built(scaled, "cosine", degree=8), built(normalize(scaled), "l2", degree=8))


def naive_distances(base: NDArray[np.float32], metric: str) -> NDArray[np.float64]:
    """All distances, with a vector's distance to itself infinite."""
    exact = base.astype(np.float64)
    if metric == "ip":
        distances = -exact @ exact.T
    else:
        distances = ((exact[:, None] - exact[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(distances, np.inf)
    return distances


def check_knn_lists(base: NDArray[np.float32], k: int, metric: str, exact: bool) -> None:
    """Compare lists with brute force; of equally near vectors, any may be in them."""
    lists = knn_lists(base, metric, k, exact=exact)  # type: ignore[arg-type]
    k = min(k, len(base) - 1)
    assert lists.shape == (len(base), k)
    distances = naive_distances(base, metric)
    for vertex, row in enumerate(lists):
        assert len(set(row.tolist()) - {vertex}) == k
        np.testing.assert_array_equal(distances[vertex, row], np.sort(distances[vertex])[:k])


WITH_TWINS = hnp.arrays(
    np.float32,
    st.tuples(st.integers(2, 40), st.integers(1, 5)),
    elements=st.integers(-2, 2).map(float),
)
"""Vectors of small integers: distances are exact, and many vectors are equal."""


@pytest.mark.parametrize("metric", ["l2", "ip"])
@given(base=WITH_TWINS, k=st.integers(1, 12))
def test_knn_lists_are_those_of_brute_force(base: NDArray[np.float32], k: int, metric: str) -> None:
    """Lists hold the k nearest others, nearest first, however many vectors are equal."""
    check_knn_lists(base, k, metric, exact=True)


@pytest.mark.parametrize("metric", ["l2", "ip"])
@settings(max_examples=8)
@given(base=WITH_TWINS, k=st.integers(1, 12))
def test_an_inverted_file_in_whole_is_exact(base: NDArray[np.float32], k: int, metric: str) -> None:
    """Approximate lists are exact where every list of the inverted file is searched."""
    check_knn_lists(base, k, metric, exact=False)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["knn", "approximate-knn"])
def test_knn_graph_has_the_nearest_as_neighbors(
    vectors: NDArray[np.float32], kind: GraphKind, metric: str
) -> None:
    """Neighbours in a k-NN graph are the nearest vertices, nearest first, by the graph's metric."""
    base = normalize(vectors) if metric == "cosine" else vectors
    nearest = np.argsort(naive_distances(base, metric), axis=1)[:, :6]
    np.testing.assert_array_equal(built(vectors, metric, kind=kind, degree=6).neighbors, nearest)


def test_an_inverted_file_in_part_finds_most_neighbors() -> None:
    """An approximate k-NN graph of clusters too many to search holds nearly all true neighbours."""
    clustered = np.random.default_rng(2).normal(size=(2000, 2)).astype(np.float32)
    exact, found = (
        built(clustered, kind=kind, degree=8).neighbors for kind in ("knn", "approximate-knn")
    )
    shared = [len(np.intersect1d(a, b)) for a, b in zip(exact, found, strict=True)]
    assert np.mean(shared) > 7.9


@pytest.mark.parametrize("kind", ["nsw", "hnsw"])
def test_one_vector_is_a_graph(kind: GraphKind) -> None:
    """A graph of one vertex has no edges and starts there."""
    graph = built(np.ones((1, 3)), kind=kind)
    assert report(graph).n_edges == 0
    assert graph.entries.tolist() == [0]


@pytest.mark.parametrize("kind", ["knn", "approximate-knn", "nsg"])
def test_one_vector_has_no_neighbors(kind: GraphKind) -> None:
    """A k-NN graph, and what is built from one, needs two vectors."""
    with pytest.raises(ValueError, match=r"expected at least (2|10) vectors .* got 1"):
        built(np.ones((1, 3)), kind=kind)


@pytest.mark.parametrize("kind", ["nsw", "hnsw", "knn", "approximate-knn"])
def test_equal_vectors_are_a_graph(kind: GraphKind) -> None:
    """A graph over copies of one vector has edges and every id in range."""
    graph = built(np.ones((200, 3)), kind=kind, degree=8)
    assert report(graph).n_edges > 0


@pytest.mark.parametrize(
    ("vectors", "degree"),
    [
        ("normal(2, 8)", 8),
        ("normal(10, 8)", 8),
        ("normal(47, 8)", 16),
        ("normal(200, 8)", 300),
        ("normal(200, 8)", 1),
        ("normal(2000, 16)", 4),
        ("normal(2000, 64)", 6),
        ("np.repeat(normal(130, 16), 16, axis=0)", 16),
        ("np.concatenate([normal(100, 8), np.ones((100, 8))])", 16),
        ("np.ones((200, 8))", 16),
        ("np.eye(300)", 16),
    ],
)
def test_nsg_ends(vectors: str, degree: int) -> None:
    """NSG is built, or refused, of few vectors, of equal ones, of ties and of a low degree.

    Faiss joins vertices that no walk finds to one with room for a neighbour, and looks for it for
    ever where all are full.
    """
    script = f"""
import numpy as np
from l2route.graph.build import GraphOptions, build_graph
def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)
try:
    build_graph({vectors}, "l2", GraphOptions("nsg", degree={degree}))
except ValueError as error:
    assert "expected" in str(error), error
"""
    try:
        subprocess.run([sys.executable, "-c", script], check=True, timeout=HANG_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"NSG of {vectors} with degree {degree} does not end")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [(7, [7]), ([7], [7]), ((4, 9, 2), [4, 9, 2]), (np.int64(7), [7]), (np.array([4, 9]), [4, 9])],
)
@pytest.mark.parametrize("kind", ["nsw", "nsg", "knn"])
def test_entry_is_where_a_search_starts(
    vectors: NDArray[np.float32], kind: GraphKind, entry: Entry, expected: list[int]
) -> None:
    """A graph starts at the vertices it is told to, in that order."""
    graph = built(vectors, kind=kind, entry=entry)
    assert graph.entries.tolist() == expected


def test_hnsw_and_nsg_start_where_faiss_does(vectors: NDArray[np.float32]) -> None:
    """HNSW starts in its top layer and NSG at its navigating vertex, unless told otherwise."""
    hnsw = built(vectors, kind="hnsw")
    assert np.isin(hnsw.entries, hnsw.upper[0].vertices).all()
    index = faiss.IndexNSGFlat(12, 16)
    index.nsg.rng = faiss.RandomGenerator(0)
    index.build(vectors, knn_lists(vectors, "l2", 64, exact=True))
    assert built(vectors, kind="nsg").entries.tolist() == [index.nsg.enterpoint]


@pytest.mark.parametrize("kind", GRAPH_KINDS)
def test_building_prints_nothing(
    vectors: NDArray[np.float32], kind: GraphKind, capfd: pytest.CaptureFixture[str]
) -> None:
    """What faiss has to say of small data is not for the user's terminal."""
    built(vectors[: 70 if kind == "nsg" else 30], kind=kind, degree=8)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["nsw", "hnsw"])
def test_progress_is_told(vectors: NDArray[np.float32], kind: GraphKind) -> None:
    """Progress grows to the number of vectors, and telling it changes nothing."""
    told: list[tuple[int, int]] = []
    options = GraphOptions(kind, 8, 40)
    graph = build_graph(vectors, "l2", options, lambda done, total: told.append((done, total)))
    assert told == sorted(set(told))
    assert told[-1] == (len(vectors), len(vectors))
    assert equal(graph, build_graph(vectors, "l2", options))


def test_entered_at_is_the_bottom_layer_alone(vectors: NDArray[np.float32]) -> None:
    """Entering an HNSW elsewhere leaves its upper layers out."""
    hnsw = built(vectors, kind="hnsw")
    flat = hnsw.entered_at([3, 1])
    assert flat.upper == ()
    assert flat.entries.tolist() == [3, 1]
    assert flat.neighbors is hnsw.neighbors


def test_neighbor_lists_start_on_a_cache_line(vectors: NDArray[np.float32]) -> None:
    """The core prefetches whole lists, so the array is aligned."""
    for kind in GRAPH_KINDS:
        assert built(vectors, kind=kind).neighbors.ctypes.data % 64 == 0


@st.composite
def random_graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Neighbour lists of a few vertices, loops and repeats included, and some of the vertices."""
    n = draw(st.integers(1, 12))
    vertex = st.integers(0, n - 1)
    rows = draw(st.lists(st.lists(vertex, max_size=4), min_size=n, max_size=n))
    return rows, draw(st.lists(vertex, min_size=1, max_size=3, unique=True))


def naive_hops(rows: list[list[int]], sources: list[int]) -> list[int]:
    """Breadth-first search with a queue."""
    hops = [-1] * len(rows)
    queue = deque(sources)
    for source in sources:
        hops[source] = 0
    while queue:
        vertex = queue.popleft()
        for neighbor in rows[vertex]:
            if hops[neighbor] < 0:
                hops[neighbor] = hops[vertex] + 1
                queue.append(neighbor)
    return hops


@given(drawn=random_graphs())
def test_hops_are_those_of_a_queue(drawn: tuple[list[list[int]], list[int]]) -> None:
    """Hops count edges from the nearest source; −1 where no walk leads."""
    rows, sources = drawn
    graph = graph_of(rows, [0], width=4)
    found = hops_from(graph, np.array(sources, dtype=np.int32))
    assert found.tolist() == naive_hops(rows, sources)


@given(drawn=random_graphs())
def test_report_counts(drawn: tuple[list[list[int]], list[int]]) -> None:
    """A report's numbers are those of naive counting."""
    rows, entries = drawn
    degrees, hops = [len(row) for row in rows], naive_hops(rows, entries)
    got = report(graph_of(rows, entries, width=4))
    assert got.n_vertices == len(rows)
    assert got.n_edges == sum(degrees)
    assert (got.min_degree, got.max_degree) == (min(degrees), max(degrees))
    assert got.mean_degree == pytest.approx(sum(degrees) / len(rows))
    assert got.n_layers == 0
    assert got.entries == tuple(entries)
    assert got.n_unreachable == hops.count(-1)
    assert got.max_hops == max(hops)


def test_report_counts_upper_layers(vectors: NDArray[np.float32]) -> None:
    """A report tells how many layers stand above the bottom one."""
    hnsw = built(vectors, kind="hnsw", degree=8)
    assert report(hnsw).n_layers == len(hnsw.upper) > 0


@given(
    base=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 30), st.integers(1, 6)),
        elements=st.floats(-10, 10, width=32),
    )
)
def test_medoid_is_nearest_to_the_mean(base: NDArray[np.float32]) -> None:
    """No vertex is nearer to the mean than the medoid, but for rounding."""
    exact = base.astype(np.float64)
    distances = ((exact - exact.mean(axis=0)) ** 2).sum(axis=1)
    assert distances[medoid(base)] <= distances.min() + 1e-4


@given(seed=st.integers(0, 999), n=st.integers(1, 40), width=st.integers(1, 5))
def test_breadth_first_order_is_that_of_a_queue(seed: int, n: int, width: int) -> None:
    """As a queue by hand has it; every vertex once, those not reached begin anew."""
    rng = np.random.default_rng(seed)
    neighbors = np.full((n, width), -1, dtype=np.int32)
    for row in neighbors:
        degree = rng.integers(0, width + 1)
        row[:degree] = rng.integers(0, n, degree)
    entries = rng.choice(n, rng.integers(1, min(n, 3) + 1), replace=False).astype(np.int32)
    expected: list[int] = entries.tolist()
    waiting, fresh = list(expected), iter(range(n))
    while len(expected) < n or waiting:
        if not waiting:
            vertex = next(v for v in fresh if v not in expected)
            expected.append(vertex)
            waiting.append(vertex)
        for u in neighbors[waiting.pop(0)].tolist():
            if u >= 0 and u not in expected:
                expected.append(u)
                waiting.append(u)
    order = _core.breadth_first_order(_core.Graph(neighbors, entries, []))
    assert order.tolist() == expected


def test_neighbours_begin_on_a_cache_line() -> None:
    """Wherever they come from; those that do already are not copied."""
    buffer = np.zeros(16 * 8 + 64, dtype=np.int32)
    for shift in range(0, 64, 4):
        start = (-buffer.ctypes.data % 64 + shift) // 4
        neighbors = buffer[start : start + 16 * 8].reshape(16, 8)
        graph = Graph(neighbors, np.zeros(1, dtype=np.int32))
        assert graph.neighbors.ctypes.data % 64 == 0
        assert (graph.neighbors is neighbors) == (shift == 0)
        np.testing.assert_array_equal(graph.neighbors, neighbors)
        renumbered = renumber_graph(graph, np.arange(16)[::-1])
        assert renumbered.neighbors.ctypes.data % 64 == 0


def test_medoids_are_one_of_each_cluster() -> None:
    """Of 32 islands one vertex each, whatever the seed; of fewer vectors all of them."""
    rng = np.random.default_rng(0)
    islands = np.repeat(np.arange(32), 40)
    base = (rng.normal(size=(32, 6))[islands] * 100 + rng.normal(size=(1280, 6))).astype(np.float32)
    found = medoids(base, seed=3)
    assert (found[1:] > found[:-1]).all()
    assert len(set(islands[found].tolist())) >= 24  # k-means may join two that are near
    np.testing.assert_array_equal(found, medoids(base, seed=3))
    assert medoids(base[:5]).tolist() == [0, 1, 2, 3, 4]
    graph = build_graph(base, options=GraphOptions("knn", 8, entry="medoids"))
    np.testing.assert_array_equal(graph.entries, medoids(base))


@pytest.mark.parametrize(
    "base",
    [
        np.ones((1, 3)),
        np.ones((40, 3)),
        np.eye(5),
        np.repeat(np.eye(5), 20, axis=0),
        np.full((50, 4), 3e38) * np.linspace(0.1, 1, 50)[:, None],  # squares overflow
        np.full((50, 4), 1e-30) * np.linspace(0.1, 1, 50)[:, None],  # squares underflow
    ],
)
@pytest.mark.parametrize("entry", ["medoids", "longest"])
def test_entries_of_awkward_vectors_are_entries(base: NDArray[np.float64], entry: Entry) -> None:
    """Of one vector, of copies, of fewer than there are clusters, of numbers without squares."""
    entries = built(base, degree=4, entry=entry, seed=-7).entries
    assert 1 <= len(entries) <= 32
    assert len(np.unique(base[entries], axis=0)) == len(entries)


def test_longest_are_the_longest(vectors: NDArray[np.float32]) -> None:
    """32 of them, ascending by number."""
    found = longest(vectors)
    lengths = np.linalg.norm(vectors, axis=1)
    assert found.tolist() == sorted(np.argsort(-lengths)[:32].tolist())
    assert built(vectors, "ip", entry="longest").entries.tolist() == found.tolist()


@given(
    lists=hnp.arrays(
        np.int64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
        elements=st.integers(-1, 5),
    )
)
def test_compact_rows_moves_gaps_to_the_end(lists: NDArray[np.int64]) -> None:
    """Neighbours keep their order; −1 stands after them."""
    expected = [[x for x in row if x >= 0] + [x for x in row if x < 0] for row in lists.tolist()]
    rows = compact_rows(lists)
    assert rows.dtype == np.int32
    assert rows.tolist() == expected


def layered() -> Graph:
    """A graph of six vertices with two upper layers, {1, 3, 5} and {3} above it."""
    bottom = graph_of([[1], [2, 0], [3], [4, 2], [5], [0]], [3])
    return replace(bottom, upper=(layer([3], [[-1]]), layer([1, 3, 5], [[3], [5], [1]])))


def layer(vertices: list[int], neighbors: list[list[int]], dtype: Any = np.int32) -> UpperLayer:
    """Make an upper layer, right or wrong."""
    return UpperLayer(np.array(vertices, dtype=dtype), np.array(neighbors, dtype=np.int32))


def test_layered_graph_is_valid() -> None:
    """The graph that the tests below spoil is a good one."""
    assert report(layered()).n_layers == 2


INT32 = np.int32
LOW = [1, 3, 5]
MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "id too large": ({"neighbors": np.full((6, 2), 6, INT32)}, r"in \[-1, 6\), got 6 to 6"),
    "id below -1": ({"neighbors": np.full((6, 2), -2, INT32)}, r"in \[-1, 6\), got -2 to -2"),
    "gap in a row": ({"neighbors": np.array([[-1, 0]] * 6, INT32)}, "at the end of rows"),
    "int64": ({"neighbors": np.zeros((6, 2), np.int64)}, "contiguous int32 .* got int64"),
    "big-endian": ({"neighbors": np.zeros((6, 2), ">i4")}, "contiguous int32"),
    "floats": ({"neighbors": np.zeros((6, 2), np.float32)}, "contiguous int32 .* got float32"),
    "one axis": ({"neighbors": np.zeros(6, INT32)}, r"\[n, width\], got"),
    "three axes": ({"neighbors": np.zeros((6, 2, 2), INT32)}, r"\[n, width\], got"),
    "column order": ({"neighbors": np.zeros((6, 2), INT32, order="F")}, "contiguous"),
    "every other row": ({"neighbors": np.zeros((12, 2), INT32)[::2]}, "contiguous"),
    "no width": ({"neighbors": np.zeros((6, 0), INT32)}, r"got \(6, 0\)"),
    "no vertices": ({"neighbors": np.zeros((0, 4), INT32)}, r"got \(0, 4\)"),
    "no entry": ({"entries": np.zeros(0, INT32)}, r"entries int32 \[n_entries\], got"),
    "entry int64": ({"entries": np.array([3])}, "entries int32 .* got int64"),
    "entry matrix": ({"entries": np.array([[3]], INT32)}, r"entries int32 .* got int32 \(1, 1\)"),
    "entry scalar": ({"entries": np.array(3, INT32)}, r"entries int32 .* got int32 \(\)"),
    "entry too large": ({"entries": np.array([6], INT32)}, r"in \[0, 6\), got \[6\]"),
    "entry negative": ({"entries": np.array([-1], INT32)}, r"in \[0, 6\), got \[-1\]"),
    "entry twice": ({"entries": np.array([3, 3], INT32)}, r"distinct entries, got \[3, 3\]"),
    "entry not in the top layer": ({"entries": np.array([2], INT32)}, "the layer above"),
    "layer without the one above": ({"upper": (layer([3], [[-1]]), layer([1], [[1]]))}, "above"),
    "layer without its neighbor": ({"upper": (layer(LOW, [[3], [4], [1]]),)}, "neighbours"),
    "layer's id too large": ({"upper": (layer(LOW, [[3], [9], [1]]),)}, r"\[-1, 6\), got 1 to 9"),
    "layer's gap": ({"upper": (layer(LOW, [[3, -1], [-1, 1], [1, 3]]),)}, "at the end of rows"),
    "layer too long": ({"upper": (layer(LOW, [[3], [5]]),)}, r"vertices int32 \[2\], got"),
    "layer int64": ({"upper": (layer(LOW, [[3], [5], [1]], np.int64),)}, "int32 .* got int64"),
    "layer empty": ({"upper": (UpperLayer(np.zeros(0, INT32), np.zeros((0, 4), INT32)),)}, "got"),
    "layer descending": ({"upper": (layer([5, 3, 1], [[3], [5], [1]]),)}, "ascending"),
    "layer with a repeat": ({"upper": (layer([3, 3, 5], [[3], [5], [3]]),)}, "ascending"),
    "layer beyond n": ({"upper": (layer([1, 3, 6], [[3], [1], [1]]),)}, r"in \[0, 6\)"),
    "layer below 0": ({"upper": (layer([-1, 3, 5], [[3], [5], [3]]),)}, r"in \[0, 6\)"),
    # Each step from one vertex to the next overflows int32, to a positive number.
    "layer that wraps": (
        {"upper": (layer([3, 1 - 2**31, 0], [[0], [3], [3]]),)},
        "ascending",
    ),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_malformed_graph_is_refused(fault: str) -> None:
    """The core trusts a graph blindly, so a wrong one cannot be made."""
    changes, message = MALFORMED[fault]
    if "neighbors" in changes:
        changes = {"upper": (), **changes}
    with pytest.raises(ValueError, match=f"expected .*{message}"):
        replace(layered(), **changes)


BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "tree"}, "expected graph one of nsw, .*, got 'tree'"),
    "degree 0": ({"kind": "knn", "degree": 0}, "expected a degree of at least 2, got 0"),
    "degree -4": ({"kind": "nsg", "degree": -4}, "expected a degree of at least .*, got -4"),
    "odd degree": ({"degree": 7}, "expected an even degree of at least 4, got 7"),
    "low degree": ({"kind": "hnsw", "degree": 2}, "expected an even degree of at least 4, got 2"),
    "ef": ({"ef_construction": 0}, "expected ef_construction of at least 1, got 0"),
    "threads": ({"n_threads": -1}, "expected n_threads of at least 0, got -1"),
    "entry beyond": ({"entry": 500}, r"expected entries in \[0, 500\), got \[500\]"),
    "entry below": ({"entry": -1}, r"expected entries in \[0, 500\), got \[-1\]"),
    "entry far beyond": ({"entry": 2**40}, f"expected entr.* got .*{2**40}"),
    "entry twice": ({"entry": [1, 1]}, r"expected distinct entries, got \[1, 1\]"),
    "no entry": ({"entry": []}, "expected entries"),
    "entry half": ({"entry": [1.5]}, "expected .*1.5"),
    "entry word": ({"entry": "middle"}, "expected .*'middle'"),
    "entry of hnsw": ({"kind": "hnsw", "entry": 3}, "expected no entry for hnsw"),
}


@pytest.mark.parametrize("fault", BAD_OPTIONS)
def test_bad_option_is_refused(vectors: NDArray[np.float32], fault: str) -> None:
    """An option out of range is named, with what was expected and what came."""
    options, message = BAD_OPTIONS[fault]
    with pytest.raises(ValueError, match=message):
        built(vectors, **options)


@pytest.mark.parametrize("kind", GRAPH_KINDS)
@pytest.mark.parametrize("seed", [-1, 2**31 - 1, 2**40, np.int64(5)])
def test_any_integer_is_a_seed(vectors: NDArray[np.float32], kind: GraphKind, seed: int) -> None:
    """Seeds have the range of a 64-bit integer, for every kind."""
    graph = built(vectors[:100], kind=kind, seed=seed)
    assert equal(graph, built(vectors[:100], kind=kind, seed=seed))


@pytest.mark.parametrize("kind", GRAPH_KINDS)
def test_integers_of_numpy_are_integers(vectors: NDArray[np.float32], kind: GraphKind) -> None:
    """Options may be numpy's integers, as one gets them from a shape or a grid."""
    options = {"degree": np.int64(8), "ef_construction": np.int64(40), "n_threads": np.int64(1)}
    assert equal(built(vectors, kind=kind, **options), built(vectors, kind=kind, degree=8))


def test_bad_metric_is_refused(vectors: NDArray[np.float32]) -> None:
    """NSG prunes by distances, so it has no inner product; a metric must be one."""
    with pytest.raises(ValueError, match="expected metric l2 or cosine for nsg, got ip"):
        built(vectors, "ip", kind="nsg")
    with pytest.raises(ValueError, match=r"expected metric .* got 'hamming'"):
        built(vectors, "hamming")


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.zeros((0, 4)), r"got \[0, 4\]"),
        (np.zeros((4, 0)), r"got \[4, 0\]"),
        (np.zeros(4), r"got shape \[4\]"),
        (np.full((4, 2), np.nan), "finite .* row 0"),
        (np.array([[0.0, 1.0], [np.inf, 0.0]]), "finite .* row 1"),
        (np.full((4, 2), 1e300), "finite .* row 0"),
        (np.zeros((4, 2), complex), "got dtype complex128"),
        ("words", "got dtype"),
    ],
)
def test_bad_vectors_are_refused(vectors: object, message: str) -> None:
    """Vectors are finite real numbers [n, dim], and some."""
    with pytest.raises(ValueError, match=f"expected vectors .*{message}"):
        built(vectors)
