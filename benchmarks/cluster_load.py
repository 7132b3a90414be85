"""Latency of single queries that arrive at random at a cluster on this machine, by rate.

    python benchmarks/cluster_load.py --shards 4 --out out/overhead4 --measured out/load4.json

Measured first, with one query at a time: CPU time of the driver per query, of replicas and of
Ray's other processes per call, and the latency. Then the most queries a second that four threads of
the driver reach. Then queries arrive as a Poisson process at shares of that rate, and the four
threads ask them in turn; each is timed from the moment that it was due. Replicas search with one
thread; there is one per shard, and hedging is off. `cluster_simulation.py --measured` has to
predict the latencies under load from the rest.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from cluster_nodes import Nodes, opened
from l2route.cluster.cluster import Cluster

K, RECALL = 10, 0.95
N_ALONE, N_THREADS = 500, 4
LOADS = (0.3, 0.5, 0.7)
SECONDS = 20.0
Queries = np.ndarray


def cpu_seconds() -> tuple[float, float, float]:
    """CPU time so far of this process, of all replicas, and of Ray's other processes."""
    own = psutil.Process()
    sums = [0.0, 0.0, 0.0]
    for process in [own, *own.children(recursive=True)]:
        try:
            name, times = process.cmdline()[0], process.cpu_times()
        except (psutil.NoSuchProcess, psutil.ZombieProcess, IndexError):
            continue
        kind = 0 if process == own else 1 if name.startswith("ray::Replica") else 2
        sums[kind] += times.user + times.system
    return sums[0], sums[1], sums[2]


def one_by_one(cluster: Cluster, queries: Queries, n: int) -> list[float]:
    """Milliseconds of queries that are asked one after another."""
    taken = []
    for i in range(n):
        began = time.perf_counter()
        cluster.search(queries[i % len(queries)][None], K, recall=RECALL)
        taken.append(1e3 * (time.perf_counter() - began))
    return taken


def closed_loop(cluster: Cluster, queries: Queries) -> float:
    """Queries a second of threads that ask one after another."""
    with ThreadPoolExecutor(N_THREADS) as pool:
        began = time.perf_counter()
        list(pool.map(lambda _: one_by_one(cluster, queries, N_ALONE), range(N_THREADS)))
        return N_THREADS * N_ALONE / (time.perf_counter() - began)


def under_load(cluster: Cluster, queries: Queries, rate: float, seconds: float) -> list[float]:
    """Milliseconds from the moment a query was due to its answer, at a rate."""
    rng = np.random.default_rng(0)
    due = np.cumsum(rng.exponential(1 / rate, int(rate * seconds)))
    start = time.perf_counter() + 0.1

    def ask(i: int) -> float:
        cluster.search(queries[i % len(queries)][None], K, recall=RECALL)
        return 1e3 * (time.perf_counter() - start - due[i])

    with ThreadPoolExecutor(N_THREADS) as pool:
        waiting = []
        for i, when in enumerate(due):
            time.sleep(max(0.0, start + when - time.perf_counter()))
            waiting.append(pool.submit(ask, i))
        return [each.result() for each in waiting]


def quantiles(taken: list[float]) -> dict[str, float]:
    """Median and tail of milliseconds."""
    return {f"p{q}_ms": round(float(np.quantile(taken, q / 100)), 2) for q in (50, 90, 99)}


def main() -> None:
    """Measure, print and write what the simulation reads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=40_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--measured", type=Path, required=True)
    given = parser.parse_args()
    index, queries = opened(given.out, given.vectors, given.shards)
    asked = float(index.search(queries, K, recall=RECALL).n_asked.mean())
    nodes = Nodes(3)
    cluster = Cluster(given.out, replicas=1, cpus=0.5, n_bytes=0, hedge=60)
    one_by_one(cluster, queries, 100)
    before = cpu_seconds()
    alone = one_by_one(cluster, queries, N_ALONE)
    driver, replicas, others = np.subtract(cpu_seconds(), before)
    facts: dict[str, Any] = {
        "shards": given.shards,
        "n_asked": round(asked, 3),
        "driver_ms": round(1e3 * driver / N_ALONE, 3),
        "replica_ms": round(1e3 * replicas / (N_ALONE * asked), 3),
        "others_ms": round(1e3 * others / (N_ALONE * asked), 3),
        "alone": quantiles(alone),
        "capacity": round(closed_loop(cluster, queries)),
        "cores": psutil.cpu_count(),
        "loads": [],
    }
    for load in LOADS:
        rate = round(load * facts["capacity"])
        found = quantiles(under_load(cluster, queries, rate, SECONDS))
        facts["loads"].append({"rate": rate, **found})
        print(json.dumps(facts["loads"][-1]), flush=True)
    print(json.dumps(facts))
    given.measured.write_text(json.dumps(facts))
    cluster.close()
    nodes.close()


if __name__ == "__main__":
    main()
