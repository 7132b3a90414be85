"""Laws of rollouts: walks and gradients equal those of a slow twin differentiated by torch."""

from dataclasses import replace

import numpy as np
import pytest

from entry_tables import random_table
from l2route.graph.graph import Graph, UpperLayer
from l2route.search.base import BaseVectors
from l2route.search.entry_rows import starts_of
from l2route.search.layout import pad_rows
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace
from rollout_twin import (
    MAX_HOPS,
    TOLERANCE,
    UNREACHABLE,
    Lessons,
    Options,
    World,
    check_against_twin,
    core_gradients,
    hidden_from,
    make_world,
    mix,
    naive_hops,
    run_core,
)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("sharpness", [1.0, 40.0, 200.0])
def test_gradients_equal_autograd(sharpness: float, temperature: float, has_bias: bool) -> None:
    """Walks, objective and gradients are those of equation 4, however sharp the scores."""
    world = make_world(int(sharpness) + has_bias, sharpness, has_bias)
    lessons = check_against_twin(world, Options(temperature=temperature))
    assert lessons.is_found[0]
    assert not lessons.is_found[1]


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 8.0)])
def test_weights_and_k_equal_autograd(weights: tuple[float, float], k: int) -> None:
    """Gradients agree for either term alone, for both, and for any rerank."""
    options = Options(k=k, routing_weight=weights[0], topk_weight=weights[1], budget=25, seed=k)
    check_against_twin(make_world(k), options)


@pytest.mark.parametrize("sharpness", [1.0, 40.0, 200.0])
@pytest.mark.parametrize("budget", [5, 60])
def test_teacher_forcing_equals_autograd(budget: int, sharpness: float) -> None:
    """Walks of the oracle (equation 3) have the same gradients as the twin's."""
    world = make_world(budget, sharpness)
    check_against_twin(world, Options(budget=budget, teacher_forcing=True))


@pytest.mark.parametrize("budget", [1, 2, 3, 8, 20, 90, 1000])
@pytest.mark.parametrize("k", [1, 100])
def test_budgets_equal_autograd(budget: int, k: int) -> None:
    """Gradients agree for budgets from 1 to more than the number of vertices."""
    world = make_world(budget % 7)
    lessons = check_against_twin(world, Options(budget=budget, k=k, temperature=0.5))
    assert (np.diff(lessons.offsets) <= budget).all()


def test_far_scores_equal_autograd() -> None:
    """Gradients agree if all scores in the heap are far below the best score of the walk."""
    world = make_world(3, sharpness=4000.0)
    lessons = check_against_twin(world, Options())
    assert np.isfinite(lessons.gradients).all()


@pytest.mark.parametrize("topk_sharpness", [0.25, 4.0, 50.0])
def test_a_sharper_topk_equals_autograd(topk_sharpness: float) -> None:
    """Gradients agree if the last term has another inverse temperature."""
    world = make_world(4, sharpness=3.0)
    lessons = check_against_twin(world, Options(topk_sharpness=topk_sharpness, budget=90))
    assert lessons.is_found.any()


def with_layers(world: World) -> World:
    """The same world under two upper layers, the topmost of which holds the entries."""
    rng = np.random.default_rng(0)
    n, layers = world.graph.n_vertices, []
    chosen = np.union1d(np.arange(0, n - 3, 12), world.graph.entries)
    for step in (12, 4):
        chosen = np.union1d(chosen, np.arange(0, n - 3, step))
        links = rng.choice(chosen, (len(chosen), 3)).astype(np.int32)
        layers.append(UpperLayer(chosen.astype(np.int32), links))
    return replace(world, graph=replace(world.graph, upper=tuple(layers)))


