"""Explaining: the methods of an index that show how it searches."""

from operator import index as index_of

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import normalize
from l2route.explain.curve import Curve, measure_curve
from l2route.explain.explanation import Explanation
from l2route.explain.plane import Plane
from l2route.explain.recorded import Points, Recorded, nearest_rows
from l2route.search.limits import DEFAULT_BUDGET, Limits, check_alone, default_budget
from l2route.search.searcher import Searcher, check_queries
from l2route.state.current import Current
from l2route.state.state import IndexState

EMPTY = "expected an index with vectors, got an empty one"


class Explaining:
    """How an index searches: the walks of one query, and recall against cost."""

    _current: Current

    def explain(
        self,
        query: object,
        k: int = 10,
        *,
        budget: int | None = None,
        ef: int | None = None,
        slack: float | None = None,
        rerank: int | None = None,
        recall: float | None = None,
        space: str | None = None,
    ) -> Explanation:
        """Search for one query, and record the walk hop by hop, beside the plain walk.

        Two walks are compared: the plain one, in the original space, and that of `space`. Both have
        the same limits; without any, both have the larger of their default budgets. With a
        `recall`, each has the limits that reach it in its own space. The true neighbours are found
        by a scan of all vectors. In a notebook the result is a picture; see also `plot`.

        Args:
            query: [dim].
            k: answers.
            budget: as in `search`.
            ef: as in `search`.
            slack: as in `search`.
            rerank: as in `search`; the plain walk reranks nothing.
            recall: as in `search`.
            space: name of the space to compare with the plain walk; by default the last of
                `spaces`. There is one walk if it is the original space.
        """
        state = self._current.state
        searcher = state.searcher(space)
        rows = _checked_query(query, state)
        k, limits = index_of(k), Limits(budget, ef, slack, rerank)
        plain = state.searchers["original"]
        searchers = [plain] if searcher is plain else [plain, searcher]
        if recall is None:
            chosen = [_shared_limits(limits, searchers, k)] * len(searchers)
        else:
            check_alone(recall, limits)
            chosen = [self._current.setting(state, each, recall, k, 0).limits for each in searchers]
        return _explained(state, rows, k, list(zip(searchers, chosen, strict=True)))

    def recall_curve(self, k: int = 10, *, space: str | None = None, n_queries: int = 500) -> Curve:
        """Measure recall@k against distance computations, on the validation queries.

        Args:
            k: answers per query.
            space: name of the space to route in; by default the last of `spaces`.
            n_queries: number of validation queries, the first ones.
        """
        state = self._current.fresh()
        return measure_curve(state, state.searcher(space), k, n_queries)


def _checked_query(query: object, state: IndexState) -> NDArray[np.float32]:
    """The query [1, dim]."""
    rows = check_queries(query, state.base.dim)
    if len(rows) != 1:
        raise ValueError(f"expected one query [{state.base.dim}], got {len(rows)}")
    if state.n_vectors == 0:
        raise ValueError(EMPTY)
    return rows


def _shared_limits(limits: Limits, searchers: list[Searcher], k: int) -> Limits:
    """The limits of all walks, checked: the same default budget if there is no other limit."""
    if limits.budget is None and limits.ef is None and limits.slack is None:
        limits = limits._replace(budget=_largest_default(limits, searchers, k))
    for each in searchers:
        limits.resolve(each.space, k)
    return limits


def _largest_default(limits: Limits, searchers: list[Searcher], k: int) -> int:
    spaces = [each.space for each in searchers if each.reranks]
    reranks = [
        each.default_rerank(k, DEFAULT_BUDGET) if limits.rerank is None else limits.rerank
        for each in spaces
    ]
    budgets = [
        default_budget(rerank, each.n_projection)
        for rerank, each in zip(reranks, spaces, strict=True)
    ]
    return max(budgets, default=default_budget(0, 0))


def _explained(
    state: IndexState,
    query: NDArray[np.float32],
    k: int,
    asked: list[tuple[Searcher, Limits]],
) -> Explanation:
    with state.reading():  # rows that are seen keep their vectors
        before = None if state.living is None else state.living.store.labels()
        nearest = nearest_rows(state, query, k)
        if not len(nearest):  # another thread has deleted all
            raise ValueError(EMPTY)
        walks = [Recorded.of(state, searcher, query, k, limits) for searcher, limits in asked]
        points = Points.of(state, query, nearest, walks, before)
        vectors = state.base.rows[points.rows, : state.base.dim].astype(np.float32)
    begins = points.places(np.unique(np.concatenate([walk.rows[:1] for walk in walks])))
    origin, positions, share = _drawn(state, query, vectors, points.distances, begins)
    return Explanation(
        query=query[0].copy(),
        k=k,
        metric=state.base.metric,
        n_vectors=state.n_vectors,
        ids=points.ids,
        distances=points.distances,
        neighbors=points.neighbors,
        positions=positions,
        origin=origin,
        share=share,
        walks=tuple(walk.walk(points) for walk in walks),
    )


def _drawn(
    state: IndexState,
    query: NDArray[np.float32],
    vectors: NDArray[np.float32],
    distances: NDArray[np.float32],
    begins: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Positions of the query [2] and of vectors [n, 2] on their plane, and the plane's share.

    The signs of the axes are such that walks begin to the left of the query and below it.
    """
    plane = Plane.of(vectors)
    if state.base.metric == "cosine":
        query = normalize(query)
    elif state.base.metric == "ip":  # its length changes no order: as long as the nearest vector
        length = float(np.linalg.norm(query.astype(np.float64)))
        wanted = float(np.linalg.norm(vectors[np.argmin(distances)].astype(np.float64)))
        query = (query * (wanted / length if length > 0 else 1.0)).astype(np.float32)
    origin, positions = plane.positions(query)[0], plane.positions(vectors)
    is_flipped = positions[begins].mean(axis=0) > origin if len(begins) else np.zeros(2, bool)
    signs = np.where(is_flipped, -1.0, 1.0)
    return origin * signs, positions * signs, plane.share
