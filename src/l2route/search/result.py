"""Answers of a search, their costs and traces."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.search.limits import spent


@dataclass(frozen=True, slots=True)
class Trace:
    """Visited vertices in order; query i has those from offsets[i] up to offsets[i + 1]."""

    offsets: NDArray[np.int64]
    """[n_queries + 1]"""
    vertices: NDArray[np.int32]
    """Row numbers of the vertices visited by all queries [n_visited]."""
    hops: NDArray[np.int32]
    """Hop in which each vertex was visited, 0 for entry points [n_visited]."""
    scores: NDArray[np.float32]
    """Score of each vertex visited, in the space that is walked in; smaller is nearer."""
    hop_offsets: NDArray[np.int64]
    """[n_queries + 1]; query i has the hops from hop_offsets[i] up to hop_offsets[i + 1]."""
    expanded: NDArray[np.int32]
    """Row number of the vertex expanded in each hop, on any layer [n_hops]."""

    def of(self, query: int) -> NDArray[np.int32]:
        """Vertices that one query visited, in order."""
        return self.vertices[self.offsets[query] : self.offsets[query + 1]]


@dataclass(slots=True)  # not frozen: making a frozen one takes as long as a short walk
class SearchResult:
    """Answers to a batch of queries, nearest first, ties by id, and their costs."""

    ids: NDArray[np.int64]
    """[n_queries, k]; −1 where fewer than k were found."""
    distances: NDArray[np.float32]
    """[n_queries, k]; inf where fewer than k were found."""
    counts: NDArray[np.int32]
    """n_routing, n_rerank, n_hops and n_looked of each query [4, n_queries]."""
    n_projection: int
    """Distance computations that mapping a query into the routing space costs."""
    routing_dim: int
    """Dimension of the routing vectors."""
    dim: int
    """Dimension of the queries."""
    trace: Trace | None = None
    """Visited vertices, if they were requested."""

    @property
    def n_routing(self) -> NDArray[np.int32]:
        """Routing vectors scored [n_queries]."""
        row: NDArray[np.int32] = self.counts[0]
        return row

    @property
    def n_rerank(self) -> NDArray[np.int32]:
        """True distances computed at the end [n_queries]."""
        row: NDArray[np.int32] = self.counts[1]
        return row

    @property
    def n_hops(self) -> NDArray[np.int32]:
        """Vertices expanded, including those in upper layers [n_queries]."""
        row: NDArray[np.int32] = self.counts[2]
        return row

    @property
    def n_looked(self) -> NDArray[np.int32]:
        """Neighbour lists looked through for vertices that pass a filter [n_queries]."""
        row: NDArray[np.int32] = self.counts[3]
        return row

    @property
    def n_work(self) -> NDArray[np.int32]:
        """Work of the walk, in routing vectors scored [n_queries]; a list looked through is two."""
        work: NDArray[np.int32] = self.n_routing + _core.SCORES_PER_LIST * self.n_looked
        return work

    @property
    def n_computed(self) -> NDArray[np.float64]:
        """Distance computations in units of the original dimension [n_queries].

        Routing, projection and rerank count.
        """
        counted: NDArray[np.float64] = spent(
            self.n_routing, self.n_rerank, self.n_projection, self.routing_dim, self.dim
        )
        return counted
