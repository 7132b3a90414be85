"""Searching: what can be asked of an index."""

from operator import index as index_of

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.search.filter import Filter, filter_of, filters_of
from l2route.search.guarantee import Guarantee
from l2route.search.limits import Limits, check_ef
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher, check_queries, check_threads
from l2route.search.setting import Setting
from l2route.search.stream import RadiusResult, Stream, check_radii
from l2route.state.current import Current
from l2route.state.plan import Asked, IndexPlan, recent_plan
from l2route.state.state import IndexState


class Searching:
    """The searches of an index, all of which read its state once."""

    def __init__(self, current: Current) -> None:
        self._current = current

    def filter(self, where: object) -> Filter:
        """Prepare a filter for `where` in searches; combine filters by `&`, `|` and `~`.

        A filter is packed once and may be shared by threads. It follows the index when that
        changes: vectors keep passing by their ids.

        Args:
            where: a boolean array over `ids` as they are now, or an array of ids.
        """
        return filter_of(where, self._current.state)

    def search(
        self,
        queries: object,
        k: int = 10,
        *,
        where: object = None,
        budget: int | None = None,
        ef: int | None = None,
        slack: float | None = None,
        rerank: int | None = None,
        recall: float | None = None,
        guarantee: Guarantee | None = None,
        space: str | None = None,
        n_threads: int = 0,
        trace: bool = False,
        cap: int | None = None,
    ) -> SearchResult:
        """Find the k nearest neighbours of each query.

        A walk ends at the first of budget, ef and slack that it meets. Without any of them the
        budget is 256, or twice the cost of rerank and projection if that is more.

        Args:
            queries: [n_queries, dim], or one query [dim].
            k: answers per query; ids −1 and distances inf where fewer are found.
            where: which vectors may be answers: an array of ids, a boolean array over `ids`, or a
                `filter`; or a list of these, one per query. Vectors that do not pass are never
                answers and do not count for k, ef, slack and rerank. All k are found if k pass,
                unless a budget ends the search before.
            budget: distance computations per query in units of the original dimension, rerank and
                projection included; never exceeded.
            ef: beam width, as in hnswlib and faiss.
            slack: the walk ends when the next vertex is farther than 1 + slack times the k-th
                best: 0.1 is a tenth farther. Compared with one beam width for all, queries with
                many vectors nearby take longer and others end sooner. Not available under ip.
            rerank: true distances per query at the end, in spaces whose scores are not true
                distances. Default: the space's own `rerank`, at least k, with a budget or without
                any limit; otherwise 2k with a slack, and the whole beam with an ef alone.
            recall: recall@k to reach, in place of budget, ef, slack and rerank: see `setting`.
            guarantee: what reaches the recall: "mean", the mean of the queries (the default), or
                "p95", that of 95% of them.
            space: name of the space to route in; by default the last of `spaces`.
            n_threads: threads to use; 0 for all cores.
            trace: whether to record the vertices visited, by row number.
            cap: distance computations per query, counted as a budget's, that no search exceeds,
                whatever ends it: a larger budget, the default one and a recall come under it.
        """
        limits = Limits(budget, ef, slack, rerank)
        asked = Asked(k, where, limits, recall, space, n_threads, guarantee, cap)
        return recent_plan(self._current, asked)(queries, trace)

    def plan(
        self,
        k: int = 10,
        *,
        where: object = None,
        budget: int | None = None,
        ef: int | None = None,
        slack: float | None = None,
        rerank: int | None = None,
        recall: float | None = None,
        guarantee: Guarantee | None = None,
        space: str | None = None,
        n_threads: int = 0,
    ) -> IndexPlan:
        """Prepare a search for queries that arrive one at a time; arguments as in `search`.

        A plan follows the index: after a change it answers as `search` would. For `where` give it a
        `filter`: an array of ids is read again after a change, and refused if one of them is gone.
        """
        limits = Limits(budget, ef, slack, rerank)
        asked = Asked(k, where, limits, recall, space, n_threads, guarantee)
        plan = IndexPlan(self._current, asked)
        plan.prepare()
        return plan

    def search_radius(
        self,
        queries: object,
        radius: object,
        *,
        where: object = None,
        ef: int = 64,
        space: str | None = None,
        n_threads: int = 0,
    ) -> RadiusResult:
        """Find all vectors within a radius of each query.

        A walk goes on until, of ef/2 vertices one after another, none is within the radius. All
        answers are within it by their true distance; some may be missed, the fewer the larger ef.

        Args:
            queries: [n_queries, dim], or one query [dim].
            radius: largest distance of an answer, as in `SearchResult.distances`: a squared one
                for l2, 1 − cosine, or the negative inner product; one for all queries, or one for
                each.
            where: which vectors may be answers, as in `search`.
            ef: beam width.
            space: name of the space to route in; by default the last of `spaces`.
            n_threads: threads to use; 0 for all cores.
        """
        state = self._current.state
        searcher = state.searcher(space)
        rows = check_queries(queries, state.base.dim)
        with state.reading():
            found = _core.search_radius(
                searcher.core,
                state.labels,
                rows,
                check_radii(radius, len(rows)),
                _filters(where, state),
                check_ef(ef),
                check_threads(n_threads),
            )
        return RadiusResult(*found)

    def stream(
        self,
        query: object,
        *,
        page: int = 10,
        where: object = None,
        ef: int = 64,
        rerank: int | None = None,
        space: str | None = None,
    ) -> Stream:
        """Answer one query page by page: an iterator that goes on where it stopped.

        Args:
            query: [dim].
            page: answers per page; ids and distances.
            where: which vectors may be answers: a boolean array over rows, ids or a `filter`.
            ef: beam width, at least the page.
            rerank: vertices that compete for a page by their true distance, in spaces whose scores
                are not true distances; by default twice the page.
            space: name of the space to route in; by default the last of `spaces`.
        """
        state = self._current.state
        rows = check_queries(query, state.base.dim)
        if len(rows) != 1:
            raise ValueError(f"expected one query [{state.base.dim}], got {len(rows)}")
        reading = state.reading()
        filters = _filters(where, state)
        if len(filters) > 1:
            raise ValueError(f"expected one filter, got {len(filters)}")
        page = index_of(page)
        if page < 1:
            raise ValueError(f"expected a page of at least 1, got {page}")
        rerank = 2 * page if rerank is None else index_of(rerank)
        core = _core.Stream(
            state.searcher(space).core,
            state.labels,
            rows[0],
            filters[0] if filters else None,
            max(check_ef(ef), page, rerank),
            max(rerank, 0),
        )
        return Stream(core, page, reading)

    def rows_of(self, ids: object) -> NDArray[np.int64]:
        """Row numbers of the vertices with these ids in answers, of any shape; −1 stays −1."""
        return self._current.dense().rows_of(ids)

    @property
    def space_names(self) -> tuple[str, ...]:
        """Names of the routing spaces: the original one first, the default one last."""
        return tuple(self._current.state.searchers)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Settings measured so far."""
        return tuple(self._current.state.settings.values())

    def searcher(self, space: str | None = None) -> Searcher:
        """The searcher of a space; by default that of the last space."""
        return self._current.state.searcher(space)


def _filters(where: object, state: IndexState) -> list[_core.Filter]:
    """The filters of a search; that of live slots if there is no other in a living index."""
    filters = [each.core(state) for each in filters_of(where, state)]
    if filters or state.living is None:
        return filters
    return [_core.Filter(None, state.n_slots, state.labels, state.n_vectors)]
