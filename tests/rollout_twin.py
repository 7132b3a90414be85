"""The slow twin of rollouts: the paper's walks and objective, differentiated by torch."""

import heapq
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from l2route import _core
from l2route.graph.graph import Graph
from l2route.search.layout import pad_rows

TOLERANCE = 1e-4


MASK = 2**64 - 1


MAX_HOPS, UNREACHABLE = 14, 15


N_BLOCKS = 3


@dataclass(frozen=True)
class Options:
    """Options of a rollout."""

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
    """The result of a rollout in the core."""

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
        """Sum of the gradients of each query [n_queries]."""
        return np.add.reduceat(self.gradients.astype(np.float64), self.offsets[:-1])


@dataclass(frozen=True)
class World:
    """A graph, routing vectors and biases, and queries with their targets."""

    graph: Graph
    rows: NDArray[np.float32]
    bias: NDArray[np.float32] | None
    queries: NDArray[np.float32]
    query_ids: NDArray[np.int64]
    targets: NDArray[np.int32]
    starts: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None
    """Where walks start, padded with −1 [n_queries, n_starts], and what finding that costs."""

    def only(self, query: int) -> "World":
        """The same world with a single query."""
        at = slice(query, query + 1)
        return replace(
            self,
            queries=self.queries[at],
            query_ids=self.query_ids[at],
            targets=self.targets[at],
            starts=None if self.starts is None else (self.starts[0][at], self.starts[1][at]),
        )

    def costs(self, query: int) -> NDArray[np.float32]:
        """Negated scores of all vertices, as the core computes them; smaller is better [n]."""
        costs = _core.Rows(self.rows, "ip").scores(self.queries[query])
        return costs if self.bias is None else costs - self.bias


def make_world(
    seed: int, sharpness: float = 40.0, has_bias: bool = True, n: int = 90, dim: int = 6
) -> World:
    """A small world of near and random neighbours, with dead ends and an unreachable vertex.

    The first three targets are an entry, the unreachable vertex and a dead end.
    """
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, dim)) / np.sqrt(dim)
    queries = rng.normal(size=(12, dim)) / np.sqrt(dim)
    rows, bias = sharpness * vectors, -sharpness * (vectors**2).sum(axis=1) / 2
    apart = ((vectors[:, None] - vectors) ** 2).sum(axis=2)
    neighbors = np.full((n, 7), -1, np.int32)
    unreachable, dead_end = n - 1, n - 2
    for v in range(n - 3):  # the last three have no neighbours
        near = np.argsort(apart[v])[1:5]
        found = np.setdiff1d(np.append(near, rng.integers(0, n, 3)), [unreachable])
        found = rng.permutation(found)[: rng.integers(2, 8)]
        neighbors[v, : len(found)] = found
    targets = ((queries[:, None] - vectors) ** 2).sum(axis=2).argmin(axis=1).astype(np.int32)
    targets[:3] = 0, unreachable, dead_end
    return World(
        graph=Graph(neighbors, np.array([0, 7], np.int32)[: 1 + seed % 2]),
        rows=pad_rows(rows.astype(np.float32)),
        bias=bias.astype(np.float32) if has_bias else None,
        queries=pad_rows(queries.astype(np.float32)),
        query_ids=rng.integers(0, 2**40, len(queries)),
        targets=targets,
    )


def hop_blocks(world: World) -> tuple[list[NDArray[np.uint64]], NDArray[np.int32]]:
    """Hops to blocks of 512 targets, and the column of each query's target in its block."""
    rng = np.random.default_rng(1)
    n_queries = len(world.targets)
    blocks = rng.integers(0, world.graph.n_vertices, (N_BLOCKS, 512)).astype(np.int32)
    places = rng.permutation(512)[:n_queries].astype(np.int32)
    blocks[np.arange(n_queries) % N_BLOCKS, places] = world.targets
    return [_core.hops_to_targets(world.graph.core, block) for block in blocks], places


def hidden_from(world: World, options: Options) -> NDArray[np.int32]:
    """The vertex hidden from each walk: a neighbour of its target, or −1."""
    if not options.hides:
        return np.full(len(world.targets), -1, np.int32)
    return world.graph.neighbors[world.targets, 0]


def run_core(world: World, options: Options, n_threads: int = 2) -> Lessons:
    """Run a rollout in the core."""
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
        starts=world.starts,
    )
    return Lessons(*found)


