"""The laws of a living index, and a plain model of the set that it holds."""

import numpy as np
from numpy.typing import NDArray

from encoding import unencoded_space
from l2route.index import RoutingIndex
from l2route.search.encode import encode_space

Vectors = NDArray[np.float32]


class Model:
    """A dict of vectors by id, and what an index over them has to answer."""

    def __init__(self, metric: str = "l2") -> None:
        self.vectors: dict[int, Vectors] = {}
        self.metric = metric

    def put(self, ids: NDArray[np.int64], vectors: Vectors) -> None:
        """Add or replace vectors."""
        self.vectors |= dict(zip(ids.tolist(), vectors, strict=True))

    def drop(self, ids: NDArray[np.int64]) -> None:
        """Delete vectors."""
        for id_ in ids.tolist():
            del self.vectors[id_]

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending."""
        return np.array(sorted(self.vectors), dtype=np.int64)

    def distances(self, query: Vectors, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """True distances of a query to vectors."""
        vectors = np.array([self.vectors[i] for i in ids.tolist()], dtype=np.float64)
        vectors = vectors.reshape(len(ids), len(query))
        query = query.astype(np.float64)
        if self.metric == "l2":
            return np.asarray(((vectors - query) ** 2).sum(axis=1))
        products = vectors @ query
        if self.metric == "ip":
            return np.asarray(-products)
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
        return np.asarray(1 - products / np.where(lengths > 0, lengths, 1))


def check_answers(index: RoutingIndex, model: Model, queries: Vectors) -> None:
    """Counts and ids agree, and an exhaustive search of every space finds every vector once."""
    ids = model.ids
    assert len(index) == len(ids)
    assert sorted(index) == ids.tolist()
    k = len(ids) + 2
    for space in index._current.state.searchers:
        found = index.search(queries, k, ef=2 * k + 64, rerank=k, space=space)
        for answers, distances, query in zip(found.ids, found.distances, queries, strict=True):
            assert sorted(answers[: len(ids)].tolist()) == ids.tolist(), space
            assert (answers[len(ids) :] == -1).all()
            expected = model.distances(query, answers[: len(ids)])
            np.testing.assert_allclose(distances[: len(ids)], expected, rtol=1e-3, atol=1e-3)
            assert (np.diff(distances[: len(ids)]) >= 0).all()


def check_structure(index: RoutingIndex) -> None:
    """Every live slot is reachable by the tree, whose edges are in the lists."""
    living = index._current.state.living
    if living is None:
        return
    lists, parents, labels = living.graph.neighbors, living.arrays["parents"], living.labels
    copies, rows = living.arrays["copies"], living.base.rows
    width = lists.shape[1]
    is_end = np.cumsum(lists < 0, axis=1) > 0
    assert (lists[is_end] < 0).all()
    entries = set(living.entries[living.entries >= 0].tolist())
    live = living.live()
    if living.graph.table is not None:
        started_at = living.graph.table.vertices
        assert (labels[started_at[started_at >= 0]] != -1).all()
    assert all(labels[entry] != -1 for entry in entries) or living.store.n_dead
    for slot in live.tolist():
        parent = int(parents[slot])
        if parent < 0:
            assert slot in entries
            continue
        assert slot in lists[parent]
        if copies[slot]:
            assert (rows[slot] == rows[parent]).all()
        neighbors = lists[slot][lists[slot] >= 0]
        others = neighbors[neighbors != slot]
        assert len(np.unique(others)) == len(others) <= width
        depth = 0
        while parent >= 0:
            parent, depth = int(parents[parent]), depth + 1
            assert depth <= living.store.n_slots, "a cycle"


def with_learned_space(index: RoutingIndex) -> RoutingIndex:
    """A copy of an index with a space of a filter of random weights, as if it were learned."""
    base, graph = index.base, index.graph
    space = unencoded_space(len(index), index.dim)
    spaces = [*index.spaces[1:], encode_space(space, base, graph)]
    return RoutingIndex(base, graph, spaces, index.labels, index.validation)


def answers_after_changes(index: RoutingIndex, vectors: Vectors) -> list[list[int]]:
    """Add vectors, delete the first of them, and search for all; for another process."""
    added = index.add(vectors)
    index.delete(added[:1])
    return [row.tolist() for row in index.search(vectors, 5, ef=50).ids]
