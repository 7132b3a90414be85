"""One space for every budget beside a space for each: recall at 128, 256 and 512, for k = 1 and 10.

    python benchmarks/budgets.py glove100.npz sift.npz deep96.npz --steps 2000
    python benchmarks/budgets.py glove100.npz --minutes 10 --only all
    python benchmarks/budgets.py glove100.npz --steps 1200 --validation 20000

Files hold `base`, `learn` and `query`. All rows use the same NSW graph (degree 16, efConstruction
300, entry vertex 0, seed 0). A space for one budget is learned for k = 1 with the default rerank,
as `learn(budget=256)` does; the space for all of them by `learn()`, with as many steps or minutes
as the three of them together. Each is searched with default reranks. With --validation the figures
are of as many queries cut from `learn` instead of the test queries, which are for the last number.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_at
from l2route.data.truth import Truth, exact_neighbors
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, original_space
from l2route.training.options import LearnOptions
from l2route.training.train import train

BUDGETS, KS = (128, 256, 512), (1, 10)


def recalls(
    index: RoutingIndex, space: RoutingSpace, queries: NDArray[np.float32], truth: Truth
) -> str:
    """Cells of a row: recall@1 at each budget, then recall@10."""
    searcher = Searcher(index.graph, space, index.base)
    cells = []
    for k in KS:
        for budget in BUDGETS:
            found = searcher.search(queries, k, limits=Limits(budget))
            distances = index.base.exact_distances(queries, found.ids)
            cells.append(f"{recall_at(distances, truth.distances, k):.3f}")
    return " | ".join(cells)


def learned(
    index: RoutingIndex,
    queries: NDArray[np.float32],
    budget: int | None,
    arguments: argparse.Namespace,
) -> RoutingSpace:
    """The space learned for a budget, or for all of them."""
    times = len(BUDGETS) if budget is None else 1
    length: dict[str, Any] = {"minutes": times * arguments.minutes}
    if arguments.steps is not None:
        length = {"steps": times * arguments.steps}
    options = LearnOptions(
        budget=budget, seed=arguments.seed, n_threads=arguments.threads, **length
    )
    return train(index.graph, index.base, queries, options)[0]


def main() -> None:
    """Print a Markdown table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--steps", type=int, help="per budget, in place of minutes")
    parser.add_argument("--minutes", type=float, default=4.0, help="per budget")
    parser.add_argument("--only", nargs="+", default=["plain", "all", *map(str, BUDGETS)])
    parser.add_argument("--validation", type=int, help="queries cut from learn to measure on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    heads = [f"@{k} at {budget}" for k in KS for budget in BUDGETS]
    print(f"| data | learned for | {' | '.join(heads)} | seconds |")
    print("|---|---|" + "---|" * (len(heads) + 1), flush=True)
    for path in arguments.data:
        data = Dataset.read(path)
        assert data.learn is not None
        n_cut = arguments.validation or 0
        log, queries = data.learn[: len(data.learn) - n_cut], data.learn[len(data.learn) - n_cut :]
        queries = queries if n_cut else data.query
        index = RoutingIndex.build(
            data.base, data.metric, degree=16, entry=0, graph="nsw", refine=False
        )
        truth = exact_neighbors(data.base, queries, max(KS), data.metric)
        for name in arguments.only:
            begin = time.perf_counter()
            if name == "plain":
                space = original_space(index.base)
            else:
                space = learned(index, log, None if name == "all" else int(name), arguments)
            seconds = time.perf_counter() - begin
            cells = recalls(index, space, queries, truth)
            print(f"| {data.name} | {name} | {cells} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
