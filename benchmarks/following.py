"""What a learned space keeps of its gain when half of the vectors are new.

    python benchmarks/following.py glove100.npz gloss384.npz --minutes 3

Files hold `base`, `learn` and `query`. A space is learned on a random half of the base. Half of
those vectors are then replaced by others, a graph is built over what there is now, and vertices are
encoded by what was learned. Rows: the original vectors; vertices that stay keep their routing
vectors and new ones are encoded, as if nothing pointed to them yet; all vertices encoded anew;
learned afresh. All are NSW graphs (degree 16, efConstruction 300, entry vertex 0, seed 0). Recall@1
at the budget, rerank included, on test queries; `share` is the gain over the original vectors as a
share of the gain of learning afresh, with its standard error.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_per_query
from l2route.data.truth import exact_neighbors
from l2route.search.encode import encode_space, encode_vertices
from l2route.search.layout import pad_rows
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace


def build(vectors: NDArray[np.float32], metric: str) -> RoutingIndex:
    """An index of the kind that all rows share."""
    return RoutingIndex.build(vectors, metric, degree=16, entry=0, graph="nsw", refine=False)


def learned(index: RoutingIndex, data: Dataset, arguments: argparse.Namespace) -> RoutingSpace:
    """The space that is learned on an index."""
    budget, rerank = arguments.budget, arguments.rerank
    report = index.learn(
        data.learn, budget=budget, rerank=rerank, minutes=arguments.minutes, seed=arguments.seed
    )
    print(f"{data.name}: {report}", flush=True)
    return index.spaces[-1]


def followed(space: RoutingSpace, index: RoutingIndex, n_kept: int) -> RoutingSpace:
    """The space with the rows that it has for the first vertices, and encoded ones for others."""
    new = np.arange(n_kept, len(index))
    rows, bias = encode_vertices(space, index.base, index.graph.neighbors, new)
    assert space.bias is not None
    assert bias is not None
    together = np.concatenate([space.rows[:n_kept], rows])
    return replace(space, rows=pad_rows(together), bias=np.concatenate([space.bias[:n_kept], bias]))


def spaces(data: Dataset, arguments: argparse.Namespace) -> Iterator[tuple[str, RoutingSpace]]:
    """The spaces to compare by name, all over the vectors that there are in the end."""
    order, final = final_vectors(data, arguments.seed)
    before = learned(build(data.base[order], data.metric), data, arguments)
    after = build(data.base[final], data.metric)
    yield "original", after.spaces[0]
    yield "encoded when they come", followed(before, after, len(final) // 2)
    yield "all encoded anew", encode_space(before, after.base, after.graph)
    yield "learned afresh", learned(after, data, arguments)


def final_vectors(data: Dataset, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Vectors to learn on, and vectors to search: the first half of those, and as many others."""
    order = np.random.default_rng(seed).permutation(len(data.base))
    half, quarter = len(order) // 2, len(order) // 4
    return order[:half], np.concatenate([order[:quarter], order[half : half + quarter]])


def rows(data: Dataset, arguments: argparse.Namespace) -> Iterator[str]:
    """Lines of the table for one file."""
    _, final = final_vectors(data, arguments.seed)
    index = build(data.base[final], data.metric)
    truth = exact_neighbors(data.base[final], data.query, 1, data.metric)
    recalls = {}
    for name, space in spaces(data, arguments):
        limits = Limits(arguments.budget, rerank=arguments.rerank)
        found = Searcher(index.graph, space, index.base).search(data.query, 1, limits=limits)
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
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for path in arguments.data:
        lines = list(rows(Dataset.read(path), arguments))
        print("| data | space | recall@1 | gain | share |\n|---|---|---|---|---|")
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
