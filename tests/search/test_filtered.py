"""Laws of searches under a filter: they equal their twins, whichever way they go."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from beam_search_twin import CASES, DIM, Case, Slack, beam_search, check_found, random_graph
from filtered_twin import look_search, slack_sieve_search
from l2route import _core
from l2route.data.vectors import Metric
from l2route.index import RoutingIndex
from l2route.search.base import BaseVectors
from l2route.search.codes import compress_space, to_float16
from l2route.search.layout import pad_rows
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher, Way
from l2route.search.space import RoutingSpace, original_space

WAYS: tuple[Way, ...] = ("scan", "look", "sieve")


def core_filter(passes: NDArray[np.bool_]) -> _core.Filter:
    """A filter of the core over all rows."""
    words = np.zeros(-(-len(passes) // 64), dtype=np.uint64)
    for row in np.flatnonzero(passes).tolist():
        words[row // 64] |= np.uint64(1) << np.uint64(row % 64)
    return _core.Filter(words, len(passes))


@given(case=CASES, way=st.sampled_from(["look", "sieve"]))
def test_walks_equal_their_twins(case: Case, way: Way) -> None:
    """Walks on what passes, and through the rest, equal their twins in everything they return."""
    graph, base, space, query, passes = case.drawn()
    found = Searcher(graph, space, base).search(
        query, case.k, limits=case.limits, trace=True, filters=[core_filter(passes)], way=way
    )

    scores = _core.Rows(base.rows, case.scorer).scores(pad_rows(query)[0])
    routing = scores if space.bias is None else scores - space.bias
    twin = look_search if way == "look" else beam_search
    walk = twin(graph, lambda v: float(routing[v]), case.most, case.beam, passes)
    kept = [v for _, v in walk.best(case.n_rerank or case.n, passes)]
    answers = sorted((float(scores[v]), v) for v in kept)[: case.k]
    check_found(found, walk, answers, len(kept) if case.n_rerank else 0)
    missing = case.k - len(answers)
    assert found.distances[0].tolist() == [s for s, _ in answers] + [np.inf] * missing


@given(case=CASES, slack=st.sampled_from([0.0, 0.1, 0.5, 3.0]), rerank=st.integers(1, 20))
def test_walk_with_slack_equals_its_twin(case: Case, slack: float, rerank: int) -> None:
    """The slack of a walk is measured from the k-th best that passes."""
    rng = np.random.default_rng(case.seed)
    base = BaseVectors.of(rng.integers(-3, 4, (case.n, DIM)).astype(np.float32), "l2")
    graph = random_graph(rng, case.n, case.width, 0)
    bias = rng.integers(-2, 3, case.n).astype(np.float32) if case.is_biased else None
    space = RoutingSpace(base.rows, DIM, "l2", bias=bias, is_exact=bias is None, origin=0.0)
    query, passes = rng.integers(-3, 4, (1, DIM)).astype(np.float32), rng.random(case.n) < 0.6
    limits = Limits(ef=case.ef, slack=slack, rerank=rerank if case.is_biased else None)
    found = Searcher(graph, space, base).search(
        query, case.k, limits=limits, trace=True, filters=[core_filter(passes)], way="sieve"
    )

    scores = ((base.vectors() - query) ** 2).sum(axis=1)
    routing = scores if bias is None else scores - bias
    n_rerank = rerank if case.is_biased else 0
    beam = min(max(case.ef or 4096, case.k, n_rerank), case.n)
    walk, kept = slack_sieve_search(
        graph,
        lambda v: float(routing[v]),
        passes,
        case.n,
        beam,
        Slack(case.k, max(case.k, n_rerank), slack, 0.0),
    )
    best = kept[:n_rerank] if case.is_biased else kept[: case.k]
    answers = sorted((float(scores[v]), v) for _, v in best)[: case.k]
    check_found(found, walk, answers, len(best) if case.is_biased else 0)


@given(case=CASES, scan_rerank=st.integers(0, 20))
def test_scans_equal_brute_force(case: Case, scan_rerank: int) -> None:
    """A scan ranks all that pass: by true distance, or by routing scores and then reranked."""
    graph, base, space, query, passes = case.drawn()
    found = Searcher(graph, space, base).search(
        query,
        case.k,
        limits=Limits(ef=case.ef),
        filters=[core_filter(passes)],
        way="scan",
        scan_rerank=scan_rerank,
    )
    scores = _core.Rows(base.rows, case.scorer).scores(pad_rows(query)[0])
    routing = scores if space.bias is None else scores - space.bias
    rows = np.flatnonzero(passes).tolist()
    if case.is_biased and scan_rerank:
        rows.sort(key=lambda v: (float(routing[v]), v))
        rows = rows[: max(scan_rerank, case.k)]
    answers = sorted((float(scores[v]), v) for v in rows)[: case.k]
    missing = case.k - len(answers)
    assert found.ids[0].tolist() == [v for _, v in answers] + [-1] * missing
    assert found.distances[0].tolist() == [s for s, _ in answers] + [np.inf] * missing
    n_scanned = int(passes.sum())
    by_routing = not case.is_biased or scan_rerank > 0
    assert found.n_routing[0] == (n_scanned if by_routing else 0)
    assert found.n_rerank[0] == (len(rows) if case.is_biased else 0)


@given(case=CASES, seed=st.integers(0, 2**32 - 1))
def test_whatever_passes_is_found(case: Case, seed: int) -> None:
    """Without a budget a search finds as many as pass, up to k, and nothing else."""
    graph, base, space, _, passes = case.drawn()
    queries = np.random.default_rng(seed).normal(size=(3, DIM)).astype(np.float32)
    found = Searcher(graph, space, base).search(
        queries, case.k, limits=Limits(ef=case.ef or 1), filters=[core_filter(passes)]
    )
    assert ((found.ids >= 0).sum(axis=1) == min(case.k, passes.sum())).all()
    assert passes[found.ids[found.ids >= 0]].all()


@given(case=CASES)
def test_exhaustive_search_is_exact(case: Case) -> None:
    """A beam as wide as the index finds the nearest that pass."""
    graph, base, space, query, passes = case.drawn()
    found = Searcher(graph, space, base).search(
        query, case.k, limits=Limits(ef=case.n), filters=[core_filter(passes)]
    )
    scores = _core.Rows(base.rows, case.scorer).scores(pad_rows(query)[0])
    nearest = sorted((float(scores[v]), v) for v in np.flatnonzero(passes).tolist())[: case.k]
    assert found.ids[0][: len(nearest)].tolist() == [v for _, v in nearest]


@given(case=CASES, budget=st.integers(1, 100))
def test_budgets_hold_under_filters(case: Case, budget: int) -> None:
    """No more distances are computed than the budget allows, whatever passes."""
    graph, base, space, query, passes = case.drawn()
    rerank = 1 if case.is_biased else 0
    found = Searcher(graph, space, base).search(
        query,
        case.k,
        limits=Limits(budget + rerank, case.ef, rerank=rerank or None),
        filters=[core_filter(passes)],
    )
    assert found.n_computed[0] <= budget + rerank
    assert passes[found.ids[found.ids >= 0]].all()


@given(
    seed=st.integers(0, 2**32 - 1), n_queries=st.integers(1, 9), way=st.sampled_from([*WAYS, "any"])
)
def test_filters_of_queries_are_independent(seed: int, n_queries: int, way: Way) -> None:
    """A filter per query gives the answers of separate searches, and so do several threads."""
    rng = np.random.default_rng(seed)
    base = BaseVectors.of(rng.normal(size=(200, DIM)), "l2")
    searcher = Searcher(random_graph(rng, 200, 6, 0), original_space(base), base)
    queries = rng.normal(size=(n_queries, DIM)).astype(np.float32)
    filters = [core_filter(rng.random(200) < share) for share in rng.random(n_queries)]
    together = searcher.search(
        queries, 5, limits=Limits(ef=20), filters=filters, way=way, n_threads=2
    )
    for i, query in enumerate(queries):
        alone = searcher.search(query, 5, limits=Limits(ef=20), filters=[filters[i]], way=way)
        assert together.ids[i].tolist() == alone.ids[0].tolist()
        assert together.n_routing[i] == alone.n_routing[0]


@given(case=CASES, other_ef=st.integers(1, 70), n_work=st.integers(0, 500))
def test_sieves_have_limits_of_their_own(case: Case, other_ef: int, n_work: int) -> None:
    """Walks through the rest end by the limits for them, walks on what passes by the others."""
    graph, base, space, query, passes = case.drawn()
    searcher, own, other = (
        Searcher(graph, space, base),
        Limits(ef=case.ef or 9),
        Limits(ef=other_ef),
    )
    filters = [core_filter(passes)]
    for way, limits in (("sieve", other), ("look", own)):
        both = searcher.plan(case.k, limits=own, filters=filters, way=way, sieve=(other, n_work))(
            query
        )
        alone = searcher.search(query, case.k, limits=limits, filters=filters, way=way)
        assert both.ids.tolist() == alone.ids.tolist()
        assert both.counts.tolist() == alone.counts.tolist()


@given(case=CASES, n_work=st.integers(0, 200), n_queries=st.integers(1, 40))
def test_whatever_passes_is_found_by_sieves_too(case: Case, n_work: int, n_queries: int) -> None:
    """Walks that give up are followed by others; the number of threads changes nothing."""
    graph, base, space, _, passes = case.drawn()
    queries = np.random.default_rng(case.seed).normal(size=(n_queries, DIM)).astype(np.float32)
    found = [
        Searcher(graph, space, base).plan(
            case.k,
            limits=Limits(ef=case.ef or 1),
            filters=[core_filter(passes)],
            n_work=n_work,
            n_threads=n_threads,
            sieve=(Limits(ef=3), n_work),
        )(queries)
        for n_threads in (1, 3)
    ]
    assert ((found[0].ids >= 0).sum(axis=1) == min(case.k, passes.sum())).all()
    assert passes[found[0].ids[found[0].ids >= 0]].all()
    assert found[0].ids.tolist() == found[1].ids.tolist()
    assert found[0].counts.tolist() == found[1].counts.tolist()


def test_sieves_give_up_where_nothing_near_passes() -> None:
    """If hardly any of the nearest pass, a walk on what passes follows after a few hops."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20000, 8)).astype(np.float32)
    index = RoutingIndex.build(vectors, degree=12, ef_construction=40)
    query = vectors[:1]
    order = np.argsort(((vectors - query) ** 2).sum(axis=1))
    far, near = np.zeros(20000, dtype=bool), np.zeros(20000, dtype=bool)
    far[order[6000:]], near[order[:14000]] = True, True
    found = [
        index.searcher().plan(
            10, limits=Limits(ef=64), filters=[core_filter(passes)], sieve=(Limits(ef=64), 200)
        )(query)
        for passes in (far, near)
    ]
    assert [each.n_looked[0] > 0 for each in found] == [True, False]
    assert far[found[0].ids].all()
    assert near[found[1].ids].all()
    through = index.searcher().search(
        query, 10, limits=Limits(ef=64), filters=[core_filter(far)], way="sieve"
    )
    assert found[0].n_work[0] < through.n_work[0]


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("element", ["float32", "float16", "int8", "int4", "int2"])
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_scans_together_equal_scans_alone(simd: str, element: str, metric: Metric) -> None:
    """Queries that scan the same rows get the answers of separate scans, to the last bit."""
    rng = np.random.default_rng(0)
    for n_queries, dim, share, k in ((2, 3, 1.0, 5), (7, 40, 0.5, 12), (37, 100, 0.9, 20)):
        base = BaseVectors.of(rng.normal(size=(400, dim)), metric)
        base = to_float16(base) if element == "float16" else base
        space = original_space(base)
        if element in ("int8", "int4"):
            space = compress_space(space, element)
        searcher = Searcher(random_graph(rng, 400, 6, 0), space, base, simd=simd)
        queries = rng.normal(size=(n_queries, dim)).astype(np.float32)
        passes = core_filter(rng.random(400) < share)
        for scan_rerank in (0, 30):
            plan = searcher.plan(
                k, limits=Limits(ef=k), filters=[passes], way="scan", scan_rerank=scan_rerank
            )
            together = plan(queries)
            alone = [plan(query) for query in queries]
            assert together.ids.tolist() == [each.ids[0].tolist() for each in alone]
            assert together.distances.tolist() == [each.distances[0].tolist() for each in alone]
            assert together.n_work.tolist() == [each.n_work[0] for each in alone]


