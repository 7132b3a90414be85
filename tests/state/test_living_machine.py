"""A living index and a plain model of the set go through random changes together."""

import copy
import pickle
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from entry_tables import with_table
from fuzzing import EFFORT
from l2route import load
from l2route.index import RoutingIndex
from living import Model, Vectors, check_answers, check_structure, with_learned_space

DIM = 6
MAX = 200
SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed: int, n: int, n_distinct: int) -> Vectors:
    """Vectors of small whole numbers, so that many are equal or equally far."""
    rng = np.random.default_rng(seed)
    distinct = rng.integers(-4, 5, size=(max(1, n_distinct), DIM)).astype(np.float32)
    distinct[:, 0] += 0.5  # no zero vector, which has no direction
    return distinct[rng.integers(0, len(distinct), size=n)]


class Living(RuleBasedStateMachine):
    """After each step an exhaustive search equals brute force, and every vertex is reachable."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.saved: dict[int, Vectors] | None = None

    def teardown(self) -> None:
        """Remove the saved index."""
        shutil.rmtree(self.directory)

    @initialize(
        metric=st.sampled_from(["l2", "ip", "cosine"]),
        n=st.integers(0, 80),
        degree=st.sampled_from([2, 4, 8, 32]),
        seed=SEEDS,
    )
    def start(self, metric: str, n: int, degree: int, seed: int) -> None:
        """Start empty, or from an index that was built."""
        self.model = Model(metric)
        if n == 0:
            self.index = RoutingIndex.empty(DIM, metric, degree=degree)
            return
        vectors, ids = drawn(seed, n, n), np.arange(n, dtype=np.int64) * 7 - 50
        ids[ids == -1] = 10_000
        self.index = RoutingIndex.build(vectors, metric, degree=degree, ids=ids)
        self.model.put(ids, vectors)

    @property
    def size(self) -> int:
        """Number of vectors."""
        return len(self.model.vectors)

    def some_ids(self, seed: int, share: float) -> np.ndarray:
        """Some ids of the index by chance."""
        rng = np.random.default_rng(seed)
        return rng.permutation(self.model.ids)[: int(np.ceil(share * self.size))]

    @precondition(lambda self: self.size < MAX)
    @rule(n=st.integers(1, 60), n_distinct=st.integers(1, 60), seed=SEEDS, is_named=st.booleans())
    def add(self, n: int, n_distinct: int, seed: int, is_named: bool) -> None:
        """Add vectors, under given ids or under the next ones."""
        vectors = drawn(seed, n, n_distinct)
        ids = None
        if is_named:
            free = np.setdiff1d(np.arange(-2, 1000), [*self.model.vectors, -1])
            ids = np.random.default_rng(seed).permutation(free)[:n]
        added = self.index.add(vectors, ids)
        assert ids is None or added.tolist() == ids.tolist()
        self.model.put(added, vectors)

    @precondition(lambda self: self.size > 0)
    @rule(share=st.sampled_from([0.01, 0.3, 0.9, 1.0]), seed=SEEDS)
    def delete(self, share: float, seed: int) -> None:
        """Delete some vectors."""
        ids = self.some_ids(seed, share)
        self.index.delete(ids)
        self.model.drop(ids)

    @precondition(lambda self: self.size > 0)
    @rule(share=st.sampled_from([0.01, 0.3, 1.0]), seed=SEEDS)
    def update(self, share: float, seed: int) -> None:
        """Replace some vectors."""
        ids = self.some_ids(seed, share)
        vectors = drawn(seed, len(ids), len(ids))
        self.index.update(ids, vectors)
        self.model.put(ids, vectors)

    @rule(mmap=st.booleans(), is_whole=st.booleans())
    def save_and_load(self, mmap: bool, is_whole: bool) -> None:
        """Save what changed, or everything elsewhere too, and load it."""
        self.index.save(self.directory / "index", overwrite=self.index.saved_version is None)
        if is_whole:
            self.index.save(self.directory / "other", overwrite=True)
        self.index = load(self.directory / "index", mmap=mmap)

    @rule()
    def save(self) -> None:
        """Save what changed."""
        self.index.save(self.directory / "index", overwrite=self.index.saved_version is None)

    @rule(way=st.sampled_from(["pickle", "deepcopy", "compact"]))
    def copy(self, way: str) -> None:
        """Copy the index, or give back memory."""
        if way == "pickle":
            self.index = pickle.loads(pickle.dumps(self.index))
        elif way == "deepcopy":
            self.index = copy.deepcopy(self.index)
        elif self.size:
            self.index.compact()

    @precondition(lambda self: self.size >= 40)
    @rule()
    def learn(self) -> None:
        """Give the index a space whose vectors depend on those of neighbours."""
        if not any(space.name.startswith("learned") for space in self.index.spaces):
            self.index = with_learned_space(self.index)

    @precondition(lambda self: self.size > 1)
    @rule(seed=SEEDS)
    def enter(self, seed: int) -> None:
        """Give the index entry points that depend on the query."""
        self.index = with_table(self.index, seed)

    @precondition(lambda self: self.size > 1)
    @rule(change=st.sampled_from(["refine", "renumber", "int8", "float16", "validate"]))
    def rework(self, change: str) -> None:
        """Change what the index is made of."""
        names = self.index._current.state.searchers
        if change == "refine":
            if not any(name.startswith("learned") for name in names):
                self.index.refine()
        elif change == "renumber":
            self.index.renumber()
        elif change == "validate":
            self.index.validate_with(drawn(0, 20, 20))
        elif f"original-{change}" not in names:
            self.index.compress(change, space="original")

    @precondition(lambda self: self.size > 0)
    @rule(share=st.sampled_from([0.0, 0.05, 0.5, 1.0]), seed=SEEDS, is_inverted=st.booleans())
    def search_some(self, share: float, seed: int, is_inverted: bool) -> None:
        """Under a filter, a search finds exactly what passes."""
        ids = self.some_ids(seed, share)
        passing = self.index.filter(ids)
        expected = np.setdiff1d(self.model.ids, ids) if is_inverted else np.sort(ids)
        where = ~passing if is_inverted else passing
        k = self.size + 1
        found = self.index.search(drawn(seed, 2, 2), k, where=where, ef=2 * k + 64, rerank=k)
        for answers in found.ids:
            assert sorted(answers[answers != -1].tolist()) == expected.tolist()

    @rule(seed=SEEDS)
    def refuse(self, seed: int) -> None:
        """Unknown, repeated and known ids are named, and nothing changes."""
        known = self.some_ids(seed, 0.01)
        vectors = drawn(seed, 2, 2)
        calls = [
            lambda: self.index.delete([10**9]),
            lambda: self.index.update([10**9, 10**9 + 1], vectors),
            lambda: self.index.add(vectors, [10**9, 10**9]),
        ]
        if len(known):
            calls.append(lambda: self.index.add(vectors[:1], known[:1]))
            calls.append(lambda: self.index.delete([known[0], 10**9]))
        for call in calls:
            with pytest.raises(ValueError, match="1000000000|" + str([*known, 0][0])):
                call()

    @invariant()
    def laws(self) -> None:
        """The index holds what the model holds."""
        if not hasattr(self, "model"):
            return
        check_structure(self.index)
        check_answers(self.index, self.model, drawn(1, 2, 2))
        ids = self.model.ids
        if len(ids):
            vectors = np.array([self.model.vectors[i] for i in ids.tolist()])
            found = self.index.vectors(ids)
            if self.model.metric == "cosine":
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            np.testing.assert_allclose(found, vectors, rtol=1e-5)
            assert ids[0] in self.index
        assert 10**9 not in self.index


TestLiving = Living.TestCase
TestLiving.settings = settings(
    max_examples=20 * EFFORT,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
