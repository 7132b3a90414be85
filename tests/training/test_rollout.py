"""Rollouts: the core's walks and gradients against a slow twin that torch differentiates."""

import heapq
from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from l2route import _core
from l2route.graph.graph import Graph, UpperLayer
from l2route.search.base import BaseVectors
from l2route.search.layout import pad_rows
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace

TOLERANCE = 1e-4
MASK = 2**64 - 1
MAX_HOPS, UNREACHABLE = 14, 15
N_BLOCKS = 3


@dataclass(frozen=True)
class Options:
    """What a rollout is asked for."""

    budget: int = 60
    k: int = 4
    temperature: float = 1.0
    routing_weight: float = 1.0
    topk_weight: float = 1.0
    topk_sharpness: float = 1.0
    hides: bool = False
    teacher_forcing: bool = False
    seed: int = 5


@dataclass(frozen=True)
class Lessons:
    """What the core returns."""

    offsets: NDArray[np.int64]
    vertices: NDArray[np.int32]
    gradients: NDArray[np.float32]
    routing: NDArray[np.float32]
    topk: NDArray[np.float32]
    n_steps: NDArray[np.int32]
    is_found: NDArray[np.bool_]
    is_kept: NDArray[np.bool_]
    query_gradient: NDArray[np.float32]

    def walk(self, query: int) -> list[int]:
        """Vertices that one query visited, in order."""
        return self.vertices[self.offsets[query] : self.offsets[query + 1]].tolist()

    def sums(self) -> NDArray[np.float64]:
        """Sum of each query's gradients."""
        return np.add.reduceat(self.gradients.astype(np.float64), self.offsets[:-1])


@dataclass(frozen=True)
class World:
    """A graph, the scores' vectors and biases, and queries with their targets."""

    graph: Graph
    rows: NDArray[np.float32]
    bias: NDArray[np.float32] | None
    queries: NDArray[np.float32]
    query_ids: NDArray[np.int64]
    targets: NDArray[np.int32]

    def only(self, query: int) -> "World":
        """The same world with one of its queries."""
        at = slice(query, query + 1)
        return replace(
            self,
            queries=self.queries[at],
            query_ids=self.query_ids[at],
            targets=self.targets[at],
        )

    def costs(self, query: int) -> NDArray[np.float32]:
        """Scores of all vertices as the core computes them; smaller is better."""
        costs = _core.Rows(self.rows, "ip").scores(self.queries[query])
        return costs if self.bias is None else costs - self.bias


def make_world(
    seed: int, sharpness: float = 40.0, has_bias: bool = True, n: int = 90, dim: int = 6
) -> World:
    """A small world of near and far neighbours, with dead ends and vertices nobody leads to.

    The first targets are special: an entry, one that nobody leads to, a dead end.
    """
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, dim)) / np.sqrt(dim)
    queries = rng.normal(size=(12, dim)) / np.sqrt(dim)
    rows, bias = sharpness * vectors, -sharpness * (vectors**2).sum(axis=1) / 2
    apart = ((vectors[:, None] - vectors) ** 2).sum(axis=2)
    neighbors = np.full((n, 7), -1, np.int32)
    lonely, dead_end = n - 1, n - 2
    for v in range(n - 3):  # the last three lead nowhere
        near = np.argsort(apart[v])[1:5]
        found = np.setdiff1d(np.append(near, rng.integers(0, n, 3)), [lonely])
        found = rng.permutation(found)[: rng.integers(2, 8)]
        neighbors[v, : len(found)] = found
    targets = ((queries[:, None] - vectors) ** 2).sum(axis=2).argmin(axis=1).astype(np.int32)
    targets[:3] = 0, lonely, dead_end
    return World(
        graph=Graph(neighbors, np.array([0, 7], np.int32)[: 1 + seed % 2]),
        rows=pad_rows(rows.astype(np.float32)),
        bias=bias.astype(np.float32) if has_bias else None,
        queries=pad_rows(queries.astype(np.float32)),
        query_ids=rng.integers(0, 2**40, len(queries)),
        targets=targets,
    )


def hop_blocks(world: World) -> tuple[list[NDArray[np.uint64]], NDArray[np.int32]]:
    """Blocks of 512 targets each, and the place of every query's target in its block."""
    rng = np.random.default_rng(1)
    n_queries = len(world.targets)
    blocks = rng.integers(0, world.graph.n_vertices, (N_BLOCKS, 512)).astype(np.int32)
    places = rng.permutation(512)[:n_queries].astype(np.int32)
    blocks[np.arange(n_queries) % N_BLOCKS, places] = world.targets
    return [_core.hops_to_targets(world.graph.core, block) for block in blocks], places


