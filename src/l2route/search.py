"""Beam search under an exact budget, a beam width or a slack, and what it answers."""

from dataclasses import dataclass
from operator import index as index_of
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data import check_vectors, normalize
from l2route.graph import Graph
from l2route.memory import aligned_rows, pad_rows, padded_dim
from l2route.spaces import BaseVectors, Budget, RoutingSpace, spent

MAX_K = 2**31 - 1
"""Answers per query that the core can count."""
WIDEST_WITH_SLACK = 2048
"""Beam of a search with a slack, at the most and by default."""
MAX_THREADS = 1024
"""Threads that a search starts at the most."""


def _inlined(graph: Graph, space: RoutingSpace) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Routing vectors and biases of all neighbours, list by list; any where there is none."""
    ids = np.maximum(graph.neighbors.ravel(), 0)
    return aligned_rows(space.rows, ids), None if space.bias is None else space.bias[ids]


def _padded_scale(values: NDArray[np.float32] | None, code_bits: int) -> NDArray[np.float32] | None:
    if values is None:
        return None
    padded = np.zeros(padded_dim(len(values), np.uint8, code_bits), dtype=np.float32)
    padded[: len(values)] = values
    return padded


@dataclass(frozen=True, slots=True)
class Trace:
    """Vertices in the order visited; query i's are those in [offsets[i], offsets[i + 1])."""

    offsets: NDArray[np.int64]
    vertices: NDArray[np.int32]
    hops: NDArray[np.int32]
    """Hop in which each vertex was visited; 0 for entry vertices."""

    def of(self, query: int) -> NDArray[np.int32]:
        """Vertices that one query visited, in order."""
        return self.vertices[self.offsets[query] : self.offsets[query + 1]]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Answers to a batch of queries, nearest first, ties by id, and what they cost."""

    ids: NDArray[np.int64]
    """[n_queries, k]; −1 where fewer than k were found."""
    distances: NDArray[np.float32]
    """[n_queries, k]; inf where fewer than k were found."""
    n_computed: NDArray[np.float64]
    """Distance computations in units of the original dimension, all counted [n_queries]."""
    n_routing: NDArray[np.int32]
    """Routing vectors scored [n_queries]."""
    n_projection: int
    """Distance computations that mapping a query into the routing space costs."""
    n_rerank: NDArray[np.int32]
    """True distances computed at the end [n_queries]."""
    n_hops: NDArray[np.int32]
    """Vertices expanded, those of upper layers included [n_queries]."""
    trace: Trace | None = None


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
        self.graph, self.space, self.base = graph, space, base
        self.reranks = space.rows is not base.rows or space.bias is not None
        near, near_bias = _inlined(graph, space) if space.inlined else (None, None)
        self.n_inlined_bytes = sum(each.nbytes for each in (near, near_bias) if each is not None)
        self._core = _core.Searcher(
            neighbors=graph.neighbors,
            entries=graph.entries,
            upper=[(layer.vertices, layer.neighbors) for layer in graph.upper],
            routing=space.rows,
            routing_dim=space.dim,
            scorer=space.scorer,
            bias=space.bias,
            code_bits=space.code_bits,
            lowest=_padded_scale(space.lowest, space.code_bits),
            steps=_padded_scale(space.steps, space.code_bits),
            origin=space.origin or 0.0,
            near=near,
            near_bias=near_bias,
            query_matrix=None if matrix is None else pad_rows(matrix),
            original=base.rows if self.reranks else None,
            dim=base.dim,
            metric_scorer=base.scorer,
            simd=simd,
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
        k, n_threads = index_of(k), index_of(n_threads)
        ef = None if ef is None else index_of(ef)
        rows = self._check(queries, k, budget, ef, n_threads, slack)
        if slack is not None and ef is None:
            ef = WIDEST_WITH_SLACK
        n = self.graph.n_vertices + 1  # a limit beyond it limits nothing
        call = self._core.trace if trace else self._core.search
        found = call(
            queries=rows,
            k=k,
            routing=n - 1 if budget is None else min(n, budget.routing),
            beam=min(n, ef or 0),
            rerank=min(n, self._n_rerank(k, budget, ef, rerank, slack)),
            slack=-1.0 if slack is None else slack,
            n_threads=min(n_threads, MAX_THREADS),
        )
        ids, scores, n_routing, n_rerank, n_hops = found[:5]
        n_projection = self.space.n_projection
        return SearchResult(
            ids=ids,
            distances=self.base.distances(scores),
            n_computed=spent(n_routing, n_rerank, n_projection, self.space.dim, self.base.dim),
            n_routing=n_routing,
            n_projection=n_projection,
            n_rerank=n_rerank,
            n_hops=n_hops,
            trace=Trace(*found[5:]) if trace else None,
        )

    def _n_rerank(
        self,
        k: int,
        budget: Budget | None,
        ef: int | None,
        rerank: int | None,
        slack: float | None,
    ) -> int:
        if not self.reranks:
            return 0
        if budget is not None:
            return budget.rerank
        if rerank is not None and rerank < 1:
            raise ValueError(f"expected rerank of at least 1, got {rerank}")
        if rerank is not None:
            return index_of(rerank)
        return 2 * k if slack is not None else max(k, ef or 0)

    def _check(
        self,
        queries: object,
        k: int,
        budget: Budget | None,
        ef: int | None,
        n_threads: int,
        slack: float | None,
    ) -> NDArray[np.float32]:
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
        given = np.asarray(queries)
        rows = check_vectors("queries", given[None] if given.ndim == 1 else given, self.base.dim)
        return normalize(rows) if self.base.metric == "cosine" else rows

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
