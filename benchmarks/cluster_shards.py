"""Shards asked at a recall if shards were searched exactly: what routing alone loses.

    python benchmarks/cluster_shards.py glove --shards 4,8
    python benchmarks/cluster_shards.py synthetic --shards 4,8

No index is built: vectors are divided, and the true neighbours of all queries are found by
brute force. Thresholds and numbers of shards are chosen on validation queries cut from the log; the
rows are of test queries. `cluster_router.py` measures the same with real shards.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster_router import K, read_data
from l2route.cluster.partition import make_partition
from l2route.cluster.query_split import split_queries
from l2route.cluster.router import Router, chosen_by
from l2route.cluster.router_learning import RouterOptions, learn_router, shares_of
from l2route.data.truth import exact_neighbors

Floats = NDArray[np.float32]
SAMPLE = 100_000


def recall_of(shares: Floats, chosen: NDArray[np.bool_]) -> float:
    """Mean share of the true neighbours in the chosen shards."""
    return float((shares * chosen).sum(axis=1).mean())


def number_for(router: Router, queries: Floats, shares: Floats, recall: float) -> int:
    """The fewest shards, the same number for every query, that reach a recall."""
    for n in range(1, router.n_shards + 1):
        if recall_of(shares, router.nearest(queries, n)) >= recall:
            return n
    return router.n_shards


def fraction_for(router: Router, queries: Floats, shares: Floats, recall: float) -> float:
    """The same number, interpolated between whole numbers."""
    before = 0.0
    for n in range(1, router.n_shards + 1):
        found = recall_of(shares, router.nearest(queries, n))
        if found >= recall:
            return n - 1 + (recall - before) / (found - before)
        before = found
    return float(router.n_shards)


def threshold_for(router: Router, queries: Floats, shares: Floats, recall: float) -> float:
    """The highest threshold that reaches a recall."""
    scores = router.scores(queries)
    values = np.sort(scores.ravel())[::-1]
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if recall_of(shares, chosen_by(scores, float(values[middle]))) >= recall:
            high = middle
        else:
            low = middle + 1
    return float(values[low])


def oracle(shares: Floats, recall: float) -> float:
    """Shards that a router would ask that knows the shares."""
    best = np.sort(shares.ravel())[::-1].cumsum() / len(shares)
    return float((np.searchsorted(best, recall) + 1) / len(shares))


def report(
    name: str,
    router: Router,
    held: tuple[Floats, Floats],
    test: tuple[Floats, Floats],
    recall: float,
) -> float:
    """Print a row of a router whose threshold is chosen on held-out queries."""
    threshold = threshold_for(router, *held, recall)
    chosen = chosen_by(router.scores(test[0]), threshold)
    asked = float(chosen.sum(axis=1).mean())
    print(f"  {name:34s} recall {recall_of(test[1], chosen):.4f}  shards {asked:.3f}")
    return asked


def measure(data: str, n_shards: int, recall: float, cache: Path, cells: int, by_log: bool) -> None:
    """Print the rows of one number of shards."""
    base, log, queries = read_data(data)
    split = split_queries(log, 0)
    both = np.concatenate([split.queries, queries])
    truth = exact_neighbors(base, both, K, cache=cache).ids
    sample = base[np.random.default_rng(0).permutation(len(base))[:SAMPLE]]
    logged = split.queries[: split.n_learn] if by_log else None
    partition = make_partition(sample, n_shards, "l2", n_cells=cells * n_shards, queries=logged)
    shards = np.concatenate([partition.assign(part) for part in np.array_split(base, 20)])
    sizes = np.bincount(shards)
    shares = shares_of(shards[truth], n_shards)
    n, n_all = split.n_learn, len(split.queries)
    held, test = (split.validation, shares[n:n_all]), (queries, shares[n_all:])
    print(
        f"{data} {base.shape}, {n_shards} shards of {sizes.min():,} to {sizes.max():,} vectors, "
        f"grouped by {'the log' if by_log else 'k-means'}, {cells} centroids each, "
        f"{n:,} queries to learn from; recall@{K} of {recall:g}"
    )
    plain = Router(partition)
    number = number_for(plain, *held, recall)
    found = recall_of(test[1], plain.nearest(test[0], number))
    share = fraction_for(plain, *test, recall)
    print(
        f"  {'centroids, one number for all':34s} recall {found:.4f}  shards {number} "
        f"(interpolated at the recall: {share:.3f})"
    )
    adaptive = report("centroids, by a threshold", plain, held, test, recall)
    began = time.perf_counter()
    learned = learn_router(plain, split.queries[:n], shares[:n], RouterOptions())
    seconds = time.perf_counter() - began
    asked = report("learned, by a threshold", learned, held, test, recall)
    print(f"  {'knows all':34s} recall {recall:.4f}  shards {oracle(test[1], recall):.3f}")
    print(
        f"  learned asks {1 - asked / share:.1%} fewer than one number for all, "
        f"{1 - asked / adaptive:.1%} fewer than a threshold on centroids; {seconds:.0f} s to learn"
    )


def main() -> None:
    """Measure every number of shards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=["glove", "synthetic"])
    parser.add_argument("--shards", default="4,8")
    parser.add_argument("--recall", type=float, default=0.95)
    parser.add_argument("--cells", type=int, default=32)
    parser.add_argument("--cache", type=Path, default=Path("out"))
    given = parser.parse_args()
    for n_shards in map(int, given.shards.split(",")):
        for by_log in (False, True):
            measure(given.data, n_shards, given.recall, given.cache, given.cells, by_log)


if __name__ == "__main__":
    main()
