"""Laws under faults, on real Ray: no query fails that need not, none is wrong, all is said."""

import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
import ray

from l2route.cluster.cluster import Cluster
from l2route.cluster.deployment import ServedCluster
from l2route.cluster.errors import ClusterWarning, PartialError
from l2route.cluster.manifest import MANIFEST
from l2route.cluster.merge import ClusterResult
from l2route.cluster.sharded import ShardedIndex
from l2route.serve.batcher import ClosedError
from ray_nodes import PATIENCE, Nodes, eventually, pid_of, stopped
from sharding import IDS, N_SHARDS, QUERIES, VECTORS, K, build_small, exact

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
WIDE = len(VECTORS)
TRUTH = exact(QUERIES)


def is_right(result: ClusterResult) -> bool:
    """Whether a result is complete, and that of a plain sort."""
    return result.coverage == 1.0 and bool((result.ids == TRUTH).all())


class Load:
    """Searches one after another in a thread, until it is told to stop."""

    def __init__(self, cluster: Cluster) -> None:
        self.n_right, self.wrong = 0, list[object]()
        self._cluster, self._end = cluster, Event()
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                found = self._cluster.search(QUERIES, K, ef=WIDE, timeout=PATIENCE)
                if is_right(found):
                    self.n_right += 1
                else:
                    self.wrong.append(found)
            except Exception as error:
                self.wrong.append(error)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@pytest.mark.parametrize("no_restart", [False, True])
def test_a_killed_actor_fails_no_query(cluster: Cluster, no_restart: bool) -> None:
    """While actors are killed under load, every answer is right; each actor comes back."""
    with Load(cluster) as load:
        for shard in range(N_SHARDS):
            member = cluster.fleet.members[shard][shard % 2]
            ray.kill(member.actor, no_restart=no_restart)
            n = load.n_right
            eventually(lambda n=n: load.n_right > n + 1)
        for group in cluster.fleet.members:
            eventually(lambda group=group: all(lives(member) for member in group))
    assert load.wrong == []


def lives(member: object) -> bool:
    """Whether a replica answers."""
    try:
        return pid_of(member) > 0
    except ray.exceptions.RayError:
        return False


def test_a_killed_node_fails_no_query_and_is_replaced(nodes: Nodes, cluster: Cluster) -> None:
    """With two replicas and one node of three gone every answer is right.

    What was on the node comes back on others, and no replica on another node starts again.
    """
    before = [[pid_of(member) for member in group] for group in cluster.fleet.members]
    with Load(cluster) as load:
        nodes.remove()
        n = load.n_right
        eventually(lambda: load.n_right > n + 2)
        nodes.add()
        eventually(lambda: all(lives(m) for group in cluster.fleet.members for m in group))
    assert load.wrong == []
    after = [[pid_of(member) for member in group] for group in cluster.fleet.members]
    kept = [a == b for a, b in zip(chain(*before), chain(*after), strict=True)]
    assert any(kept)
    gone = [pid for pid, stays in zip(chain(*before), kept, strict=True) if not stays]
    assert not any(Path(f"/proc/{pid}/cmdline").exists() for pid in gone)  # none without reason
    assert is_right(cluster.search(QUERIES, K, ef=WIDE))


def test_with_one_replica_the_answer_says_what_is_missing(nodes: Nodes, copied_path: Path) -> None:
    """A shard that is down is an error, or allowed: then coverage says what is missing.

    Shards count as they are now: what was added before the start, and since then, too.
    """
    shards, far = ShardedIndex(copied_path).shards, VECTORS[:700] + 1000
    for number in (0, 1):
        shards[number].add(far, np.arange(700) + 10**9 * (number + 1))
    with Cluster(copied_path, replicas=1, cpus=0.1, n_bytes=0, hedge=60) as made:
        pid = pid_of(made.fleet.members[1][0])
        made.delete(np.arange(400) + 10**9)
        with stopped(pid):
            with pytest.raises(PartialError, match="shard 1 gave no answer"):
                made.search(QUERIES, K, ef=WIDE, timeout=1)
            found = made.search(QUERIES, K, ef=WIDE, timeout=1, partial="allow")
        sizes = [shard.n_vectors for shard in made.manifest.shards]
        sizes[0] += 300
        sizes[1] += 700
        assert found.missing == (1,)
        assert found.coverage == pytest.approx(1 - sizes[1] / sum(sizes))
        assert (found.n_missed == 1).all()
        assert (found.n_asked == N_SHARDS - 1).all()
        alive = made.router.partition.assign(VECTORS) != 1
        np.testing.assert_array_equal(found.ids, exact(QUERIES, alive=alive))
        eventually(lambda: is_right(made.search(QUERIES, K, ef=WIDE, partial="allow")))


def test_a_server_says_when_to_try_again(nodes: Nodes, copied_path: Path) -> None:
    """Searches and changes that a shard does not answer are errors to which a server says 503.

    Its counts are those of the shards as they are, also after a restart.
    """
    shard = ShardedIndex(copied_path).shards[0]
    shard.delete(shard.index.ids[:3].copy())
    with Cluster(copied_path, replicas=1, cpus=0.1, n_bytes=0, hedge=60, timeout=1) as made:
        served = ServedCluster(made)
        assert len(served.index) == len(VECTORS) - 3
        assert served.index.n_bytes == sum(each["n_bytes"] for each in made.info()["shards"])
        with stopped(pid_of(made.fleet.members[1][0])):
            for call in (
                lambda: served.index.search(
                    QUERIES, K, where=None, recall=None, guarantee=None, space=None, n_threads=1
                ),
                lambda: served.add(QUERIES, None, None),
                lambda: served.update(IDS[:1], QUERIES[:1]),
                lambda: served.delete(IDS[:1]),
            ):
                with pytest.raises(ClosedError, match="shard 1 gave no answer"):
                    call()
        eventually(lambda: made.info()["n_vectors"] == len(VECTORS) - 3)


