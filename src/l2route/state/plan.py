"""IndexPlan: a search of an index with everything fixed but the queries."""

from collections.abc import Sequence
from typing import NamedTuple

from l2route import _core
from l2route.search.bands import PlansByBand, by_band
from l2route.search.filter import filters_of
from l2route.search.guarantee import Guarantee
from l2route.search.limits import Limits, check_alone
from l2route.search.result import SearchResult
from l2route.search.searcher import Plan
from l2route.state.current import Current
from l2route.state.state import IndexState

MAX_RECENT = 64
"""Plans of recent searches that an index keeps."""


class Asked(NamedTuple):
    """The arguments of a search, as in `RoutingIndex.search`."""

    k: int
    where: object
    limits: Limits
    recall: float | None
    space: str | None
    n_threads: int
    guarantee: Guarantee | None = None
    cap: int | None = None


class IndexPlan:
    """A search with everything fixed but the queries; any number of threads may share it.

    It follows the index: it is prepared anew when the state of the index was replaced, and with
    `where` or `recall` also after a change in place.
    """

    __slots__ = ("_asked", "_current", "_depends_on_vectors", "_filters", "_prepared")

    def __init__(self, current: Current, asked: Asked) -> None:
        self._current, self._asked = current, asked
        self._filters = filters_of(asked.where, current.state)  # by the ids that there are now
        # Whether a change in place calls for another plan.
        self._depends_on_vectors = asked.where is not None or asked.recall is not None
        self._prepared: tuple[IndexState, int, Plan | PlansByBand] | None = None

    @property
    def k(self) -> int:
        """Answers per query."""
        return self._asked.k

    def __call__(self, queries: object, trace: bool = False) -> SearchResult:
        """Answer queries [n_queries, dim], or one query [dim].

        Args:
            queries: real numbers; C-contiguous float32 is not copied.
            trace: whether to record the vertices visited, by row number.
        """
        state = self._current.state
        if state.living is None:
            return self._plan(state)(queries, trace)
        with state.reading():  # slots that filters name are not used again
            return self._plan(state)(queries, trace)

    def prepare(self) -> None:
        """Check the arguments, and prepare the search for the index as it is."""
        self._plan(self._current.state)

    def _plan(self, state: IndexState) -> Plan | PlansByBand:
        known = self._prepared  # one read: other threads may replace it
        version = state.version if self._depends_on_vectors else 0
        if known is None or known[0] is not state or known[1] != version:
            known = (state, version, self._planned(state))
            self._prepared = known
        return known[2]

    def _planned(self, state: IndexState) -> Plan | PlansByBand:
        k, _, limits, recall, space, n_threads, guarantee, cap = self._asked
        searcher = state.searcher(space)
        filters = [each.core(state) for each in self._filters]

        def capped(limits: Limits) -> Limits:
            return limits if cap is None else limits.within(cap, searcher.space, k)

        if recall is None:
            if guarantee is not None:
                raise ValueError(f"expected a guarantee with a recall, got {guarantee!r} without")
            return searcher.plan(
                k, limits=capped(limits), n_threads=n_threads, labels=state.labels, filters=filters
            )
        check_alone(recall, limits)

        kind: Guarantee = "mean" if guarantee is None else guarantee
        plain = self._current.setting(state, searcher, recall, k, n_threads, 1.0, kind)

        def planned(members: Sequence[_core.Filter], share: float) -> Plan:
            setting = self._current.setting(state, searcher, recall, k, n_threads, share, kind)
            return searcher.plan(
                k,
                limits=capped(setting.limits),
                n_threads=n_threads,
                labels=state.labels,
                filters=members,
                n_work=setting.n_work,
                scan_rerank=setting.scan_rerank,
                sieve=(plain.limits, plain.n_work),
                rule=state.rule_of(setting),
            )

        return by_band(filters, state.n_vectors, planned)


def recent_plan(current: Current, asked: Asked) -> IndexPlan:
    """A plan for these arguments, kept for the next search with the same ones.

    With `where` none is kept: a caller may change an array of ids between two searches.
    """
    if asked.where is not None:
        return IndexPlan(current, asked)
    # 10.0 equals 10, but is refused
    key = (asked, type(asked.k), type(asked.n_threads), *map(type, asked.limits))
    try:
        plan = current.recent_plans.get(key)
    except TypeError:  # no hash, as of an array without axes
        return IndexPlan(current, asked)
    if not isinstance(plan, IndexPlan):
        plan = IndexPlan(current, asked)
        if len(current.recent_plans) >= MAX_RECENT:
            current.recent_plans.clear()
        current.recent_plans[key] = plan
    return plan