@pytest.mark.parametrize("budget", [1, 6, 15, 60])
@pytest.mark.parametrize("temperature", [0.0, 0.3])
@pytest.mark.parametrize("teacher_forcing", [False, True])
def test_walks_from_upper_layers_equal_autograd(
    budget: int, temperature: float, teacher_forcing: bool
) -> None:
    """A walk starts with the descent through HNSW's layers, whose visits enter the heap."""
    world = with_layers(make_world(budget))
    options = Options(budget=budget, temperature=temperature, teacher_forcing=teacher_forcing)
    lessons = check_against_twin(world, options)
    flat = run_core(replace(world, graph=replace(world.graph, upper=())), options)
    if budget == 60:
        assert lessons.vertices.tolist() != flat.vertices.tolist()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_hidden_vertex_is_not_visited(temperature: float) -> None:
    """A vertex hidden from a walk is neither visited nor counted; all else equals the twin."""
    world = make_world(6)
    options = Options(hides=True, temperature=temperature, budget=90)
    lessons = check_against_twin(world, options)
    hidden = hidden_from(world, options)
    assert (hidden >= 0).any()
    for query in range(len(world.targets)):
        assert hidden[query] not in lessons.walk(query)


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_noise_is_finite(temperature: float) -> None:
    """The largest hash gives finite noise, and none at temperature 0."""
    seed, query_id, vertex = 0, 941478, 11  # its 24 bits are all ones: half more rounds to 1
    assert mix(mix(mix(seed) ^ query_id) ^ vertex) >> 40 == 2**24 - 1
    world = make_world(3)
    world = replace(world, query_ids=np.full(len(world.queries), query_id))
    options = Options(budget=90, temperature=temperature, seed=seed)
    lessons = check_against_twin(world, options)
    assert vertex in lessons.vertices


def test_long_paths_equal_autograd() -> None:
    """Vertices many hops away are distinguished from unreachable ones."""
    n = 40
    world = make_world(4, n=n)
    chain = np.full((n, 2), -1, np.int32)
    chain[:-1, 0] = np.arange(1, n)
    chain[1:20, 1] = np.arange(0, 19)
    world = replace(world, graph=Graph(chain, np.array([5], np.int32)))
    lessons = check_against_twin(world, Options(budget=30))
    assert (lessons.n_steps > MAX_HOPS).any()


@pytest.mark.parametrize("teacher_forcing", [False, True])
def test_target_found_by_the_last_computation(teacher_forcing: bool) -> None:
    """A budget that just reaches the target counts as found; one less does not."""
    world = make_world(2)
    options = Options(budget=90, teacher_forcing=teacher_forcing)
    whole = run_core(world, options)
    late = [q for q in np.flatnonzero(whole.is_found) if whole.walk(q)[0] != world.targets[q]]
    assert late
    for query in late:
        n_needed = whole.walk(query).index(world.targets[query]) + 1
        exact = check_against_twin(world.only(query), replace(options, budget=n_needed))
        assert exact.is_found.all()
        assert exact.walk(0)[-1] == world.targets[query]
        short = check_against_twin(world.only(query), replace(options, budget=n_needed - 1))
        assert not short.is_found.any()


def test_target_at_the_entry_teaches_no_steps() -> None:
    """If a walk starts at its target, only the last term has a gradient."""
    world = make_world(0).only(0)
    lessons = check_against_twin(world, Options(topk_weight=0.0))
    assert lessons.is_found[0]
    assert lessons.routing[0] == 0
    assert not lessons.gradients.any()


def test_unreachable_targets_teach_nothing() -> None:
    """If no vertex leads to the target, all gradients are zero."""
    lessons = check_against_twin(make_world(0).only(1), Options())
    assert not lessons.is_found[0]
    assert lessons.routing[0] == lessons.topk[0] == 0
    assert not lessons.gradients.any()


def test_dead_ends_are_never_positives() -> None:
    """The routing gradient of a vertex that does not lead to the target is never positive."""
    world = make_world(6)
    lessons = run_core(world, Options(topk_weight=0.0))
    n_met = 0
    for query, target in enumerate(world.targets.tolist()):
        hops = naive_hops(world.graph, target)
        gradients = lessons.gradients[lessons.offsets[query] : lessons.offsets[query + 1]]
        stuck = [hops[v] == UNREACHABLE for v in lessons.walk(query)]
        assert (gradients[stuck] <= 0).all()
        n_met += sum(stuck)
    assert n_met > 0


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("sharpness", [1.0, 40.0, 200.0])
def test_gradients_cancel(sharpness: float, weights: tuple[float, float]) -> None:
    """A constant added to all scores does not change a softmax, so gradients sum to zero."""
    options = Options(routing_weight=weights[0], topk_weight=weights[1])
    lessons = run_core(make_world(8, sharpness), options)
    assert np.abs(lessons.gradients).max() > 0.01
    np.testing.assert_allclose(lessons.sums(), 0, atol=TOLERANCE)


