"""Laws of building graphs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from graphs import KINDS_AND_METRICS, built, equal
from l2route.data.vectors import METRICS, normalize
from l2route.graph.build import GRAPH_KINDS, GraphKind, GraphOptions, build_graph, graph_of_hnsw
from l2route.graph.entry import medoid
from l2route.graph.report import report

HANG_SECONDS = 15
"""A build of a few hundred vectors takes under a second; faiss's endless loops never end."""


@pytest.mark.parametrize(("kind", "metric"), KINDS_AND_METRICS)
def test_every_kind_builds_for_every_metric(
    vectors: NDArray[np.float32], kind: GraphKind, metric: str
) -> None:
    """A vertex has at most `degree` neighbours, all distinct and none of them itself."""
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
    """The same seed gives the same graph."""
    a, b = (built(vectors, metric, kind=kind, degree=8, seed=3) for _ in range(2))
    assert equal(a, b)


@pytest.mark.parametrize("kind", ["nsw", "hnsw"])
def test_another_seed_gives_another_graph(vectors: NDArray[np.float32], kind: GraphKind) -> None:
    """Another seed gives another graph: it draws the layers, which affect the bottom layer."""
    a, b = (built(vectors, kind=kind, degree=8, seed=seed) for seed in (1, 2))
    assert not np.array_equal(a.neighbors, b.neighbors)


@pytest.mark.parametrize("kind", ["knn", "approximate-knn"])
def test_threads_do_not_change_knn_graphs(vectors: NDArray[np.float32], kind: GraphKind) -> None:
    """k-NN graphs are the same for any number of threads."""
    a, b = (built(vectors, kind=kind, n_threads=n) for n in (1, 2))
    assert equal(a, b)


def test_building_leaves_the_threads_of_faiss_alone(vectors: NDArray[np.float32]) -> None:
    """A build restores faiss's number of threads, also after an error."""
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
    """Without equal vectors, HNSW has the same edges as a faiss index built in 100 batches."""
    index = faiss.IndexHNSWFlat(12, 8)
    index.hnsw.efConstruction = 40
    index.hnsw.rng = faiss.RandomGenerator(3)
    for part in np.array_split(vectors, 100):
        index.add(part)
    assert equal(built(vectors, kind="hnsw", degree=16, seed=3), graph_of_hnsw(index.hnsw))


def test_cosine_is_l2_on_unit_vectors(vectors: NDArray[np.float32]) -> None:
    """A graph for cosine is the graph for l2 of the normalised vectors."""
    scaled = vectors * np.linspace(0.1, 9, len(vectors), dtype=np.float32)[:, None]
    assert equal(built(scaled, "cosine", degree=8), built(normalize(scaled), "l2", degree=8))


@pytest.mark.parametrize("kind", ["nsw", "hnsw"])
def test_one_vector_is_a_graph(kind: GraphKind) -> None:
    """A graph of one vertex has no edges, and that vertex is its entry."""
    graph = built(np.ones((1, 3)), kind=kind)
    assert report(graph).n_edges == 0
    assert graph.entries.tolist() == [0]


@pytest.mark.parametrize("kind", ["knn", "approximate-knn", "nsg"])
def test_one_vector_has_no_neighbors(kind: GraphKind) -> None:
    """k-NN graphs and NSG refuse a single vector."""
    with pytest.raises(ValueError, match=r"expected at least (2|10) vectors .* got 1"):
        built(np.ones((1, 3)), kind=kind)


@pytest.mark.parametrize("kind", ["nsw", "hnsw", "knn", "approximate-knn"])
def test_equal_vectors_are_a_graph(kind: GraphKind) -> None:
    """A graph over copies of one vector has edges."""
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
    """NSG terminates or is refused for few vectors, equal vectors, ties and low degrees.

    Faiss connects unreachable vertices to one that has room for a neighbour, and never stops
    looking for one if all lists are full.
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


@pytest.mark.parametrize("kind", GRAPH_KINDS)
def test_building_prints_nothing(
    vectors: NDArray[np.float32], kind: GraphKind, capfd: pytest.CaptureFixture[str]
) -> None:
    """A build prints none of faiss's warnings about small data."""
    built(vectors[: 70 if kind == "nsg" else 30], kind=kind, degree=8)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["nsw", "hnsw"])
def test_progress_is_told(vectors: NDArray[np.float32], kind: GraphKind) -> None:
    """Progress increases to the number of vectors, and does not affect the graph."""
    reported: list[tuple[int, int]] = []
    options = GraphOptions(kind, 8, 40)
    graph = build_graph(vectors, "l2", options, lambda done, total: reported.append((done, total)))
    assert reported == sorted(set(reported))
    assert reported[-1] == (len(vectors), len(vectors))
    assert equal(graph, build_graph(vectors, "l2", options))


BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "tree"}, "expected a graph out of l2route, .*, got 'tree'"),
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
    """The error for an option out of range names what was expected and found."""
    options, message = BAD_OPTIONS[fault]
    with pytest.raises(ValueError, match=message):
        built(vectors, **options)


@pytest.mark.parametrize("kind", GRAPH_KINDS)
@pytest.mark.parametrize("seed", [-1, 2**31 - 1, 2**40, np.int64(5)])
def test_any_integer_is_a_seed(vectors: NDArray[np.float32], kind: GraphKind, seed: int) -> None:
    """Any integer is a valid seed, for every kind of graph."""
    graph = built(vectors[:100], kind=kind, seed=seed)
    assert equal(graph, built(vectors[:100], kind=kind, seed=seed))


@pytest.mark.parametrize("kind", GRAPH_KINDS)
def test_integers_of_numpy_are_integers(vectors: NDArray[np.float32], kind: GraphKind) -> None:
    """Options may be integers of numpy."""
    options = {"degree": np.int64(8), "ef_construction": np.int64(40), "n_threads": np.int64(1)}
    assert equal(built(vectors, kind=kind, **options), built(vectors, kind=kind, degree=8))


def test_bad_metric_is_refused(vectors: NDArray[np.float32]) -> None:
    """NSG refuses ip, since it prunes by distances; an unknown metric is refused."""
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
    """Vectors that are empty, not finite, not real or not [n, dim] are refused."""
    with pytest.raises(ValueError, match=f"expected vectors .*{message}"):
        built(vectors)
