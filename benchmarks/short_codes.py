"""How fast searches are by codes of fewer and fewer bytes, on test queries.

    python benchmarks/short_codes.py FILE.npz                       # arrays base, learn and query
    python benchmarks/short_codes.py FILE.npz --vectors 1000000     # more of them, made from base

One graph, several codings of its vectors: all dimensions in eight, four or two bits, and
query-aware dimensions fitted to training queries. Settings are found on other training queries;
speed (CPU time of one thread, in turns, best of several rounds) and recall are of test queries.
With --vectors, vectors are added that lie between a vector and one of its neighbours in a graph
over all of them, at a random place, of length 1 for cosine. With --log the graph gets edges and
entry points from the training queries. The graph is kept in --cache.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route import RoutingIndex, load
from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_at
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import Metric, normalize
from l2route.recipe.coding import Coding, coded, shorter_codings
from l2route.search.calibrate import OutOfReachError
from l2route.search.machine import Machine
from measuring import peak_mb

K = 10
N_VALIDATION = 2_000
Rows = NDArray[np.float32]
Judge = Callable[[RoutingIndex, NDArray[np.int64]], float]


def more_vectors(base: Rows, n: int, metric: Metric, seed: int = 0) -> Rows:
    """The vectors, and others between one of them and one of its neighbours [n, dim]."""
    rng = np.random.default_rng(seed)
    lists = RoutingIndex.build(base, metric, degree=16, ef_construction=60).graph.neighbors
    ids = rng.integers(0, len(base), n - len(base))
    others = lists[ids, rng.integers(0, lists.shape[1], len(ids))]
    others = np.where(others < 0, lists[ids, 0], others)
    place = rng.uniform(0.3, 0.7, (len(ids), 1)).astype(np.float32)
    between = place * base[ids] + (1 - place) * base[others]
    return np.concatenate([base, normalize(between) if metric == "cosine" else between])


def index_of(data: Dataset, options: argparse.Namespace) -> RoutingIndex:
    """The index over all vectors, from the cache or built."""
    name = f"{options.file.stem}-{options.vectors or len(data.base)}{'-log' * options.log}.l2r"
    path = options.cache / name
    if path.exists():
        return load(path)
    vectors = data.base
    if options.vectors:
        vectors = more_vectors(vectors, options.vectors, data.metric)
    begin = time.perf_counter()
    index = RoutingIndex.build(vectors, data.metric)
    print(f"built in {time.perf_counter() - begin:.0f} s, {peak_mb():,.0f} MB at the peak")
    if options.log:
        index.refine(queries=data.learn[N_VALIDATION:], k=K, recall=0.95)
    index.renumber()
    index.validate_with(data.learn[:N_VALIDATION])
    index.save(path)
    return index


def measure(
    trials: dict[str, RoutingIndex], queries: Rows, judge: Judge, recall: float, n_rounds: int
) -> None:
    """Print speed, recall and bytes of each coding at a recall."""
    plans = {}
    for name, each in trials.items():
        try:
            plans[name] = each.plan(K, recall=recall, n_threads=1)
        except OutOfReachError as error:
            print(f"| {recall} | {name} | {error} |")
    best, found = dict.fromkeys(plans, np.inf), {}
    for _ in range(n_rounds):
        for name, plan in plans.items():
            begin = time.thread_time()
            found[name] = plan(queries)
            best[name] = min(best[name], time.thread_time() - begin)
    machine = Machine.measured()
    for name, result in found.items():
        each = trials[name]
        predicted = machine.search_ns(each.searcher(), result) / 1000
        cells = (
            *(f"{recall}", name, f"{each.spaces[-1].rows[0].nbytes}"),
            *(f"{judge(each, result.ids):.4f}", f"{result.n_routing.mean():,.0f}"),
            *(f"{1e6 * best[name] / len(queries):.1f}", f"{predicted:.1f}"),
            *(f"{len(queries) / best[name]:,.0f}", f"{next(iter(best.values())) / best[name]:.2f}"),
            f"{each.n_bytes / len(each):,.0f}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--metric", default="l2")
    parser.add_argument("--vectors", type=int)
    parser.add_argument("--log", action="store_true")
    parser.add_argument("--bits", nargs="+", default=["int8", "int4", "int2"])
    parser.add_argument("--recalls", type=float, nargs="+", default=[0.9, 0.95, 0.99])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=Path("out/short_codes"))
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    data = Dataset.read(options.file, metric=options.metric)
    index = index_of(data, options)
    others = data.learn[N_VALIDATION:]
    dim = index.dim
    codings = [Coding("int8"), *shorter_codings(dim, dim, may_project=True)]
    codings = [each for each in codings if each.routing in options.bits]
    trials = {str(each).split(" and ")[0]: coded(index, each, others) for each in codings}
    base = index.base
    nearest = exact_neighbors(base.vectors(), data.query, K, data.metric).distances

    def judge(trial: RoutingIndex, ids: NDArray[np.int64]) -> float:
        """Recall@10 by distances between vectors that are not rounded."""
        return recall_at(base.exact_distances(data.query, trial.rows_of(ids)), nearest, K)

    print("| recall | coding | row bytes | recall@10 | scored | µs | expected | q/s | ratio | B |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for recall in options.recalls:
        measure(trials, data.query, judge, recall, options.rounds)


if __name__ == "__main__":
    main()
