"""Searching: what can be asked of an index."""

import numpy as np
from numpy.typing import NDArray

from l2route.search.filter import Filter, filter_of, filters_of
from l2route.search.limits import Limits, check_alone
from l2route.search.result import SearchResult
from l2route.search.searcher import Plan, Searcher
from l2route.state.current import Current


class Searching:
    """The searches of an index, all of which read its state once."""

    def __init__(self, current: Current) -> None:
        self._current = current

    def filter(self, where: object) -> Filter:
        """Prepare a filter for `where` in searches; combine filters by `&`, `|` and `~`.

        A filter is packed once and may be shared by threads. It follows the index when that
        changes: vectors keep passing by their ids.

        Args:
            where: a boolean array over the rows of the index as it is now, or an array of ids.
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
        space: str | None = None,
        n_threads: int = 0,
        trace: bool = False,
    ) -> SearchResult:
        """Find the k nearest neighbours of each query.

        A walk ends at the first of budget, ef and slack that it meets. Without any of them the
        budget is 256, or twice the cost of rerank and projection if that is more.

        Args:
            queries: [n_queries, dim], or one query [dim].
            k: answers per query; ids −1 and distances inf where fewer are found.
            where: which vectors may be answers: a boolean array over rows, an array of ids or a
                `filter`; or a list of these, one per query. Vectors that do not pass are walked
                through, but are never answers and do not count for k, ef, slack and rerank. All k
                are found if k pass, unless a budget ends the search before.
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
            space: name of the space to route in; by default the last of `spaces`.
            n_threads: threads to use; 0 for all cores.
            trace: whether to record the vertices visited, by row number.
        """
        limits = Limits(budget, ef, slack, rerank)
        return self._plan(k, where, limits, recall, space, n_threads)(queries, trace)

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
        space: str | None = None,
        n_threads: int = 0,
    ) -> Plan:
        """Prepare a search for queries that arrive one at a time; arguments as in `search`.

        A plan belongs to the index as it is now: after `refine`, `renumber`, `learn` or `compress`
        it still answers as before, so make a new one.
        """
        limits = Limits(budget, ef, slack, rerank)
        return self._plan(k, where, limits, recall, space, n_threads)

    def _plan(
        self,
        k: int,
        where: object,
        limits: Limits,
        recall: float | None,
        space: str | None,
        n_threads: int,
    ) -> Plan:
        state = self._current.state
        searcher = state.searcher(space)
        if recall is not None:
            check_alone(recall, limits)
            limits = self._current.setting(state, searcher, recall, k, n_threads).limits
        filters = [] if where is None else [each.core(state) for each in filters_of(where, state)]
        return searcher.plan(
            k, limits=limits, n_threads=n_threads, labels=state.labels, filters=filters
        )

    def rows_of(self, ids: object) -> NDArray[np.int64]:
        """Row numbers of the vertices with these ids in answers, of any shape; −1 stays −1."""
        return self._current.state.rows_of(ids)

    def searcher(self, space: str | None = None) -> Searcher:
        """The searcher of a space; by default that of the last space."""
        return self._current.state.searcher(space)
