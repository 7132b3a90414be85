"""The gain of learning: recall@1 on test queries, learned minus plain, at equal total budgets.

    python benchmarks/gains.py glove100.npz sift.npz --minutes 8
    python benchmarks/gains.py glove100.npz --cells 256:8 --dim 25 --minutes 4

Files hold `base`, `learn` and `query`. All rows use the same NSW graph (degree 16, efConstruction
300, entry vertex 0, seed 0). The budget includes rerank and projection. With --dim the baseline is
PCA to that dimension on the same graph. Gains are in points, on test queries and on the validation
queries that chose nothing. Seconds are those of the whole of `learn`: true neighbours of the
training queries, oracle, steps and validation.
"""

import argparse
import time
from pathlib import Path

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_at
from l2route.data.truth import Truth, exact_neighbors
from l2route.search.limits import Limits
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher
from l2route.search.space import pca_space


def plain_search(
    index: RoutingIndex, data: Dataset, budget: int, rerank: int, dim: int | None
) -> SearchResult:
    """Search by the baseline: original vectors, or PCA with the same rerank, on the same graph."""
    if dim is None:
        return index.search(data.query, 1, budget=budget, space="original")
    space = pca_space(index.base, dim)
    searcher = Searcher(index.graph, space, index.base)
    return searcher.search(data.query, 1, limits=Limits(budget, rerank=rerank))


def run_cell(
    index: RoutingIndex, data: Dataset, truth: Truth, arguments: argparse.Namespace, cell: str
) -> str:
    """Learn one cell and measure it on the test queries: a row of the table."""
    budget, rerank = (int(part) for part in cell.split(":"))
    fresh = RoutingIndex(index.base, index.graph)
    begin = time.perf_counter()
    report = fresh.learn(
        data.learn,
        budget=budget,
        rerank=rerank,
        dim=arguments.dim,
        model=arguments.model,
        hidden_dim=arguments.hidden,
        minutes=arguments.minutes,
        seed=arguments.seed,
    )
    seconds = time.perf_counter() - begin
    learned = fresh.search(data.query, 1, budget=budget, rerank=rerank)
    plain = plain_search(index, data, budget, rerank, arguments.dim)
    before, after = (recall_at(found.distances, truth.distances, 1) for found in (plain, learned))
    return (
        f"| {data.name} | {budget} | {rerank} | {before:.3f} | {after:.3f} "
        f"| {100 * (after - before):+.1f} | {100 * (report.learned - report.plain):+.1f} "
        f"| {report.n_steps} | {seconds:.0f} |"
    )


def main() -> None:
    """Print a Markdown table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--cells", nargs="+", default=["128:8", "256:8", "512:16"])
    parser.add_argument("--dim", type=int)
    parser.add_argument("--model", default="filter")
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print("| data | budget | k | plain | learned | gain | on validation | steps | seconds |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for path in arguments.data:
        data = Dataset.read(path)
        index = RoutingIndex.build(
            data.base, data.metric, degree=16, entry=0, graph="nsw", refine=False
        )
        truth = exact_neighbors(data.base, data.query, 1, data.metric)
        for cell in arguments.cells:
            print(run_cell(index, data, truth, arguments, cell), flush=True)


if __name__ == "__main__":
    main()
