"""Vertices scored at equal recall: by beam width or by slack, and by codes of fewer bits.

    python benchmarks/stopping.py glove100.npz …     # arrays `base` and `learn`

Measured at the cheapest beam width and at the cheapest slack that reach each recall@10, each with
its rerank, on 2,000 training queries. Nothing is learned, and test queries are not used. NSW of
degree 32, efConstruction 300, entered at 32 medoids, built by one thread: the counts are the same
on every run.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.search.base import BaseVectors
from l2route.search.calibrate import cheapest_beam, cheapest_slack
from l2route.search.codes import COMPRESSIONS
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher
from l2route.search.setting import Setting
from l2route.search.validation import N_KEPT, Validation

TARGETS = (0.90, 0.95, 0.99)


def read_files(description: str | None) -> Iterator[tuple[Dataset, BaseVectors, Validation]]:
    """Dataset, base vectors and validation queries of each file on the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("files", nargs="+", type=Path)
    for path in parser.parse_args().files:
        data = Dataset.read(path)
        if data.learn is None:
            raise ValueError(f"{path}: expected training queries (learn), got none")
        base = BaseVectors.of(data.base, data.metric)
        yield data, base, Validation.of(base, data.learn[-N_KEPT:])


def search_with(searcher: Searcher, validation: Validation, setting: Setting) -> SearchResult:
    """Search the validation queries with a setting."""
    return searcher.search(validation.queries, setting.k, limits=setting.limits)


def cost_of(searcher: Searcher, validation: Validation, setting: Setting | None) -> str:
    """Vertices scored and reranked per query with a setting, as text."""
    if setting is None:
        return "out of reach"
    found = search_with(searcher, validation, setting)
    return f"{found.n_routing.mean():,.0f} + {setting.rerank}"


def main() -> None:
    """Print a table for every file."""
    for data, base, validation in read_files(__doc__):
        built = RoutingIndex.build(data.base, data.metric, graph="nsw", refine=False)
        print(f"\n{data.name}: scored + reranked per query")
        print("| routing vectors | recall@10 | by beam | by slack |\n|---|---|---|---|")
        for compression in (None, *COMPRESSIONS[::-1]):
            index = RoutingIndex(base, built.graph)
            if compression is not None:
                index.compress(compression)
            searcher = index.searcher()
            for target in TARGETS:
                beam, slack = (
                    cost_of(searcher, validation, choose(searcher, validation, 10, target))
                    for choose in (cheapest_beam, cheapest_slack)
                )
                name = compression or str(np.dtype(np.float32))
                print(f"| {name} | {target:.2f} | {beam} | {slack} |", flush=True)


if __name__ == "__main__":
    main()
