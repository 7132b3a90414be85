"""Plans of searches whose queries have filters of different selectivity."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.vectors import as_array
from l2route.search.result import SearchResult
from l2route.search.searcher import Plan
from l2route.search.selectivity import band_of

MakePlan = Callable[[Sequence[_core.Filter], float], Plan]
"""Makes a plan for filters of one band, which is given by its smallest share; 1 for no filter."""


class PlansByBand:
    """A plan for a filter per query, with a setting for every band; threads may share it."""

    def __init__(self, plans: list[tuple[NDArray[np.int64], Plan]], n_queries: int) -> None:
        self._plans, self._n_queries = plans, n_queries
        self.k, self.dim = plans[0][1].k, plans[0][1].dim

    def __call__(self, queries: object, trace: bool = False) -> SearchResult:
        """Answer queries [n_queries, dim], as many as there are filters.

        Args:
            queries: real numbers.
            trace: refused: walks of several settings have no trace in common.
        """
        if trace:
            raise ValueError("expected one filter for all queries with a trace, got several")
        rows = as_array("queries", queries)
        if rows.ndim != 2 or len(rows) != self._n_queries:
            got = len(rows) if rows.ndim == 2 else 1
            raise ValueError(f"expected one filter or {got}, one per query, got {self._n_queries}")
        parts = [(members, plan(rows[members])) for members, plan in self._plans]
        first = parts[0][1]
        ids = np.empty((len(rows), self.k), dtype=np.int64)
        distances = np.empty((len(rows), self.k), dtype=np.float32)
        counts = np.empty((len(first.counts), len(rows)), dtype=np.int32)
        for members, part in parts:
            ids[members], distances[members] = part.ids, part.distances
            counts[:, members] = part.counts
        costs = (first.n_projection, first.routing_dim, first.dim)
        return SearchResult(ids, distances, counts, *costs)


def by_band(
    filters: Sequence[_core.Filter], n_slots: int, make_plan: MakePlan
) -> Plan | PlansByBand:
    """A plan whose filters all have the setting of their band.

    Args:
        filters: none, one for all queries, or one for each.
        n_slots: number of vectors.
        make_plan: makes the plan of a band.
    """
    if not filters:
        return make_plan((), 1.0)
    if len(filters) == 1:
        return make_plan(filters, band_of(filters[0].count / n_slots))
    bands = np.array([band_of(each.count / n_slots) for each in filters])
    if (bands == bands[0]).all():
        return make_plan(filters, float(bands[0]))
    plans = []
    for band in np.unique(bands):
        members = np.flatnonzero(bands == band)
        plans.append((members, make_plan([filters[i] for i in members.tolist()], float(band))))
    return PlansByBand(plans, len(filters))
