"""Documents of the vector stores: changes, searches and threads."""

from __future__ import annotations

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route.index import RoutingIndex
from l2route.interop.documents import EXACT_SIZE, Documents

DIM = 6
Vector = NDArray[np.float32]


def draw(n: int, seed: int = 0) -> Vector:
    """Normal vectors [n, DIM]."""
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def filled(n: int, metric: str = "l2") -> Documents:
    """Documents d0, d1, … with their numbers as records."""
    documents = Documents(metric)
    documents.put(names(n), draw(n), [{"n": i} for i in range(n)])
    return documents


def names(n: int) -> list[str]:
    """The ids d0, d1, …."""
    return [f"d{i}" for i in range(n)]


def content(documents: Documents) -> dict[str, Any]:
    """All records by name."""
    return {each.name: each.record for each in documents.entries()}


def distances(rows: Vector, query: Vector, metric: str) -> NDArray[np.float64]:
    """Distances as the index has them, computed plainly [n]."""
    base, asked = rows.astype(np.float64), query.astype(np.float64)
    if metric == "l2":
        plain: NDArray[np.float64] = ((base - asked) ** 2).sum(axis=1)
        return plain
    if metric == "ip":
        return -base @ asked
    lengths = np.linalg.norm(base, axis=1) * np.linalg.norm(asked)
    return 1 - base @ asked / lengths


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "clear"]),
        st.lists(st.integers(0, 12), min_size=1, max_size=6),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40)
@given(changes=CHANGES, metric=st.sampled_from(["l2", "ip", "cosine"]), k=st.integers(1, 15))
def test_documents_are_those_of_a_dict(changes: list[Any], metric: str, k: int) -> None:
    """After any changes, searches answer as a scan of a dict does, filtered or not."""
    documents, twin = Documents(metric), dict[str, tuple[Vector, dict[str, Any]]]()
    for kind, numbers, version in changes:
        chosen = [f"d{i}" for i in numbers]
        rows = draw(13, seed=version)[numbers]
        records = [{"n": i, "version": version} for i in numbers]
        if kind == "put":
            documents.put(chosen, rows, records)
            twin.update(zip(chosen, zip(rows, records, strict=True), strict=True))
        elif kind == "remove":
            assert documents.remove(chosen) == len(twin.keys() & set(chosen))
            twin = {name: each for name, each in twin.items() if name not in chosen}
        else:
            documents.clear()
            twin = {}
    assert content(documents) == {name: record for name, (_, record) in twin.items()}
    query = draw(1, seed=9)[0]
    for even in (False, True):
        passes = {n: e for n, e in twin.items() if not even or e[1]["n"] % 2 == 0}
        found = documents.search(
            query, k, passes=(lambda _, record: record["n"] % 2 == 0) if even else None
        )
        assert {each.name for each in found} <= passes.keys()
        assert all(each.record == passes[each.name][1] for each in found)
        rows = np.array([row for row, _ in passes.values()]).reshape(-1, DIM)
        expected = np.sort(distances(rows, query, metric))[:k]
        np.testing.assert_allclose([each.distance for each in found], expected, atol=1e-5)


def test_what_is_put_again_as_it_is_stays() -> None:
    """A document with the same vector and record keeps its place; with another it moves."""
    documents = filled(20, "cosine")
    assert documents.index is not None
    before = set(documents.index.ids.tolist())
    documents.put(names(20), draw(20), [{"n": i} for i in range(20)])
    assert set(documents.index.ids.tolist()) == before
    documents.put(["d3"], draw(4)[3:], [{"n": -3}])
    documents.put(["d4"], draw(1, seed=5), [{"n": 4}])
    assert len(before - set(documents.index.ids.tolist())) == 2
    assert len(documents) == len(documents.index) == 20
    assert content(documents)["d3"] == {"n": -3}


def test_of_a_repeated_name_the_last_counts() -> None:
    """One call may name a document twice."""
    documents = Documents("l2")
    documents.put(["a", "b", "a"], draw(3), [{"n": 0}, {"n": 1}, {"n": 2}])
    assert content(documents) == {"a": {"n": 2}, "b": {"n": 1}}
    assert documents.search(draw(3)[2], 1)[0].distance == 0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((2, DIM + 1)), r"expected embeddings \[\*, 6\], got \[\*, 7\]"),
        (np.full((2, DIM), np.nan), "expected embeddings to be finite"),
        (np.zeros((3, DIM)), "expected 2 embeddings, got 3"),
        ([[1.0], [1.0, 2.0]], r"expected embeddings \[1\] in all rows, got \[2\] in row 1"),
    ],
)
def test_a_failed_put_changes_nothing(rows: object, message: str) -> None:
    """Wrong embeddings are refused, and what was there stays."""
    documents = filled(5)
    with pytest.raises(ValueError, match=message):
        documents.put(["d1", "new"], rows, [{}, {}])
    assert content(documents) == {f"d{i}": {"n": i} for i in range(5)}
    assert len(documents.search(draw(1)[0], 9)) == 5


def test_an_interrupted_replacement_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """If old vectors cannot be deleted, the new ones are."""
    documents, calls = filled(5), []
    delete = RoutingIndex.delete

    def interrupted(index: RoutingIndex, ids: object) -> None:
        calls.append(ids)
        if len(calls) == 1:
            raise KeyboardInterrupt
        delete(index, ids)

    monkeypatch.setattr(RoutingIndex, "delete", interrupted)
    with pytest.raises(KeyboardInterrupt):
        documents.put(["d1"], draw(1, seed=3), [{"n": 100}])
    assert content(documents)["d1"] == {"n": 1}
    assert sorted(each.name for each in documents.search(draw(1)[0], 9)) == names(5)


