"""What a learned space keeps of its gain when half of the vectors are new.

    python benchmarks/following.py glove100.npz gloss384.npz --minutes 3

Files hold `base`, `learn` and `query`. An index is built over a random half of the base, and a
space is learned. Then half of its vectors are replaced, 1% of all at a time, by `delete` and `add`.
Rows, all on the graph that this leaves: the original vectors; the learned space as it has followed;
all vertices encoded anew; learned afresh. Recall@1 at the budget, rerank included, on test queries;
`share` is the gain over the original vectors as a share of the gain of learning afresh, with its
standard error. By default the index begins as an NSW graph of degree 16 with entry vertex 0, as in
the paper's experiments: there learning gains most.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_per_query
from l2route.data.truth import exact_neighbors
from l2route.search.encode import encode_space
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace

N_ROUNDS = 50


def build(data: Dataset, ids: NDArray[np.int64], graph: str) -> RoutingIndex:
    """An index of some of the base vectors, without a learned space."""
    how = {"degree": 16, "entry": 0, "refine": False} if graph == "nsw" else {}
    return RoutingIndex.build(data.base[ids], data.metric, ids=ids, graph=graph, **how)


def learned(index: RoutingIndex, data: Dataset, arguments: argparse.Namespace) -> RoutingSpace:
    """The space that is learned on an index."""
    budget, rerank = arguments.budget, arguments.rerank
    report = index.learn(
        data.learn, budget=budget, rerank=rerank, minutes=arguments.minutes, seed=arguments.seed
    )
    print(f"{data.name}: {report}", flush=True)
    return index.spaces[-1]


def replace_half(index: RoutingIndex, data: Dataset, others: NDArray[np.int64], seed: int) -> None:
    """Replace half of the vectors by others, round by round."""
    leaving = np.random.default_rng(seed).permutation(index.ids)[: len(index) // 2]
    coming = others[: len(leaving)]
    parts = (np.array_split(ids, N_ROUNDS) for ids in (leaving, coming))
    for gone, new in zip(*parts, strict=True):
        index.delete(gone)
        index.add(data.base[new], new)


def rows(data: Dataset, arguments: argparse.Namespace) -> Iterator[str]:
    """Lines of the table for one file."""
    order = np.random.default_rng(arguments.seed).permutation(len(data.base)).astype(np.int64)
    half = len(order) // 2
    index = build(data, order[:half], arguments.graph)
    learned(index, data, arguments)
    replace_half(index, data, order[half:], arguments.seed)
    base, graph, followed = index.base, index.graph, index.spaces[-1]
    spaces = {
        "original": index.spaces[0],
        "as it has followed": followed,
        "all encoded anew": encode_space(followed, base, graph),
        "learned afresh": learned(RoutingIndex(base, graph), data, arguments),
    }
    truth = exact_neighbors(base.vectors(), data.query, 1, data.metric)
    limits, recalls = Limits(arguments.budget, rerank=arguments.rerank), {}
    for name, space in spaces.items():
        found = Searcher(graph, space, base).search(data.query, 1, limits=limits)
        recalls[name] = recall_per_query(found.distances, truth.distances, 1)
    gains = {name: recall - recalls["original"] for name, recall in recalls.items()}
    whole = gains["learned afresh"]
    for name, gain in gains.items():
        share = gain.mean() / whole.mean()
        error = (gain - share * whole).std() / np.sqrt(len(gain)) / whole.mean()
        figures = f"{recalls[name].mean():.4f} | {gain.mean():+.4f} | {share:.2f} ± {error:.2f}"
        yield f"| {data.name} | {name} | {figures} |"


def main() -> None:
    """Print a Markdown table for each file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--budget", type=int, default=256)
    parser.add_argument("--rerank", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--graph", choices=("nsw", "l2route"), default="nsw")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for path in arguments.data:
        lines = list(rows(Dataset.read(path), arguments))
        print("| data | space | recall@1 | gain | share |\n|---|---|---|---|---|")
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
