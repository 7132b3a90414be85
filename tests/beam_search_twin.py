"""The slow twin of the core's beam search, and random searches to run both on."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route.graph.graph import Graph, UpperLayer
from l2route.search.base import BaseVectors, Scorer
from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.search.space import RoutingSpace

Score = Callable[[int], float]
"""The score of a vertex."""
Passes = NDArray[np.bool_]
"""Whether each vertex passes a filter [n]."""
DIM = 3
"""Dimension of the vectors of cases."""


@dataclass
class Walk:
    """Visited vertices with their scores and hops, in order, and the vertices expanded."""

    scores: dict[int, float] = field(default_factory=dict)
    hops: list[int] = field(default_factory=list)
    expanded: list[int] = field(default_factory=list)

    @property
    def n_hops(self) -> int:
        """Number of expanded vertices."""
        return len(self.expanded)

    def best(self, count: int, passes: Passes | None = None) -> list[tuple[float, int]]:
        """The best visited vertices, of those that pass, nearest first, ties by id."""
        visited = ((score, v) for v, score in self.scores.items() if passes is None or passes[v])
        return heapq.nsmallest(count, visited)


def beam_search(
    graph: Graph, score: Score, budget: int, ef: int | None = None, passes: Passes | None = None
) -> Walk:
    """Algorithm 1 of the paper with an exact budget, a beam width and HNSW's descent.

    Under a filter the walk leads through what does not pass; the beam holds what passes.
    """
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
            walk.expanded.append(nearest[1])
            visit(layer.neighbors[np.searchsorted(layer.vertices, nearest[1])])
            if walk.best(1) == [nearest]:
                break
    while heap and len(walk.scores) < budget:
        vertex = heapq.heappop(heap)
        beam = [] if ef is None else walk.best(ef, passes)
        if len(beam) == ef and vertex > beam[-1]:
            break
        walk.expanded.append(vertex[1])
        visit(graph.neighbors[vertex[1]])
    return walk


@dataclass
class Slack:
    """The slack of a walk. Scores plus `offset` are proportional to squared distances.

    The `kept` best vertices always stay in the beam.
    """

    k: int
    kept: int
    share: float
    offset: float

    def limit(self, beam: list[tuple[float, int]]) -> float:
        """The largest score of a vertex that may be expanded."""
        if len(beam) < self.k:
            return np.inf
        score = beam[self.k - 1][0]
        return score + ((1 + self.share) ** 2 - 1) * max(score + self.offset, 0.0)


def slack_search(
    graph: Graph, score: Score, budget: int, ef: int, slack: Slack
) -> tuple[Walk, list[tuple[float, int]]]:
    """Beam search with a slack: the walk, and the final beam, nearest first."""
    walk = Walk()
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
        waiting = [entry for entry in beam if entry[1] not in walk.expanded]
        if not waiting or waiting[0][0] > limit:
            break
        walk.expanded.append(waiting[0][1])
        visit(graph.neighbors[waiting[0][1]])
    return walk, beam


def random_graph(rng: np.random.Generator, n: int, width: int, n_layers: int) -> Graph:
    """A random directed graph with nested random upper layers."""

    def rows(vertices: NDArray[np.int32]) -> NDArray[np.int32]:
        lists = np.full((len(vertices), width), -1, dtype=np.int32)
        for row in lists:
            degree = rng.integers(0, width + 1)
            row[:degree] = rng.choice(vertices, degree)
        return lists

    every_vertex = np.arange(n, dtype=np.int32)
    layers: list[UpperLayer] = []
    members = every_vertex
    for _ in range(n_layers):
        members = np.sort(rng.choice(members, rng.integers(1, len(members) + 1), replace=False))
        layers.insert(0, UpperLayer(members, rows(members)))
    entries = rng.choice(members, 1 if n_layers else rng.integers(1, min(n, 3) + 1), replace=False)
    return Graph(rows(every_vertex), entries.astype(np.int32), tuple(layers))


@dataclass(frozen=True)
class Case:
    """A random graph over vectors of three dimensions, and a search of it."""

    seed: int
    n: int
    width: int
    n_layers: int
    scorer: Scorer
    is_integral: bool
    """Small integers make many ties, and scores that are exact in any order of additions."""
    is_biased: bool
    budget: int | None
    """Routing vectors that may be scored."""
    ef: int | None
    k: int
    share: float
    """Probability that a vertex passes a filter."""

    def drawn(self) -> tuple[Graph, BaseVectors, RoutingSpace, NDArray[np.float32], Passes]:
        """The graph, the vectors, the space, a query and what passes."""
        rng = np.random.default_rng(self.seed)

        def draw(*shape: int) -> NDArray[np.float32]:
            drawn = rng.integers(-2, 3, shape) if self.is_integral else rng.normal(size=shape)
            return drawn.astype(np.float32)

        base = BaseVectors.of(draw(self.n, DIM), self.scorer)
        graph = random_graph(rng, self.n, self.width, self.n_layers)
        bias = draw(self.n) if self.is_biased else None
        space = RoutingSpace(base.rows, DIM, base.scorer, bias=bias, is_exact=bias is None)
        return graph, base, space, draw(1, DIM), rng.random(self.n) < self.share

    @property
    def n_rerank(self) -> int:
        """True distances that are computed at most, in a space whose scores are not exact."""
        if not self.is_biased:
            return 0
        is_by_beam = self.budget is None and self.ef is not None
        return max(self.k, self.ef or 0) if is_by_beam else 5

    @property
    def most(self) -> int:
        """Routing vectors that are scored at most."""
        return self.n if self.budget is None else self.budget

    @property
    def beam(self) -> int | None:
        """Beam width of the walk; None if only the budget ends it."""
        return None if self.ef is None else max(self.ef, self.k, self.n_rerank)

    @property
    def limits(self) -> Limits:
        """The limits of the search."""
        if self.budget is None and self.ef is not None:
            return Limits(ef=self.ef)
        return Limits(self.most + self.n_rerank, self.ef, rerank=self.n_rerank)


CASES = st.builds(
    Case,
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 90),
    width=st.integers(1, 7),
    n_layers=st.integers(0, 3),
    scorer=st.sampled_from(["l2", "ip"]),
    is_integral=st.booleans(),
    is_biased=st.booleans(),
    budget=st.none() | st.integers(1, 100),
    ef=st.none() | st.integers(1, 70) | st.integers(513, 600),
    k=st.integers(1, 12),
    share=st.sampled_from([0.0, 0.05, 0.3, 0.7, 1.0]),
)
"""Searches of every kind."""


def check_found(
    found: SearchResult, walk: Walk, answers: list[tuple[float, int]], n_rerank: int
) -> None:
    """Assert that the core equals the twin in ids, order, counts and visited vertices.

    Args:
        found: result of the core for one query, with a trace.
        walk: walk of the twin.
        answers: distances and ids found by the twin, nearest first.
        n_rerank: true distances that the twin computed.
    """
    missing = found.ids.shape[1] - len(answers)
    assert found.ids[0].tolist() == [v for _, v in answers] + [-1] * missing
    assert found.n_routing[0] == len(walk.scores)
    assert found.n_rerank[0] == n_rerank
    assert found.n_hops[0] == walk.n_hops
    assert found.trace is not None
    assert found.trace.of(0).tolist() == list(walk.scores)
    assert found.trace.hops.tolist() == walk.hops
    assert found.trace.expanded.tolist() == walk.expanded
    assert found.trace.hop_offsets.tolist() == [0, walk.n_hops]
    np.testing.assert_allclose(found.trace.scores, list(walk.scores.values()), rtol=1e-4, atol=1e-4)