def test_what_a_search_is_asked_is_checked() -> None:
    """k, the query and the limits are checked; a search of nothing has no answers."""
    assert Documents().search([1.0, 2.0], 3) == []
    documents = filled(5)
    with pytest.raises(ValueError, match="expected k of at least 1, got 0"):
        documents.search(draw(1)[0], 0)
    with pytest.raises(ValueError, match=r"expected one embedding \[dim\], got \[2, 6\]"):
        documents.search(draw(2), 1)
    with pytest.raises(ValueError, match="expected ef or recall, not both"):
        documents.search(draw(1)[0], 1, ef=10, recall=0.9)
    assert len(documents.search(draw(1)[0], 10**9)) == 5
    documents.remove(names(5))
    assert documents.search(draw(1)[0], 3) == []


def test_more_documents_are_searched_by_ef_and_by_recall() -> None:
    """Above the exact size a wider beam finds more; a recall uses a measured setting."""
    n = 4 * EXACT_SIZE
    rows = np.random.default_rng(0).normal(size=(n, 48)).astype(np.float32)
    queries = np.random.default_rng(1).normal(size=(40, 48)).astype(np.float32)
    documents = Documents("l2")
    documents.put(names(n), rows, [{"n": i} for i in range(n)])
    assert documents.index is not None
    documents.index.validate_with(np.random.default_rng(2).normal(size=(300, 48)))

    def recall(**limits: Any) -> float:
        shares = []
        for query in queries:
            nearest = np.argsort(distances(rows, query, "l2"))[:10]
            found = {each.record["n"] for each in documents.search(query, 10, **limits)}
            shares.append(len(found & set(nearest.tolist())) / 10)
        return float(np.mean(shares))

    assert recall(ef=10) < recall() - 0.05  # measured: 0.52 and 0.93
    assert recall(ef=1000) > 0.99
    assert recall(recall=0.95) > 0.9


def test_filters_are_kept_until_documents_change() -> None:
    """With a key a filter is asked once about each document, and again after a change."""
    documents, asked = filled(50), []

    def passes(name: str, record: dict[str, Any]) -> bool:
        asked.append(name)
        return bool(record["n"] < 10)

    for _ in range(3):
        assert len(documents.search(draw(1)[0], 50, passes=passes, key="small")) == 10
    assert len(asked) == 50
    documents.put(["new"], draw(1, seed=4), [{"n": 3}])
    assert len(documents.search(draw(1)[0], 50, passes=passes, key="small")) == 11
    assert len(asked) == 101
    for i in range(100):  # more filters than are kept
        assert len(documents.search(draw(1)[0], 99, passes=passes, key=str(i))) == 11


def keep_searching(documents: Documents, k: int, seed: int, done: Event) -> int:
    """Search until `done`, and check every answer; return the number of searches."""
    for n_searches, query in enumerate(draw(100_000, seed=seed)):
        is_even = n_searches % 3 == 0
        found = documents.search(
            query,
            k,
            passes=(lambda _, record: record["even"]) if is_even else None,
            with_vectors=n_searches % 2 == 0,
        )
        assert len({each.name for each in found}) == len(found) == k
        for each in found:
            own = np.array(each.record["vector"], dtype=np.float32)
            assert each.distance == pytest.approx(((own - query) ** 2).sum(), rel=1e-4)
            assert len(each.vector) == 0 or (each.vector == own).all()
            assert each.record["even"] or not is_even
        if done.is_set():
            return n_searches
    return 100_000


def test_threads_see_whole_documents() -> None:
    """While documents are replaced, added and deleted, an answer has its own vector and record.

    k answers are found if k documents are there, none twice.
    """
    n, done, documents, rng = 300, Event(), Documents("l2"), random.Random(0)

    def put(numbers: list[int], version: int) -> None:
        rows = draw(n, seed=version)[numbers]
        pairs = zip(numbers, rows, strict=True)
        records = [{"vector": row.tolist(), "even": i % 2 == 0} for i, row in pairs]
        documents.put([f"d{i}" for i in numbers], rows, records)

    put(list(range(n)), 0)
    with ThreadPoolExecutor(3) as threads:
        searches = [threads.submit(keep_searching, documents, 10, 100 + i, done) for i in range(3)]
        for version in range(1, 40):
            put(rng.sample(range(n), 60), version)
            gone = rng.sample(range(n), 40)
            documents.remove(f"d{i}" for i in gone)
            put(gone, version)
        done.set()
        assert min(each.result() for each in searches) > 10
    assert len(documents) == n


def test_copies_and_pickles_are_whole() -> None:
    """A copy has the documents and the index; a change of either is not seen by the other."""
    documents = filled(30, "ip")
    documents.remove(["d3"])
    for again in (deepcopy(documents), pickle.loads(pickle.dumps(documents))):
        assert content(again) == content(documents)
        query = draw(1, seed=1)[0]
        expected = [each[:3] for each in documents.search(query, 5)]
        assert [each[:3] for each in again.search(query, 5)] == expected
        again.put(["new"], draw(1), [{"n": 0}])
        assert len(again) == len(documents) + 1
    empty = deepcopy(Documents("l2"))
    assert (empty.metric, len(empty)) == ("l2", 0)
