"""Laws of docs/format.md: a reader written from it alone answers as l2route does."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import l2route
from documents import ROOT, small_data
from l2route.data.metrics import recall_at
from l2route.data.truth import exact_neighbors
from plain_reader import journalled, read

SPECIFICATION = (ROOT / "docs/format.md").read_text(encoding="utf-8")
K, EF = 5, 80
VECTORS, LOG, QUERIES = small_data(1200)
QUERIES = QUERIES[:50]
SAME = 0.95
"""Share of answers that have to be the same: codes are scored with rounded queries by the core.
Measured: 1.0 for all but codes, 0.99 for those of 4 bits."""

Make = Callable[[], l2route.RoutingIndex]


def plain(metric: str, **options: Any) -> Make:
    """How to build an index."""
    return lambda: l2route.RoutingIndex.build(VECTORS, metric, **options)


def compressed(routing: str, vectors: str | None = None, metric: str = "l2") -> Make:
    """How to build an index with codes, a setting and a loss."""

    def make() -> l2route.RoutingIndex:
        index = l2route.RoutingIndex.build(VECTORS, metric)
        index.validate_with(LOG)
        index.compress(routing, vectors=vectors)  # type: ignore[arg-type]
        index.setting(0.9, k=K)
        return index

    return make


def learned() -> l2route.RoutingIndex:
    """An index with a learned space, kept whether it is better or not, with codes."""
    from l2route.search.base import BaseVectors
    from l2route.training.options import LearnOptions
    from l2route.training.train import train

    index = l2route.RoutingIndex.build(VECTORS, graph="nsw", degree=8, entry=0, refine=False)
    base = BaseVectors.of(VECTORS, "l2")
    space, report = train(index.graph, base, LOG, LearnOptions(budget=64, steps=5), None, rivals=[])
    made = l2route.RoutingIndex(base, index.graph, [space], None, report.validation)
    made.compress("int8")
    return made


def built() -> l2route.RoutingIndex:
    """An index with the report of its build."""
    return l2route.build(VECTORS, LOG, k=K, minutes=0)[0]


MADE: dict[str, Make] = {
    "l2": plain("l2"),
    "ip": plain("ip"),
    "cosine, ids": plain("cosine", ids=np.arange(len(VECTORS)) * 7 + 100),
    "hnsw": plain("l2", graph="hnsw"),
    "pca": plain("l2", pca_dim=8),
    "int8": compressed("int8", "float16"),
    "int4": compressed("int4"),
    "int8, cosine": compressed("int8", metric="cosine"),
    "float16": compressed("float16"),
    "learned": learned,
}


def compare(index: l2route.RoutingIndex, directory: Path) -> None:
    """Search the index and what was saved of it, in every space."""
    saved = read(directory)
    truth = exact_neighbors(index.base.vectors(), QUERIES, K, index.base.metric)
    for i, space in enumerate(index.spaces):
        at = None if i == 0 else i - 1
        ours = index.search(QUERIES, K, ef=EF, space=space.name)
        found = [saved.search(query, K, EF, at) for query in QUERIES]
        theirs = np.array([ids for ids, _ in found])
        distances = np.array([each for _, each in found])
        same = np.mean([np.isin(a, b).mean() for a, b in zip(theirs, ours.ids, strict=True)])
        assert same >= SAME, space.name
        recalls = [recall_at(each, truth.distances, K) for each in (distances, ours.distances)]
        assert abs(recalls[0] - recalls[1]) < 0.02, space.name
        if space.is_exact:
            np.testing.assert_allclose(distances, ours.distances, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MADE)
def test_a_reader_by_the_specification_answers_alike(name: str, tmp_path: Path) -> None:
    """A reader that knows only docs/format.md finds what l2route finds, in every kind of index."""
    index = MADE[name]()
    index.save(tmp_path / "index")
    compare(index, tmp_path / "index")


def test_patches_are_read_by_the_specification(tmp_path: Path) -> None:
    """A reader that knows only docs/format.md applies patches and skips the dead."""
    index = l2route.RoutingIndex.build(VECTORS)
    index.compress("int8")
    index.save(tmp_path / "index")
    index.add(LOG[:40])
    index.delete(np.arange(50))
    index.save()
    index.update([60, 61], LOG[40:42])
    index.save()
    saved = read(tmp_path / "index")
    assert saved.meta["schema"] == 3
    assert len(saved.meta["patches"]) == 2
    assert (saved.arrays["labels"] == -1).sum() >= 50
    compare(index, tmp_path / "index")


def test_names_are_read_by_the_specification(tmp_path: Path) -> None:
    """A reader that knows only docs/format.md finds the names of ids, also in patches."""
    index = l2route.RoutingIndex.build(VECTORS[:300])
    index.name(l2route.Labels.of(["Ärger", "b", "c"], [5, 6, 7]))
    index.save(tmp_path / "index")
    index.add(LOG[:2], names=["new", None])
    index.name(l2route.Labels.of(["other"], [6]))
    index.delete([7])
    index.save()
    saved = read(tmp_path / "index")
    assert saved.names() == {5: "Ärger", 6: "other", 300: "new"}
    assert saved.names() == dict(index.names)


def test_journals_are_read_by_the_specification(tmp_path: Path) -> None:
    """A reader that knows only docs/format.md finds the changes of the journal."""
    index = l2route.RoutingIndex.build(VECTORS[:300])
    index.save(tmp_path / "index")
    assert journalled(tmp_path / "index") == {}
    index.add(LOG[:2], names=["new", None])
    index.delete([7, 8])
    index.commit()
    index.update([5], LOG[2:3])
    index.delete([301])
    index.commit()
    found = journalled(tmp_path / "index")
    assert {id_ for id_, each in found.items() if each is None} == {7, 8, 301}
    for id_ in (5, 300):
        vector, name = found[id_]  # type: ignore[misc]
        assert (vector == index.vectors([id_])[0]).all()
        assert name == index.names.names([id_])[0]


def test_every_saved_byte_is_checked(tmp_path: Path) -> None:
    """The checksums of the specification notice a changed byte in any file."""
    l2route.RoutingIndex.build(VECTORS[:50]).save(tmp_path / "index")
    for file in (tmp_path / "index").glob("*.npy"):
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(AssertionError):
            read(tmp_path / "index")
        file.write_bytes(content)
    read(tmp_path / "index")


def keys_in(value: object) -> Iterator[str]:
    """All keys of nested objects; names of arrays have their number replaced by {i}."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield re.sub(r"^(space|layer)\d+_", r"\1{i}_", key)
            yield from keys_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_in(inner)


def test_every_key_is_in_the_specification(tmp_path: Path) -> None:
    """Every key of meta.json, and every array, is named in docs/format.md."""
    metas = []
    for i, make in enumerate((MADE["hnsw"], MADE["int8"], learned, built)):
        index = make()
        index.name(l2route.Labels.of(["a name"]))
        index.save(tmp_path / str(i))
        index.add(QUERIES[:3], names=["x", "y", "z"])
        index.save()
        metas.append(json.loads((tmp_path / str(i) / "meta.json").read_text()))
    golden = [json.loads(path.read_text()) for path in ROOT.glob("tests/golden/*/meta.json")]
    found = {key for meta in (*metas, *golden) for key in keys_in(meta)}
    expected = {"living", "parts", "gain", "settings", "space{i}_filter_axes", "names_text"}
    expected |= {"report", "measuring_seconds", "worst_recall"}
    assert expected <= found
    assert {key for key in found if f"`{key}`" not in SPECIFICATION} == set()
