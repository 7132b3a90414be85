"""Laws of an index without vectors: every method and property answers, or says what it expects."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route import Labels, RoutingIndex, load
from l2route.graph.report import report
from l2route.interop.faiss_export import to_faiss
from l2route.search.setting import Setting
from living import with_learned_space

DIM = 4
VECTORS = np.random.default_rng(0).normal(size=(40, DIM)).astype(np.float32)
QUERIES = VECTORS[:2]
NONE = [[-1, -1, -1]] * 2


def emptied() -> RoutingIndex:
    """All vectors of an index with three spaces are deleted."""
    index = with_learned_space(RoutingIndex.build(VECTORS))
    index.validate_with(VECTORS)
    index.compress("int8", space="original")
    index.delete(index.ids)
    return index


def from_parts(index: RoutingIndex) -> RoutingIndex:
    """An index of the parts of another one."""
    return RoutingIndex(index.base, index.graph, index.spaces[1:], index.labels, index.validation)


EMPTY: dict[str, Callable[[], RoutingIndex]] = {
    "born empty": lambda: RoutingIndex.empty(DIM),
    "emptied": emptied,
    "from parts": lambda: from_parts(emptied()),
    "copied": lambda: copy.deepcopy(emptied()),
    "pickled": lambda: pickle.loads(pickle.dumps(emptied())),
}

ANSWERS: dict[str, Callable[[RoutingIndex], object]] = {
    "add": lambda index: index.add(np.zeros((0, DIM))).tolist() == [],
    "base": lambda index: index.base.vectors().shape == (0, DIM),
    "compact": lambda index: index.compact() is None,
    "delete": lambda index: index.delete([]) is None,
    "dim": lambda index: index.dim == DIM,
    "filter": lambda index: (~index.filter([]) & index.filter(np.zeros(0, bool))) is not None,
    "graph": lambda index: (
        index.graph.n_vertices == report(index.graph).n_edges == len(index.graph.entries) == 0
    ),
    "ids": lambda index: index.ids.tolist() == list(index) == [] and len(index) == 0,
    "has_unsaved": lambda index: index.has_unsaved,
    "info": lambda index: index.info()["n_vertices"] == 0,
    "is_behind": lambda index: not index.is_behind,
    "keep": lambda index: index.keep(Setting("original", 10, 0.9, 0, 1.0, ef=10)) is None,
    "labels": lambda index: index.labels is None,
    "n_bytes": lambda index: index.n_bytes > 0,
    "n_journal_bytes": lambda index: index.n_journal_bytes == 0,
    "name": lambda index: index.name(Labels()) is None,
    "build_record": lambda index: index.build_record is None,
    "names": lambda index: list(index.names) == [],
    "plan": lambda index: index.plan(3, ef=5)(QUERIES).ids.tolist() == NONE,
    "rows_of": lambda index: index.rows_of([]).tolist() == [] and index.rows_of([-1])[0] == -1,
    "saved_version": lambda index: index.saved_version is None,
    "search": lambda index: index.search(QUERIES, 3, where=[], trace=True).ids.tolist() == NONE,
    "search_radius": lambda index: index.search_radius(QUERIES, 9.0).ids.tolist() == [],
    "searcher": lambda index: index.searcher("original").space.dim == DIM,
    "settings": lambda index: index.settings == (),
    "space_names": lambda index: index.space_names[0] == "original",
    "spaces": lambda index: {len(space.rows) for space in index.spaces} == {0},
    "stream": lambda index: list(index.stream(QUERIES[0])) == [],
    "update": lambda index: index.update([], np.zeros((0, DIM))) is None,
    "validation": lambda index: index.validation is None,
    "vectors": lambda index: index.vectors([]).shape == (0, DIM),
}
"""Whether a method or property answers as it should."""

NEEDS_VECTORS: dict[str, Callable[[RoutingIndex], Any]] = {
    "compress": lambda index: index.compress(),
    "drift": lambda index: index.drift(),
    "explain": lambda index: index.explain(QUERIES[0]),
    "forget_stopping": lambda index: index.forget_stopping(),
    "keep_build_record": lambda index: index.keep_build_record({"schema": 1}),
    "learn": lambda index: index.learn(VECTORS),
    "learn_stopping": lambda index: index.learn_stopping(VECTORS),
    "refine": lambda index: index.refine(),
    "relabel": lambda index: index.relabel([]),
    "renumber": lambda index: index.renumber(),
    "validate_with": lambda index: index.validate_with(QUERIES),
}
"""What cannot be done without vectors."""

ELSEWHERE = {"build", "commit", "empty", "recall_curve"} | {
    *("refresh", "restore", "save", "setting", "snapshot", "versions")
}
"""Names with tests of their own, here or elsewhere."""


def test_all_names_are_known() -> None:
    """Every public name of an index is one that answers or one that needs vectors."""
    names = {name for name in dir(RoutingIndex) if not name.startswith("_")}
    assert {*ANSWERS, *NEEDS_VECTORS, *ELSEWHERE} == names


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("kind", EMPTY)
def test_an_empty_index_answers(kind: str, name: str) -> None:
    """What reads an index, or changes nothing of it, answers with nothing."""
    assert ANSWERS[name](EMPTY[kind]())


@pytest.mark.parametrize("name", NEEDS_VECTORS)
@pytest.mark.parametrize("kind", EMPTY)
def test_what_needs_vectors_says_so(kind: str, name: str) -> None:
    """What makes no sense without vectors is refused, and the index can still be used."""
    index = EMPTY[kind]()
    with pytest.raises(ValueError, match="expected an index with vectors, got an empty one"):
        NEEDS_VECTORS[name](index)
    assert index.search(QUERIES, 1, ef=8).ids[:, 0].tolist() == [-1, -1]
    added = index.add(VECTORS)
    assert index.search(QUERIES, 1, ef=8).ids[:, 0].tolist() == added[:2].tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda index: index.delete([7]),
        lambda index: index.update([7], VECTORS[:1]),
        lambda index: index.vectors([7]),
        lambda index: index.rows_of([7]),
    ],
)
@pytest.mark.parametrize("kind", EMPTY)
def test_ids_of_an_empty_index_are_unknown(
    kind: str, call: Callable[[RoutingIndex], object]
) -> None:
    """An id that is not there is named."""
    index = EMPTY[kind]()
    assert 7 not in index
    with pytest.raises(ValueError, match="expected ids of the index, got 7"):
        call(index)


def test_settings_of_an_empty_index() -> None:
    """Without validation queries a recall is refused; with them, nothing can be missed."""
    for call in (lambda index: index.setting(0.9), lambda index: index.search(QUERIES, recall=0.9)):
        with pytest.raises(ValueError, match="expected validation queries to measure recall on"):
            call(RoutingIndex.empty(DIM))
    assert emptied().setting(0.9).recall == 1.0
    assert emptied().search(QUERIES, 3, recall=0.9).ids.tolist() == NONE


@pytest.mark.parametrize("kind", EMPTY)
def test_an_empty_index_is_saved(kind: str, tmp_path: Path) -> None:
    """It is loaded with its spaces, and without vectors."""
    index = EMPTY[kind]()
    index.save(tmp_path / "index")
    loaded = load(tmp_path / "index")
    assert (len(loaded), loaded.dim) == (0, DIM)
    assert [space.name for space in loaded.spaces] == [space.name for space in index.spaces]


def test_an_empty_index_is_not_exported() -> None:
    """Faiss searches graphs with vertices only."""
    with pytest.raises(ValueError, match="expected an index with vectors, got an empty one"):
        to_faiss(RoutingIndex.empty(DIM))
