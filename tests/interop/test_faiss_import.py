"""Laws of indexes imported from faiss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from imported import DIM, ENTRIES, N, Rows, assert_entered_at, rows_of
from l2route.graph.knn import knn_lists
from l2route.interop.faiss_import import from_faiss, import_faiss
from living import Model, check_answers


def faiss_hnsw(vectors: NDArray[np.float32], metric: int = faiss.METRIC_L2, m: int = 4) -> Any:
    """A faiss HNSW with a low degree, so that it has several layers."""
    index = faiss.IndexHNSWFlat(DIM, m, metric)
    index.add(vectors)
    return index


def faiss_nsg(vectors: NDArray[np.float32]) -> Any:
    """A faiss NSG."""
    index = faiss.IndexNSGFlat(DIM, 12)
    index.build(vectors, knn_lists(vectors, "l2", 32, exact=True))
    return index


def naive_faiss_rows(hnsw: Any) -> list[Rows]:
    """Neighbour lists from the arrays of faiss, one neighbour at a time."""
    levels, offsets, widths, links = (
        faiss.vector_to_array(array).tolist()
        for array in (hnsw.levels, hnsw.offsets, hnsw.cum_nneighbor_per_level, hnsw.neighbors)
    )
    layers: list[Rows] = [{} for _ in range(hnsw.max_level + 1)]
    for vertex, n_levels in enumerate(levels):
        for level in range(n_levels):
            begin = offsets[vertex] + widths[level]
            end = offsets[vertex] + widths[level + 1]
            layers[level][vertex] = [link for link in links[begin:end] if link >= 0]
    return layers


def test_every_layer_of_a_faiss_hnsw_is_taken(vectors: NDArray[np.float32]) -> None:
    """Vertices, neighbours and entry of every layer are those of faiss."""
    index = faiss_hnsw(vectors)
    imported = import_faiss(index)
    assert rows_of(imported.graph) == naive_faiss_rows(index.hnsw)
    assert len(imported.graph.upper) > 1
    assert imported.graph.entries.tolist() == [index.hnsw.entry_point]
    np.testing.assert_array_equal(imported.vectors, vectors)
    assert imported.labels is None
    assert imported.metric == "l2"


def test_faiss_nsg_is_taken(vectors: NDArray[np.float32]) -> None:
    """Neighbours and entry are those of faiss's NSG."""
    index = faiss_nsg(vectors)
    imported = import_faiss(index)
    final = index.nsg.get_final_graph()
    naive = {vertex: [final.at(vertex, i) for i in range(final.K)] for vertex in range(N)}
    naive = {vertex: [x for x in row if x >= 0] for vertex, row in naive.items()}
    assert rows_of(imported.graph) == [naive]
    assert imported.graph.entries.tolist() == [index.nsg.enterpoint]
    np.testing.assert_array_equal(imported.vectors, vectors)


def test_imported_graph_outlives_its_index(vectors: NDArray[np.float32]) -> None:
    """An import is a copy: the faiss index may be changed and deleted."""
    for make in (faiss_hnsw, faiss_nsg):
        index = make(vectors)
        imported = import_faiss(index)
        rows, values = rows_of(imported.graph), imported.vectors.copy()
        index.reset()
        del index
        assert rows_of(imported.graph) == rows
        np.testing.assert_array_equal(imported.vectors, values)


@pytest.mark.parametrize("wrapper", [faiss.IndexIDMap, faiss.IndexIDMap2])
def test_labels_of_an_id_map_are_kept(vectors: NDArray[np.float32], wrapper: Any) -> None:
    """Answers have the ids of an IndexIDMap."""
    labels = np.random.default_rng(0).permutation(N).astype(np.int64) * 10**12
    index = wrapper(faiss.IndexHNSWFlat(DIM, 16))
    index.add_with_ids(vectors, labels)
    imported = import_faiss(index)
    assert imported.labels is not None
    np.testing.assert_array_equal(imported.labels, labels)
    assert from_faiss(index).search(vectors[7], k=1, ef=N).ids.tolist() == [[labels[7]]]


def test_labels_that_are_row_numbers_are_none(vectors: NDArray[np.float32]) -> None:
    """An id map of row numbers gives no labels."""
    index = faiss.IndexIDMap(faiss.IndexHNSWFlat(DIM, 4))
    index.add_with_ids(vectors, np.arange(N))
    assert import_faiss(index).labels is None