def hidden_from(world: World, options: Options) -> NDArray[np.int32]:
    """The vertex that each walk does not see: a neighbour of its target, or none."""
    if not options.hides:
        return np.full(len(world.targets), -1, np.int32)
    return world.graph.neighbors[world.targets, 0]


def run_core(world: World, options: Options, n_threads: int = 2) -> Lessons:
    """Roll out in the core."""
    blocks, places = hop_blocks(world)
    walking = {name: value for name, value in asdict(options).items() if name != "hides"}
    found = _core.rollout(
        world.graph.core,
        _core.Rows(world.rows, "ip", bias=world.bias),
        world.queries,
        _core.Targets(blocks, np.arange(len(world.queries), dtype=np.int32) % N_BLOCKS, places),
        _core.RolloutOptions(**walking),
        query_ids=world.query_ids,
        hidden=hidden_from(world, options),
        with_query_gradient=True,
        n_threads=n_threads,
    )
    return Lessons(*found)


def core_gradients(
    world: World, lessons: Lessons, n_threads: int = 2
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """The core's gradients in vertex rows, biases and query rows."""
    offsets, vertices, gradients = lessons.offsets, lessons.vertices, lessons.gradients
    rows, bias = _core.vertex_gradient(
        offsets=offsets,
        vertices=vertices,
        gradients=gradients,
        query_rows=world.queries,
        n_vertices=world.graph.n_vertices,
        n_threads=n_threads,
    )
    return rows, bias, lessons.query_gradient


def mix(x: int) -> int:
    """SplitMix64's step, as in the core."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def uniform(seed: int, query: int, vertex: int) -> np.float32:
    """Uniform in (0, 1), ends excluded."""
    bits = mix(mix(mix(seed) ^ query) ^ vertex)
    u = (np.float32(bits >> 40) + np.float32(0.5)) * np.float32(2.0**-24)
    return min(u, np.nextafter(np.float32(1), np.float32(0)))


def gumbel(u: np.float32) -> np.float32:
    """Gumbel noise, rounded where the core rounds."""
    inner = np.float32(-np.log(np.float64(u)))
    return np.float32(-np.log(np.float64(inner)))


def naive_hops(graph: Graph, target: int) -> dict[int, int]:
    """Hops to a target, by relaxing until nothing changes; capped as the core's four bits are."""
    hops = {v: 0 if v == target else UNREACHABLE for v in range(graph.n_vertices)}
    for level in range(1, graph.n_vertices):
        before = {v for v, h in hops.items() if h == min(level - 1, MAX_HOPS)}
        for v, row in enumerate(graph.neighbors.tolist()):
            if hops[v] == UNREACHABLE and before.intersection(row):
                hops[v] = min(level, MAX_HOPS)
    return hops


@dataclass
class Walk:
    """What the twin did: vertices in order, the heap before each step, noisy scores."""

    vertices: list[int]
    heaps: list[list[int]]
    n_taught: int
    """Steps until the target was visited."""
    noisy: dict[int, np.float32]


def twin_walk(world: World, query: int, hops: dict[int, int], options: Options) -> Walk:
    """Algorithm 1 with noise, or with the oracle's eyes."""
    costs, walk = world.costs(query), Walk([], [], 0, {})
    heap: list[tuple[np.float32, int]] = []
    temperature = np.float32(options.temperature)
    hidden = hidden_from(world, options)[query]

    def visit(neighbors: NDArray[np.int32]) -> tuple[np.float32, int]:
        best = (np.float32(np.inf), 0)
        for v in neighbors.tolist():
            if v < 0 or v == hidden or v in walk.noisy or len(walk.vertices) == options.budget:
                continue
            u = uniform(options.seed, int(world.query_ids[query]), v)
            cost = costs[v] - temperature * gumbel(u)
            walk.noisy[v] = -cost
            walk.vertices.append(v)
            if options.teacher_forcing:
                cost = np.float32(hops[v]) + np.float32(0.9) * u
            heapq.heappush(heap, (cost, v))
            best = min(best, (cost, v))
        return best

    nearest = visit(world.graph.entries)
    for layer in world.graph.upper:  # greedy, as long as the newly visited are better
        links = dict(zip(layer.vertices.tolist(), layer.neighbors, strict=True))
        while len(walk.vertices) < options.budget and (found := visit(links[nearest[1]])) < nearest:
            nearest = found
    while heap and len(walk.vertices) < options.budget:
        if world.targets[query] not in walk.noisy:
            walk.n_taught += 1
        walk.heaps.append([v for _, v in heap])
        visit(world.graph.neighbors[heapq.heappop(heap)[1]])
    return walk


def log_share(scores: torch.Tensor, part: list[int], whole: list[int]) -> torch.Tensor:
    """Log of the softmax's share of a part of a whole."""
    return torch.logsumexp(scores[part], 0) - torch.logsumexp(scores[whole], 0)


def twin_routing(walk: Walk, scores: torch.Tensor, hops: dict[int, int]) -> torch.Tensor:
    """First term of equation 4: the next vertex is one of the heap's nearest to the target."""
    total = torch.zeros((), dtype=torch.float64)
    for heap in walk.heaps[: walk.n_taught]:
        nearest = min(hops[v] for v in heap)
        if nearest < UNREACHABLE:
            total = total + log_share(scores, [v for v in heap if hops[v] == nearest], heap)
    return total


def twin_topk(walk: Walk, scores: torch.Tensor, target: int, k: int) -> torch.Tensor:
    """Second term: the target comes next after k − 1 others were taken by noisy score."""
    if target not in walk.noisy:
        return torch.zeros((), dtype=torch.float64)
    others = sorted((v for v in walk.vertices if v != target), key=lambda v: -walk.noisy[v])
    return log_share(scores, [target], [*others[k - 1 :], target])


@dataclass
class Twin:
    """A world's vectors as torch sees them, and the objective on top."""

    rows: torch.Tensor
    bias: torch.Tensor
    queries: torch.Tensor
    walks: list[Walk]
    scores: list[torch.Tensor]
    routing: list[torch.Tensor]
    topk: list[torch.Tensor]


def run_twin(world: World, options: Options) -> Twin:
    """Roll out in Python and differentiate by autograd, at the very scores that the core has."""

    def leaf(array: NDArray[np.float32]) -> torch.Tensor:
        return torch.tensor(array, dtype=torch.float64, requires_grad=True)

    bias = np.zeros(len(world.rows), np.float32) if world.bias is None else world.bias
    twin = Twin(leaf(world.rows), leaf(bias), leaf(world.queries), [], [], [], [])
    for query, target in enumerate(world.targets.tolist()):
        hops = naive_hops(world.graph, target)
        walk = twin_walk(world, query, hops, options)
        exact = twin.rows @ twin.queries[query] + twin.bias  # [n]
        rounded = torch.tensor(-world.costs(query), dtype=torch.float64)  # [n]
        scores = exact + (rounded - exact).detach()  # [n]
        scores.retain_grad()
        twin.walks.append(walk)
        twin.scores.append(scores)
        twin.routing.append(twin_routing(walk, scores, hops))
        twin.topk.append(twin_topk(walk, scores * options.topk_sharpness, target, options.k))
    routing, topk = torch.stack(twin.routing).sum(), torch.stack(twin.topk).sum()
    total = options.routing_weight * routing + options.topk_weight * topk
    if total.requires_grad:  # there may be nothing to learn at all
        total.backward()
    return twin


def grad_of(tensor: torch.Tensor) -> NDArray[np.float64]:
    """A tensor's gradient, zeros where nothing reached it."""
    grad = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
    return grad.detach().numpy()


def assert_near(got: NDArray[np.float32], expected: NDArray[np.float64], scale: float) -> None:
    """Equal to 1e-4, relative to the value or to what it is a sum of."""
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE * scale)


