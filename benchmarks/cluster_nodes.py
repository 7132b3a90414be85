"""A Ray cluster of several nodes on this machine, and a sharded index to measure on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # nodes listen on 127.0.0.1
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 # Ray's own spelling

import numpy as np
import ray
from numpy.typing import NDArray
from ray.cluster_utils import Cluster as RayNodes

from l2route.cluster.sharded import ShardedIndex

Floats = NDArray[np.float32]
STORE_BYTES = 80_000_000


class Nodes:
    """Nodes that can be removed and added while they work."""

    def __init__(self, n: int) -> None:
        head = {"num_cpus": 4, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        self._nodes = RayNodes(
            initialize_head=True, head_node_args={**head, "node_ip_address": "127.0.0.1"}
        )
        for _ in range(n - 1):
            self.add()
        ray.init(address=self._nodes.address, log_to_driver=False, logging_level="error")

    def add(self) -> None:
        """Add a node."""
        self._nodes.add_node(
            num_cpus=4, object_store_memory=STORE_BYTES, node_ip_address="127.0.0.1"
        )

    def remove(self) -> None:
        """Kill a node that is not the head."""
        self._nodes.remove_node(next(iter(self._nodes.worker_nodes)), allow_graceful=False)

    def close(self) -> None:
        """End all nodes."""
        ray.shutdown()
        self._nodes.shutdown()


def small_data(n: int, dim: int = 32, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Vectors [n, dim], a log of a tenth of that, and 1,000 queries, near a surface."""
    rng = np.random.default_rng(seed)
    inner, outer = rng.normal(size=(8, 32)), rng.normal(size=(32, dim))
    parts = [np.tanh(rng.normal(size=(m, 8)) @ inner) @ outer for m in (n, n // 10, 1000)]
    base, log, queries = (each.astype(np.float32) for each in parts)
    return base, log, queries


def opened(path: Path, n: int, n_shards: int) -> tuple[ShardedIndex, Floats]:
    """A sharded index, built if there is none, and queries for it."""
    base, log, queries = small_data(n)
    index: Any = ShardedIndex.build(base, path, n_shards=n_shards, queries=log, minutes=0)
    return index, queries
