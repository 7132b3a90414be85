"""Laws of saved indexes: loaded, replaced, inconsistent, and of older versions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from indexes import DIM, QUERIES, N, built, same_answers, same_results, with_everything
from l2route.data.labels import Labels
from l2route.files.patches import Patch
from l2route.files.storage import LOCK, META, append_patch, read_index, write_index
from l2route.graph.build import GraphOptions, build_graph
from l2route.index import RoutingIndex, load
from l2route.search.base import BaseVectors
from l2route.search.space import pca_space

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("mmap", [True, False])
def test_loaded_index_answers_as_the_saved(
    index: RoutingIndex, tmp_path: Path, mmap: bool, verify: bool
) -> None:
    """A loaded index gives the answers of the saved one at the same cost."""
    index.save(tmp_path / "index")
    loaded = load(tmp_path / "index", mmap=mmap, verify=verify)
    assert same_answers(loaded, index)
    assert len(loaded) == N
    np.testing.assert_array_equal(loaded.base.vectors(), index.base.vectors())
    assert isinstance(loaded.base.rows, np.memmap) == mmap


def test_saving_a_loaded_index_writes_the_same_files(index: RoutingIndex, tmp_path: Path) -> None:
    """Saving a loaded index writes the same files."""
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
    """Another index is replaced only if that is asked for; the path may be a string."""
    first, second = with_everything(), built(metric="ip")
    first.save(str(tmp_path))
    with pytest.raises(FileExistsError, match="expected a directory without an index"):
        second.save(str(tmp_path))
    assert same_answers(load(tmp_path), first)
    second.save(str(tmp_path), overwrite=True)
    assert same_answers(load(str(tmp_path)), second)


def test_a_mapped_index_outlives_its_files(tmp_path: Path) -> None:
    """A mapped index answers as before after its files are replaced or deleted."""
    path = tmp_path / "index"
    old, new = with_everything(), built(graph="hnsw")
    old.save(path)
    mapped = load(path, mmap=True)
    new.save(path, overwrite=True)
    assert same_answers(mapped, old)
    assert same_answers(load(path), new)
    mapped.save(path, overwrite=True)
    assert same_answers(load(path), old)
    shutil.rmtree(path)
    assert same_answers(mapped, old)


def test_searching_goes_on_while_others_save(tmp_path: Path) -> None:
    """Searches of a mapped index are not affected by saves to its directory."""
    old, new = with_everything(), built()
    old.save(tmp_path)
    mapped = load(tmp_path, mmap=True)
    expected = old.search(QUERIES)
    with ThreadPoolExecutor(4) as pool:
        searches = [pool.submit(mapped.search, QUERIES) for _ in range(40)]
        for _ in range(5):
            new.save(tmp_path, overwrite=True)
            old.save(tmp_path, overwrite=True)
        assert all(same_results(search.result(), expected) for search in searches)


Edit = Callable[[dict[str, Any], dict[str, NDArray[Any]]], Any]


def set_layer(vertices: list[int]) -> Edit:
    """Give the last upper layer other vertices, whose only neighbour is the last of them."""
    neighbors = np.full((len(vertices), 4), vertices[-1], dtype=np.int32)

    def edit(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        meta["n_layers"] = 1
        arrays["entries"] = np.array(vertices[:1], dtype=np.int32)
        arrays["layer0_vertices"] = np.array(vertices, dtype=np.int32)
        arrays["layer0_neighbors"] = neighbors

    return edit


FLOATS = (
    "entry_groups",
    "entry_centroids",
    *("vectors", "space0_rows", "space0_matrix", "space1_rows", "space1_bias", "space2_lowest"),
    *("space2_steps", "space2_centre", "space2_bias", "validation_queries"),
)
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
    "centre too short": lambda _, arrays: arrays.update(space2_centre=np.zeros(3, "f4")),
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
    "validation neighbors beyond": lambda _, arrays: arrays["validation_neighbors"].fill(N),
    "validation neighbors below": lambda _, arrays: arrays["validation_neighbors"].fill(-1),
    "labels repeated": lambda _, arrays: arrays["labels"].fill(7),
    "labels of no answer": lambda _, arrays: arrays["labels"].put(9, -1),
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
    """A saved index with every optional part."""
    path = tmp_path_factory.mktemp("index") / "everything"
    with_everything().save(path)
    return path


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("fault", BAD_INDEXES)
def test_an_inconsistent_index_is_refused(
    everything: Path, tmp_path: Path, fault: str, mmap: bool
) -> None:
    """Files with valid checksums but inconsistent contents are a ValueError with the path."""
    meta, arrays, _ = read_index(everything)
    for key in ("format", "schema", "arrays"):
        del meta[key]
    BAD_INDEXES[fault](meta, arrays)
    write_index(tmp_path / "bad", meta, arrays)
    with pytest.raises(ValueError, match=r"bad: expected"):
        load(tmp_path / "bad", mmap=mmap)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", FLOATS)
def test_numbers_that_are_none_are_refused_by_name(
    everything: Path, tmp_path: Path, name: str, value: float
) -> None:
    """The error for a NaN or an infinity names the array."""
    meta, arrays, _ = read_index(everything)
    assert set(FLOATS) == {key for key in arrays if arrays[key].dtype.kind == "f"}
    for key in ("format", "schema", "arrays"):
        del meta[key]
    arrays[name].put(3, value)
    write_index(tmp_path / "bad", meta, arrays)
    with pytest.raises(ValueError, match=rf"bad: .*finite numbers in {name}, got NaN or inf in"):
        load(tmp_path / "bad")


def test_what_cannot_be_loaded_is_not_saved(tmp_path: Path) -> None:
    """An index that could not be loaded is not saved, and the old one stays."""
    good = built()
    good.save(tmp_path)
    infinite = built()
    infinite.base.rows[3, 2] = np.inf
    with pytest.raises(ValueError, match="finite numbers in vectors, got NaN or inf in row 3"):
        infinite.save(tmp_path)
    assert same_answers(load(tmp_path), good)


def test_an_index_of_another_schema_says_so(everything: Path, tmp_path: Path) -> None:
    """The error for an index of another schema names the path and the schema."""
    shutil.copytree(everything, tmp_path / "index")
    meta = json.loads((tmp_path / "index" / META).read_text())
    (tmp_path / "index" / META).write_text(json.dumps(meta | {"schema": 4}))
    with pytest.raises(ValueError, match=r"index/meta\.json: expected schema 1 to 3, got 4"):
        load(tmp_path / "index")
    with pytest.raises(FileNotFoundError, match="expected an index directory"):
        load(tmp_path / "absent")


def golden_index() -> RoutingIndex:
    """The golden index as it was made: with upper layers, labels and a PCA space."""
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


def write_patched_golden() -> None:
    """Write the golden index with patches: arrays that differ from it, and what makes them it.

    The first patch changes vectors and neighbours, the second brings the last ten labels.
    """
    meta, golden, _ = read_index(GOLDEN / "schema1")
    some = np.array([0, 7, 59])
    arrays = {name: array.copy() for name, array in golden.items()}
    for name in ("vectors", "neighbors"):
        arrays[name][some] = 0
    arrays["labels"] = arrays["labels"][:50]
    saved = write_index(GOLDEN / "schema2", meta, arrays)
    rows = {name: (some, golden[name][some]) for name in ("vectors", "neighbors")}
    saved = append_patch(saved, meta, Patch(rows))
    last = np.arange(50, 60), golden["labels"][50:]
    append_patch(saved, meta, Patch({"labels": last}, {"labels": 60}))
    (GOLDEN / "schema2" / LOCK).unlink()


def write_journalled_golden() -> None:
    """Write the golden index in schema 3, and another one with changes in its journal."""
    meta, arrays, _ = read_index(GOLDEN / "schema1")
    write_index(GOLDEN / "schema3", meta, arrays)
    write_index(GOLDEN / "schema3-journal", meta, arrays)
    index = load(GOLDEN / "schema3-journal")
    vectors = np.arange(18, dtype=np.float32).reshape(3, 6)
    index.add(vectors, [7, 8, 9], names=["seven", None, "nïne"])
    index.delete([1000, 8])
    index.commit()
    index.update([1011], vectors[:1])
    index.name(Labels.of(["first"], [1011]))
    index.commit()
    content = {str(id_): index.vectors([id_])[0].tolist() for id_ in sorted(index)}
    document = {"vectors": content, "names": {str(id_): name for id_, name in index.names}}
    (GOLDEN / "schema3-journal.json").write_text(json.dumps(document) + "\n")
    for schema in ("schema3", "schema3-journal"):
        (GOLDEN / schema / LOCK).unlink()


def test_a_journal_of_schema_3_is_read_for_ever() -> None:
    """The index in golden/schema3-journal has the vectors and names of the file of its name.

    It was made once by `write_journalled_golden`.
    """
    index = load(GOLDEN / "schema3-journal")
    golden = json.loads((GOLDEN / "schema3-journal.json").read_text())
    assert {str(id_) for id_ in index} == golden["vectors"].keys()
    for id_, vector in golden["vectors"].items():
        assert index.vectors([int(id_)])[0].tolist() == vector
    assert {str(id_): name for id_, name in index.names} == golden["names"]


@pytest.mark.parametrize("schema", ["schema1", "schema2", "schema3"])
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("mmap", [True, False])
def test_an_index_of_any_schema_is_read_for_ever(mmap: bool, verify: bool, schema: str) -> None:
    """The indexes of golden/ load and answer as in golden/schema1.json, whatever their schema.

    The first was made once, by version 0.1.0, with `python -c "import test_index_files as t;
    t.write_golden()"` in this directory; the second is the same index with patches, made once by
    `write_patched_golden`, the third by `write_journalled_golden`. They are not made again: a new
    schema gets its own files beside them, and this test runs for each. Vectors are small integers,
    so distances are exact on any machine; −1 stands for the infinite distance of a missing answer.
    """
    index = load(GOLDEN / schema, mmap=mmap, verify=verify)
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
