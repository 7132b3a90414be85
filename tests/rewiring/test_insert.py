"""Laws of inserting vertices in batches: lists equal those of a slow twin, nobody is lost."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from inserting_twin import FAN_OUT, SlowGraph
from l2route import _core
from l2route.search.layout import pad_rows

POOL = [
    vector
    for vector in np.array(np.meshgrid(*3 * [range(-5, 6)])).reshape(3, -1).T.tolist()
    if sum(value**2 for value in vector) in (0, 9, 16, 25)
]
"""Vectors of whole numbers that need a whole number more to be of length 5: distances are exact."""
LONGEST = 25.0


@dataclass
class Grown:
    """Arrays that an inserter writes, and the inserter."""

    vectors: NDArray[np.float32]
    lists: NDArray[np.int32]
    parents: NDArray[np.int32]
    is_copy: NDArray[np.uint8]
    inserter: _core.Inserter

    def insert(self, slots: list[int], n_threads: int = 1) -> None:
        """Place and publish a batch."""
        batch = np.array(slots, dtype=np.int32)
        self.inserter.place(batch, n_threads=n_threads)
        self.inserter.publish(batch, n_threads=n_threads)

    def neighbors(self, vertex: int) -> list[int]:
        """A vertex's list without fillers."""
        return [other for other in self.lists[vertex].tolist() if other not in (-1, vertex)]


def empty(
    vectors: NDArray[np.float32],
    *,
    scorer: str = "l2",
    width: int = 8,
    n_candidates: int = 16,
    degree: int = 6,
    trimmed: int = 7,
    alpha: float = 1.0,
    trim_alpha: float = 1.0,
    ef: int | None = None,
    dtype: type = np.float32,
) -> Grown:
    """No vertices so far; with room for all vectors."""
    n = len(vectors)
    rows = _core.Rows(pad_rows(vectors.astype(dtype)), scorer)
    lists, parents = np.full((n, width), -1, np.int32), np.full(n, -1, np.int32)
    is_copy = np.zeros(n, np.uint8)
    inserter = _core.Inserter(
        lists=lists,
        parents=parents,
        is_copy=is_copy,
        walked=rows,
        exact=rows,
        options=_core.InsertOptions(
            ef=n if ef is None else ef,
            n_candidates=n_candidates,
            degree=degree,
            trimmed=trimmed,
            alpha=alpha,
            trim_alpha=trim_alpha,
        ),
        longest=LONGEST if scorer == "ip" else 0.0,
    )
    return Grown(vectors, lists, parents, is_copy, inserter)


def batches(order: NDArray[np.int64], size: int) -> list[list[int]]:
    """Parts of an order."""
    return [order[at : at + size].tolist() for at in range(0, len(order), size)]


def reached(grown: Grown) -> set[int]:
    """Vertices that edges lead to from the root."""
    found, left = set(grown.inserter.entries[:1]), list(grown.inserter.entries[:1])
    while left:
        new = set(grown.neighbors(left.pop())) - found
        found |= new
        left += new
    return found


