"""Laws of indexes imported from hnswlib."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import hnswlib
import numpy as np
import pytest
from numpy.typing import NDArray

from imported import DIM, ENTRIES, N, Rows, assert_entered_at, rows_of
from l2route.data.vectors import METRICS, normalize
from l2route.index import RoutingIndex, load
from l2route.interop.hnswlib_import import HEADER, from_hnswlib, import_hnswlib
from living import Model, check_answers, check_structure


def hnswlib_index(
    vectors: NDArray[np.float32],
    space: str = "l2",
    labels: NDArray[np.int64] | None = None,
    m: int = 4,
) -> Any:
    """An hnswlib index with spare capacity, of a low degree so that it has several layers."""
    index = hnswlib.Index(space, DIM)
    index.init_index(N + 50, M=m, ef_construction=50, random_seed=3)
    index.add_items(vectors, np.arange(N) if labels is None else labels, num_threads=1)
    return index


def naive_hnswlib_rows(state: dict[str, Any]) -> tuple[list[Rows], dict[int, list[float]]]:
    """Neighbour lists by label and vectors from hnswlib's memory, one link at a time."""
    level0, upper = state["data_level0"].tobytes(), state["link_lists"].tobytes()
    n, size = state["cur_element_count"], state["size_data_per_element"]
    label_of = {}
    vectors = {}
    for element in range(n):
        at = element * size
        (label,) = struct.unpack_from("<Q", level0, at + state["label_offset"])
        label_of[element] = label
        values = struct.unpack_from(f"<{state['dim']}f", level0, at + state["offset_data"])
        vectors[label] = list(values)

    def links(memory: bytes, at: int) -> list[int]:
        (count,) = struct.unpack_from("<H", memory, at)
        return [label_of[x] for x in struct.unpack_from(f"<{count}I", memory, at + 4)]

    layers: list[Rows] = [{} for _ in range(state["max_level"] + 1)]
    at = 0
    for element in range(n):
        layers[0][label_of[element]] = links(level0, element * size + state["offset_level0"])
        for level in range(1, state["element_levels"][element] + 1):
            layers[level][label_of[element]] = links(upper, at)
            at += state["size_links_per_element"]
    return layers, vectors


LABELS = {
    "rows": np.arange(N),
    "shuffled": np.random.default_rng(2).permutation(N),
    "sparse": np.random.default_rng(3).permutation(N) * 10**10 + 7,
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("space", METRICS)
@pytest.mark.parametrize("saved", [False, True])
def test_every_layer_of_an_hnswlib_index_is_taken(
    vectors: NDArray[np.float32], tmp_path: Path, space: str, labels: str, saved: bool
) -> None:
    """Vertices, neighbours, entry, vectors and labels are hnswlib's, ordered by label."""
    index = hnswlib_index(vectors, space, LABELS[labels])
    index.save_index(str(tmp_path / "index"))
    imported = import_hnswlib(tmp_path / "index", space) if saved else import_hnswlib(index)
    state = index.__getstate__()[0]
    layers, values = naive_hnswlib_rows(state)
    label_of = sorted(values)

    def labelled(rows: Rows) -> Rows:
        return {label_of[v]: [label_of[u] for u in row] for v, row in rows.items()}

    assert [labelled(rows) for rows in rows_of(imported.graph)] == layers
    assert len(layers) > 2
    np.testing.assert_array_equal(imported.vectors, [values[label] for label in label_of])
    if labels == "sparse":
        assert imported.labels is not None
        assert imported.labels.tolist() == label_of
    else:
        assert imported.labels is None
    inserted_first = state["label_lookup_internal"].tolist().index(state["enterpoint_node"])
    entry = state["label_lookup_external"][inserted_first]
    assert [label_of[v] for v in imported.graph.entries] == [entry]
    assert imported.metric == space


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("space", METRICS)
def test_hnswlib_and_import_agree(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], space: str, labels: str
) -> None:
    """Exhaustive searches of hnswlib and of the imported index agree."""
    index = hnswlib_index(vectors, space, LABELS[labels], m=16)
    index.set_ef(N)
    ids, distances = index.knn_query(queries, 8)
    found = from_hnswlib(index).search(queries, k=8, ef=N)
    np.testing.assert_array_equal(found.ids, ids.astype(np.int64))
    offset = 1 if space == "ip" else 0  # hnswlib's distance is one less the product
    np.testing.assert_allclose(found.distances + offset, distances, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", ["l2", "cosine"])
def test_every_vector_of_hnswlib_finds_itself(vectors: NDArray[np.float32], space: str) -> None:
    """Self-recall of an imported index is 1."""
    found = from_hnswlib(hnswlib_index(vectors, space, m=16)).search(vectors, k=1, ef=N)
    assert found.ids[:, 0].tolist() == list(range(N))
    np.testing.assert_allclose(found.distances, 0, atol=1e-6)


def test_hnswlib_cosine_has_unit_vectors(vectors: NDArray[np.float32]) -> None:
    """The vectors of a cosine index are those of hnswlib, of length 1."""
    imported = import_hnswlib(hnswlib_index(vectors, "cosine"))
    np.testing.assert_allclose(imported.vectors, normalize(vectors), atol=1e-6)


@pytest.mark.parametrize("entry", ENTRIES)
def test_import_may_be_entered_elsewhere(vectors: NDArray[np.float32], entry: Any) -> None:
    """With an entry only the bottom layer is imported, and searches start there."""
    assert_entered_at(from_hnswlib(hnswlib_index(vectors), entry=entry), entry)


@pytest.mark.parametrize("space", METRICS)
def test_a_file_does_not_say_its_metric(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], tmp_path: Path, space: str
) -> None:
    """A file needs a metric; with it, the import answers like the index."""
    index = hnswlib_index(vectors, space, m=16)
    index.save_index(str(tmp_path / "index"))
    with pytest.raises(ValueError, match=r"expected a metric of l2, ip, cosine .*, got none"):
        from_hnswlib(tmp_path / "index")
    index.set_ef(N)
    found = from_hnswlib(tmp_path / "index", metric=space).search(queries, k=8, ef=N)
    np.testing.assert_array_equal(found.ids, index.knn_query(queries, 8)[0].astype(np.int64))


