"""Beam search under an exact budget, a beam width or a slack, and what it answers."""

from operator import index as index_of

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.vectors import as_array, check_vectors
from l2route.files.memory import available_bytes
from l2route.graph.graph import Graph
from l2route.search.base import BaseVectors
from l2route.search.layout import pad_rows
from l2route.search.limits import Budget
from l2route.search.result import SearchResult, Trace
from l2route.search.rows import inlined_bytes, rows_of_space
from l2route.search.space import RoutingSpace

MAX_K = 2**31 - 1
"""Answers per query that the core can count."""
WIDEST_WITH_SLACK = 2048
"""Beam of a search with a slack, at the most and by default."""
MAX_THREADS = 1024
"""Threads that a search starts at the most."""
FEW_ANSWERS = 2**20
"""Answers of a call that are given without a look at the memory."""
SHARE_FOR_ANSWERS = 4
"""A call's answers take at most one in so many bytes of the memory that is free: the index needs
some of it, and whoever takes the answers makes copies of them."""
FLOAT32 = np.dtype(np.float32)


def _check_exact(space: RoutingSpace, base: BaseVectors) -> None:
    got = (space.scorer, space.rows.dtype, space.rows.shape)
    if space.is_exact and got != (base.scorer, base.rows.dtype, base.rows.shape):
        expected = f"{base.scorer}, {base.rows.dtype} {list(base.rows.shape)}"
        raise ValueError(
            f"expected an exact space to have rows like the vectors ({expected}), "
            f"got {got[0]}, {got[1]} {list(got[2])}"
        )


