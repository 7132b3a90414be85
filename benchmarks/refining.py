"""Vertices scored and expanded with refined graphs, and the time that refining takes.

    python benchmarks/refining.py glove100.npz …     # arrays `base` and `learn`

Measured at the cheapest slack and rerank that reach each recall@10 on 2,000 training queries, with
int8 codes; nothing is learned, and test queries are not used. Graphs: NSW of degree 32,
efConstruction 300, entered at 32 medoids, built by one thread; the same graph refined once and
twice; NSG of degree 32. The counts are the same on every run.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.graph.graph import Graph
from l2route.graph.report import report
from l2route.search.base import BaseVectors
from l2route.search.calibrate import cheapest_slack
from l2route.search.validation import Validation
from measuring import timed
from stopping import TARGETS, read_files, search_with


def graphs(data: Dataset) -> Iterator[tuple[str, Graph, float]]:
    """Name, graph and seconds to build or refine it."""
    build = partial(RoutingIndex.build, data.base, data.metric, entry="medoids", refine=False)
    for kind in ("nsg", "nsw"):
        seconds, index = timed(partial(build, graph=kind))
        yield kind, index.graph, seconds
    for name in ("nsw, refined", "nsw, refined twice"):
        seconds, _ = timed(partial(index.refine, n_threads=1))
        yield name, index.graph, seconds


def cells(graph: Graph, base: BaseVectors, validation: Validation) -> Iterator[str]:
    """Vertices scored + reranked, and hops, at every recall."""
    index = RoutingIndex(base, graph)
    index.compress("int8")
    searcher = index.searcher()
    for target in TARGETS:
        setting = cheapest_slack(searcher, validation, 10, target)
        if setting is None:
            yield "out of reach"
            continue
        found = search_with(searcher, validation, setting)
        scored, hops = found.n_routing.mean(), found.n_hops.mean()
        yield f"{scored:,.0f} + {setting.rerank}, {hops:.0f} hops"


def main() -> None:
    """Print a table for every file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    for data, base, validation in read_files(parser.parse_args().files):
        headings = ("graph", "seconds", "mean degree", *(f"{target:.2f}" for target in TARGETS))
        print(f"\n{data.name}: scored + reranked, and expanded, per query at recalls@10")
        print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}", flush=True)
        for name, graph, seconds in graphs(data):
            facts = (name, f"{seconds:.0f}", f"{report(graph).mean_degree:.1f}")
            print(f"| {' | '.join([*facts, *cells(graph, base, validation)])} |", flush=True)


if __name__ == "__main__":
    main()
