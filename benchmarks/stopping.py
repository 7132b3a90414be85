"""What a slack saves against a beam width, and what codes of fewer bits cost, in vertices scored.

    python benchmarks/stopping.py glove100.npz …     # arrays `base` and `learn`

For every recall@10 the cheapest beam and the cheapest slack, each with its rerank, on 2,000
of the training queries; nothing is learned, and the test queries are not touched. NSW of degree 32,
efConstruction 300, entered at 32 medoids, built by one thread: the same counts on every run.
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


def given(description: str | None) -> Iterator[tuple[Dataset, BaseVectors, Validation]]:
    """Each file of the command line, and the training queries to count on."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("files", nargs="+", type=Path)
    for path in parser.parse_args().files:
        data = Dataset.read(path)
        if data.learn is None:
            raise ValueError(f"{path}: expected training queries (learn), got none")
        base = BaseVectors.of(data.base, data.metric)
        yield data, base, Validation.of(base, data.learn[-N_KEPT:])


def walked(searcher: Searcher, validation: Validation, setting: Setting) -> SearchResult:
    """What walks with a setting find, and what they cost."""
    return searcher.search(validation.queries, setting.k, limits=setting.limits)


def said(searcher: Searcher, validation: Validation, setting: Setting | None) -> str:
    """Vertices scored and reranked with a setting."""
    if setting is None:
        return "out of reach"
    found = walked(searcher, validation, setting)
    return f"{found.n_routing.mean():,.0f} + {setting.rerank}"


def main() -> None:
    """Print a table for every file."""
    for data, base, validation in given(__doc__):
        built = RoutingIndex.build(data.base, data.metric, refine=False)
        print(f"\n{data.name}: scored + reranked per query")
        print("| routing vectors | recall@10 | by beam | by slack |\n|---|---|---|---|")
        for compression in (None, *COMPRESSIONS[::-1]):
            index = RoutingIndex(base, built.graph)
            if compression is not None:
                index.compress(compression)
            searcher = index.searcher()
            for target in TARGETS:
                beam, slack = (
                    said(searcher, validation, choose(searcher, validation, 10, target))
                    for choose in (cheapest_beam, cheapest_slack)
                )
                name = compression or str(np.dtype(np.float32))
                print(f"| {name} | {target:.2f} | {beam} | {slack} |", flush=True)


if __name__ == "__main__":
    main()