def test_damaged_files_are_named_and_mended(nodes: Nodes, copied_path: Path) -> None:
    """A shard with a damaged file is missing, by name; mended, it serves without a restart."""
    place = copied_path / "shard-0002"
    damaged = next(place.glob("vectors.*.npy"))
    intact = damaged.read_bytes()
    damaged.write_bytes(intact[:-64] + bytes(64))
    named = r"shard 2 cannot be opened: .*checksum"
    with pytest.warns(ClusterWarning, match=named):
        made = Cluster(copied_path, replicas=2, cpus=0.1, n_bytes=0)
    with made:
        with pytest.raises(PartialError, match=named):
            made.search(QUERIES, K, ef=WIDE)
        found = made.search(QUERIES, K, ef=WIDE, partial="allow")
        assert found.missing == (2,)
        assert made.info()["shards"][2]["is_open"] is False
        damaged.write_bytes(intact)
        assert is_right(made.search(QUERIES, K, ef=WIDE))


def test_a_late_replica_is_not_waited_for(cluster: Cluster) -> None:
    """If a replica hangs, another one answers, long before the time-out."""
    for _ in range(40):
        cluster.search(QUERIES, K, ef=WIDE)  # latencies are known
    late = [pid_of(cluster.fleet.members[shard][0]) for shard in range(N_SHARDS)]
    n_hedged = cluster.n_hedged
    with stopped(*late):
        for _ in range(6):
            assert is_right(cluster.search(QUERIES, K, ef=WIDE, timeout=PATIENCE / 2))
    assert cluster.n_hedged > n_hedged


def test_changes_survive_a_killed_replica(cluster: Cluster) -> None:
    """A change whose replica is killed is made by another one, once, and is found."""
    ids = np.arange(10) + 10**9
    pid = pid_of(cluster.fleet.members[0][0])
    os.kill(pid, signal.SIGKILL)
    cluster.add(QUERIES[:10], ids, timeout=PATIENCE)
    os.kill(pid_of(cluster.fleet.members[1][0]), signal.SIGKILL)
    cluster.delete(ids[:5], timeout=PATIENCE)
    found = cluster.search(QUERIES[:10], 1, ef=WIDE, timeout=PATIENCE).ids[:, 0]
    assert found[5:].tolist() == ids[5:].tolist()
    assert not set(found[:5].tolist()) & set(ids.tolist())
    assert len(ShardedIndex(cluster.folder.url)) == len(VECTORS) + 5
    cluster.delete(ids[5:], timeout=PATIENCE)


def test_changes_avoid_replicas_that_hang(nodes: Nodes, copied_path: Path) -> None:
    """After a change that a hanging replica has, the next go to others; it makes none later."""
    with Cluster(copied_path, replicas=2, cpus=0.1, n_bytes=0) as made:
        late = [pid_of(group[0]) for group in made.fleet.members]
        for group in made.fleet.members:
            pid_of(group[1])
        with stopped(*late):
            with pytest.raises(PartialError, match="gave no answer in time"):
                made.add(QUERIES, np.arange(len(QUERIES)) + 10**6, timeout=3)
            new = made.add(QUERIES, np.arange(len(QUERIES)) + 10**9, timeout=PATIENCE)
            made.delete(new[5:], timeout=PATIENCE)
        for group in made.fleet.members:
            assert ray.get(group[0].actor.settle.remote()).version  # all has ended there
        assert len(ShardedIndex(copied_path)) == len(VECTORS) + 5
        found = made.search(QUERIES[:5], 1, ef=WIDE, timeout=PATIENCE).ids[:, 0]
        assert found.tolist() == new[:5].tolist()


DRIVER = """
import sys
sys.path.insert(0, {tests!r})
import ray_nodes  # says where nodes listen
from sharding import build_small
build_small({path!r}, engine="ray", address={address!r}, cpus=0.5,
            progress=lambda *step: print(*step, flush=True))
"""


def test_a_build_survives_its_driver(nodes: Nodes, tmp_path: Path) -> None:
    """A driver that is killed during a build leaves no manifest; the next one finishes the build.

    Shards that were done are not built again.
    """
    path = tmp_path / "killed"
    tests = str(Path(__file__).parents[1])
    script = DRIVER.format(tests=tests, path=str(path), address=nodes.address)
    driver = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith("shards 1"):
            break
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert not (path / MANIFEST).exists()
    time.sleep(0.5)
    index = build_small(path, engine="ray", cpus=0.5)
    assert index.manifest.facts["n_shards_resumed"] >= 1
    np.testing.assert_array_equal(index.search(QUERIES, K, ef=WIDE).ids, TRUTH)
    assert set(IDS.tolist()) == {i for shard in index.shards for i in shard.index.ids.tolist()}
    shutil.rmtree(path)
