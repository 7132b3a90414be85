"""Laws of a cluster on real Ray: the answers of its plain twin, changes, limits, sharing."""

from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import l2route
from l2route.cluster.cluster import Cluster
from l2route.cluster.errors import ClusterWarning, PartialError, QueueFullError
from l2route.cluster.sharded import ShardedIndex
from ray_nodes import Nodes, pid_of, stopped
from sharding import IDS, N_SHARDS, QUERIES, VECTORS, K, exact

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
WIDE = len(VECTORS)


def test_answers_are_those_of_the_twin(cluster: Cluster, built_path: Path) -> None:
    """A cluster answers as the same shards searched one after another, at the same cost."""
    twin = ShardedIndex(built_path)
    for asked in (
        {"recall": 0.95},
        {"recall": 0.8},
        {"n_probe": 2, "ef": 40},
        {"n_probe": 1, "router": "centroids", "budget": 60},
        {"ef": WIDE},
        {"ef": 50, "where": IDS[:200]},
    ):
        found = cluster.search(QUERIES, K, **asked)  # type: ignore[arg-type]
        expected = twin.search(QUERIES, K, **asked)  # type: ignore[arg-type]
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.distances, expected.distances)
        np.testing.assert_array_equal(found.n_asked, expected.n_asked)
        np.testing.assert_allclose(found.n_computed, expected.n_computed)
        assert found.coverage == 1.0
        assert isinstance(found, l2route.SearchResult)
    np.testing.assert_array_equal(cluster.search(QUERIES, K, ef=WIDE).ids, exact(QUERIES))


def test_wrong_searches_are_refused(cluster: Cluster) -> None:
    """What is wrong whoever is asked is an error at once, and not of a shard."""
    for wrong in ({"partial": "maybe"}, {"recall": 2.0}, {"recall": 0.9, "ef": 3}, {"ef": -1}):
        with pytest.raises(ValueError, match="expected"):
            cluster.search(QUERIES, K, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected"):
        cluster.search(QUERIES[:, :3], K)


def test_changes_are_durable_and_seen(cluster: Cluster) -> None:
    """What was added is found by every replica, and is on disk, when `add` has returned."""
    new = cluster.add(QUERIES[:6])
    assert new.tolist() == list(range(IDS.max() + 1, IDS.max() + 7))
    for _ in range(4):  # whichever replicas answer
        assert cluster.search(QUERIES[:6], 1, ef=WIDE).ids[:, 0].tolist() == new.tolist()
    twin = ShardedIndex(cluster.folder.url)
    assert twin.search(QUERIES[:6], 1, ef=WIDE).ids[:, 0].tolist() == new.tolist()
    assert len(twin) == len(VECTORS) + 6
    cluster.delete(new[:3])
    for _ in range(4):
        found = cluster.search(QUERIES[:6], 1, ef=WIDE).ids[:, 0]
        assert not set(found[:3].tolist()) & set(new.tolist())
        assert found[3:].tolist() == new[3:].tolist()
    assert len(ShardedIndex(cluster.folder.url)) == len(VECTORS) + 3
    assert cluster.info()["n_vectors"] == len(VECTORS) + 3
    cluster.delete(new[3:])


def test_changes_go_to_the_right_shard(cluster: Cluster) -> None:
    """An added vector is in the shard of its nearest centroid, where a router looks for it."""
    new = cluster.add(QUERIES[:20], np.arange(20) + 10**9)
    twin = ShardedIndex(cluster.folder.url)
    shards = twin.router.partition.assign(QUERIES[:20])
    for id_, shard in zip(new.tolist(), shards, strict=True):
        assert [n for n, each in enumerate(twin.shards) if id_ in each.index] == [shard]
    cluster.delete(new)


def test_an_updated_vector_moves(cluster: Cluster) -> None:
    """An id with a new vector is in the shard of that vector, and nowhere else."""
    (new,) = cluster.add(QUERIES[:1]).tolist()
    shards = cluster.router.partition.assign(QUERIES)
    for at in (np.flatnonzero(shards != shards[0])[0], 0):
        cluster.update([new], QUERIES[at : at + 1])
        assert cluster.search(QUERIES[at], 1, ef=WIDE).ids[0, 0] == new
        twin = ShardedIndex(cluster.folder.url)
        assert [new in shard.index for shard in twin.shards].count(True) == 1
        assert new in twin.shards[shards[at]].index
    cluster.delete([new])


def test_wrong_changes_change_nothing(cluster: Cluster) -> None:
    """Ids that are there, or are not, are refused before anything is changed."""
    with pytest.raises(ValueError, match="does not have"):
        cluster.add(QUERIES[:2], [10**9, IDS[0]])
    with pytest.raises(ValueError, match="of the index"):
        cluster.delete([IDS[0], 10**9])
    with pytest.raises(ValueError, match="expected"):
        cluster.add(QUERIES[:2, :4])
    assert len(ShardedIndex(cluster.folder.url)) == len(VECTORS)
    cluster.delete([])


def test_a_full_queue_refuses(nodes: Nodes, built_path: Path) -> None:
    """Beyond the batches that may wait, further ones are refused, and none is counted twice."""
    made = Cluster(
        built_path, replicas=1, cpus=0.1, n_bytes=0, max_running=1, max_waiting=1, hedge=60
    )
    with made, stopped(*(pid_of(group[0]) for group in made.fleet.members)):
        ends: list[object] = []

        def search() -> None:
            try:
                ends.append(made.search(QUERIES, K, ef=20, timeout=3).coverage)
            except (PartialError, QueueFullError) as error:
                ends.append(error)

        threads = [Thread(target=search) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kinds = sorted(type(each).__name__ for each in ends)
        assert kinds.count("QueueFullError") >= 2
        assert "PartialError" in kinds
        assert not made._turns.n_running + made._turns.n_waiting


def test_it_warns_of_shards_without_room(nodes: Nodes, built_path: Path) -> None:
    """Where nodes have too few cores for all actors, it is said at once, and which shards wait."""
    with pytest.warns(ClusterWarning) as warned:
        made = Cluster(built_path, replicas=2, cpus=100, n_bytes=0, wait=0.5)
    first, second = (str(each.message) for each in warned)
    assert first.startswith("expected 600 cores for 6 actors, 100 each, got a Ray cluster with ")
    assert second.startswith("not all shards are ready: shard 0 gave no answer in time")
    with made:
        found = made.search(QUERIES, K, ef=20, partial="allow", timeout=0.5)
        assert (found.coverage, found.missing) == (0.0, tuple(range(N_SHARDS)))


def test_clusters_share_actors_by_name(nodes: Nodes, built_path: Path) -> None:
    """Clusters of one name have the same actors, which stay when one of them is closed."""
    first, second = (
        Cluster(built_path, replicas=1, cpus=0.1, n_bytes=0, name="shared") for _ in range(2)
    )
    pids = [[pid_of(group[0]) for group in each.fleet.members] for each in (first, second)]
    assert pids[0] == pids[1]
    assert len(set(pids[0])) == N_SHARDS
    first.close()
    np.testing.assert_array_equal(second.search(QUERIES, K, ef=WIDE).ids, exact(QUERIES))
    second.shutdown()