def test_metrics_that_an_index_does_not_have_are_refused(
    vectors: NDArray[np.float32], tmp_path: Path
) -> None:
    """A metric other than the object's is refused, and cosine for vectors not of length 1."""
    index = hnswlib_index(vectors, "ip")
    with pytest.raises(ValueError, match=r"expected metric ip, that of the .*, got 'l2'"):
        from_hnswlib(index, metric="l2")
    index.save_index(str(tmp_path / "index"))
    with pytest.raises(ValueError, match="expected vectors of unit length for metric cosine"):
        from_hnswlib(tmp_path / "index", metric="cosine")


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("space", ["l2", "ip"])
def test_links_speak_against_a_wrong_metric(tmp_path: Path, space: str, metric: str) -> None:
    """A wrong metric gives a warning if vectors differ in length."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1_000, DIM)) * rng.uniform(0.5, 2, size=(1_000, 1)) + 1
    index = hnswlib.Index(space, DIM)
    index.init_index(1_000, M=12, ef_construction=100, random_seed=1)
    index.add_items(vectors, num_threads=1)
    index.save_index(str(tmp_path / "index"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_hnswlib(tmp_path / "index", metric=metric)
    messages = [str(warning.message) for warning in caught]
    assert bool(messages) == (space != metric)
    expected = f"links of metric {metric}, got links that fit {space} better"
    assert all(expected in message for message in messages)


def test_one_element_is_an_index() -> None:
    """An hnswlib index of one vector is imported and searched."""
    index = hnswlib.Index("l2", 3)
    index.init_index(1)
    index.add_items(np.ones((1, 3)), [42])
    assert from_hnswlib(index).search(np.zeros(3), k=2).ids.tolist() == [[42, -1]]


def test_other_hnswlib_things_are_refused(vectors: NDArray[np.float32], tmp_path: Path) -> None:
    """Other objects and empty indexes are refused; a missing file is a FileNotFoundError."""
    empty = hnswlib.Index("l2", DIM)
    empty.init_index(10)
    brute_force = hnswlib.BFIndex("l2", DIM)
    brute_force.init_index(N)
    brute_force.add_items(vectors)
    for wrong in (empty, brute_force, vectors, None, 42):
        with pytest.raises(ValueError, match=r"hnswlib.*expected|expected .*hnswlib"):
            import_hnswlib(wrong)
    with pytest.raises(ValueError, match=r"expected metric .* got 'hamming'"):
        import_hnswlib(hnswlib_index(vectors), "hamming")
    with pytest.raises(FileNotFoundError, match="absent"):
        import_hnswlib(tmp_path / "absent", "l2")


def test_hnswlib_index_without_memory_is_refused() -> None:
    """An index before init_index is refused; hnswlib itself would crash."""
    script = """
import hnswlib
from l2route import from_hnswlib
try:
    from_hnswlib(hnswlib.Index("l2", 8))
except ValueError as error:
    assert "expected" in str(error), error
else:
    raise AssertionError("not refused")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


