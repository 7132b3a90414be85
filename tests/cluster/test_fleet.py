"""Laws of the actors of a fleet: who shares them, where they are, and when their room is free."""

import gc
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray

from l2route.cluster.cluster import Cluster
from l2route.cluster.errors import ClusterWarning
from ray_nodes import N_NODES, Nodes, eventually, pid_of
from sharding import N_SHARDS, QUERIES, K, build_small

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
SMALL: dict[str, Any] = {"cpus": 0.1, "n_bytes": 0}
DRIVER = """
import sys
import ray_nodes  # says where nodes listen
import ray
from l2route.cluster import Cluster

ray.init(address={address!r}, log_to_driver=False, logging_level="error")
made = Cluster({path!r}, replicas={replicas}, cpus=0.1, n_bytes=0, name={name!r})
print(*(ray_nodes.pid_of(each) for group in made.fleet.members for each in group), flush=True)
for line in sys.stdin:
    getattr(made, line.strip())()
    print("done", flush=True)
"""
LATE = """
import ray_nodes
import ray
from l2route.cluster import Cluster

ray.init(address={address!r}, log_to_driver=False, logging_level="error")
made = Cluster({path!r}, replicas=1, cpus=0.1, n_bytes=0)
ray.shutdown()
made.close()
made.close()
"""


