"""The methods that are compared: ours as it is served, and the registry of all."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from l2route.data.dataset import Dataset
from l2route.data.metrics import N_ANSWERS
from l2route.evaluation.compare.peers import (
    Annoy,
    FaissHnsw,
    FaissNsg,
    Hnswlib,
    PyNNDescent,
    Scann,
    SymphonyQG,
    Usearch,
)
from l2route.evaluation.compare.protocol import Ids, Method, Vectors
from l2route.index import RoutingIndex
from l2route.recipe.steps import Recipe, prepare
from l2route.search.codes import Compression
from l2route.search.space import pca_space
from l2route.search.validation import N_KEPT

SERVED_RECALL = 0.9
"""Target recall@10 of learning for a served index."""


def served_graph(data: Dataset, seed: int = 0, n_threads: int = 1) -> RoutingIndex:
    """The index that ours are made from: `RoutingIndex.build` with its defaults."""
    return RoutingIndex.build(data.base, data.metric, seed=seed, n_threads=n_threads)


class Routed:
    """Ours as it is served: routing by codes; the knob is the target recall@10 in thousandths.

    Args:
        routing: kind of codes to route by.
        refines: refine the graph for the training queries, where that pays.
        learns: learn from the training queries; otherwise codes are of the original vectors, or
            of their principal components if `dim` is smaller.
        dim: routing dimension; the original one if not given or not smaller.
        minutes: time limit of learning.
        seed: seed of every random choice.
    """

    knobs = (700, 800, 850, 900, 925, 950, 970, 980, 990, 995)

    def __init__(
        self,
        routing: Compression = "int8",
        *,
        refines: bool = False,
        learns: bool = False,
        dim: int | None = None,
        minutes: float = 10.0,
        seed: int = 0,
    ) -> None:
        self.routing, self.refines, self.learns = routing, refines, learns
        self.dim, self.minutes, self.seed = dim, minutes, seed
        self.recall = self.knobs[0] / 1000
        self.learn_seconds = 0.0

    def build(self, data: Dataset) -> None:
        """Build a graph, learn from the training queries, make codes."""
        if data.learn is None:
            raise ValueError(f"expected training queries (learn) in {data.name}, got none")
        dim = None if self.dim is None or self.dim >= data.base.shape[1] else self.dim
        queries = data.learn

        def learn(index: RoutingIndex) -> RoutingIndex:
            learned = self._learn(index, queries, dim) if self.learns else None
            if learned is None:
                plain = [] if dim is None else [pca_space(index.base, dim)]
                learned = RoutingIndex(index.base, index.graph, plain, validation=index.validation)
                if learned.validation is None:
                    learned.validate_with(queries[-N_KEPT:])
            return learned

        def refine(index: RoutingIndex) -> Iterator[tuple[str, RoutingIndex]]:
            begin = time.perf_counter()
            index.refine(queries=queries, k=N_ANSWERS, seed=self.seed, n_threads=1)
            self.learn_seconds += time.perf_counter() - begin
            yield "log", index

        recipe = Recipe(metric=data.metric, routing=self.routing, seed=self.seed, n_threads=1)
        self.index = prepare(data.base, recipe, log=refine if self.refines else None, learn=learn)

    def _learn(self, index: RoutingIndex, queries: Vectors, dim: int | None) -> RoutingIndex | None:
        """An index with the learned space, if that beats the plain one of its dimension."""
        from l2route.training.options import LearnOptions
        from l2route.training.train import train

        options = LearnOptions(
            k=N_ANSWERS, recall=SERVED_RECALL, dim=dim, minutes=self.minutes, seed=self.seed
        )
        space, report = train(index.graph, index.base, queries, options)
        self.learn_seconds += report.seconds
        if not report.is_better:
            return None
        return RoutingIndex(index.base, index.graph, [space], validation=report.validation)

    def set(self, knob: int) -> None:
        """Find the beam width and rerank that reach the recall; refused if none does."""
        self.recall = knob / 1000
        self.index.setting(self.recall, N_ANSWERS)

    def search(self, queries: Vectors, k: int) -> Ids:
        """Ids of the k nearest."""
        return self.index.search(queries, k, recall=self.recall, n_threads=1).ids

    def count(self, queries: Vectors, k: int) -> NDArray[np.int64] | None:
        """Codes scored plus true distances computed."""
        found = self.index.search(queries, k, recall=self.recall, n_threads=1)
        return (found.n_routing + found.n_rerank).astype(np.int64)

    def n_bytes(self) -> int | None:
        """Size of the saved index."""
        return self.index.n_bytes


Use = Literal["compare", "sota"]
"""Commands that run methods: `l2route compare` and `l2route reproduce sota`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A method with its parameters, and where it is run."""

    method: str
    """Name on the command line, and in the experiments' `peer`."""
    label: str
    """Parameters that tell it from the method's other entries."""
    make: Callable[[int, float], Method]
    """Makes it from a seed and the minutes that it may learn for."""
    uses: tuple[Use, ...] = ("compare",)


