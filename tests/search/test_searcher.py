from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from beam_search_twin import Slack, beam_search, slack_search
from conftest import SmallWorld
from l2route import _core
from l2route.data.vectors import Metric
from l2route.graph.build import GraphOptions, build_graph
from l2route.graph.graph import Graph, UpperLayer
from l2route.search.base import BaseVectors
from l2route.search.layout import pad_rows, padded_dim
from l2route.search.limits import Budget
from l2route.search.origin import with_origin
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, original_space, pca_space
from scores_twin import scores_of

SIMD_LEVELS = _core.simd_levels()

# Total, D, C, k, rDCS of every compressed and uncompressed cell of the paper's Table 1.
TABLE_1 = [
    *((128, 128, 1, 0, 128), (128, 128, 1, 8, 120), (128, 128, 2, 8, 112), (128, 128, 4, 16, 320)),
    *((256, 128, 1, 0, 256), (256, 128, 1, 8, 248), (256, 128, 2, 16, 352)),
    *((256, 128, 4, 32, 768), (512, 128, 1, 0, 512), (512, 128, 1, 16, 496)),
    *((512, 128, 2, 64, 768), (128, 96, 1, 0, 128), (128, 96, 1, 8, 120), (128, 96, 2, 8, 144)),
    *((128, 96, 4, 32, 288), (256, 96, 1, 0, 256), (256, 96, 1, 8, 248), (256, 96, 2, 16, 384)),
    *((256, 96, 4, 64, 672), (512, 96, 1, 0, 512), (512, 96, 1, 16, 496), (512, 96, 2, 64, 800)),
    *((128, 300, 1, 0, 128), (128, 300, 1, 8, 120), (128, 300, 4, 8, 180), (256, 300, 1, 0, 256)),
    *((256, 300, 1, 8, 248), (256, 300, 2, 8, 196), (256, 300, 4, 32, 596)),
    *((512, 300, 1, 0, 512), (512, 300, 1, 16, 496), (512, 300, 2, 32, 660)),
]


