"""What is compared, ours and others', behind one small protocol; what is missing is left out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from l2route.data.dataset import Dataset
from l2route.data.metrics import N_ANSWERS
from l2route.evaluation.compare.peers import (
    Annoy,
    FaissHnsw,
    FaissNsg,
    Hnswlib,
    Ids,
    PyNNDescent,
    Scann,
    SymphonyQG,
    Usearch,
    Vectors,
)
from l2route.extras import install
from l2route.index import RoutingIndex
from l2route.search.codes import Compression
from l2route.search.space import pca_space
from l2route.search.validation import N_KEPT

SERVED_RECALL = 0.9
"""Recall that a served index learns for."""


def served_graph(data: Dataset, seed: int = 0, n_threads: int = 1) -> RoutingIndex:
    """The index that ours are made of: what `build` makes unless told otherwise."""
    return RoutingIndex.build(data.base, data.metric, seed=seed, n_threads=n_threads)


class Method(Protocol):
    """A library: build once, then set the knob and search, as often as one likes; one thread."""

    @property
    def knobs(self) -> tuple[int, ...]:
        """Values of the knob that libraries are compared at, ascending."""

    def build(self, data: Dataset) -> None:
        """Index the base vectors; a method that learns takes the training queries too."""

    def set(self, knob: int) -> None:
        """How hard to search: more is slower and finds more."""

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest [n_queries, k]; −1 where fewer were found."""

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Distances that each search for k computes [n_queries]; None if the library is mute."""

    def n_bytes(self) -> int | None:
        """Of the whole index, vectors included, as it is saved; None if it cannot be."""


class L2route:
    """Ours, plain: NSW as faiss builds it, entered at the medoid; the knob is the budget."""

    knobs = tuple(128 * 2**i for i in range(6))

    def __init__(self, degree: int = 32, ef_construction: int = 300, seed: int = 0) -> None:
        self.degree, self.ef_construction, self.seed = degree, ef_construction, seed
        self.budget = 256

    def build(self, data: Dataset) -> None:
        """Index the base vectors."""
        self.index = RoutingIndex.build(
            data.base,
            data.metric,
            degree=self.degree,
            ef_construction=self.ef_construction,
            entry="medoid",
            seed=self.seed,
            refine=False,
        )

    def set(self, knob: int) -> None:
        """Set the budget."""
        self.budget = knob

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        return self.index.search(queries, k, budget=self.budget, n_threads=1).ids

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """All distances, rerank and projection included."""
        found = self.index.search(queries, k, budget=self.budget, n_threads=1)
        return np.ceil(found.n_computed).astype(np.int64)

    def n_bytes(self) -> int | None:
        """Of the index as it is saved."""
        return self.index.n_bytes


class Routed:
    """Ours as it is served, by codes; the knob is a recall@10, in thousandths.

    Args:
        routing: codes to route by.
        learns: learn from the training queries; if not, codes are of the vectors as they are, or
            of their principal components.
        dim: routing dimension; the original one if not given, or if that is no larger.
        minutes: time to learn for, at the most.
        seed: of every random choice.
    """

    knobs = (700, 800, 850, 900, 925, 950, 970, 980, 990, 995)

    def __init__(
        self,
        routing: Compression = "int8",
        *,
        learns: bool = False,
        dim: int | None = None,
        minutes: float = 10.0,
        seed: int = 0,
    ) -> None:
        self.routing, self.learns = routing, learns
        self.dim, self.minutes, self.seed = dim, minutes, seed
        self.recall = self.knobs[0] / 1000
        self.learn_seconds = 0.0

    def build(self, data: Dataset) -> None:
        """Build a graph, learn from the training queries, make codes."""
        if data.learn is None:
            raise ValueError(f"expected training queries (learn) in {data.name}, got none")
        dim = None if self.dim is None or self.dim >= data.base.shape[1] else self.dim
        index = served_graph(data, self.seed)
        learned = self._learn(index, data.learn, dim) if self.learns else None
        if learned is None:
            plain = [] if dim is None else [pca_space(index.base, dim)]
            learned = RoutingIndex(index.base, index.graph, plain)
            learned.validate_with(data.learn[-N_KEPT:])
        index = learned
        index.renumber()
        index.compress(self.routing, "float16")
        self.index = index

    def _learn(self, index: RoutingIndex, queries: Vectors, dim: int | None) -> RoutingIndex | None:
        """Route by what was learned, if it is better than the plain space of its dimension."""
        from l2route.training.clock import Clock
        from l2route.training.loop import learn_space
        from l2route.training.options import LearnOptions
        from l2route.training.problem import pose

        options = LearnOptions(
            k=N_ANSWERS,
            rerank=N_ANSWERS,
            recall=SERVED_RECALL,
            dim=dim,
            minutes=self.minutes,
            seed=self.seed,
        )
        clock = Clock(options.time_limit)
        problem = pose(index.graph, index.base, queries, options, clock=clock)
        space, report = learn_space(problem, options, clock=clock)
        self.learn_seconds = report.seconds
        if not report.is_better:
            return None
        return RoutingIndex(index.base, index.graph, [space], validation=problem.to_keep())

    def set(self, knob: int) -> None:
        """Find the beam and rerank that reach the recall; if none does, that is an error."""
        self.recall = knob / 1000
        self.index.setting(self.recall, N_ANSWERS)

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        return self.index.search(queries, k, recall=self.recall, n_threads=1).ids

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Codes scored, and true distances."""
        found = self.index.search(queries, k, recall=self.recall, n_threads=1)
        return (found.n_routing + found.n_rerank).astype(np.int64)

    def n_bytes(self) -> int | None:
        """Of the index as it is saved."""
        return self.index.n_bytes


