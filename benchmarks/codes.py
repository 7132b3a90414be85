"""Queries per second with routing vectors of fewer bytes, on one graph and one thread, in turns.

    python benchmarks/codes.py glove100.npz …     # arrays `base`, `learn` and `query`

For every target recall@10 each kind of routing vector is calibrated on 2,000 training queries; the
recall shown is that of the test queries. Nothing is learned. The ratio is the speed relative to
float32, the median over the rounds.
"""

import argparse
import statistics
from functools import partial
from pathlib import Path

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.data.metrics import N_ANSWERS
from l2route.evaluation.compare.methods import served_graph
from l2route.evaluation.judge import Judge
from l2route.search.codes import COMPRESSIONS
from l2route.search.validation import N_KEPT
from measuring import timed

TARGETS = (0.90, 0.95, 0.99)


def main() -> None:
    """Print a table for every file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for path in options.files:
        data = Dataset.read(path)
        built = served_graph(data)
        built.validate_with(data.training[-N_KEPT:])
        judge = Judge(data, N_ANSWERS)
        indexes = {"float32": built}
        for compression in COMPRESSIONS[::-1]:
            index = RoutingIndex(built.base, built.graph, validation=built.validation)
            index.compress(compression, vectors="float16")
            indexes[compression] = index
        print(f"\n{data.name}, bytes per vector: ", end="")
        print(", ".join(f"{name} {one.n_bytes / len(one):,.0f}" for name, one in indexes.items()))
        print("| routing vectors | target | recall@10 | q/s | ratio |\n|---|---|---|---|---|")
        for target in TARGETS:
            seconds: dict[str, list[float]] = {name: [] for name in indexes}
            recalls = {}
            for turn in range(options.rounds + 1):  # the first finds settings and warms up
                for name, index in indexes.items():
                    search = partial(index.search, recall=target, n_threads=1)
                    spent, found = timed(partial(search, data.query, N_ANSWERS))
                    if turn:
                        seconds[name].append(spent)
                    recalls[name] = judge.recall(found.ids)
            for name, own in seconds.items():
                pairs = zip(seconds["float32"], own, strict=True)
                ratio = statistics.median(plain / other for plain, other in pairs)
                speed = len(data.query) / min(own)
                row = (name, f"{target:.2f}", f"{recalls[name]:.4f}", f"{speed:,.0f}")
                print(f"| {' | '.join(row)} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
