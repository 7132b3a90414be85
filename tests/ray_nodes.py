"""Ray clusters of several nodes on this machine, for tests.

Import it before anything imports ray: it says that nodes listen on 127.0.0.1.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112 # Ray's own spelling; memory is shared
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 # otherwise other programs go first
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)  # workers import what tests send them

import ray
from ray.cluster_utils import Cluster as RayNodes

N_NODES = 3
STORE_BYTES = 80_000_000
PATIENCE = 60.0
"""Seconds after which a test gives up waiting; what is waited for takes a second or two."""


class Nodes:
    """Three nodes, of which some can be removed and added."""

    def __init__(self) -> None:
        self._nodes = RayNodes(
            initialize_head=True,
            head_node_args={
                "num_cpus": 4,
                "object_store_memory": STORE_BYTES,
                "include_dashboard": False,
                "node_ip_address": "127.0.0.1",
            },
        )
        for _ in range(N_NODES - 1):
            self.add()
        ray.init(
            address=self._nodes.address,
            log_to_driver=False,
            logging_level="error",
            namespace="tests",
        )

    @property
    def address(self) -> str:
        """Address of the head."""
        return str(self._nodes.address)

    def add(self) -> Any:
        """Add a node."""
        return self._nodes.add_node(
            num_cpus=4, object_store_memory=STORE_BYTES, node_ip_address="127.0.0.1"
        )

    def remove(self) -> None:
        """Kill a node that is not the head, with all that runs on it."""
        node = next(iter(self._nodes.worker_nodes))
        self._nodes.remove_node(node, allow_graceful=False)

    def restore(self) -> None:
        """Add nodes until there are as many as at the beginning."""
        while len(self._nodes.worker_nodes) < N_NODES - 1:
            self.add()

    def close(self) -> None:
        """End all nodes."""
        ray.shutdown()
        self._nodes.shutdown()


def pid_of(member: Any) -> int:
    """The process of a replica, when it is ready."""
    method = member.actor.ready.options(concurrency_group="status")
    return int(ray.get(method.remote(), timeout=PATIENCE)["pid"])


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Stop processes for a while, as if they hung."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def eventually(is_so: Callable[[], bool]) -> None:
    """Wait until something is so; an error if it does not become so."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.05)
