"""Beam search of one graph in one routing space, within limits."""

from collections.abc import Sequence
from operator import index as index_of
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.vectors import as_array, check_vectors
from l2route.files.memory import available_bytes
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.entry_rows import core_entry_table
from l2route.search.limits import Limits
from l2route.search.result import SearchResult, Trace
from l2route.search.rows import inlined_bytes, query_map_of, rows_of_space
from l2route.search.space import RoutingSpace

MAX_THREADS = 1024
"""Maximum number of threads of a search."""
FEW_ANSWERS = 2**20
"""Answers of one call, over all queries, up to which free memory is not checked."""
SHARE_FOR_ANSWERS = 4
"""Answers of one call take at most this fraction (a quarter) of free memory: the index needs some,
and callers copy answers."""
FLOAT32 = np.dtype(np.float32)
Way = Literal["any", "scan", "look", "sieve"]
"""How to answer a query under a filter: scan what passes, walk on what passes and look through the
rest, walk through the rest, or whatever is expected to be fastest."""


def _check_exact(space: RoutingSpace, base: BaseVectors) -> None:
    got = (space.scorer, space.rows.dtype, space.rows.shape)
    if space.is_exact and got != (base.scorer, base.rows.dtype, base.rows.shape):
        expected = f"{base.scorer}, {base.rows.dtype} {list(base.rows.shape)}"
        raise ValueError(
            f"expected an exact space to have rows like the vectors ({expected}), "
            f"got {got[0]}, {got[1]} {list(got[2])}"
        )


def _core_entries(graph: Graph, base: BaseVectors, simd: str) -> _core.EntryTable | None:
    table = graph.table
    if table is None:
        return None
    if table.coordinates.max() >= base.dim:
        got = table.coordinates.max()
        raise ValueError(f"expected an entry table of coordinates below {base.dim}, got {got}")
    return core_entry_table(table, base.metric, simd)


def check_queries(queries: object, dim: int) -> NDArray[np.float32]:
    """Queries [n_queries, dim], or one query [dim], as contiguous float32 [n_queries, dim]."""
    given = as_array("queries", queries)
    several = given[None] if given.ndim == 1 else given
    return check_vectors("queries", several, dim, may_be_empty=True)


def check_threads(n_threads: int) -> int:
    """The number of threads, at most MAX_THREADS."""
    n_threads = index_of(n_threads)
    if n_threads < 0:
        raise ValueError(f"expected n_threads of at least 0, got {n_threads}")
    return min(n_threads, MAX_THREADS)