def other_faiss_indexes(vectors: NDArray[np.float32]) -> dict[str, tuple[Any, str]]:
    """Objects that cannot be imported, with the text that the error must contain."""
    flat = faiss.IndexFlatL2(DIM)
    flat.add(vectors)
    labelled = faiss.IndexIDMap(faiss.IndexFlatL2(DIM))
    labelled.add_with_ids(vectors, np.arange(N))
    binary = faiss.IndexBinaryHNSW(64, 4)
    binary.add(np.random.default_rng(0).integers(0, 256, (100, 8), dtype=np.uint8))
    return {
        "flat": (flat, "expected a faiss IndexHNSW or IndexNSG, got IndexFlatL2"),
        "labelled flat": (labelled, "expected a faiss IndexHNSW or IndexNSG, got IndexFlatL2"),
        "empty hnsw": (faiss.IndexHNSWFlat(DIM, 4), "expected an index with vectors, got an empty"),
        "empty nsg": (faiss.IndexNSGFlat(DIM, 4), "expected an index with vectors, got an empty"),
        "l1": (faiss_hnsw(vectors, faiss.METRIC_L1), "expected .*metric l2 or ip, got metric 2"),
        "binary": (binary, "expected a faiss .*, got IndexBinaryHNSW"),
        "array": (vectors, "expected a faiss .*, got ndarray"),
        "nothing": (None, "expected a faiss .*, got NoneType"),
    }


@pytest.mark.parametrize(
    "name",
    ["flat", "labelled flat", "empty hnsw", "empty nsg", "l1", "binary", "array", "nothing"],
)
def test_other_faiss_indexes_are_refused(vectors: NDArray[np.float32], name: str) -> None:
    """Other objects and empty indexes are refused by name."""
    index, message = other_faiss_indexes(vectors)[name]
    with pytest.raises(ValueError, match=message):
        import_faiss(index)


def test_faiss_file_is_read(vectors: NDArray[np.float32], tmp_path: Path) -> None:
    """A saved faiss index is imported like the index itself."""
    for name, make in {"hnsw": faiss_hnsw, "nsg": faiss_nsg}.items():
        index = make(vectors)
        faiss.write_index(index, str(tmp_path / name))
        direct, read = import_faiss(index), import_faiss(tmp_path / name)
        assert rows_of(read.graph) == rows_of(direct.graph)
        np.testing.assert_array_equal(read.vectors, direct.vectors)


def test_bad_faiss_file_is_refused(tmp_path: Path) -> None:
    """The error for an unreadable or missing file names it."""
    (tmp_path / "text").write_text("no index at all")
    with pytest.raises(ValueError, match=r"text: expected a saved faiss index"):
        from_faiss(tmp_path / "text")
    with pytest.raises(FileNotFoundError, match="absent"):
        from_faiss(str(tmp_path / "absent"))


@pytest.mark.parametrize("metric", [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT])
def test_faiss_and_import_agree(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], metric: int
) -> None:
    """Exhaustive searches of faiss and of the imported index agree."""
    index = faiss_hnsw(vectors, metric, m=16)
    index.hnsw.efSearch = N
    distances, ids = index.search(queries, 8)
    found = from_faiss(index).search(queries, k=8, ef=N)
    np.testing.assert_array_equal(found.ids, ids)
    sign = 1 if metric == faiss.METRIC_L2 else -1
    np.testing.assert_allclose(found.distances, sign * distances, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["hnsw", "nsg"])
def test_every_vector_of_faiss_finds_itself(vectors: NDArray[np.float32], kind: str) -> None:
    """Self-recall of an imported index is 1."""
    index = faiss_hnsw(vectors, m=16) if kind == "hnsw" else faiss_nsg(vectors)
    found = from_faiss(index).search(vectors, k=1, ef=N)
    assert found.ids[:, 0].tolist() == list(range(N))
    assert not found.distances.any()


@pytest.mark.parametrize("make", [faiss_hnsw, faiss_nsg])
def test_an_import_from_faiss_lives_on(vectors: NDArray[np.float32], make: Any) -> None:
    """Vectors are added to an imported graph and deleted from it, and all are found."""
    index, model = from_faiss(make(vectors)), Model()
    model.put(np.arange(N), vectors)
    model.put(index.add(vectors[:100] + 1), vectors[:100] + 1)
    index.delete(np.arange(0, N, 3))
    model.drop(np.arange(0, N, 3))
    check_answers(index, model, vectors[:2])


@pytest.mark.parametrize("entry", ENTRIES)
def test_import_may_be_entered_elsewhere(vectors: NDArray[np.float32], entry: Any) -> None:
    """With an entry only the bottom layer is imported, and searches start there."""
    assert_entered_at(from_faiss(faiss_hnsw(vectors), entry=entry), entry)


@pytest.mark.parametrize(
    ("label", "message"),
    [(13, "expected distinct labels, got 13 for vertices 3 and 7"), (-1, "other than -1")],
)
def test_labels_that_two_vertices_or_no_answer_have_are_refused(
    vectors: NDArray[np.float32], label: int, message: str
) -> None:
    """Repeated ids and −1, which an IndexIDMap accepts, are refused."""
    labels = np.arange(10, 10 + N)
    labels[7] = label
    index = faiss.IndexIDMap(faiss.IndexHNSWFlat(DIM, 4))
    index.add_with_ids(vectors, labels)
    with pytest.raises(ValueError, match=message):
        from_faiss(index)
