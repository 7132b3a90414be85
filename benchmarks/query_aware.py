"""Projections that know the queries beside PCA: how much of the ten nearest short vectors keep.

    python benchmarks/query_aware.py gloss384.npz --dims 64 128 192
    python benchmarks/query_aware.py gloss384.npz --dims 128 --base 30000 --learn 300

Files hold `base` and `learn`. The last queries of `learn` are cut off to measure on, the others are
given to the projection. A cell is the share of a query's ten nearest vectors that are among its
best by the space, exhaustively. With --learn as many steps of learning follow, from PCA and from
the start that `learn` chooses: recall@10 on the paper's graph (NSW, degree 16) at a budget of 512.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_at
from l2route.data.truth import Truth, exact_neighbors
from l2route.search.base import BaseVectors
from l2route.search.codes import compress_space, decode_rows, negated_halves
from l2route.search.limits import Limits
from l2route.search.query_aware import query_aware_space
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, pca_space
from l2route.training import loop
from l2route.training.options import LearnOptions
from l2route.training.start import plain_space
from l2route.training.train import train

DEPTHS, K, BUDGET = (10, 20, 40, 80, 160), 10, 512


def shares(space: RoutingSpace, queries: NDArray[np.float32], truth: Truth) -> str:
    """Cells of a row: the share of the ten nearest among as many best as each depth."""
    assert space.query_matrix is not None
    rows = decode_rows(space)
    bias = np.zeros(len(rows)) if space.bias is None else space.bias
    bias = negated_halves(rows) - 0.5 * bias if space.scorer == "l2" else bias
    routed = queries @ space.query_matrix.T
    routed = routed if space.centre is None else routed - space.centre
    found = np.zeros(len(DEPTHS))
    for query, near in zip(routed, truth.ids, strict=True):
        scores = rows @ query + bias
        ranks = (scores[None, :] > scores[near][:, None]).sum(axis=1)  # [K]
        found += [(ranks < depth).mean() for depth in DEPTHS]
    return " | ".join(f"{each:.3f}" for each in found / len(queries))


def print_learned(
    data: Dataset, log: NDArray[np.float32], queries: NDArray[np.float32], dim: int, steps: int
) -> None:
    """Print the recall of spaces learned from PCA and from the start that `learn` chooses."""
    index = RoutingIndex.build(
        data.base, data.metric, degree=16, entry=0, graph="nsw", refine=False
    )
    truth = exact_neighbors(data.base, queries, K, data.metric)
    options = LearnOptions(budget=BUDGET, k=K, dim=dim, steps=steps)

    def measured(space: RoutingSpace) -> str:
        searcher = Searcher(index.graph, space, index.base)
        limits = Limits(BUDGET, rerank=options.goals[0].rerank)
        distances = searcher.search(queries, K, limits=limits).distances
        return f"{space.name} {recall_at(distances, truth.distances, K):.3f}"

    starts = [pca_space(index.base, dim), query_aware_space(index.base, log, dim)]
    print("not learned:", *map(measured, starts), flush=True)
    with patch.object(loop, "start_space", lambda p, o: plain_space(p.base, o.dim)):
        space, report = train(index.graph, index.base, log, options)
    print("from PCA:", measured(space), report, flush=True)
    space, report = train(index.graph, index.base, log, options)
    print("by default:", measured(space), report, flush=True)


def main() -> None:
    """Print a Markdown table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--dims", nargs="+", type=int, default=[64, 128])
    parser.add_argument("--queries", type=int, default=1000, help="queries to measure on")
    parser.add_argument("--base", type=int, help="number of base vectors, by default all")
    parser.add_argument("--learn", type=int, help="steps of learning")
    arguments = parser.parse_args()
    data = Dataset.read(arguments.data)
    assert data.learn is not None
    data = replace(data, base=data.base[: arguments.base])
    log, queries = data.learn[: -arguments.queries], data.learn[-arguments.queries :]
    base = BaseVectors.of(data.base, data.metric)
    truth = exact_neighbors(base.vectors(), queries, K, data.metric)
    print(f"| {data.name} | {' | '.join(map(str, DEPTHS))} |\n" + "|---" * 6 + "|", flush=True)
    for dim in arguments.dims:
        aware = query_aware_space(base, log, dim)
        for space in (pca_space(base, dim), aware, compress_space(aware, "int8")):
            print(f"| {space.name} | {shares(space, queries, truth)} |", flush=True)
        if arguments.learn is not None:
            print_learned(data, log, queries, dim, arguments.learn)


if __name__ == "__main__":
    main()