class Driver:
    """Another process with a cluster of a name, which calls its methods when it is told to."""

    def __init__(self, nodes: Nodes, path: Path, replicas: int) -> None:
        script = DRIVER.format(
            address=nodes.address, path=str(path), replicas=replicas, name="shared"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pids = [int(each) for each in self._line().split()]

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def call(self, method: str) -> None:
        """Call a method of the cluster."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{method}\n")
        self.process.stdin.flush()
        assert self._line() == "done\n"

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=60)


def all_is_free() -> bool:
    """Whether no actor, task or placement group reserves a core."""
    there, free = ray.cluster_resources(), ray.available_resources()
    return there["CPU"] == pytest.approx(free.get("CPU", 0.0))


@pytest.fixture(autouse=True)
def free_nodes(nodes: Nodes) -> Iterator[None]:
    """All cores are free when a test begins, and when it has ended."""
    eventually(all_is_free)
    yield
    eventually(all_is_free)


def test_processes_share_one_set_of_actors(nodes: Nodes, built_path: Path) -> None:
    """Processes of one name have the same actors; any of them ends all, and frees their room."""
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(Driver(nodes, built_path, replicas)) for replicas in (1, 2)
        )
        assert len(set(second.pids)) == 2 * N_SHARDS
        assert first.pids == second.pids[::2]
        eventually(lambda: used_cores() == pytest.approx(0.1 * 2 * N_SHARDS))
        second.call("close")
        third = stack.enter_context(Driver(nodes, built_path, 2))
        assert third.pids == second.pids
        first.call("shutdown")  # also those that it did not start
        eventually(all_is_free)


def used_cores() -> float:
    """Cores that are reserved."""
    return float(ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0.0))


def test_actors_end_with_their_object(nodes: Nodes, built_path: Path) -> None:
    """The room of a cluster that was not closed is free as soon as the object is gone."""
    gc.disable()
    try:
        made = Cluster(built_path, replicas=2, **SMALL)
        made.search(QUERIES, K)
        eventually(lambda: used_cores() > 0)
        del made
        eventually(all_is_free)
    finally:
        gc.enable()


def test_an_error_at_the_start_frees_the_room(nodes: Nodes, copied_path: Path) -> None:
    """A cluster that could not be made reserves nothing, also while its error is kept."""
    damaged = next((copied_path / "shard-0002").glob("vectors.*.npy"))
    damaged.write_bytes(damaged.read_bytes()[:-64])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClusterWarning)
        with pytest.raises(ClusterWarning) as caught:
            Cluster(copied_path, replicas=1, **SMALL)
    eventually(all_is_free)
    assert "shard 2 cannot be opened" in str(caught.value)


def test_a_closed_cluster_starts_no_actors(nodes: Nodes, built_path: Path) -> None:
    """A search after `close` is an error at once, and actors do not come back."""
    made = Cluster(built_path, replicas=1, **SMALL)
    made.close()
    made.close()
    with pytest.raises(ValueError, match="expected an open cluster"):
        made.search(QUERIES, K)
    eventually(all_is_free)


def test_a_cluster_may_outlive_its_connection(nodes: Nodes, built_path: Path) -> None:
    """Closed or dropped after Ray was left, a cluster does and says nothing."""
    script = LATE.format(address=nodes.address, path=str(built_path))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def raylet_of(pid: int) -> int:
    """The process that started a process: one for each node."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def raylets(made: Cluster) -> list[list[int]]:
    """Where the replicas of each shard are; nothing while one of them does not answer."""
    try:
        return [[raylet_of(pid_of(each)) for each in group] for group in made.fleet.members]
    except (ray.exceptions.RayError, OSError):
        return []


def are_apart(made: Cluster, n_nodes: int) -> bool:
    """Whether the two replicas of each shard are on two nodes, and all of them on so many."""
    places = raylets(made)
    found = {each for group in places for each in group}
    return len(found) == n_nodes and all(len(set(group)) == 2 for group in places)


def test_replicas_are_kept_apart(nodes: Nodes, built_path: Path) -> None:
    """Replicas of a shard are on different nodes, also after a node of three is gone.

    All nodes are used. An actor whose process ends comes back on its node.
    """
    with Cluster(built_path, replicas=2, **SMALL) as made:
        places, pid = raylets(made), pid_of(made.fleet.members[0][0])
        assert are_apart(made, N_NODES)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{pid}/cmdline").exists())
        eventually(lambda: raylets(made) == places)
        try:
            nodes.remove()
            eventually(lambda: are_apart(made, N_NODES - 1))
        finally:
            nodes.restore()


def test_replicas_share_a_node_if_they_must(nodes: Nodes, built_path: Path) -> None:
    """More replicas than nodes, or than nodes with room, are all started."""
    with Cluster(built_path, replicas=N_NODES + 1, **SMALL) as made:
        assert all(len(set(each)) == N_NODES for each in raylets(made))
    eventually(all_is_free)
    taken = [ray.remote(num_cpus=4)(Idle).remote() for _ in range(N_NODES - 1)]
    for each in taken:
        ray.get(each.ready.remote(), timeout=60)
    with Cluster(built_path, replicas=2, **SMALL) as made:
        assert all(len(set(each)) == 1 for each in raylets(made))


class Idle:
    """Holds room."""

    def ready(self) -> bool:
        """Say that it is there."""
        return True


@contextmanager
def serving(
    nodes: Nodes, path: Path, port: int, options: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """`cluster serve` on a Ray cluster that others use too."""
    asked = f"cluster serve {path} --port {port} --replicas 1 --cpus 0.1 --address {nodes.address}"
    asked += f" {options}"
    process = subprocess.Popen(
        [sys.executable, "-m", "l2route", *asked.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert next(line for line in process.stdout if line.startswith("serving"))
            yield process
        finally:
            process.kill()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def n_found(port: int) -> int:
    """Answers over HTTP."""
    body = {"queries": QUERIES[:3].tolist(), "k": K, "ef": 50}
    answer = httpx.post(f"http://127.0.0.1:{port}/search", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return len(answer.json()["ids"])


def test_the_command_frees_its_room(nodes: Nodes, built_path: Path) -> None:
    """`cluster serve` ends its actors on a signal, and those of a process whose place it takes."""
    from ray import serve

    port, cores = free_port(), 0.1 * (N_SHARDS + 1)
    try:
        with serving(nodes, built_path, port) as first, serving(nodes, built_path, port) as second:
            assert n_found(port) == 3
            eventually(lambda: used_cores() == pytest.approx(cores))
            first.send_signal(signal.SIGTERM)
            assert first.wait(60) == 0
            assert n_found(port) == 3
            second.send_signal(signal.SIGINT)
            assert second.wait(60) == 0
        eventually(all_is_free)
    finally:
        serve.shutdown()


def test_the_command_measures_a_recall_for_a_small_k(nodes: Nodes, tmp_path: Path) -> None:
    """`cluster serve --recall` starts on an index that has few true neighbours of each query."""
    from ray import serve

    build_small(tmp_path / "small", k=4)
    port = free_port()
    try:
        with serving(nodes, tmp_path / "small", port, "--recall 0.9") as process:
            assert n_found(port) == 3
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        serve.shutdown()