class Plan:
    """A search of which all is known but the queries; any number of threads may share it.

    A plan is of the graph, the vectors and the labels that it was made from: it answers as then,
    whatever becomes of the index, and keeps them in memory.
    """

    __slots__ = ("_core", "_costs", "dim", "k")

    def __init__(self, core: _core.Plan, k: int, costs: tuple[int, int, int]) -> None:
        self._core, self._costs, self.k = core, costs, k
        self.dim = costs[-1]

    def __call__(self, queries: object, trace: bool = False) -> SearchResult:
        """Answer queries [n_queries, dim], or one query [dim].

        Args:
            queries: real numbers; float32 in C's order are read where they are.
            trace: whether to record the vertices visited, by row number.
        """
        rows = self._rows(queries)
        if rows.size * self.k > FEW_ANSWERS * self.dim:
            self._check_memory(rows.size // self.dim)
        if not trace:
            return SearchResult(*self._core.search(rows), *self._costs)
        found = self._core.trace(rows)
        return SearchResult(*found[:3], *self._costs, Trace(*found[3:]))

    def _rows(self, queries: object) -> NDArray[np.float32]:
        """Queries as the core takes them, which looks at their values itself."""
        if type(queries) is np.ndarray and queries.dtype == FLOAT32 and queries.flags.c_contiguous:
            return queries
        given = as_array("queries", queries)
        several = given[None] if given.ndim == 1 else given
        return check_vectors("queries", several, self.dim, may_be_none=True)

    def _check_memory(self, n_queries: int) -> None:
        n_bytes = n_queries * self.k * (np.int64().nbytes + np.float32().nbytes)
        most = available_bytes() // SHARE_FOR_ANSWERS
        if n_bytes > most:
            raise ValueError(
                f"expected answers of at most {most:,} bytes, a quarter of the memory that is "
                f"free, got k of {self.k:,} for {n_queries:,} queries, which take {n_bytes:,}"
            )


class Searcher:
    """Searches one graph in one routing space; any number of threads may share it.

    Args:
        graph: the graph to walk.
        space: what steers the walk.
        base: original vectors; answers are reranked by them where routing scores are not true.
        simd: kernel to use, of `l2route._core.simd_levels()`.
    """

    def __init__(
        self, graph: Graph, space: RoutingSpace, base: BaseVectors, simd: str = "auto"
    ) -> None:
        if not graph.n_vertices == len(space.rows) == len(base.rows):
            raise ValueError(
                f"expected as many routing vectors and vectors as vertices, "
                f"got {len(space.rows)}, {len(base.rows)} and {graph.n_vertices}"
            )
        matrix = space.query_matrix
        if matrix is not None and matrix.shape[1] != base.dim:
            raise ValueError(f"expected a query matrix [*, {base.dim}], got {matrix.shape}")
        if matrix is None and space.dim != base.dim:
            raise ValueError(f"expected a query matrix from {base.dim} to {space.dim} dimensions")
        _check_exact(space, base)
        self.graph, self.space, self.base = graph, space, base
        self.reranks = not space.is_exact
        self._n = graph.n_vertices + 1  # a limit beyond it limits nothing
        self._costs = (space.n_projection, space.dim, base.dim)
        self.n_inlined_bytes = inlined_bytes(graph, space)
        self._core = _core.Searcher(
            graph.core,
            rows_of_space(graph, space, simd),
            dim=base.dim,
            is_cosine=base.metric == "cosine",
            origin=space.origin or 0.0,
            query_matrix=None if matrix is None else _core.Rows(pad_rows(matrix), "ip", simd=simd),
            original=_core.Rows(base.rows, base.scorer, simd=simd) if self.reranks else None,
        )

    def search(
        self,
        queries: object,
        k: int = 10,
        budget: Budget | None = None,
        ef: int | None = None,
        n_threads: int = 0,
        trace: bool = False,
        rerank: int | None = None,
        slack: float | None = None,
    ) -> SearchResult:
        """Answer queries within a budget, a beam width, a slack, or several of them.

        Args:
            queries: [n_queries, dim], or one query [dim].
            k: answers per query.
            budget: distance computations per query, never exceeded; None for no limit.
            ef: beam width: the walk ends when the ef best visited are expanded; at least k and
                the vertices to rerank are kept whatever it is. None for no limit.
            n_threads: threads to use; 0 for all cores.
            trace: whether to record the vertices visited.
            rerank: true distances at the end of a search without a budget; all of the beam by
                default, or with a slack twice as many as answers. A budget says its own.
            slack: the walk ends when what it could expand is farther than 1 + slack times the
                k-th best: queries with many near ones take longer than others. None for no limit.
        """
        return self.plan(k, budget, ef, n_threads, rerank, slack)(queries, trace)

    def plan(
        self,
        k: int = 10,
        budget: Budget | None = None,
        ef: int | None = None,
        n_threads: int = 0,
        rerank: int | None = None,
        slack: float | None = None,
        labels: NDArray[np.int64] | None = None,
    ) -> Plan:
        """Prepare searches with the same limits, which are those of `search`.

        Args:
            k: answers per query.
            budget: distance computations per query.
            ef: beam width.
            n_threads: threads to use; 0 for all cores.
            rerank: true distances at the end of a search without a budget.
            slack: how much farther than the k-th best a walk goes.
            labels: what answers call each vertex [n]; row numbers by default.
        """
        k, n_threads = index_of(k), index_of(n_threads)
        ef = None if ef is None else index_of(ef)
        self._check(k, budget, ef, n_threads, slack)
        if slack is None:
            slack = -1.0
        elif ef is None:
            ef = WIDEST_WITH_SLACK
        n, n_rerank = self._n, self._n_rerank(k, budget, ef, rerank, slack)
        core = _core.Plan(
            self._core,
            labels,
            k,
            n - 1 if budget is None else n if budget.routing > n else budget.routing,
            (n if ef > n else ef) if ef else 0,
            n if n_rerank > n else n_rerank,
            slack,
            n_threads if n_threads < MAX_THREADS else MAX_THREADS,
        )
        return Plan(core, k, self._costs)

    def _n_rerank(
        self,
        k: int,
        budget: Budget | None,
        ef: int | None,
        rerank: int | None,
        slack: float,
    ) -> int:
        if not self.reranks:
            return 0
        if budget is not None:
            return budget.rerank
        if rerank is not None and rerank < 1:
            raise ValueError(f"expected rerank of at least 1, got {rerank}")
        if rerank is not None:
            return index_of(rerank)
        return 2 * k if slack >= 0 else max(k, ef or 0)

    def _check(
        self,
        k: int,
        budget: Budget | None,
        ef: int | None,
        n_threads: int,
        slack: float | None,
    ) -> None:
        if k < 1:
            raise ValueError(f"expected k of at least 1, got {k}")
        if k > MAX_K:
            raise ValueError(f"expected k of at most {MAX_K}, got {k}")
        if budget is None and ef is None and slack is None:
            raise ValueError("expected a budget, an ef, a slack or several, got none")
        self._check_slack(slack, ef)
        if ef is not None and ef < 1:
            raise ValueError(f"expected ef of at least 1, got {ef}")
        if n_threads < 0:
            raise ValueError(f"expected n_threads of at least 0, got {n_threads}")
        if self.reranks and budget is not None and budget.rerank < 1:
            raise ValueError(
                "expected a budget with rerank of at least 1, since routing scores are not "
                f"true distances in space {self.space.name!r}, got 0"
            )

    def _check_slack(self, slack: float | None, ef: int | None) -> None:
        if slack is None:
            return
        if not 0 <= slack < np.inf:
            raise ValueError(f"expected a slack of at least 0, got {slack}")
        if self.space.origin is None:
            raise ValueError(
                f"expected a space whose scores are distances for a slack, got {self.space.name!r}"
            )
        if ef is not None and ef > WIDEST_WITH_SLACK:
            raise ValueError(f"expected ef of at most {WIDEST_WITH_SLACK} with a slack, got {ef}")
