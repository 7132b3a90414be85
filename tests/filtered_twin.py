"""The slow twins of walks under a filter, beside `beam_search` with `passes`."""

import heapq

import numpy as np
from numpy.typing import NDArray

from beam_search_twin import Passes, Score, Slack, Walk
from l2route.graph.graph import Graph

MAX_SAMPLE = 32


def sample_of(passes: Passes) -> NDArray[np.int32]:
    """Entry points among what passes: spread evenly over their ranks."""
    rows = np.flatnonzero(passes).astype(np.int32)
    n = min(MAX_SAMPLE, len(rows))
    ranks = [(2 * i + 1) * len(rows) // (2 * n) for i in range(n)]
    return rows[ranks]


def look_search(graph: Graph, score: Score, budget: int, ef: int | None, passes: Passes) -> Walk:
    """A walk on what passes: neighbours of those that do not pass are taken in their place."""
    walk, heap = Walk(), []
    looked = set[int]()
    width = graph.neighbors.shape[1]

    def fresh_of(neighbors: NDArray[np.int32], taken: list[int]) -> int:
        """Add the unvisited vertices that pass; returns how many of the list pass."""
        n_seen = 0
        for v in neighbors.tolist():
            n_seen += v >= 0 and bool(passes[v])
            is_new = v >= 0 and passes[v] and v not in walk.scores and v not in taken
            if is_new and len(walk.scores) + len(taken) < budget:
                taken.append(v)
        return n_seen

    def visit(taken: list[int]) -> None:
        for v in taken:
            walk.scores[v] = score(v)
            walk.hops.append(walk.n_hops)
            heapq.heappush(heap, (walk.scores[v], v))

    for entries in (sample_of(passes), graph.entries):
        taken: list[int] = []
        fresh_of(entries, taken)
        visit(taken)
    while heap and len(walk.scores) < budget:
        vertex = heapq.heappop(heap)
        if ef is not None and vertex > walk.best(ef)[-1]:
            break
        walk.expanded.append(vertex[1])
        neighbors, taken = graph.neighbors[vertex[1]], []
        if fresh_of(neighbors, taken) < width // 2:
            failing = [v for v in neighbors.tolist() if v >= 0 and not passes[v]]
            for v in dict.fromkeys(failing):
                if v in looked or len(taken) >= min(budget - len(walk.scores), width):
                    continue
                looked.add(v)
                fresh_of(graph.neighbors[v], taken)
        visit(taken)
    return walk


def slack_sieve_search(
    graph: Graph, score: Score, passes: Passes, budget: int, ef: int, slack: Slack
) -> tuple[Walk, list[tuple[float, int]]]:
    """A walk with a slack through what does not pass: the walk, and the final beam."""
    walk = Walk()
    beam: list[tuple[float, int]] = []
    waiting: list[tuple[float, int]] = []
    limit = np.inf

    def visit(neighbors: NDArray[np.int32]) -> None:
        nonlocal limit, waiting
        for v in neighbors.tolist():
            if v >= 0 and v not in walk.scores and len(walk.scores) < budget:
                walk.scores[v] = score(v)
                walk.hops.append(walk.n_hops)
                if walk.scores[v] <= limit:
                    waiting.append((walk.scores[v], v))
                if passes[v] and (walk.scores[v] <= limit or len(beam) < slack.kept):
                    beam.append((walk.scores[v], v))
        beam.sort()
        del beam[ef:]
        limit = slack.limit(beam)
        inside = [entry for entry in beam if entry[0] <= limit]
        beam[:] = beam[: max(slack.kept, len(inside))]
        worst = beam[-1] if len(beam) == ef else (np.inf, 0)
        waiting = sorted(entry for entry in waiting if entry[0] <= limit and entry <= worst)

    visit(graph.entries)
    while len(walk.scores) < budget and waiting:
        _, vertex = waiting.pop(0)
        walk.expanded.append(vertex)
        visit(graph.neighbors[vertex])
    return walk, beam