class Plan:
    """A search with everything fixed but the queries; any number of threads may share it.

    A plan keeps its graph, vectors and labels in memory. Its answers do not change when the index
    does.
    """

    __slots__ = ("_core", "_costs", "_filters", "dim", "k")

    def __init__(
        self,
        core: _core.Plan,
        k: int,
        costs: tuple[int, int, int],
        filters: Sequence[_core.Filter],
    ) -> None:
        self._core, self._costs, self.k, self._filters = core, costs, k, filters
        self.dim = costs[-1]

    def __call__(self, queries: object, trace: bool = False) -> SearchResult:
        """Answer queries [n_queries, dim], or one query [dim].

        Args:
            queries: real numbers; C-contiguous float32 is not copied.
            trace: whether to record the vertices visited, by row number.
        """
        rows = self._rows(queries)
        if rows.size * self.k > FEW_ANSWERS * self.dim:
            self._check_memory(rows.size // self.dim)
        if not trace:
            return SearchResult(*self._core.search(rows, self._filters), *self._costs)
        found = self._core.trace(rows, self._filters)
        return SearchResult(*found[:3], *self._costs, Trace(*found[3:]))

    def _rows(self, queries: object) -> NDArray[np.float32]:
        """Queries as contiguous float32; the core itself checks arrays that already are."""
        if type(queries) is np.ndarray and queries.dtype == FLOAT32 and queries.flags.c_contiguous:
            return queries
        return check_queries(queries, self.dim)

    def _check_memory(self, n_queries: int) -> None:
        n_bytes = n_queries * self.k * (np.int64().nbytes + np.float32().nbytes)
        most = available_bytes() // SHARE_FOR_ANSWERS
        if n_bytes > most:
            raise ValueError(
                f"expected answers of at most {most:,} bytes, a quarter of free memory, "
                f"got {n_bytes:,} bytes: k of {self.k:,} for {n_queries:,} queries"
            )


class Searcher:
    """Searches one graph in one routing space; any number of threads may share it.

    Args:
        graph: the graph to walk.
        space: the space whose scores steer the walk.
        base: original vectors; answers are reranked by them unless the space is exact.
        simd: kernel to use, one of `l2route._core.simd_levels()`, or auto.
        store: slots of a living index, of which dead ones are no answers.
    """

    def __init__(
        self,
        graph: Graph,
        space: RoutingSpace,
        base: BaseVectors,
        simd: str = "auto",
        store: _core.Store | None = None,
    ) -> None:
        if not graph.n_vertices == len(space.rows) == len(base.rows):
            raise ValueError(
                f"expected {graph.n_vertices} routing vectors and vectors, one per vertex, "
                f"got {len(space.rows)} and {len(base.rows)}"
            )
        if space.original_dim != base.dim:
            got = f"one that maps queries of {space.original_dim} dimensions to {space.dim}"
            raise ValueError(f"expected a space for queries of {base.dim} dimensions, got {got}")
        _check_exact(space, base)
        self.graph, self.space, self.base, self.store = graph, space, base, store
        self.reranks = not space.is_exact
        self._costs = (space.n_projection, space.dim, base.dim)
        self.n_inlined_bytes = inlined_bytes(graph, space)
        by = query_map_of(space, base, simd)
        self.core = _core.Searcher(
            graph.core,
            rows_of_space(graph, space, simd),
            dim=base.dim,
            is_cosine=base.metric == "cosine",
            origin=space.origin or 0.0,
            query_matrix=by.matrix,
            query_centre=by.query_centre,
            signs=None if space.rotation is None else space.rotation.signs,
            centre=by.centre,
            original=_core.Rows(base.rows, base.scorer, simd=simd) if self.reranks else None,
            entries=_core_entries(graph, base, simd),
            store=store,
        )

    def search(
        self,
        queries: object,
        k: int = 10,
        *,
        limits: Limits,
        n_threads: int = 0,
        trace: bool = False,
        filters: Sequence[_core.Filter] = (),
        way: Way = "any",
        scan_rerank: int = 0,
        rule: _core.StopRule | None = None,
    ) -> SearchResult:
        """Answer queries within limits.

        Args:
            queries: [n_queries, dim], or one query [dim].
            k: answers per query; ids −1 and distances inf where fewer are found.
            limits: when walks end; `Limits()` for the default budget.
            n_threads: threads to use; 0 for all cores.
            trace: whether to record the vertices visited.
            filters: none, one for all queries, or one for each.
            way: how to answer under a filter.
            scan_rerank: vertices that a scan of routing vectors reranks; 0 for a scan of the
                original vectors.
            rule: a learned rule that ends walks without a filter.
        """
        plan = self.plan(
            k,
            limits=limits,
            n_threads=n_threads,
            filters=filters,
            way=way,
            scan_rerank=scan_rerank,
            rule=rule,
        )
        return plan(queries, trace)

    def plan(
        self,
        k: int = 10,
        *,
        limits: Limits,
        n_threads: int = 0,
        labels: NDArray[np.int64] | None = None,
        filters: Sequence[_core.Filter] = (),
        way: Way = "any",
        n_work: int = 0,
        scan_rerank: int = 0,
        sieve: tuple[Limits, int] | None = None,
        rule: _core.StopRule | None = None,
    ) -> Plan:
        """Prepare searches with the same limits.

        Args:
            k: answers per query.
            limits: when walks end; `Limits()` for the default budget.
            n_threads: threads to use; 0 for all cores.
            labels: ids of the vertices in answers [n]; row numbers by default.
            filters: none, one for all queries, or one for each.
            way: how to answer under a filter.
            n_work: work of a walk with these limits under a filter, as measured; 0 if it was not.
            scan_rerank: vertices that a scan of routing vectors reranks; 0 for a scan of the
                original vectors.
            sieve: limits of walks through what does not pass, if they are others, and the work of
                such walks without a filter.
            rule: a learned rule that ends walks without a filter in place of ef and slack.
        """
        k, n_threads = index_of(k), check_threads(n_threads)
        routing, beam, rerank, slack = limits.resolve(self.space, k)
        has_budget = limits.is_budgeted
        if not (
            filters or n_work or rule is not None
        ):  # the other arguments matter under filters, and take a while
            core = _core.Plan(
                self.core, labels, k, routing, beam, rerank, slack, n_threads, has_budget
            )
            return Plan(core, k, self._costs, filters)
        core = _core.Plan(
            self.core,
            labels,
            k,
            routing,
            beam,
            rerank,
            slack,
            n_threads,
            has_budget,
            way=way,
            n_work=n_work,
            scan_rerank=scan_rerank,
            sieve=None if sieve is None else (*sieve[0].resolve(self.space, k)[1:], sieve[1]),
            rule=rule,
        )
        return Plan(core, k, self._costs, filters)
