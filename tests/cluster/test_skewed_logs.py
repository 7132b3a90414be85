"""Laws of shards that the query log says little about: they are built, and answer any recall."""

from pathlib import Path

import numpy as np
import pytest

from l2route.cluster.sharded import ShardedIndex
from sharding import IDS, QUERIES, K, build_small, exact, recall

RNG = np.random.default_rng(5)


def test_a_log_of_one_cluster_builds_shards_of_others(tmp_path: Path) -> None:
    """Shards that no logged query has a neighbour in are measured on the queries of the others."""
    far = np.float32(30) * (np.arange(600) % 2)[:, None]
    vectors = (RNG.normal(size=(600, 8)) + far).astype(np.float32)
    log = RNG.normal(size=(300, 8)).astype(np.float32)
    index = build_small(tmp_path / "x", source=vectors, ids=None, queries=log, n_shards=2)
    near = index.search(log[:50], K, recall=0.95)
    assert near.n_asked.mean() < 1.5
    others = vectors[1::2][:50] + np.float32(0.05)
    for asked in (0.9, 0.99):
        found = index.search(others, 3, recall=asked, n_probe=1)
        assert (found.ids[:, 0] % 2 == 1).all()
    assert all(len(shard.index.validation.queries) >= 50 for shard in index.shards)


@pytest.mark.parametrize("has_log", [True, False])
def test_shards_may_be_smaller_than_k(tmp_path: Path, has_log: bool) -> None:
    """With fewer than k vectors in every shard, all of them together answer."""
    vectors = RNG.normal(size=(30, 6)).astype(np.float32)
    log = RNG.normal(size=(40, 6)).astype(np.float32)
    index = build_small(
        tmp_path / "x",
        source=vectors,
        ids=None,
        queries=log if has_log else None,
        n_shards=4,
        k=10,
    )
    found = index.search(log, 10, recall=0.95)
    order = ((log[:, None] - vectors) ** 2).sum(axis=2).argsort(axis=1)
    assert recall(found.ids, order[:, :10]) >= 0.9
    assert index.search(log, 10, recall=1.0).ids.shape == (40, 10)


@pytest.mark.parametrize("routing", ["float32", "int8"])
def test_without_a_log_any_recall_may_be_asked_for(tmp_path: Path, routing: str) -> None:
    """Lower and higher recalls, other k and filters are answered, and reached on this data."""
    index = build_small(tmp_path / "x", queries=None, routing=routing)
    for asked, k in ((0.95, K), (0.9, K), (0.95, 2), (0.99, K), (0.95, 20), (0.9, 150)):
        found = index.search(QUERIES, k, recall=asked)
        assert found.ids.shape == (len(QUERIES), k)
        assert recall(found.ids, exact(QUERIES, k)) >= asked - 0.03
    lower = index.search(QUERIES, K, recall=0.9)
    assert lower.n_computed.mean() < index.search(QUERIES, K, recall=0.99).n_computed.mean()
    only = index.search(QUERIES, K, recall=0.95, where=IDS[:300])
    assert set(only.ids.ravel().tolist()) <= set(IDS[:300].tolist())
    for wrong in (0.0, 1.5):
        with pytest.raises(ValueError, match="recall in"):
            index.search(QUERIES, K, recall=wrong)


def test_a_router_that_is_not_kept_leaves_no_files(tmp_path: Path) -> None:
    """The folder has the arrays that the manifest names, and no others."""
    for seed in range(2):
        index = build_small(tmp_path / f"{seed}", seed=seed, n_shards=2)
        named = {each["file"] for each in index.manifest.arrays.values()}
        assert {each.name for each in (tmp_path / f"{seed}").glob("*.npy")} == named
        assert isinstance(index, ShardedIndex)
