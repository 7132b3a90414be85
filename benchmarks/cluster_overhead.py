"""What Ray costs: seconds per batch beyond those of the same shards searched in one process.

    python benchmarks/cluster_overhead.py --shards 4 --out out/overhead4

Both search with one thread per shard. Rows are medians; `service` is what the slowest shard of a
batch took inside its actor, which the simulation is fed with.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cluster_nodes import Nodes, opened
from l2route.cluster.cluster import Cluster

BATCHES = (1, 32, 1000)
N_TIMES = {1: 200, 32: 100, 1000: 20}
K, RECALL = 10, 0.95


def median_ms(call: Callable[[int], object], n: int) -> tuple[float, float]:
    """Median and 99th percentile of the milliseconds of n calls, after a few to warm up."""
    for i in range(5):
        call(i)
    taken = []
    for i in range(n):
        began = time.perf_counter()
        call(i)
        taken.append(1e3 * (time.perf_counter() - began))
    return float(np.median(taken)), float(np.quantile(taken, 0.99))


def main() -> None:
    """Measure each size of batch with one process, and with a cluster of three nodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=40_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    index, queries = opened(given.out, given.vectors, given.shards)
    nodes = Nodes(3)
    cluster = Cluster(given.out, replicas=1, cpus=0.5, n_bytes=0, hedge=60)
    rows = []
    for size in BATCHES:
        starts = np.random.default_rng(0).integers(0, len(queries) - size + 1, N_TIMES[size])

        def batch(i: int, size: int = size, starts: object = starts) -> object:
            first = int(starts[i % len(starts)])  # type: ignore[index]
            return queries[first : first + size]

        alone = median_ms(
            lambda i, of=batch: index.search(of(i), K, recall=RECALL, n_threads=1), N_TIMES[size]
        )
        ray = median_ms(lambda i, of=batch: cluster.search(of(i), K, recall=RECALL), N_TIMES[size])
        rows.append(
            {
                "batch": size,
                "one process ms": round(alone[0], 3),
                "ray ms": round(ray[0], 3),
                "ray p99 ms": round(ray[1], 3),
                "above ms": round(ray[0] - alone[0], 3),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    asked = index.search(queries, K, recall=RECALL).n_asked.mean()
    print(json.dumps({"shards": given.shards, "n_asked": float(asked)}))
    cluster.close()
    nodes.close()


if __name__ == "__main__":
    main()