@given(seed=st.integers(0, 2**32 - 1), way=st.sampled_from([*WAYS, "any"]))
def test_labels_of_minus_one_do_not_pass(seed: int, way: Way) -> None:
    """A vertex whose label is −1 is no answer, with a bitmap or without, as if it had no bit."""
    rng = np.random.default_rng(seed)
    n = 120
    base = BaseVectors.of(rng.normal(size=(n, DIM)), "l2")
    searcher = Searcher(random_graph(rng, n, 6, 0), original_space(base), base)
    queries = rng.normal(size=(4, DIM)).astype(np.float32)
    passes, is_alive = rng.random(n) < 0.8, rng.random(n) < 0.9
    labels = np.where(is_alive, np.arange(n), -1)
    words = np.packbits(passes, bitorder="little")
    packed = np.zeros(16, dtype=np.uint8)
    packed[: len(words)] = words

    def search(filtered: _core.Filter) -> list[list[int]]:
        plan = searcher.plan(5, limits=Limits(ef=n), labels=labels, filters=[filtered], way=way)
        return plan(queries).ids.tolist()

    if way != "look":  # its entry points are sampled by bits
        both = _core.Filter(packed.view(np.uint64), n, labels)
        assert search(both) == search(core_filter(passes & is_alive))
        alone = _core.Filter(None, n, labels, int(is_alive.sum()))
        assert search(alone) == search(core_filter(is_alive))
    if way in ("scan", "any"):  # a walk may end at an entry point without neighbours
        assert (np.array(search(_core.Filter(None, n, labels, int(is_alive.sum())))) >= 0).all()


def test_core_refuses_wrong_filters() -> None:
    """Bitmaps of a wrong size and a wrong number of filters are refused."""
    rng = np.random.default_rng(0)
    base = BaseVectors.of(rng.normal(size=(70, DIM)), "l2")
    searcher = Searcher(random_graph(rng, 70, 4, 0), original_space(base), base)
    everything = core_filter(np.ones(70, dtype=bool))
    with pytest.raises(ValueError, match="expected one filter or 3, one per query, got 2"):
        searcher.search(np.zeros((3, DIM)), limits=Limits(ef=5), filters=[everything] * 2)
    too_long = core_filter(np.ones(71, dtype=bool))
    with pytest.raises(ValueError, match="expected filters of at most 70 bits"):
        searcher.search(np.zeros((3, DIM)), limits=Limits(ef=5), filters=[too_long])
    with pytest.raises(ValueError, match="expected a word per 64 bits"):
        _core.Filter(np.zeros(3, dtype=np.uint64), 70)
    with pytest.raises(ValueError, match="expected no bits beyond the last vertex"):
        _core.Filter(np.full(2, 2**64 - 1, dtype=np.uint64), 70)