@pytest.mark.parametrize(("total", "dim", "compression", "rerank", "routing"), TABLE_1)
def test_budget_reproduces_table_1(
    total: int, dim: int, compression: int, rerank: int, routing: int
) -> None:
    """A total budget buys the rDCS of the paper's Table 1, and spending it costs the total."""
    budget = Budget.of_total(total, dim, dim // compression, rerank)
    assert budget == Budget(routing, rerank)
    assert budget.cost(dim, dim // compression) == total


@given(
    total=st.integers(1, 2000),
    dim=st.integers(1, 400),
    routing_dim=st.integers(1, 400),
    rerank=st.integers(0, 100),
    projected=st.sampled_from([None, True, False]),
)
def test_a_total_is_never_overspent(
    total: int, dim: int, routing_dim: int, rerank: int, projected: bool | None
) -> None:
    """A budget made of a total costs at most the total, and one more routing step would not fit."""
    try:
        budget = Budget.of_total(total, dim, routing_dim, rerank, projected)
    except ValueError as error:
        assert "expected a budget that leaves something to route with" in str(error)  # noqa: PT017 # either way is lawful
        return
    assert budget.cost(dim, routing_dim, projected) <= total
    more = Budget(budget.routing + 1, rerank)
    assert more.cost(dim, routing_dim, projected) > total


@pytest.mark.parametrize("simd", SIMD_LEVELS)
@pytest.mark.parametrize("scorer", ["l2", "ip"])
@given(dim=st.integers(1, 70), n=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_scores_equal_numpy(simd: str, scorer: str, dim: int, n: int, seed: int) -> None:
    """Every kernel scores rows as numpy does in double precision."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, dim)).astype(np.float32)
    query = rng.normal(size=dim).astype(np.float32)
    scores = _core.Rows(pad_rows(rows), scorer, simd=simd).scores(pad_rows(query[None])[0])
    np.testing.assert_allclose(scores, scores_of(rows, query, scorer), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif("avx512" not in SIMD_LEVELS, reason="needs both kernels")
@given(dim=st.integers(1, 300), scorer=st.sampled_from(["l2", "ip"]), seed=st.integers(0, 999))
def test_fused_kernels_agree_to_the_last_bit(dim: int, scorer: str, seed: int) -> None:
    """AVX2 and AVX-512 add in the same order, so an answer does not depend on the machine."""
    rng = np.random.default_rng(seed)
    rows = pad_rows(rng.normal(size=(6, dim)).astype(np.float32))
    query = pad_rows(rng.normal(size=(1, dim)).astype(np.float32))[0]
    scores = [_core.Rows(rows, scorer, simd=simd).scores(query) for simd in ("avx2", "avx512")]
    np.testing.assert_array_equal(scores[0], scores[1])


def random_graph(rng: np.random.Generator, n: int, width: int, n_layers: int) -> Graph:
    """Any directed graph at all, with nested upper layers of any wiring."""

    def rows(vertices: NDArray[np.int32]) -> NDArray[np.int32]:
        lists = np.full((len(vertices), width), -1, dtype=np.int32)
        for row in lists:
            degree = rng.integers(0, width + 1)
            row[:degree] = rng.choice(vertices, degree)
        return lists

    everyone = np.arange(n, dtype=np.int32)
    layers: list[UpperLayer] = []
    members = everyone
    for _ in range(n_layers):
        members = np.sort(rng.choice(members, rng.integers(1, len(members) + 1), replace=False))
        layers.insert(0, UpperLayer(members, rows(members)))
    entries = rng.choice(members, 1 if n_layers else rng.integers(1, min(n, 3) + 1), replace=False)
    return Graph(rows(everyone), entries.astype(np.int32), tuple(layers))


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    width=st.integers(1, 7),
    n_layers=st.integers(0, 3),
    scorer=st.sampled_from(["l2", "ip"]),
    integral=st.booleans(),
    biased=st.booleans(),
    budget=st.none() | st.integers(1, 70),
    ef=st.none() | st.integers(1, 70) | st.integers(513, 600),
    k=st.integers(1, 12),
    simd=st.sampled_from(SIMD_LEVELS),
)
def test_search_equals_its_twin(
    seed: int,
    n: int,
    width: int,
    n_layers: int,
    scorer: str,
    integral: bool,
    biased: bool,
    budget: int | None,
    ef: int | None,
    k: int,
    simd: str,
) -> None:
    """The core answers as the heapq twin: ids, order, counts and everything visited."""
    rng = np.random.default_rng(seed)
    dim = 3
    # Small integers make many ties, and scores that are exact whatever the order of additions.
    draw = (lambda *s: rng.integers(-2, 3, s)) if integral else (lambda *s: rng.normal(size=s))
    base = BaseVectors.of(draw(n, dim), "l2" if scorer == "l2" else "ip")
    graph = random_graph(rng, n, width, n_layers)
    bias = draw(n).astype(np.float32) if biased else None
    space = RoutingSpace(base.rows, dim, base.scorer, bias=bias, is_exact=not biased)
    query = draw(1, dim).astype(np.float32)

    scores = _core.Rows(base.rows, scorer, simd=simd).scores(pad_rows(query)[0])
    routing = scores if bias is None else scores - bias
    if budget is None and ef is None:
        budget = n
    rerank = 5 if biased else 0
    limit = None if budget is None else Budget(budget, rerank)
    found = Searcher(graph, space, base, simd).search(query, k, limit, ef, trace=True)

    n_rerank = 0 if not biased else max(k, ef or 0) if limit is None else rerank
    beam = None if ef is None else max(ef, k, n_rerank)
    walk = beam_search(graph, lambda v: float(routing[v]), n if budget is None else budget, beam)
    kept = [v for _, v in walk.best(n_rerank)] if biased else list(walk.scores)
    answers = sorted((float(scores[v]), v) for v in kept)[:k]
    missing = k - len(answers)
    assert found.ids[0].tolist() == [v for _, v in answers] + [-1] * missing
    assert found.distances[0].tolist() == [s for s, _ in answers] + [np.inf] * missing
    assert found.n_routing[0] == len(walk.scores)
    assert found.n_rerank[0] == (len(kept) if biased else 0)
    assert found.n_hops[0] == walk.n_hops
    assert found.trace is not None
    assert found.trace.of(0).tolist() == list(walk.scores)
    assert found.trace.hops.tolist() == walk.hops


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    metric=st.sampled_from(["l2", "biased", "cosine"]),
    budget=st.none() | st.integers(1, 70),
    ef=st.none() | st.integers(1, 70),
    k=st.integers(1, 12),
    share=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)
def test_a_search_with_slack_equals_its_twin(
    seed: int, n: int, metric: str, budget: int | None, ef: int | None, k: int, share: float
) -> None:
    """The core ends as the twin does: ids, order, counts and everything visited.

    Small integers have exact scores; `biased` routes by inner products that are half the distances
    of other vectors, not far from the true ones.
    """
    rng = np.random.default_rng(seed)
    dim = 3
    vectors = rng.integers(-3, 4, (n, dim)).astype(np.float32)
    query = rng.integers(-3, 4, (1, dim)).astype(np.float32)
    if metric == "cosine":
        vectors, query = (np.eye(3, dtype=np.float32)[rng.integers(0, 3, m)] for m in (n, 1))
    base = BaseVectors.of(vectors, "cosine" if metric == "cosine" else "l2")
    graph = random_graph(rng, n, 6, 0)
    space, scores = original_space(base), ((vectors - query) ** 2).sum(axis=1)
    true, offset, n_rerank = scores, 0.0, 0
    if metric == "biased":
        routed = vectors + rng.integers(-1, 2, vectors.shape).astype(np.float32)
        halves = (-0.5 * (routed**2).sum(axis=1)).astype(np.float32)
        rows = BaseVectors.of(routed, "l2").rows
        space = RoutingSpace(rows, dim, "ip", bias=halves, origin=1.0)
        scores = -(routed @ query[0]) - halves
        offset, n_rerank = 0.5 * float((query**2).sum()), 5
    if metric == "cosine":
        scores, offset = -(vectors @ query[0]), 1.0
        true = scores

    limit = None if budget is None else Budget(budget, n_rerank)
    found = Searcher(graph, space, base).search(
        query, k, limit, ef, trace=True, slack=share, rerank=n_rerank or None
    )

    slack = Slack(k, max(k, n_rerank), share, offset)
    beam = max(ef or 2048, k, n_rerank)
    walk, best = slack_search(
        graph, lambda v: float(scores[v]), n if budget is None else budget, beam, slack
    )
    kept = best[:n_rerank] if n_rerank else best
    answers = sorted((float(true[v]), v) for _, v in kept)[:k]
    missing = k - len(answers)
    assert found.ids[0].tolist() == [v for _, v in answers] + [-1] * missing
    assert found.n_routing[0] == len(walk.scores)
    assert found.n_rerank[0] == (len(kept) if n_rerank else 0)
    assert found.n_hops[0] == walk.n_hops
    assert found.trace is not None
    assert found.trace.of(0).tolist() == list(walk.scores)


def test_more_slack_finds_no_less(small_world: SmallWorld) -> None:
    """And costs more; crowded queries take longer than others."""
    searcher = Searcher(small_world.graph, original_space(small_world.base), small_world.base)
    every = [searcher.search(small_world.queries, 5, slack=s) for s in (0.0, 0.1, 0.3, 1.0)]
    sums = [float(np.minimum(found.distances, 1e9).sum()) for found in every]
    assert sums == sorted(sums, reverse=True)
    costs = [float(found.n_computed.mean()) for found in every]
    assert costs == sorted(costs)
    assert every[1].n_routing.std() > 0


def test_a_slack_without_end_is_no_end(small_world: SmallWorld) -> None:
    """However large, unless a query is a vertex: no multiple of no distance is far."""
    searcher = Searcher(small_world.graph, original_space(small_world.base), small_world.base)
    for queries, is_everywhere in (
        (small_world.queries, True),
        (small_world.base.vectors()[:20], False),
    ):
        every = [searcher.search(queries, 1, slack=slack).n_routing for slack in (1e6, 1e30)]
        assert (every[0] == small_world.graph.n_vertices).all() == is_everywhere
        np.testing.assert_array_equal(*every)


@pytest.mark.parametrize("simd", _core.simd_levels())
def test_what_is_no_number_is_farthest(simd: str) -> None:
    """Products beyond what floats hold are the difference of two infinities: nobody's answer.

    Vectors that a user gives are refused before; those of a file are not looked at one by one.
    """
    vectors = np.array([[1e30, -1e30], [1, 1], [-1, 0.5]], dtype=np.float32)
    neighbors = np.array([[1, 2], [0, 2], [0, 1]], dtype=np.int32)
    graph = Graph(neighbors, np.zeros(1, dtype=np.int32))
    base = BaseVectors(pad_rows(vectors), 2, "ip")
    searcher = Searcher(graph, original_space(base), base, simd)
    query = np.array([1e15, 1e15], dtype=np.float32)
    for limit in ({"ef": 3}, {"budget": Budget(3)}):
        found = searcher.search(query, 3, **limit)
        assert found.ids.tolist() == [[1, 2, 0]]
        assert found.distances[0, 2] == np.inf


def test_what_a_slack_needs_is_said(small_world: SmallWorld) -> None:
    """Distances, a number of at least 0, and a beam that can be kept in order."""
    searcher = Searcher(small_world.graph, original_space(small_world.base), small_world.base)
    for slack in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match="expected a slack of at least 0, got"):
            searcher.search(small_world.queries, 5, slack=slack)
    with pytest.raises(ValueError, match="expected ef of at most 2048 with a slack, got 2049"):
        searcher.search(small_world.queries, 5, ef=2049, slack=0.1)
    products = BaseVectors.of(small_world.base.vectors(), "ip")
    searcher = Searcher(small_world.graph, original_space(products), products)
    with pytest.raises(ValueError, match="expected a space whose scores are distances"):
        searcher.search(small_world.queries, 5, slack=0.1)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("projected", [False, True])
def test_scores_with_an_origin_are_distances(metric: Metric, projected: bool) -> None:
    """Of inner products with biases, on any scale, whatever all vertices have in common."""
    rng = np.random.default_rng(0)
    base = BaseVectors.of(rng.normal(size=(500, 8)) + 1, metric)
    vectors = base.vectors()
    matrix = np.linalg.qr(rng.normal(size=(8, 8)))[0][:4].astype(np.float32) if projected else None
    routed = vectors if matrix is None else vectors @ matrix.T  # [n, d]
    dim = routed.shape[1]
    rows = pad_rows(7 * routed - rng.normal(size=dim).astype(np.float32))
    bias = (2.5 - 3.5 * (routed**2).sum(axis=1)).astype(np.float32)
    space = RoutingSpace(rows, dim, "ip", matrix, bias)
    told = with_origin(space, base)
    assert told.origin is not None
    queries = routed[:20]
    squares = (queries**2).sum(axis=1)[:, None]
    scores = queries @ told.rows[:, :dim].T + told.bias  # [20, n]
    true = ((queries[:, None] - routed) ** 2).sum(axis=2)
    np.testing.assert_allclose(told.origin * squares / 2 - scores, 3.5 * true, atol=1e-3)
    np.testing.assert_array_equal(space.rows, rows)
    products = BaseVectors.of(vectors, "ip")
    assert with_origin(space, products).origin is None
    assert with_origin(original_space(products), products).origin is None


@given(seed=st.integers(0, 2**32 - 1), ef=st.none() | st.integers(1, 20))
def test_projection_equals_its_twin(seed: int, ef: int | None) -> None:
    """A query is multiplied by the matrix, routed, reranked in the original space and charged."""
    rng = np.random.default_rng(seed)
    n, dim, routing_dim = 40, 6, 2
    base = BaseVectors.of(rng.integers(-3, 4, (n, dim)), "l2")
    matrix = rng.integers(-2, 3, (routing_dim, dim)).astype(np.float32)
    routing_vectors = rng.integers(-9, 10, (n, routing_dim)).astype(np.float32)
    space = RoutingSpace(pad_rows(routing_vectors), routing_dim, "ip", matrix)
    graph = random_graph(rng, n, 5, 0)
    query = rng.integers(-3, 4, (1, dim)).astype(np.float32)

    found = Searcher(graph, space, base).search(query, 4, Budget(25, 6), ef)

    routing = -routing_vectors @ (matrix @ query[0])
    beam = None if ef is None else max(ef, 6)
    walk = beam_search(graph, lambda v: float(routing[v]), 25, beam)
    true = ((base.vectors() - query) ** 2).sum(axis=1)
    answers = sorted((float(true[v]), v) for _, v in walk.best(6))[:4]
    assert [v for v in found.ids[0].tolist() if v >= 0] == [v for _, v in answers]
    assert found.n_projection == routing_dim
    spent = len(walk.scores) * routing_dim / dim + routing_dim + found.n_rerank[0]
    assert found.n_computed[0] == pytest.approx(spent)


@pytest.mark.parametrize("rerank", [0, 8])
@pytest.mark.parametrize("routing", [1, 7, 64, 333])
def test_budget_is_never_exceeded(small_world: SmallWorld, routing: int, rerank: int) -> None:
    """A search computes at most as many distances as its budget allows, and all of them here."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    result = searcher.search(small_world.queries, 3, Budget(routing, rerank))
    assert (result.n_computed == routing).all()


def test_exhaustive_search_is_exact(small_world: SmallWorld) -> None:
    """A budget that covers a connected graph finds the true neighbours."""
    vectors = small_world.base.vectors()
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    result = searcher.search(small_world.queries, 5, Budget(len(vectors)))
    true = ((vectors[None] - small_world.queries[:, None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(result.ids, np.argsort(true, axis=1, kind="stable")[:, :5])
    assert (result.n_computed == len(vectors)).all()


def test_a_vertex_finds_itself(small_world: SmallWorld) -> None:
    """Self-recall is 1: an exhaustive beam finds every vector at distance 0."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    result = searcher.search(small_world.base.vectors(), 1, ef=600)
    np.testing.assert_array_equal(result.ids[:, 0], np.arange(len(small_world.base.rows)))
    assert (result.distances == 0).all()


def answers(result: SearchResult) -> list[NDArray[np.generic]]:
    """What two searches must share to be the same."""
    return [result.ids, result.distances, result.n_routing, result.n_hops]


@pytest.mark.parametrize("n_threads", [2, 3, 8])
def test_threads_change_nothing(small_world: SmallWorld, n_threads: int) -> None:
    """Any number of threads gives the answers, counts and traces of one."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    one = searcher.search(small_world.queries, 5, Budget(100), n_threads=1, trace=True)
    many = searcher.search(small_world.queries, 5, Budget(100), n_threads=n_threads, trace=True)
    for a, b in zip(answers(one), answers(many), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.trace is not None
    assert many.trace is not None
    np.testing.assert_array_equal(one.trace.vertices, many.trace.vertices)
    np.testing.assert_array_equal(one.trace.offsets, many.trace.offsets)


def test_one_query_is_a_batch_of_one(small_world: SmallWorld) -> None:
    """Queries searched one by one, also as plain vectors, answer as in a batch."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    batch = searcher.search(small_world.queries, 5, Budget(100))
    single = [searcher.search(query, 5, Budget(100)) for query in small_world.queries]
    for i, result in enumerate(single):
        for a, b in zip(answers(batch), answers(result), strict=True):
            np.testing.assert_array_equal(a[i], b[0])


def test_visited_stamps_survive_many_searches(small_world: SmallWorld) -> None:
    """The 8-bit stamps wrap around without forgetting or inventing a visit."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    query = small_world.queries[:1]
    first = searcher.search(query, 5, Budget(200))
    for _ in range(600):
        again = searcher.search(query, 5, Budget(200))
        np.testing.assert_array_equal(first.ids, again.ids)
        assert first.n_hops == again.n_hops


def test_a_wider_beam_finds_no_less(small_world: SmallWorld) -> None:
    """Over many queries a wider beam computes more and finds nearer neighbours."""
    searcher = Searcher(small_world.graph, small_world.space, small_world.base)
    results = [searcher.search(small_world.queries, 1, ef=ef) for ef in (1, 8, 64, 512)]
    for narrow, wide in pairwise(results):
        assert wide.n_routing.mean() > narrow.n_routing.mean()
        assert wide.distances.mean() <= narrow.distances.mean()


def test_hnsw_descent_starts_near_the_answer() -> None:
    """Upper layers bring a search nearer within few distances than the bottom layer alone does."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(3000, 4)).astype(np.float32)
    queries = rng.normal(size=(200, 4)).astype(np.float32)
    layered = build_graph(vectors, options=GraphOptions("hnsw", degree=8, ef_construction=40))
    base = BaseVectors.of(vectors, "l2")
    far = int(((vectors - vectors.mean(axis=0)) ** 2).sum(axis=1).argmax())
    flat = layered.entered_at([far])
    budget = Budget(60)
    found = [
        Searcher(graph, original_space(base), base).search(queries, 1, budget).distances.mean()
        for graph in (layered, flat)
    ]
    assert found[0] < 0.75 * found[1]


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_pca_space_keeps_the_scores_it_can(metric: str) -> None:
    """On vectors of low rank, PCA to that rank ranks as the original space does."""
    rng = np.random.default_rng(2)
    vectors = (rng.normal(size=(300, 3)) @ rng.normal(size=(3, 10))).astype(np.float32)
    base = BaseVectors.of(vectors, metric)  # type: ignore[arg-type] # a parameter of the test
    graph = build_graph(vectors, metric, GraphOptions("knn", degree=12))
    queries = vectors[:30] + 0.1 * vectors[30:60]
    exact = Searcher(graph, original_space(base), base).search(queries, 5, Budget(300))
    compressed = Searcher(graph, pca_space(base, 3), base).search(queries, 5, Budget(300, 20))
    np.testing.assert_allclose(exact.distances, compressed.distances, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_distances_follow_the_convention(metric: str) -> None:
    """Distances are squared l2, negative inner products or one minus the cosine."""
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(50, 7))
    vectors[3] = 0  # no direction: its cosine with anything is 0
    query = rng.normal(size=(1, 7))
    base = BaseVectors.of(vectors, metric)  # type: ignore[arg-type] # a parameter of the test
    graph = build_graph(vectors, metric, GraphOptions("knn", degree=49))
    result = Searcher(graph, original_space(base), base).search(query, 50, Budget(50))
    lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
    expected = {
        "l2": ((vectors - query) ** 2).sum(axis=1),
        "ip": -vectors @ query[0],
        "cosine": 1 - vectors @ query[0] / lengths / np.linalg.norm(query),
    }[metric]
    np.testing.assert_allclose(result.distances[0], np.sort(expected), rtol=1e-4, atol=1e-5)
    assert sorted(result.ids[0].tolist()) == list(range(50))


@pytest.mark.parametrize("degree", [2**61, 2**62 + 1, 2**63])
def test_arrays_beyond_what_can_be_counted_are_refused(degree: int) -> None:
    """A size that overflows is not taken for a small one."""
    rows = _core.Rows(pad_rows(np.zeros((8, 3), np.float32)), "l2")
    candidates = np.zeros((8, 1), np.int32)
    with pytest.raises(ValueError, match="expected arrays that a memory can hold"):
        _core.pruned_lists(rows=rows, candidates=candidates, degree=degree, alpha=1, n_threads=1)


def test_spaces_and_searchers_refuse_what_does_not_fit(small_world: SmallWorld) -> None:
    """Shapes that do not belong together are refused, stating what was expected."""
    base, graph, space = small_world.base, small_world.graph, small_world.space
    with pytest.raises(ValueError, match=r"expected rows \[1000, 16\], got \(1000, 15\)"):
        RoutingSpace(base.rows[:, :15], 12, "l2")
    with pytest.raises(ValueError, match="expected scorer l2 or ip"):
        RoutingSpace(base.rows, 12, "cosine")  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(ValueError, match=r"expected a bias \[1000\]"):
        RoutingSpace(base.rows, 12, "ip", bias=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"expected a query matrix \[12, \*\]"):
        RoutingSpace(base.rows, 12, "ip", query_matrix=np.zeros((3, 12), np.float32))
    with pytest.raises(ValueError, match="as many routing vectors"):
        Searcher(graph, space, BaseVectors.of(base.vectors()[:5], "l2"))
    wrong_matrix = RoutingSpace(base.rows, 12, "ip", np.zeros((12, 5), np.float32))
    with pytest.raises(ValueError, match=r"expected a query matrix \[\*, 12\]"):
        Searcher(graph, wrong_matrix, base)
    no_matrix = RoutingSpace(np.zeros((1000, padded_dim(3)), np.float32), 3, "ip")
    with pytest.raises(ValueError, match="expected a query matrix from 12 to 3"):
        Searcher(graph, no_matrix, base)
    with pytest.raises(ValueError, match=r"expected a PCA dimension in \[1, 12\), got 12"):
        pca_space(base, 12)
    with pytest.raises(ValueError, match="no SIMD level 'mmx'"):
        Searcher(graph, space, base, simd="mmx")