@pytest.mark.parametrize("teacher_forcing", [False, True])
def test_threads_do_not_matter(teacher_forcing: bool) -> None:
    """The same seed gives the same lessons and gradients, bit for bit, on any number of threads."""
    world = make_world(9)
    copies = 5  # several queries share vertices, over more than one thread's run
    world = replace(
        world,
        queries=np.tile(world.queries, (copies, 1)),
        query_ids=np.arange(copies * len(world.query_ids)),
        targets=np.tile(world.targets, copies),
    )
    options = Options(teacher_forcing=teacher_forcing)
    alone = run_core(world, options, n_threads=1)
    for n_threads in (2, 5):
        shared = run_core(world, options, n_threads)
        for name in Lessons.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(shared, name), getattr(alone, name))
        expected = core_gradients(world, alone, n_threads=1)
        for got, want in zip(core_gradients(world, shared, n_threads), expected, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("teacher_forcing", [False, True])
def test_another_seed_gives_another_walk(teacher_forcing: bool) -> None:
    """Noise depends on the seed and on the query's id."""
    world = make_world(10)
    options = Options(temperature=8.0, budget=30, teacher_forcing=teacher_forcing)
    walked = run_core(world, options).vertices.tolist()
    assert run_core(world, options).vertices.tolist() == walked
    assert run_core(world, replace(options, seed=6)).vertices.tolist() != walked
    other = replace(world, query_ids=world.query_ids + 1)
    assert run_core(other, options).vertices.tolist() != walked


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("budget", [1, 17, 60, 1000])
def test_no_temperature_is_the_search(budget: int, has_bias: bool) -> None:
    """At temperature 0 a rollout visits what a search of the same space visits, in order."""
    world = make_world(11, has_bias=has_bias)
    base = BaseVectors(pad_rows(world.rows[:, :6]), 6, "l2")
    space = RoutingSpace(world.rows, 6, "ip", bias=world.bias, name="walked")
    searcher = Searcher(world.graph, space, base)
    queries = np.ascontiguousarray(world.queries[:, :6])
    trace = searcher.search(queries, 1, limits=Limits(budget + 1, rerank=1), trace=True).trace
    assert trace is not None
    lessons = run_core(world, Options(budget=budget, temperature=0.0))
    np.testing.assert_array_equal(lessons.offsets, trace.offsets)
    np.testing.assert_array_equal(lessons.vertices, trace.vertices)


def with_starts(world: World, seed: int, cost: int) -> World:
    """The same world whose walks start at up to three vertices each, and not at the entries."""
    rng = np.random.default_rng(seed)
    n, n_queries = world.graph.n_vertices, len(world.queries)
    vertices = rng.integers(0, n, (n_queries, 3)).astype(np.int32)
    vertices[::2, 1:] = -1
    vertices[1] = n - 1, -1, -1  # has no neighbours: the walk goes on from the entries
    return replace(world, starts=(vertices, np.full(n_queries, cost, np.int32)))


@pytest.mark.parametrize(("budget", "cost"), [(1, 0), (6, 5), (20, 5), (90, 0), (90, 5)])
@pytest.mark.parametrize("hides", [False, True])
def test_walks_from_starts_equal_autograd(budget: int, cost: int, hides: bool) -> None:
    """Walks start where they are told, within what the budget leaves of the cost to find it."""
    world = with_starts(make_world(budget), budget, cost)
    lessons = check_against_twin(world, Options(budget=budget, hides=hides, temperature=0.3))
    assert (np.diff(lessons.offsets) <= budget - cost).all()
    if budget == 90 and not hides:
        assert world.starts is not None
        assert [lessons.walk(i)[0] for i in range(12)] == world.starts[0][:, 0].tolist()
        assert lessons.walk(1)[1] == world.graph.entries[0]


@pytest.mark.parametrize("budget", [2, 9, 17, 60, 1000])
def test_no_temperature_is_the_search_from_its_entry_table(budget: int) -> None:
    """On a graph with a table of entry points, a rollout visits what a search visits, in order."""
    world = make_world(11)
    rng = np.random.default_rng(budget)
    queries = np.ascontiguousarray(world.queries[:, :6])
    base = BaseVectors(pad_rows(world.rows[:, :6]), 6, "l2")
    graph = replace(world.graph, table=random_table(rng, world.graph.n_vertices, 6))
    space = RoutingSpace(world.rows, 6, "ip", bias=world.bias, name="walked")
    found = Searcher(graph, space, base).search(
        queries, 1, limits=Limits(budget + 1, rerank=1), trace=True
    )
    starts = starts_of(graph, "l2", queries, 6)
    assert starts is not None
    assert found.trace is not None
    has_room = starts.max_cost < budget
    given = (starts.vertices, starts.costs) if has_room else None
    lessons = run_core(replace(world, starts=given), Options(budget=budget, temperature=0.0))
    np.testing.assert_array_equal(lessons.offsets, found.trace.offsets)
    np.testing.assert_array_equal(lessons.vertices, found.trace.vertices)