def check_against_twin(world: World, options: Options) -> Lessons:
    """Same walks, same objective, same gradients in scores, vertices and queries."""
    lessons, twin = run_core(world, options), run_twin(world, options)
    weight = max(options.routing_weight, options.topk_weight * options.topk_sharpness)
    for query, walk in enumerate(twin.walks):
        assert lessons.walk(query) == walk.vertices
        assert lessons.n_steps[query] == len(walk.heaps)
        assert lessons.is_found[query] == (world.targets[query] in walk.noisy)
        costs, target = world.costs(query), world.targets[query]
        n_better = sum(costs[v] < costs[target] for v in walk.vertices)
        assert lessons.is_kept[query] == (target in walk.noisy and n_better < options.k)
        gradients = lessons.gradients[lessons.offsets[query] : lessons.offsets[query + 1]]
        assert_near(gradients, grad_of(twin.scores[query])[walk.vertices], weight)
    assert_near(lessons.routing, torch.stack(twin.routing).detach().numpy(), 1)
    assert_near(lessons.topk, torch.stack(twin.topk).detach().numpy(), 1)
    rows, bias, queries = core_gradients(world, lessons)
    assert_near(rows, grad_of(twin.rows), weight)
    assert_near(bias, grad_of(twin.bias), weight)
    assert_near(queries, grad_of(twin.queries), weight * float(np.abs(world.rows).max()))
    return lessons


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("sharpness", [1.0, 40.0, 200.0])
def test_slopes_equal_autograd(sharpness: float, temperature: float, has_bias: bool) -> None:
    """Walks, objective and gradients are those of equation 4, however sharp the scores."""
    world = make_world(int(sharpness) + has_bias, sharpness, has_bias)
    lessons = check_against_twin(world, Options(temperature=temperature))
    assert lessons.is_found[0]
    assert not lessons.is_found[1]