def check(grown: Grown, inserted: list[int]) -> None:
    """Laws of a graph that vertices were inserted into."""
    width = grown.lists.shape[1]
    assert reached(grown) == set(inserted)
    root = grown.inserter.entries[0]
    assert [v for v in inserted if grown.parents[v] < 0] == [root]
    for vertex in inserted:
        listed = grown.neighbors(vertex)
        assert len(listed) == len(set(listed))
        row = grown.lists[vertex]
        assert (row[(row >= 0).sum() :] == -1).all()
        if vertex != root:
            assert vertex in grown.neighbors(grown.parents[vertex])
        children = [other for other in listed if grown.parents[other] == vertex]
        n_copies = int(grown.is_copy[children].sum())
        assert len(children) - n_copies <= max(1, width // 2)
        assert n_copies <= (FAN_OUT if grown.is_copy[vertex] else 1)
        if grown.is_copy[vertex]:
            parent = grown.vectors[grown.parents[vertex]]
            assert (grown.vectors[vertex] == parent).all()


@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 60),
    n_distinct=st.integers(1, 60),
    size=st.integers(1, 20),
    width=st.integers(2, 8),
    n_candidates=st.integers(1, 20),
    scorer=st.sampled_from(["l2", "ip"]),
    alpha=st.sampled_from([1.0, 1.15, 2.0]),
    trim_alpha=st.sampled_from([1.0, 1.1]),
)
@example(  # two vertices that equal a new one
    seed=200,
    n=59,
    n_distinct=27,
    size=8,
    width=2,
    n_candidates=5,
    scorer="ip",
    alpha=1.0,
    trim_alpha=1.0,
)
def test_lists_are_those_of_the_slow_twin(
    seed: int,
    n: int,
    n_distinct: int,
    size: int,
    width: int,
    n_candidates: int,
    scorer: str,
    alpha: float,
    trim_alpha: float,
) -> None:
    """Neighbours, parents and copies equal those of the twin, for any number of threads.

    Slots come in any order. The beam holds all vertices, so that walks find the nearest.
    """
    rng = np.random.default_rng(seed)
    vectors = np.array(POOL, np.float32)[rng.permutation(len(POOL))[:n_distinct]]
    vectors = vectors[rng.integers(0, len(vectors), n)]
    degree, trimmed = int(rng.integers(1, width + 1)), int(rng.integers(1, width + 1))
    options: dict[str, Any] = {
        "width": width,
        "n_candidates": n_candidates,
        "degree": degree,
        "trimmed": trimmed,
        "alpha": alpha,
        "trim_alpha": trim_alpha,
    }
    order = rng.permutation(n)
    twin = SlowGraph(vectors, longest=LONGEST if scorer == "ip" else None, **options)
    grown = [empty(vectors, scorer=scorer, **options) for _ in range(2)]
    for batch in batches(order, size):
        twin.insert(batch)
        for n_threads, one in enumerate(grown, start=1):
            one.insert(batch, n_threads)
    for one in grown:
        assert {v: int(one.parents[v]) for v in range(n)} == twin.parents
        assert set(np.flatnonzero(one.is_copy).tolist()) == twin.copies
        assert {v: set(one.neighbors(v)) for v in range(n)} == twin.lists
        check(one, order.tolist())
    assert np.array_equal(grown[0].lists, grown[1].lists)


@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 150),
    dim=st.integers(1, 5),
    size=st.integers(1, 40),
    width=st.integers(2, 12),
    ef=st.integers(1, 30),
    offset=st.sampled_from([0.0, 1e4]),
    share_of_copies=st.sampled_from([0.0, 0.5, 0.98]),
    dtype=st.sampled_from([np.float32, np.float16]),
    scorer=st.sampled_from(["l2", "ip"]),
)
def test_nobody_is_lost(
    seed: int,
    n: int,
    dim: int,
    size: int,
    width: int,
    ef: int,
    offset: float,
    share_of_copies: float,
    dtype: type,
    scorer: str,
) -> None:
    """Every vertex is reachable after every batch, however narrow the beam; children stay."""
    rng = np.random.default_rng(seed)
    vectors = (offset + rng.normal(size=(n, dim))).astype(dtype).astype(np.float32)
    is_drawn = rng.random(n) < share_of_copies
    vectors[is_drawn] = vectors[rng.integers(0, n, is_drawn.sum())]
    options = {"width": width, "degree": width, "trimmed": max(1, width - 1), "n_candidates": ef}
    grown = empty(vectors, scorer=scorer, ef=ef, dtype=dtype, **options)
    inserted: list[int] = []
    for batch in batches(rng.permutation(n), size):
        places = [
            (v, at, int(other))
            for v in inserted
            for at, other in enumerate(grown.lists[v])
            if other >= 0 and grown.parents[other] == v
        ]
        grown.insert(batch)
        inserted += batch
        check(grown, inserted)
        assert all(grown.lists[v, at] == other for v, at, other in places)


def test_nothing_leads_to_placed_slots() -> None:
    """Placing changes the lists and parents of the new slots alone."""
    vectors = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    grown = empty(vectors)
    grown.insert(list(range(30)))
    lists, parents = grown.lists.copy(), grown.parents.copy()
    grown.inserter.place(np.arange(30, 40, dtype=np.int32), n_threads=2)
    assert np.array_equal(grown.lists[:30], lists[:30])
    assert np.array_equal(grown.parents[:30], parents[:30])
    assert (grown.lists[30:] >= 0).any(axis=1).all()