@dataclass(frozen=True, slots=True)
class Variant:
    """A method at one of its settings."""

    method: str
    label: str
    """What tells it from the method's other variants."""
    make: Callable[[int, float], Method]
    """From a seed, and the minutes that it may learn for."""


def _learned(routing: Compression, dim: int | None) -> Callable[[int, float], Method]:
    return lambda seed, minutes: Routed(routing, learns=True, dim=dim, minutes=minutes, seed=seed)


VARIANTS = (
    Variant("l2route", "int8", lambda seed, _: Routed("int8", seed=seed)),
    Variant("l2route", "int4", lambda seed, _: Routed("int4", seed=seed)),
    Variant("l2route-learned", "int8", _learned("int8", None)),
    Variant("l2route-pca64", "int8", lambda seed, _: Routed("int8", dim=64, seed=seed)),
    Variant("l2route-learned64", "int8", _learned("int8", 64)),
    Variant("hnswlib", "M=16, ef 200", lambda seed, _: Hnswlib(32, 200, seed)),
    Variant("hnswlib", "M=24, ef 500", lambda seed, _: Hnswlib(48, 500, seed)),
    Variant("faiss-hnsw", "M=16, ef 200", lambda seed, _: FaissHnsw(32, 200, seed)),
    Variant("faiss-hnsw", "M=32, ef 500", lambda seed, _: FaissHnsw(64, 500, seed)),
    Variant("faiss-nsg", "R=32", lambda *_: FaissNsg(32)),
    Variant("faiss-nsg", "R=64", lambda *_: FaissNsg(64, 128)),
    Variant("usearch", "f32, 16", lambda *_: Usearch(32, 200)),
    Variant("usearch", "f16, 16", lambda *_: Usearch(32, 200, "f16")),
    Variant("pynndescent", "30", lambda seed, _: PyNNDescent(30, seed)),
    Variant("symphonyqg", "degree 32", lambda *_: SymphonyQG(32, 400)),
    Variant("symphonyqg", "degree 64", lambda *_: SymphonyQG(64, 400)),
    Variant("scann", "reorder 40", lambda *_: Scann(40)),
    Variant("scann", "reorder 100", lambda *_: Scann(100)),
    Variant("scann", "reorder 300", lambda *_: Scann(300)),
)
"""What `l2route compare` compares; each library at settings that its own documents recommend."""

METHODS: dict[str, Callable[[int], Method]] = {
    "l2route": lambda seed: L2route(seed=seed),
    "faiss-hnsw": lambda seed: FaissHnsw(seed=seed),
    "faiss-nsg": lambda _: FaissNsg(),
    "hnswlib": lambda seed: Hnswlib(seed=seed),
    "annoy": lambda seed: Annoy(seed=seed),
    "usearch": lambda _: Usearch(),
    "pynndescent": lambda seed: PyNNDescent(seed=seed),
}
"""What `l2route reproduce sota` compares, made from a seed where the library takes one."""


def make_methods(names: Iterable[str], seed: int = 0) -> tuple[dict[str, Method], dict[str, str]]:
    """Methods of these names, and of those that cannot be had here, why not."""
    made: dict[str, Method] = {}
    skipped: dict[str, str] = {}
    for name in names:
        if name not in METHODS:
            raise ValueError(f"expected a method of {', '.join(METHODS)}, got {name!r}")
        try:
            made[name] = METHODS[name](seed)
        except ImportError as error:
            skipped[name] = f"{error}; {install('bench')}"
    return made, skipped


def knob_for(method: Method, queries: Vectors, k: int, budget: float) -> int:
    """The largest knob at which searches compute no more distances than a budget, on average.

    Args:
        method: what counts its distances.
        queries: queries to count on; not those that the result is measured with.
        k: answers per query.
        budget: distance computations per query.
    """

    def mean(knob: int) -> float:
        method.set(knob)
        counts = method.count(queries, k)
        if counts is None:
            raise ValueError("expected a method that counts its distances, got a mute one")
        return float(counts.mean())

    if (least := mean(1)) > budget:
        raise ValueError(f"expected a method that can stay within {budget:g}, got {least:.0f}")
    low, high = 1, 2
    while high < 1 << 24 and mean(high) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if mean(middle) <= budget else (low, middle)
    method.set(low)
    return low
