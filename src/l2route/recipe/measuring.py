"""Measuring an index during a build: the setting that reaches the recall, and what it costs."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import RecallSpread
from l2route.graph.graph import Graph
from l2route.index import RoutingIndex
from l2route.recipe.outcome import Cost
from l2route.recipe.steps import Recipe
from l2route.rewiring.remove import remove_vertices
from l2route.search.base import BaseVectors
from l2route.search.calibrate import OutOfReachError
from l2route.search.cost import bytes_read
from l2route.search.setting import Setting
from l2route.search.validation import Validation
from l2route.state.timing import SHORTEST

N_TIMED = 3
"""Number of timed passes over the validation queries; the fastest counts."""

Judge = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""Recall@k of each query, of answers by row number [n_queries, k]."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The cheapest setting that reaches the recall, and its search cost."""

    setting: Setting
    cost: Cost


@dataclass(frozen=True, slots=True)
class Refused:
    """Why no setting reaches the recall, or why a compression is not used."""

    reason: str


def measure(index: RoutingIndex, recipe: Recipe, judge: Judge) -> Reached | Refused:
    """Find the setting that reaches the recall, and measure its cost on one thread.

    Args:
        index: an index with validation queries.
        recipe: the recall, and answers per query.
        judge: recall of the answers of the index.
    """
    assert index.validation is not None
    queries = index.validation.queries
    try:
        setting = index.setting(recipe.recall, recipe.k, n_threads=recipe.n_threads)
    except OutOfReachError as error:
        return Refused(str(error))
    plan = index.plan(recipe.k, recall=recipe.recall, n_threads=1)
    seconds = []
    for _ in range(N_TIMED):
        begin = time.thread_time()  # without what others do on the same cores
        found = plan(queries)
        seconds.append(time.thread_time() - begin)
    spread = RecallSpread.of(judge(found.ids))
    cost = Cost(
        recall=spread.mean,
        worst_recall=spread.worst,
        share_low=spread.share_low,
        n_scored=float(found.n_routing.mean()),
        bytes_read=bytes_read(index.searcher(), found),
        microseconds=max(min(seconds) / len(queries), SHORTEST) * 1e6,
    )
    return Reached(setting, cost)


def hold_out(index: RoutingIndex, graph: Graph, n_held: int, seed: int) -> RoutingIndex:
    """The index without some of its vectors, which become the validation queries.

    Args:
        index: the index.
        graph: the graph to hold vectors out of, which may be that of an earlier step.
        n_held: number of vectors to hold out.
        seed: seed of their choice; the same are held out after vertices were renumbered.
    """
    n = len(index)
    gone = np.zeros(n, dtype=bool)
    gone[np.random.default_rng(seed).permutation(n)[:n_held]] = True
    if index.labels is not None:
        gone = gone[index.labels]
    vectors = index.base.vectors()
    left = BaseVectors.of(vectors[~gone], index.base.metric)
    validation = Validation.of(left, vectors[gone])
    return RoutingIndex(left, remove_vertices(graph, index.base, gone), validation=validation)
