"""Graphs for searches of few distances, with edges and entry points from the training queries."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from l2route.data.metrics import recall_at
from l2route.graph.graph import Graph
from l2route.reproduce.plan import Method
from l2route.rewiring.log_edges import join_neighbors
from l2route.rewiring.log_entries import TableShape, entries_of_log
from l2route.search.base import BaseVectors
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import original_space
from l2route.training.log_split import LogSplit

SHAPES = (
    TableShape(256, 64, 4),
    TableShape(256, 64, 16),
    TableShape(1024, 32, 8),
    TableShape(256, 32, 8),
    TableShape(256, 32, 16),
    TableShape(64, 32, 8),
)
"""Tables of entry points of which the best is taken; at small budgets reading one costs much."""


def log_graph(graph: Graph, base: BaseVectors, split: LogSplit, method: Method, seed: int) -> Graph:
    """A graph with what a method takes from a query log.

    Entry points come first: which edges walks lack depends on where they start. A part that is not
    kept always is kept if queries held out then have a higher recall@1, averaged over the budgets.

    Args:
        graph: the graph.
        base: its vectors.
        split: the log, with true neighbours.
        method: says which parts are taken, and at which budgets they are judged.
        seed: seed of clusters.
    """
    if "entries" in method.log:
        tables = [
            entries_of_log(split.train, split.nearest, base.metric, seed, shape) for shape in SHAPES
        ]
        entered = [replace(graph, table=table) for table in tables]
        graph = best_of([graph] * _is_judged(method) + entered, base, split, method.budgets)
    if "edges" in method.log:
        joined = join_neighbors(graph, base, split.nearest).graph
        graph = best_of([graph] * _is_judged(method) + [joined], base, split, method.budgets)
    return graph


def _is_judged(method: Method) -> bool:
    return method.log_kept == "better"


def best_of(
    graphs: Sequence[Graph], base: BaseVectors, split: LogSplit, budgets: Sequence[int]
) -> Graph:
    """The graph with the highest recall@1 of the queries held out, averaged over budgets.

    Args:
        graphs: graphs over the vectors; of equal ones the first is taken.
        base: the vectors.
        split: the log with the queries held out.
        budgets: distances that a search may compute.
    """
    if len(graphs) == 1:
        return graphs[0]
    queries = split.validation.queries
    nearest = base.exact_distances(queries, split.validation.neighbors[:, :1])

    def recall(graph: Graph) -> float:
        searcher = Searcher(graph, original_space(base), base)
        found = (searcher.search(queries, 1, limits=Limits(budget)) for budget in budgets)
        return float(np.mean([recall_at(each.distances, nearest, 1) for each in found]))

    return graphs[int(np.argmax([recall(graph) for graph in graphs]))]
