"""The slow, obvious twin of the core's beam search, and small graphs to run both on."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from l2route.graph.graph import Graph


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


@dataclass
class Slack:
    """How far beyond the k-th best a walk goes; scores plus the offset are squared distances."""

    k: int
    kept: int
    share: float
    offset: float

    def limit(self, beam: list[tuple[float, int]]) -> float:
        """The largest score that the walk may go on from."""
        if len(beam) < self.k:
            return np.inf
        score = beam[self.k - 1][0]
        return score + ((1 + self.share) ** 2 - 1) * max(score + self.offset, 0.0)


def slack_search(
    graph: Graph, score: Callable[[int], float], budget: int, ef: int, slack: Slack
) -> tuple[Walk, list[tuple[float, int]]]:
    """The same with a slack: the walk, and the beam that it ends with, nearest first."""
    walk, expanded = Walk(), set[int]()
    beam: list[tuple[float, int]] = []
    limit = np.inf

    def visit(neighbors: NDArray[np.int32]) -> None:
        nonlocal limit
        for v in neighbors.tolist():
            if v >= 0 and v not in walk.scores and len(walk.scores) < budget:
                walk.scores[v] = score(v)
                walk.hops.append(walk.n_hops)
                if walk.scores[v] <= limit or len(beam) < slack.kept:
                    beam.append((walk.scores[v], v))
                    beam.sort()
                    del beam[ef:]
        limit = slack.limit(beam)

    visit(graph.entries)
    while len(walk.scores) < budget:
        waiting = [entry for entry in beam if entry[1] not in expanded]
        if not waiting or waiting[0][0] > limit:
            break
        expanded.add(waiting[0][1])
        walk.n_hops += 1
        visit(graph.neighbors[waiting[0][1]])
    return walk, beam