FIELDS = HEADER.unpack(bytes(HEADER.size))
WILD = [0, 1, 2, 3, 7, 255, 2**16, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.fixture(scope="module")
def saved(vectors: NDArray[np.float32], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An intact file of hnswlib with 120 elements."""
    index = hnswlib.Index("l2", DIM)
    index.init_index(150, M=3, ef_construction=20, random_seed=1)
    index.add_items(vectors[:120], np.arange(120) * 3)
    path = tmp_path_factory.mktemp("hnswlib") / "index"
    index.save_index(str(path))
    return path.read_bytes()


def check_damaged(path: Path, content: bytes) -> RoutingIndex | None:
    """Import a damaged file: it is a ValueError, or an index that can be searched."""
    path.write_bytes(content)
    try:
        index = from_hnswlib(path, "l2")
    except ValueError as error:
        assert "expected" in str(error)  # noqa: PT017 # any error must say so, none is fine too
        return None
    known = {-1, *(range(len(index)) if index.labels is None else index.labels.tolist())}
    found = index.search(np.zeros(index.dim), k=20, ef=40)
    assert set(found.ids.ravel().tolist()) <= known
    return index


def test_truncated_hnswlib_files_are_refused(saved: bytes, tmp_path: Path) -> None:
    """A file truncated in its header, elements or upper links is refused."""
    for length in [*range(0, len(saved), 61), *range(90, 100), len(saved) - 1]:
        assert check_damaged(tmp_path / "index", saved[:length]) is None


def test_wild_headers_of_hnswlib_are_no_danger(saved: bytes, tmp_path: Path) -> None:
    """A header with any numbers is refused or gives a valid index."""
    for field in range(len(FIELDS)):
        for wild in WILD:
            values = list(HEADER.unpack_from(saved))
            if field == 6:  # max_level, an int
                values[field] = wild - 2**31 if wild < 2**32 else -1
            else:
                values[field] = wild % 2**32 if field == 7 else wild
            check_damaged(tmp_path / "index", HEADER.pack(*values) + saved[HEADER.size :])


def test_mutated_hnswlib_files_are_no_danger(saved: bytes, tmp_path: Path) -> None:
    """Damaged bytes give a ValueError or an index whose answers are its labels."""
    rng = random.Random(0)
    n_taken = 0
    for _ in range(400):
        content = bytearray(saved)
        for _ in range(rng.choice([1, 1, 2, 8])):
            at = rng.choice([rng.randrange(HEADER.size), rng.randrange(len(content))])
            content[at] = rng.choice([rng.randrange(256), 0, 255, content[at] ^ 1])
        n_taken += check_damaged(tmp_path / "index", bytes(content)) is not None
    assert 20 < n_taken < 380  # damaged vectors are not detected, damaged links are


def test_an_import_with_deletions_lives_on(vectors: NDArray[np.float32], tmp_path: Path) -> None:
    """Elements marked as deleted are not taken; others come and go, and all are found."""
    source = hnswlib_index(vectors, labels=np.arange(N) * 3)
    for element in range(0, N, 4):
        source.mark_deleted(3 * element)
    index = from_hnswlib(source)
    model = Model()
    kept = np.flatnonzero(np.arange(N) % 4)
    model.put(3 * kept, vectors[kept])
    index.save(tmp_path)
    model.put(index.add(vectors[:100] + 1), vectors[:100] + 1)
    for gone in (index.ids[:50], index.ids[-20:]):
        index.delete(gone)
        model.drop(gone)
    index.add(vectors[:1], [0])  # the id of a deleted element
    model.put(np.array([0]), vectors[:1])
    index.save()
    for each in (index, load(tmp_path)):
        check_answers(each, model, vectors[:2])
        check_structure(each)


def test_vertices_out_of_reach_are_found_once_an_import_changes(tmp_path: Path) -> None:
    """Elements that hnswlib cannot reach are connected by the first change, and saved so."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(N, DIM)).astype(np.float32)
    vectors += 100 * rng.normal(size=(20, DIM)).astype(np.float32)[rng.integers(0, 20, N)]
    index = from_hnswlib(hnswlib_index(vectors, m=2))
    assert index.info()["graph"]["n_unreachable"] > 0
    index.save(tmp_path)
    model = Model()
    model.put(np.arange(N), vectors)
    model.put(index.add(vectors[:1]), vectors[:1])
    index.save()
    for each in (index, load(tmp_path)):
        assert each.info()["graph"]["n_unreachable"] == 0
        check_answers(each, model, vectors[:2])


def test_a_label_that_means_no_answer_is_refused() -> None:
    """Hnswlib's largest label, which is −1 as an int64, is refused."""
    index = hnswlib.Index("l2", 3)
    index.init_index(2)
    index.add_items(np.eye(3)[:2], np.array([5, 2**64 - 1], dtype=np.uint64))
    with pytest.raises(ValueError, match=r"hnswlib\.Index: expected labels other than -1"):
        from_hnswlib(index)
