"""A soak: constant load while actors are killed and a node goes and comes back.

    python benchmarks/cluster_soak.py --minutes 10 --out out/soak

Three nodes, two replicas. An actor is killed every ten seconds; every minute a node is removed, and
another one is added ten seconds later. Every answer is compared with that of one process.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from threading import Event, Thread

import numpy as np
import psutil

from cluster_nodes import Nodes, opened, ray
from l2route.cluster.cluster import Cluster
from l2route.cluster.merge import ClusterResult

K, RECALL, BATCH = 10, 0.95, 16


class Load:
    """Batches at a constant rate, each compared with what one process answers."""

    def __init__(self, cluster: Cluster, queries: np.ndarray, expected: np.ndarray) -> None:
        self._cluster, self._queries, self._expected = cluster, queries, expected
        self.seconds: list[float] = []
        self.n_wrong = 0
        self.failures: list[str] = []
        self.end = Event()

    def run(self, period: float, seed: int) -> None:
        """Search every `period` seconds until the end."""
        rng = np.random.default_rng(seed)
        due = time.perf_counter()
        while not self.end.is_set():
            due += period
            first = int(rng.integers(0, len(self._queries) - BATCH))
            part = slice(first, first + BATCH)
            began = time.perf_counter()
            try:
                found = self._cluster.search(self._queries[part], K, recall=RECALL)
                self.seconds.append(time.perf_counter() - began)
                self.n_wrong += not self._is_right(found, part)
            except Exception as error:  # whatever it is, it counts
                self.failures.append(f"{type(error).__name__}: {error}"[:200])
            time.sleep(max(0.0, due - time.perf_counter()))

    def _is_right(self, found: ClusterResult, part: slice) -> bool:
        return found.coverage == 1.0 and bool((found.ids == self._expected[part]).all())


def megabytes() -> dict[str, float]:
    """Memory of this process, and of all replicas."""
    own = psutil.Process()
    everything = [p for p in psutil.process_iter(["name", "cmdline"]) if p.info["cmdline"]]
    replicas = [p for p in everything if p.info["cmdline"][0].startswith("ray::Replica")]
    sizes = [p.memory_info().rss for p in replicas if p.is_running()]
    return {
        "driver_mb": round(own.memory_info().rss / 1e6, 1),
        "replica_mb": round(float(np.mean(sizes)) / 1e6, 1) if sizes else 0.0,
        "n_replicas": len(sizes),
    }


def break_things(nodes: Nodes, cluster: Cluster, second: int, rng: np.random.Generator) -> None:
    """Kill an actor every ten seconds; remove a node every minute, and add one soon after."""
    if second % 10 == 5:
        group = cluster.fleet.members[int(rng.integers(0, cluster.n_shards))]
        ray.kill(group[int(rng.integers(0, len(group)))].actor, no_restart=False)
    if second % 60 == 30:
        nodes.remove()
    if second % 60 == 40:
        nodes.add()


def main() -> None:
    """Run the soak, and print what happened each minute and in total."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--vectors", type=int, default=40_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rate", type=float, default=10.0, help="Batches a second.")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    index, queries = opened(given.out, given.vectors, given.shards)
    expected = index.search(queries, K, recall=RECALL).ids
    nodes = Nodes(3)
    cluster = Cluster(given.out, replicas=2, cpus=0.2, n_bytes=0, timeout=30)
    load, rng = Load(cluster, queries, expected), np.random.default_rng(0)
    threads = [Thread(target=load.run, args=(2 / given.rate, seed)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for second in range(int(60 * given.minutes)):
        if second % 60 == 0:
            seen = {"second": second, "answered": len(load.seconds), "wrong": load.n_wrong}
            print(json.dumps(seen | {"failed": len(load.failures)} | megabytes()), flush=True)
        began = time.perf_counter()
        break_things(nodes, cluster, second, rng)
        time.sleep(max(0.0, 1 - (time.perf_counter() - began)))
    load.end.set()
    for thread in threads:
        thread.join()
    taken = 1e3 * np.array(load.seconds)
    quantiles = {f"p{q}_ms": round(float(np.quantile(taken, q / 100)), 1) for q in (50, 95, 99)}
    total = {"batches": len(taken), "queries": BATCH * len(taken), "failed": len(load.failures)}
    total |= {"wrong": load.n_wrong, "hedged": cluster.n_hedged, "max_ms": round(taken.max(), 1)}
    print(json.dumps(total | quantiles | megabytes()))
    print(load.failures[:5])
    cluster.close()
    nodes.close()


if __name__ == "__main__":
    main()
