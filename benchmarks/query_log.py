"""What edges and entry points from a query log bring, on test queries.

    python benchmarks/query_log.py FILE.npz               # arrays `base`, `learn` and `query`
    python benchmarks/query_log.py FILE.npz --shares 1 0.1 0.01

For every share of the log, rows without the log, with edges, with edges also for queries between
those of the log, with entry points and with all of it, whether they pay or not. int8 codes;
settings are found on training queries that are held out, speed and recall are of test queries, on
one thread, in turns, best of several rounds.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_at
from l2route.data.truth import exact_neighbors
from l2route.graph.graph import Graph
from l2route.rewiring.log_edges import DEPTH, join_neighbors
from l2route.rewiring.log_entries import entries_of_log
from l2route.search.space import original_space
from l2route.state.log_refining import LogRefiner

K = 10
Rows = NDArray[np.float32]


def graphs_of(graph: Graph, refiner: LogRefiner, degree: int | None) -> dict[str, Graph]:
    """The graph as it is, and with what comes from the log."""
    split, base = refiner.split, refiner.base
    joined = join_neighbors(graph, base, split.nearest[:, :DEPTH], degree=degree)
    mixes = refiner.mixed_neighbors(joined.graph, original_space(base))
    nearest = np.concatenate([split.nearest[:, :DEPTH], mixes[:, :DEPTH]])
    more = join_neighbors(graph, base, nearest, degree=degree)
    table = entries_of_log(split.train, split.nearest, base.metric)
    for each, n_queries in ((joined, len(split.train)), (more, len(nearest))):
        added = each.n_added / graph.n_vertices
        print(f"{n_queries:,} queries: {added:.2f} edges per vertex, {each.n_refused:,} refused")
    return {
        "without": graph,
        "edges": joined.graph,
        "edges, also between queries": more.graph,
        "entries": replace(graph, table=table),
        "edges and entries": replace(joined.graph, table=table),
        "all": replace(more.graph, table=table),
    }


def served(graph: Graph, refiner: LogRefiner) -> RoutingIndex:
    """An index as it is served, with held-out queries to find settings on."""
    index = RoutingIndex(refiner.base, graph, validation=refiner.split.validation)
    index.renumber()
    index.compress("int8", vectors="float16")
    return index


def measure(
    indexes: dict[str, RoutingIndex], queries: Rows, nearest: Rows, recall: float, n_rounds: int
) -> None:
    """Print speed, recall and vertices scored at the setting for a recall."""
    plans = {name: each.plan(K, recall=recall, n_threads=1) for name, each in indexes.items()}
    best = dict.fromkeys(plans, np.inf)
    found = {}
    for _ in range(n_rounds):
        for name, plan in plans.items():
            begin = time.perf_counter()
            found[name] = plan(queries)
            best[name] = min(best[name], time.perf_counter() - begin)
    for name, result in found.items():
        reached = recall_at(result.distances, nearest, K)
        speed = len(queries) / best[name]
        cells = (f"{recall}", name, f"{reached:.4f}", f"{result.n_routing.mean():,.0f}")
        print(f"| {' | '.join(cells)} | {speed:,.0f} | {best['without'] / best[name]:.2f} |")


def main() -> None:
    """Print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--recalls", type=float, nargs="+", default=[0.9, 0.95, 0.99])
    parser.add_argument("--shares", type=float, nargs="+", default=[1.0])
    parser.add_argument("--degree", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    data = Dataset.read(options.file)
    assert data.learn is not None
    index = RoutingIndex.build(data.base, data.metric)
    truth = exact_neighbors(data.base, data.query, K, data.metric)
    for share in options.shares:
        log = data.learn[: int(share * len(data.learn))]
        refiner = LogRefiner(index.base, log, k=K)
        graphs = graphs_of(index.graph, refiner, options.degree)
        indexes = {name: served(graph, refiner) for name, graph in graphs.items()}
        print(f"\n{data.name}, {share:.0%} of the log\n")
        print(
            "| recall | | of test queries | scored | queries/s | times |\n|---|---|---|---|---|---|"
        )
        for recall in options.recalls:
            measure(indexes, data.query, truth.distances, recall, options.rounds)


if __name__ == "__main__":
    main()
