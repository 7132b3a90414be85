"""The slow, obvious twin of the core's beam search, and small graphs to run both on."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from l2route.graph import Graph


@dataclass
class Walk:
    """What a search visited, in order, and how many vertices it expanded."""

    scores: dict[int, float] = field(default_factory=dict)
    hops: list[int] = field(default_factory=list)
    n_hops: int = 0

    def best(self, count: int) -> list[tuple[float, int]]:
        """The best visited, nearest first, ties by id."""
        return heapq.nsmallest(count, ((score, v) for v, score in self.scores.items()))


def beam_search(
    graph: Graph, score: Callable[[int], float], budget: int, ef: int | None = None
) -> Walk:
    """Algorithm 1 of the paper with an exact budget, a beam width, and HNSW's descent."""
    walk, heap = Walk(), []

    def visit(neighbors: NDArray[np.int32]) -> None:
        for v in neighbors.tolist():
            if v >= 0 and v not in walk.scores and len(walk.scores) < budget:
                walk.scores[v] = score(v)
                walk.hops.append(walk.n_hops)
                heapq.heappush(heap, (walk.scores[v], v))

    visit(graph.entries)
    for layer in graph.upper:
        while len(walk.scores) < budget:
            (nearest,) = walk.best(1)
            walk.n_hops += 1
            visit(layer.neighbors[np.searchsorted(layer.vertices, nearest[1])])
            if walk.best(1) == [nearest]:
                break
    while heap and len(walk.scores) < budget:
        vertex = heapq.heappop(heap)
        if ef is not None and vertex > walk.best(ef)[-1]:
            break
        walk.n_hops += 1
        visit(graph.neighbors[vertex[1]])
    return walk