def test_a_new_cluster_is_linked_within() -> None:
    """Vectors far from all others, inserted in one batch, are neighbours of each other."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(500, 8)).astype(np.float32)
    vectors[300:] += 100
    grown = empty(vectors, width=16, degree=12, trimmed=14, ef=32)
    grown.insert(list(range(300)))
    grown.insert(list(range(300, 500)))
    distances = ((vectors[300:, None] - vectors[None, 300:]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = 300 + distances.argmin(axis=1)
    for slot, near in zip(range(300, 500), nearest.tolist(), strict=True):
        assert near in grown.neighbors(slot)


def test_copies_do_not_flood() -> None:
    """A thousand copies of one vector take one place in lists, and a walk reaches them all."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1300, 4)).astype(np.float32)
    vectors[200:1200] = vectors[7]
    grown = empty(vectors, width=16, degree=12, trimmed=14, ef=32)
    for batch in batches(np.arange(1300), 100):
        grown.insert(batch)
    check(grown, list(range(1300)))
    assert grown.is_copy.sum() == 1000
    others = [v for v in range(1300) if not grown.is_copy[v] and v != 7]
    assert not any(grown.is_copy[grown.neighbors(v)].any() for v in others)
    assert grown.is_copy[grown.neighbors(7)].sum() == 1


def test_threads_search_while_vertices_are_inserted() -> None:
    """A search finds every vector whose batch was published before it began."""
    vectors = np.random.default_rng(0).normal(size=(800, 6)).astype(np.float32)
    grown = empty(vectors, ef=24)
    grown.insert(list(range(20)))
    graph = _core.Graph(grown.lists, np.zeros(1, np.int32), [])
    searcher = _core.Searcher(
        graph,
        _core.Rows(pad_rows(vectors), "l2"),
        dim=6,
        is_cosine=False,
        origin=0.0,
        query_matrix=None,
        original=None,
    )
    plan = _core.Plan(searcher, None, 1, 2**30, 0, 0, -1.0, 1)
    n_published, lost = [20], []

    def search() -> None:
        while n_published[0] < len(vectors):
            known = np.arange(0, n_published[0], 7)
            found = plan.search(vectors[known])[0][:, 0]
            lost.extend(known[found != known].tolist())

    readers = [threading.Thread(target=search) for _ in range(2)]
    for reader in readers:
        reader.start()
    for batch in batches(np.arange(20, len(vectors)), 13):
        grown.insert(batch, n_threads=2)
        n_published[0] += len(batch)
    for reader in readers:
        reader.join()
    assert lost == []


def test_minus_zero_equals_zero() -> None:
    """Vectors that differ in the sign of a zero alone are copies, within a batch or not."""
    vectors = np.array([[1, 0], [1, -0.0], [1, -0.0]], np.float32)
    grown = empty(vectors)
    grown.insert([0, 1])
    grown.insert([2])
    assert grown.is_copy.tolist() == [0, 1, 1]


def test_dead_vertices_get_no_new_neighbors() -> None:
    """A new vertex has no neighbour that is labelled −1, and finds those behind it."""
    vectors = np.arange(40, dtype=np.float32)[:, None] @ np.ones((1, 2), np.float32)
    alive = empty(vectors)
    alive.insert(list(range(30)))
    labels = np.arange(40, dtype=np.int64)
    labels[20:30] = -1
    rows = _core.Rows(pad_rows(vectors), "l2")
    inserter = _core.Inserter(
        lists=alive.lists,
        parents=alive.parents,
        is_copy=alive.is_copy,
        walked=rows,
        exact=rows,
        entries=alive.inserter.entries,
        labels=labels,
        options=_core.InsertOptions(
            ef=40, n_candidates=16, degree=6, trimmed=7, alpha=1.0, trim_alpha=1.0
        ),
    )
    slots = np.arange(30, 31, dtype=np.int32)
    inserter.place(slots, n_threads=1)
    inserter.publish(slots, n_threads=1)
    assert 19 in alive.neighbors(30)
    assert all(labels[alive.neighbors(30)] >= 0)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"width": 1}, "lists of at least 2"),
        ({"degree": 9}, "degrees from 1"),
        ({"trimmed": 0}, "degrees from 1"),
        ({"ef": 0}, "a beam and candidates of at least 1"),
        ({"n_candidates": 0}, "a beam and candidates of at least 1"),
        ({"alpha": 0.5}, "alphas of at least 1"),
        ({"trim_alpha": 0.5}, "alphas of at least 1"),
    ],
)
def test_wrong_options_are_refused(changed: dict[str, float], expected: str) -> None:
    """Options out of range are named."""
    with pytest.raises(ValueError, match=expected):
        empty(np.ones((3, 2), np.float32), **changed)  # type: ignore[arg-type]
