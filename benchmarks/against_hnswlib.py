"""Queries per second against hnswlib: one thread, the same graph, equal ef, interleaved runs.

    python benchmarks/against_hnswlib.py                    # the demo's words
    python benchmarks/against_hnswlib.py glove100.npz …     # arrays `base` and `query`

hnswlib builds the graph (M=8, efConstruction=300, one thread, seed 100) and l2route imports it,
upper layers included. Each run searches all queries with hnswlib, then with l2route; the ratio is
the median over the runs.
"""

import argparse
import json
import statistics
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route import from_hnswlib
from l2route.data.dataset import Dataset
from l2route.data.metrics import N_ANSWERS
from l2route.data.public import demo_words
from l2route.evaluation.compare.peers import Hnswlib
from l2route.evaluation.judge import Judge
from measuring import timed

BEAMS = (32, 64, 128, 256)


def compare(data: Dataset, n_runs: int, degree: int) -> list[dict[str, float]]:
    """Time both at every beam width."""
    peer = Hnswlib(degree, 300, seed=100)
    peer.build(data)
    ours = from_hnswlib(peer.index)
    queries, judge = data.query, Judge(data, N_ANSWERS)
    rows = []
    for ef in BEAMS:
        peer.set(ef)

        def search_theirs() -> NDArray[np.int64]:
            return peer.search(queries, N_ANSWERS)

        def search_ours(ef: int = ef) -> NDArray[np.int64]:
            return ours.search(queries, N_ANSWERS, ef=ef, n_threads=1).ids

        runs = [(timed(search_theirs)[0], timed(search_ours)[0]) for _ in range(n_runs)]
        rows.append(
            {
                "ef": ef,
                "hnswlib_recall": judge.recall(search_theirs()),
                "l2route_recall": judge.recall(search_ours()),
                "hnswlib_qps": len(queries) / statistics.median(a for a, _ in runs),
                "l2route_qps": len(queries) / statistics.median(b for _, b in runs),
                "ratio": statistics.median(a / b for a, b in runs),
            }
        )
    return rows


def main() -> None:
    """Print a table for each dataset."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", type=Path, help="npz files with base and query")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--degree", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    datasets = [Dataset.read(path) for path in arguments.data] or [demo_words().dataset]
    for data in datasets:
        rows = compare(data, arguments.runs, arguments.degree)
        if arguments.json:
            print(json.dumps({"dataset": data.name, "rows": rows}))
            continue
        print(f"\n{data.name}: {len(data.base):,} vectors, {len(data.query):,} queries, one thread")
        print("   ef      recall@10 hnswlib  l2route   queries/s hnswlib   l2route   ratio")
        for row in rows:
            print(
                f"{row['ef']:5.0f} {row['hnswlib_recall']:22.3f} {row['l2route_recall']:8.3f}"
                f" {row['hnswlib_qps']:19,.0f} {row['l2route_qps']:9,.0f} {row['ratio']:7.2f}"
            )


if __name__ == "__main__":
    main()
