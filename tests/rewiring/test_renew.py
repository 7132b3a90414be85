"""Laws of renewal: new lists equal those of a slow twin, and nobody is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from inserting_twin import SlowGraph
from l2route import _core
from l2route.search.layout import pad_rows


@dataclass
class Filled:
    """Arrays that a store writes, and the store."""

    lists: NDArray[np.int32]
    parents: NDArray[np.int32]
    exact: _core.Rows
    store: _core.Store

    def insert(self, options: _core.InsertOptions, n_threads: int) -> None:
        """Give a slot to every vector, all in one batch."""
        ids = np.arange(len(self.lists))
        how: dict[str, Any] = {"exact": self.exact, "options": options, "n_threads": n_threads}
        self.store.begin(replaces=False)
        slots = self.store.take(ids)
        self.store.place(slots, **how)
        self.store.publish(slots, ids, **how)
        self.store.commit()

    def neighbors(self, vertex: int) -> set[int]:
        """A vertex's list without fillers."""
        return set(self.lists[vertex].tolist()) - {-1, vertex}


def filled(vectors: NDArray[np.float32], width: int) -> Filled:
    """A store with room for vectors, which are in their rows."""
    n = len(vectors)
    lists, parents = np.full((n, width), -1, np.int32), np.full(n, -1, np.int32)
    store = _core.Store(
        lists=lists,
        parents=parents,
        copies=np.zeros(n, np.uint8),
        labels=np.full(n, -1, np.int64),
        entries=np.full(4, -1, np.int32),
        n_slots=0,
        longest=0.0,
    )
    return Filled(lists, parents, _core.Rows(pad_rows(vectors), "l2"), store)


@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 50),
    n_distinct=st.integers(1, 50),
    width=st.integers(2, 8),
    n_candidates=st.integers(1, 20),
    n_renewed=st.integers(0, 30),
    alpha=st.sampled_from([1.0, 1.15]),
)
def test_lists_are_those_of_the_slow_twin(
    seed: int,
    n: int,
    n_distinct: int,
    width: int,
    n_candidates: int,
    n_renewed: int,
    alpha: float,
) -> None:
    """Slots are renewed in turns, copies left out, the same for any number of threads."""
    rng = np.random.default_rng(seed)
    distinct = rng.integers(-4, 5, (n_distinct, 3)).astype(np.float32)
    vectors = distinct[rng.integers(0, n_distinct, n)]
    degree, trimmed = (int(number) for number in rng.integers(1, width + 1, 2))
    twin = SlowGraph(vectors, width, n_candidates, degree, trimmed, alpha, trim_alpha=1.1)
    twin.insert(list(range(n)))
    stores = [filled(vectors, width) for _ in range(2)]
    how = _core.InsertOptions(
        ef=n,
        n_candidates=n_candidates,
        degree=degree,
        trimmed=trimmed,
        alpha=alpha,
        trim_alpha=1.1,
    )
    for n_threads, one in enumerate(stores, start=1):
        one.insert(how, n_threads)
    originals = [vertex for vertex in range(n) if vertex not in twin.copies]
    n_each = min(n_renewed, len(originals))
    for turn in np.resize(originals, 2 * n_each).reshape(2, -1).tolist():
        twin.renew(turn)
        for n_threads, one in enumerate(stores, start=1):
            one.store.renew(n_renewed, exact=one.exact, options=how, n_threads=n_threads)
    for one in stores:
        assert {v: one.neighbors(v) for v in range(n)} == twin.lists
        assert dict(enumerate(one.parents.tolist())) == twin.parents
    assert np.array_equal(stores[0].lists, stores[1].lists)