def _learned(routing: Compression, dim: int | None) -> Callable[[int, float], Method]:
    return lambda seed, minutes: Routed(
        routing, refines=dim is None, learns=True, dim=dim, minutes=minutes, seed=seed
    )


METHODS = (
    Entry("l2route", "int8", lambda seed, _: Routed("int8", seed=seed)),
    Entry("l2route", "int4", lambda seed, _: Routed("int4", seed=seed)),
    Entry("l2route-log", "int8", lambda seed, _: Routed("int8", refines=True, seed=seed)),
    Entry("l2route-log", "int4", lambda seed, _: Routed("int4", refines=True, seed=seed)),
    Entry("l2route-learned", "int8", _learned("int8", None)),
    Entry("l2route-pca64", "int8", lambda seed, _: Routed("int8", dim=64, seed=seed)),
    Entry("l2route-learned64", "int8", _learned("int8", 64)),
    Entry("hnswlib", "M=16, ef 200", lambda seed, _: Hnswlib(32, 200, seed)),
    Entry("hnswlib", "M=24, ef 500", lambda seed, _: Hnswlib(48, 500, seed)),
    Entry("faiss-hnsw", "M=16, ef 200", lambda seed, _: FaissHnsw(32, 200, seed)),
    Entry("faiss-hnsw", "M=32, ef 500", lambda seed, _: FaissHnsw(64, 500, seed)),
    Entry("faiss-nsg", "R=32", lambda *_: FaissNsg(32)),
    Entry("faiss-nsg", "R=64", lambda *_: FaissNsg(64, 128)),
    Entry("usearch", "f32, 16", lambda *_: Usearch(32, 200)),
    Entry("usearch", "f16, 16", lambda *_: Usearch(32, 200, "f16")),
    Entry("pynndescent", "30", lambda seed, _: PyNNDescent(30, seed)),
    Entry("symphonyqg", "degree 32", lambda *_: SymphonyQG(32, 400)),
    Entry("symphonyqg", "degree 64", lambda *_: SymphonyQG(64, 400)),
    Entry("scann", "reorder 40", lambda *_: Scann(40)),
    Entry("scann", "reorder 100", lambda *_: Scann(100)),
    Entry("scann", "reorder 300", lambda *_: Scann(300)),
    Entry("annoy", "100 trees", lambda seed, _: Annoy(100, seed), uses=("sota",)),
)
"""All methods. `compare` runs each library with parameters that its own documents recommend."""


def select(use: Use, names: Sequence[str] | None = None) -> list[Entry]:
    """Entries that a command runs.

    Args:
        use: the command.
        names: methods to choose; all of the command's by default. Unknown names are refused.
    """
    entries = [entry for entry in METHODS if use in entry.uses]
    known = list(dict.fromkeys(entry.method for entry in entries))
    for name in names or ():
        if name not in known:
            raise ValueError(f"expected a method of {', '.join(known)}, got {name!r}")
    return [entry for entry in entries if names is None or entry.method in names]