def core_gradients(
    world: World, lessons: Lessons, n_threads: int = 2
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """The core's gradients of vertex rows, biases and query rows."""
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
    """One step of SplitMix64, as in the core."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def uniform(seed: int, query: int, vertex: int) -> np.float32:
    """A uniform random number in the open interval (0, 1)."""
    bits = mix(mix(mix(seed) ^ query) ^ vertex)
    u = (np.float32(bits >> 40) + np.float32(0.5)) * np.float32(2.0**-24)
    return min(u, np.nextafter(np.float32(1), np.float32(0)))


def gumbel(u: np.float32) -> np.float32:
    """Gumbel noise with the rounding of the core."""
    inner = np.float32(-np.log(np.float64(u)))
    return np.float32(-np.log(np.float64(inner)))


def naive_hops(graph: Graph, target: int) -> dict[int, int]:
    """Hops to a target by relaxation, capped like the four bits of the core."""
    hops = {v: 0 if v == target else UNREACHABLE for v in range(graph.n_vertices)}
    for level in range(1, graph.n_vertices):
        before = {v for v, h in hops.items() if h == min(level - 1, MAX_HOPS)}
        for v, row in enumerate(graph.neighbors.tolist()):
            if hops[v] == UNREACHABLE and before.intersection(row):
                hops[v] = min(level, MAX_HOPS)
    return hops


@dataclass
class Walk:
    """A walk of the twin: visited vertices in order, the heap before each step, noisy scores."""

    vertices: list[int]
    heaps: list[list[int]]
    n_taught: int
    """Steps until the target was visited."""
    noisy: dict[int, np.float32]


def twin_walk(world: World, query: int, hops: dict[int, int], options: Options) -> Walk:
    """Algorithm 1 with noisy scores, or ordered by hops to the target (teacher forcing)."""
    costs, walk = world.costs(query), Walk([], [], 0, {})
    heap: list[tuple[np.float32, int]] = []
    temperature = np.float32(options.temperature)
    hidden = hidden_from(world, options)[query]
    budget = options.budget - (0 if world.starts is None else int(world.starts[1][query]))

    def visit(neighbors: NDArray[np.int32]) -> tuple[np.float32, int]:
        best = (np.float32(np.inf), 0)
        for v in neighbors.tolist():
            if v < 0 or v == hidden or v in walk.noisy or len(walk.vertices) >= budget:
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

    own = (world.graph.entries, world.graph.upper)
    rounds = [own] if world.starts is None else [(world.starts[0][query], ()), own]
    for entries, upper in rounds:  # the second if the first is stuck
        nearest = visit(entries)
        for layer in upper:  # greedy descent
            links = dict(zip(layer.vertices.tolist(), layer.neighbors, strict=True))
            while len(walk.vertices) < budget and (found := visit(links[nearest[1]])) < nearest:
                nearest = found
        while heap and len(walk.vertices) < budget:
            if world.targets[query] not in walk.noisy:
                walk.n_taught += 1
            walk.heaps.append([v for _, v in heap])
            visit(world.graph.neighbors[heapq.heappop(heap)[1]])
    return walk


def log_share(scores: torch.Tensor, part: list[int], whole: list[int]) -> torch.Tensor:
    """Log of the share of some vertices in a softmax over others."""
    return torch.logsumexp(scores[part], 0) - torch.logsumexp(scores[whole], 0)


def twin_routing(walk: Walk, scores: torch.Tensor, hops: dict[int, int]) -> torch.Tensor:
    """First term of equation 4: log-likelihood of the vertices in the heap nearest by hops."""
    total = torch.zeros((), dtype=torch.float64)
    for heap in walk.heaps[: walk.n_taught]:
        nearest = min(hops[v] for v in heap)
        if nearest < UNREACHABLE:
            total = total + log_share(scores, [v for v in heap if hops[v] == nearest], heap)
    return total


def twin_topk(walk: Walk, scores: torch.Tensor, target: int, k: int) -> torch.Tensor:
    """Second term: log-likelihood of the target after the k − 1 best others by noisy score."""
    if target not in walk.noisy:
        return torch.zeros((), dtype=torch.float64)
    others = sorted((v for v in walk.vertices if v != target), key=lambda v: -walk.noisy[v])
    return log_share(scores, [target], [*others[k - 1 :], target])


@dataclass
class Twin:
    """The vectors of a world as tensors, and the terms of the objective."""

    rows: torch.Tensor
    bias: torch.Tensor
    queries: torch.Tensor
    walks: list[Walk]
    scores: list[torch.Tensor]
    routing: list[torch.Tensor]
    topk: list[torch.Tensor]


def run_twin(world: World, options: Options) -> Twin:
    """Run a rollout in Python, and differentiate it by autograd at the scores of the core."""

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
    if total.requires_grad:  # false if all terms are constant
        total.backward()
    return twin


def grad_of(tensor: torch.Tensor) -> NDArray[np.float64]:
    """The gradient of a tensor; zeros if it has none."""
    grad = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
    return grad.detach().numpy()


def assert_near(got: NDArray[np.float32], expected: NDArray[np.float64], scale: float) -> None:
    """Assert equality to 1e-4, relative to the value or to `scale`."""
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE * scale)


def check_against_twin(world: World, options: Options) -> Lessons:
    """Assert that walks, objective and gradients of the core equal those of the twin."""
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
