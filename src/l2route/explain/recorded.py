"""Recorded walks of one query, by rows, and the true neighbours to compare them with."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.metrics import as_near_as
from l2route.explain.walk import Walk
from l2route.search.limits import Limits, spent
from l2route.search.result import SearchResult, Trace
from l2route.search.searcher import Searcher
from l2route.state.state import IndexState

Rows = NDArray[np.int64]
"""Row numbers; those of a living index are slots."""
MARGIN = 16
"""Vectors beyond the k nearest whose distances are computed in double precision."""


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A walk of one query as the core traced it."""

    searcher: Searcher
    limits: Limits
    k: int
    rows: Rows
    """Rows visited, in order."""
    trace: Trace
    answers: Rows
    """Rows of the answers, nearest first."""
    n_to_enter: int
    """What finding the entry points cost, in scores of routing vectors."""

    @classmethod
    def of(
        cls,
        state: IndexState,
        searcher: Searcher,
        query: NDArray[np.float32],
        k: int,
        limits: Limits,
    ) -> "Recorded":
        """Walk with a query [1, dim]; in an index with deleted vectors, through them.

        A search of an index with deleted vectors may scan them all if that is shorter. This is the
        walk in any case.
        """
        is_living = state.living is not None
        found: SearchResult = searcher.search(
            query,
            k,
            limits=limits,
            n_threads=1,
            trace=True,
            filters=[_live_rows(state)] if is_living else [],
            way="sieve" if is_living else "any",
        )
        assert found.trace is not None
        answers = found.ids[0]
        rows = found.trace.vertices.astype(np.int64)
        n_to_enter = int(found.n_routing[0]) - len(rows)
        return cls(searcher, limits, k, rows, found.trace, answers[answers >= 0], n_to_enter)

    def walk(self, points: "Points") -> Walk:
        """The walk by points, with its costs and recalls by hop."""
        n_hops = len(self.trace.expanded)
        n_visited = np.searchsorted(self.trace.hops, np.arange(n_hops + 1), side="right")
        visited = points.places(self.rows)
        n_right, n_kept = self._kept(points, visited)
        space, n_true = self.searcher.space, len(points.neighbors)
        n_rerank = np.append(0, n_kept)[n_visited] if self.searcher.reranks else 0
        dims = (space.n_projection, space.dim, self.searcher.base.dim)
        computed = spent(self.n_to_enter + n_visited, n_rerank, *dims)
        return Walk(
            space=space.name,
            limits=self.limits,
            visited=visited,
            hops=self.trace.hops,
            scores=self.trace.scores,
            expanded=points.places(self.trace.expanded.astype(np.int64)),
            n_visited=n_visited,
            n_computed=computed,
            recalls=np.minimum(np.append(0, n_right)[n_visited], n_true) / n_true,
            found_at=self._found_at(points.rows[points.neighbors]),
            answers=points.places(self.answers),
        )

    def _kept(self, points: "Points", visited: Rows) -> tuple[Rows, Rows]:
        """Right answers among the best visited so far, and how many are the best [n_visited].

        The best are those that are reranked; where scores are true distances, all of them.
        """
        n_rerank = self.limits.resolve(self.searcher.space, self.k)[2]
        most = n_rerank if self.searcher.reranks else len(visited)
        n_right, n_kept = np.zeros(len(visited), np.int64), np.zeros(len(visited), np.int64)
        best: list[tuple[float, int, bool]] = []
        count = 0
        is_right, is_alive = points.is_right[visited].tolist(), points.ids[visited] != -1
        scored = zip(self.trace.scores.tolist(), self.rows.tolist(), is_right, strict=True)
        for i, entry in enumerate(scored):
            if is_alive[i]:
                insort(best, entry)
                count += entry[2]
                if len(best) > most:
                    count -= best.pop()[2]
            n_right[i], n_kept[i] = count, len(best)
        return n_right, n_kept

    def _found_at(self, neighbors: Rows) -> NDArray[np.int64]:
        hop_of = dict(zip(self.rows.tolist(), self.trace.hops.tolist(), strict=True))
        return np.array([hop_of.get(row, -1) for row in neighbors.tolist()], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Everything that walks of a query visited, and its true neighbours, by row."""

    rows: Rows
    """Their rows, ascending [n]."""
    ids: NDArray[np.int64]
    """Their ids, −1 for deleted vectors [n]."""
    distances: NDArray[np.float32]
    """Their true distances to the query [n]."""
    neighbors: Rows
    """Places of the true neighbours, nearest first [at most k]."""
    is_right: NDArray[np.bool_]
    """Whether each is as near as the last true neighbour [n]."""

    @classmethod
    def of(
        cls,
        state: IndexState,
        query: NDArray[np.float32],
        nearest: Rows,
        walks: Sequence[Recorded],
        ids_before: NDArray[np.int64] | None,
    ) -> "Points":
        """Points of some walks and of the nearest rows.

        Args:
            state: the index.
            query: [1, dim].
            nearest: rows of the true neighbours, nearest first.
            walks: what was recorded.
            ids_before: ids of the rows of a living index before the walks; −1 for deleted vectors.
        """
        rows = np.unique(np.concatenate([nearest, *(walk.rows for walk in walks)]))
        distances = state.base.exact_distances(query, rows[None])[0]
        neighbors = np.searchsorted(rows, nearest)
        truth = distances[None, neighbors].astype(np.float64)
        is_right = as_near_as(distances[None].astype(np.float64), truth[:, -1], truth)[0]
        ids = _ids_of(state, rows, ids_before)
        return cls(rows, ids, distances, neighbors, is_right & (ids != -1))

    def places(self, rows: Rows) -> Rows:
        """Places of rows among the points."""
        return np.searchsorted(self.rows, rows)


def nearest_rows(state: IndexState, query: NDArray[np.float32], k: int) -> Rows:
    """The exact nearest rows, nearest first, ties by row [at most k].

    The core scans all vectors where they are. Those at the end of its answer are compared again in
    double precision.
    """
    n_wanted = min(k + MARGIN, state.n_vectors)
    searcher = state.searchers["original"]
    scan = searcher.search(
        query, n_wanted, limits=Limits(ef=1), n_threads=1, filters=[_live_rows(state)], way="scan"
    )
    rows = scan.ids[0][scan.ids[0] >= 0]
    distances = state.base.exact_distances(query, rows[None])[0]
    return np.asarray(rows[np.lexsort((rows, distances))][:k])


def _live_rows(state: IndexState) -> _core.Filter:
    """The filter that all vectors pass, and no place of a deleted one."""
    labels = None if state.living is None else state.labels
    return _core.Filter(None, state.n_slots, labels, state.n_vectors)


def _ids_of(
    state: IndexState, rows: Rows, ids_before: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Ids of rows; those deleted since `ids_before` keep them."""
    if state.living is None:
        return rows if state.labels is None else state.labels[rows]
    ids = state.living.store.labels()[rows]
    if ids_before is not None:
        was_known = (ids == -1) & (rows < len(ids_before))
        ids[was_known] = ids_before[rows[was_known]]
    return np.asarray(ids)
