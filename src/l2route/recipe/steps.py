"""The options of a build, and the order of its steps."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import index as index_of
from typing import Literal, Protocol, get_args

from l2route.data.vectors import Metric, check_metric
from l2route.files.progress import Progress
from l2route.graph.build import (
    DEGREE,
    GraphKind,
    GraphOptions,
    check_kind,
    served_entry,
)
from l2route.index import RoutingIndex
from l2route.search.base import BaseVectors
from l2route.search.validation import DEPTH
from l2route.state.build import graph_over

Routing = Literal["auto", "int2", "int4", "int8", "float16", "float32"]
ROUTINGS: tuple[Routing, ...] = get_args(Routing)
"""Element types of routing vectors, smallest first, after the choice among them by time."""
StepProgress = Callable[[str, int, int | None], None]
"""Called with the name of the step, the amount done and the total amount."""
Change = Callable[[RoutingIndex], RoutingIndex]
"""A step: changes an index or makes another one, and returns it for the next step."""
Changes = Callable[[RoutingIndex], Iterator[tuple[str, RoutingIndex]]]
"""Several steps: the name of each, and the index after it."""


class Watch(Protocol):
    """Called after each step of `prepare`."""

    def __call__(self, step: str, seconds: float, index: RoutingIndex) -> None:
        """Observe the index after a step.

        Args:
            step: name of the step.
            seconds: time that the step took.
            index: the index after the step.
        """


@dataclass(frozen=True, slots=True)
class Recipe:
    """Options of a build. Checked on construction."""

    metric: Metric = "l2"
    """l2, ip or cosine."""
    k: int = 10
    """Answers per query."""
    recall: float = 0.95
    """Recall@k to reach."""
    routing: Routing = "auto"
    """Element type of routing vectors: int2, int4, int8, float16 or float32, or auto for the codes
    that serve fastest, also of fewer dimensions. Unless it is float32, the original vectors are
    stored as float16."""
    minutes: float = 5.0
    """Time limit of what is learned from the log; 0 to learn nothing. Half of it or more is for a
    routing space."""
    dim: int | None = None
    """Dimension of learned routing vectors; the original one if not given."""
    graph: GraphKind = "l2route"
    """l2route (the project's own), nsw, hnsw, nsg, knn or approximate-knn."""
    degree: int = DEGREE
    """Largest number of neighbours of a vertex."""
    ef_construction: int | None = None
    """Beam width while building l2route (by default as the data need), nsw and hnsw (300)."""
    seed: int = 0
    """Seed of every random choice."""
    n_threads: int = 0
    """Threads; 0 for all cores. Graphs of other kinds than l2route and knn, built by more than one,
    differ from run to run."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", index_of(self.k))
        object.__setattr__(self, "seed", index_of(self.seed))
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"expected a seed in [0, 2**64), got {self.seed}")
        check_kind(self.graph, check_metric(self.metric))
        _ = self.graph_options  # checks them
        if not 1 <= self.k <= DEPTH:
            raise ValueError(f"expected k in [1, {DEPTH}], got {self.k}")
        if not 0 < self.recall <= 1:
            raise ValueError(f"expected a recall in (0, 1], got {self.recall}")
        if self.routing not in ROUTINGS:
            raise ValueError(f"expected routing {', '.join(ROUTINGS)}, got {self.routing!r}")
        if not 0 <= self.minutes < math.inf:
            raise ValueError(f"expected minutes of at least 0, got {self.minutes}")

    @property
    def graph_options(self) -> GraphOptions:
        """Options of the graph, with the default entry points of an index."""
        entry = served_entry(self.graph, self.metric)
        return GraphOptions(
            self.graph, self.degree, self.ef_construction, entry, self.seed, self.n_threads
        )


def compress_blindly(index: RoutingIndex, routing: Routing) -> RoutingIndex:
    """Compress routing vectors, auto to int8, and original vectors to float16, unmeasured."""
    if routing != "float32":
        index.compress("int8" if routing == "auto" else routing, vectors="float16")
    return index


class _Laps:
    """Reports the time of each step to a watch, without the time that the watch itself takes."""

    def __init__(self, watch: Watch | None) -> None:
        self._watch, self._begin = watch, time.perf_counter()

    def done(self, step: str, index: RoutingIndex) -> None:
        if self._watch is not None:
            self._watch(step, time.perf_counter() - self._begin, index)
        self._begin = time.perf_counter()


def prepare(
    vectors: object,
    recipe: Recipe,
    *,
    log: Changes | None = None,
    learn: Change | None = None,
    compress: Change | None = None,
    stop: Change | None = None,
    watch: Watch | None = None,
    progress: StepProgress | None = None,
) -> RoutingIndex:
    """Build, refine, learn, renumber and compress an index, and learn to stop, in this order.

    A graph is refined, by its vectors and for the log, before learning: a learned space is valid
    only for the graph that it was trained on. It is renumbered before it is compressed, so that
    codes are made once.

    Args:
        vectors: base vectors [n, dim].
        recipe: graph, metric and element types.
        log: the steps that refine the graph for a query log; skipped if None.
        learn: the step that learns; skipped if None.
        compress: the step that compresses; by default `compress_blindly`.
        stop: the step that learns when walks end; skipped if None.
        watch: called after every step with its time in seconds.
        progress: called while the graph is built and refined.
    """
    laps = _Laps(watch)
    base = BaseVectors.of(vectors, recipe.metric)
    report = named(progress, "build")
    graph = graph_over(base, recipe.graph_options, report)
    index = RoutingIndex(base, graph)
    laps.done("build", index)
    if recipe.graph != "l2route":  # which needs no refining
        index.refine(n_threads=recipe.n_threads, progress=named(progress, "refine"))
        laps.done("refine", index)
    for step, refined in () if log is None else log(index):
        index = refined
        laps.done(step, index)
    if learn is not None:
        index = learn(index)
        laps.done("learn", index)
    index.renumber()
    laps.done("renumber", index)
    index = compress_blindly(index, recipe.routing) if compress is None else compress(index)
    laps.done("compress", index)
    if stop is not None:
        index = stop(index)
        laps.done("stop", index)
    return index


def named(progress: StepProgress | None, step: str) -> Progress | None:
    """A progress callback for one step; None if there is none for the build."""
    return None if progress is None else lambda done, total: progress(step, done, total)
