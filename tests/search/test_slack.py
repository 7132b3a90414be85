"""Laws of searches with a slack."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from beam_search_twin import Slack, check_found, random_graph, slack_search
from indexes import SmallWorld
from l2route.search.base import BaseVectors
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, original_space

DIM = 3


@dataclass(frozen=True)
class Drawn:
    """Vectors, a query, a space, and its scores."""

    base: BaseVectors
    query: NDArray[np.float32]
    space: RoutingSpace
    scores: NDArray[np.float32]
    """Routing scores [n]."""
    true: NDArray[np.float32]
    """True distances, by which answers are ranked [n]."""
    offset: float
    """Scores plus the offset are proportional to squared distances."""


def draw(rng: np.random.Generator, n: int, kind: str) -> Drawn:
    """Vectors of small integers, whose scores are exact.

    `biased` routes by half the squared distances to other vectors, close to the true ones.
    """
    vectors = rng.integers(-3, 4, (n, DIM)).astype(np.float32)
    query = rng.integers(-3, 4, (1, DIM)).astype(np.float32)
    if kind == "cosine":
        vectors, query = (np.eye(DIM, dtype=np.float32)[rng.integers(0, DIM, m)] for m in (n, 1))
    base = BaseVectors.of(vectors, "cosine" if kind == "cosine" else "l2")
    true = ((vectors - query) ** 2).sum(axis=1)
    if kind == "biased":
        routed = vectors + rng.integers(-1, 2, vectors.shape).astype(np.float32)
        halves = (-0.5 * (routed**2).sum(axis=1)).astype(np.float32)
        rows = BaseVectors.of(routed, "l2").rows
        space = RoutingSpace(rows, DIM, "ip", bias=halves, origin=1.0)
        scores = -(routed @ query[0]) - halves
        return Drawn(base, query, space, scores, true, 0.5 * float((query**2).sum()))
    if kind == "cosine":
        true = -(vectors @ query[0])
        return Drawn(base, query, original_space(base), true, true, 1.0)
    return Drawn(base, query, original_space(base), true, true, 0.0)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    kind=st.sampled_from(["l2", "biased", "cosine"]),
    budget=st.none() | st.integers(1, 70),
    ef=st.none() | st.integers(1, 70),
    k=st.integers(1, 12),
    share=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)
def test_a_search_with_slack_equals_its_twin(
    seed: int, n: int, kind: str, budget: int | None, ef: int | None, k: int, share: float
) -> None:
    """The core equals the twin in ids, order, counts and visited vertices."""
    rng = np.random.default_rng(seed)
    drawn = draw(rng, n, kind)
    graph = random_graph(rng, n, 6, 0)
    n_rerank = 5 if kind == "biased" else 0
    total = None if budget is None else budget + n_rerank
    limits = Limits(total, ef, share, n_rerank)
    found = Searcher(graph, drawn.space, drawn.base).search(
        drawn.query, k, limits=limits, trace=True
    )

    walk, best = slack_search(
        graph,
        lambda v: float(drawn.scores[v]),
        n if budget is None else budget,
        max(ef or 2048, k, n_rerank),
        Slack(k, max(k, n_rerank), share, drawn.offset),
    )
    kept = best[:n_rerank] if n_rerank else best
    answers = sorted((float(drawn.true[v]), v) for _, v in kept)[:k]
    check_found(found, walk, answers, len(kept) if n_rerank else 0)


def test_more_slack_finds_no_less(small_world: SmallWorld) -> None:
    """A larger slack finds nearer answers at a higher cost, and costs differ by query."""
    searcher = Searcher(small_world.graph, original_space(small_world.base), small_world.base)
    every = [
        searcher.search(small_world.queries, 5, limits=Limits(slack=slack))
        for slack in (0.0, 0.1, 0.3, 1.0)
    ]
    sums = [float(np.minimum(found.distances, 1e9).sum()) for found in every]
    assert sums == sorted(sums, reverse=True)
    costs = [float(found.n_computed.mean()) for found in every]
    assert costs == sorted(costs)
    assert every[1].n_routing.std() > 0


def test_a_huge_slack_is_no_limit(small_world: SmallWorld) -> None:
    """A huge slack visits every vertex, unless the query equals one, at distance 0."""
    searcher = Searcher(small_world.graph, original_space(small_world.base), small_world.base)
    for queries, is_everywhere in (
        (small_world.queries, True),
        (small_world.base.vectors()[:20], False),
    ):
        every = [
            searcher.search(queries, 1, limits=Limits(slack=slack)).n_routing
            for slack in (1e6, 1e30)
        ]
        assert (every[0] == small_world.graph.n_vertices).all() == is_everywhere
        np.testing.assert_array_equal(*every)


def test_a_slack_that_cannot_be_kept_is_refused(small_world: SmallWorld) -> None:
    """Under ip, or if not finite, negative or with a beam beyond 2,048, a slack is refused."""
    searcher = Searcher(small_world.graph, original_space(small_world.base), small_world.base)
    for slack in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"expected a finite slack of at least 0, got {slack}"):
            searcher.search(small_world.queries, 5, limits=Limits(slack=slack))
    with pytest.raises(ValueError, match="expected ef of at most 2048 with a slack, got 2049"):
        searcher.search(small_world.queries, 5, limits=Limits(ef=2049, slack=0.1))
    products = BaseVectors.of(small_world.base.vectors(), "ip")
    searcher = Searcher(small_world.graph, original_space(products), products)
    with pytest.raises(ValueError, match=r"expected a space whose scores .* got 'original'"):
        searcher.search(small_world.queries, 5, limits=Limits(slack=0.1))