@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 8.0)])
def test_weights_and_k_equal_autograd(weights: tuple[float, float], k: int) -> None:
    """Either term alone, both, and any number of vertices to rerank."""
    options = Options(k=k, routing_weight=weights[0], topk_weight=weights[1], budget=25, seed=k)
    check_against_twin(make_world(k), options)


@pytest.mark.parametrize("sharpness", [1.0, 40.0, 200.0])
@pytest.mark.parametrize("budget", [5, 60])
def test_teacher_forcing_equals_autograd(budget: int, sharpness: float) -> None:
    """The oracle's own walks (equation 3) teach by the same rule."""
    world = make_world(budget, sharpness)
    check_against_twin(world, Options(budget=budget, teacher_forcing=True))


@pytest.mark.parametrize("budget", [1, 2, 3, 8, 20, 90, 1000])
@pytest.mark.parametrize("k", [1, 100])
def test_budgets_equal_autograd(budget: int, k: int) -> None:
    """From a single computation to more than there are vertices, with any k."""
    world = make_world(budget % 7)
    lessons = check_against_twin(world, Options(budget=budget, k=k, temperature=0.5))
    assert (np.diff(lessons.offsets) <= budget).all()


def test_far_scores_equal_autograd() -> None:
    """A heap whose scores are all far below the walk's best still has its own softmax."""
    world = make_world(3, sharpness=4000.0)
    lessons = check_against_twin(world, Options())
    assert np.isfinite(lessons.gradients).all()


@pytest.mark.parametrize("topk_sharpness", [0.25, 4.0, 50.0])
def test_a_sharper_topk_equals_autograd(topk_sharpness: float) -> None:
    """The last term may have an inverse temperature of its own."""
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
    """A descent through HNSW's layers is the walk's first part; what it visited is in the heap."""
    world = with_layers(make_world(budget))
    options = Options(budget=budget, temperature=temperature, teacher_forcing=teacher_forcing)
    lessons = check_against_twin(world, options)
    flat = run_core(replace(world, graph=replace(world.graph, upper=())), options)
    if budget == 60:
        assert lessons.vertices.tolist() != flat.vertices.tolist()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_hidden_vertex_is_not_walked(temperature: float) -> None:
    """A vertex hidden from a walk is neither visited nor counted, and all else is as ever."""
    world = make_world(6)
    options = Options(hides=True, temperature=temperature, budget=90)
    lessons = check_against_twin(world, options)
    hidden = hidden_from(world, options)
    assert (hidden >= 0).any()
    for query in range(len(world.targets)):
        assert hidden[query] not in lessons.walk(query)


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_noise_is_finite(temperature: float) -> None:
    """The largest of all hashes is noise like any other, and none where the temperature is 0."""
    seed, query_id, vertex = 0, 941478, 11  # its 24 bits are all ones: half more rounds to 1
    assert mix(mix(mix(seed) ^ query_id) ^ vertex) >> 40 == 2**24 - 1
    world = make_world(3)
    world = replace(world, query_ids=np.full(len(world.queries), query_id))
    options = Options(budget=90, temperature=temperature, seed=seed)
    lessons = check_against_twin(world, options)
    assert vertex in lessons.vertices


def test_long_ways_equal_autograd() -> None:
    """Vertices many hops away are told apart from unreachable ones."""
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
    """Where the walk starts at its target, only the last term is left."""
    world = make_world(0).only(0)
    lessons = check_against_twin(world, Options(topk_weight=0.0))
    assert lessons.is_found[0]
    assert lessons.routing[0] == 0
    assert not lessons.gradients.any()


def test_unreachable_targets_teach_nothing() -> None:
    """No vertex is a positive where none leads to the target."""
    lessons = check_against_twin(make_world(0).only(1), Options())
    assert not lessons.is_found[0]
    assert lessons.routing[0] == lessons.topk[0] == 0
    assert not lessons.gradients.any()


def test_dead_ends_are_never_positives() -> None:
    """A vertex that does not lead to the target is pushed down, never up, by routing."""
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
def test_slopes_cancel(sharpness: float, weights: tuple[float, float]) -> None:
    """A softmax does not see a constant added to all scores, so a walk's gradients sum to zero."""
    options = Options(routing_weight=weights[0], topk_weight=weights[1])
    lessons = run_core(make_world(8, sharpness), options)
    assert np.abs(lessons.gradients).max() > 0.01
    np.testing.assert_allclose(lessons.sums(), 0, atol=TOLERANCE)


@pytest.mark.parametrize("teacher_forcing", [False, True])
def test_threads_do_not_matter(teacher_forcing: bool) -> None:
    """The same seed gives the same lessons and gradients to the last bit, on any threads."""
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
def test_another_seed_walks_elsewhere(teacher_forcing: bool) -> None:
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
