"""Laws of searches over shards in one process: filters, recalls, wrong input."""

from pathlib import Path

import numpy as np
import pytest

import l2route
from l2route.cluster.sharded import ShardedIndex
from sharding import IDS, LOG, N_SHARDS, QUERIES, VECTORS, K, exact, recall

RNG = np.random.default_rng(1)


@pytest.mark.parametrize("kind", ["one shard", "few", "many"])
def test_a_filter_does_not_take_recall_away(built_path: Path, kind: str) -> None:
    """The recall is that of what the filter leaves, in whatever shards it is."""
    index = ShardedIndex(built_path)
    where = {
        "one shard": index.shards[0].index.ids,
        "few": RNG.choice(IDS, 30, replace=False),
        "many": RNG.choice(IDS, 300, replace=False),
    }[kind]
    found = index.search(QUERIES, K, recall=0.95, where=where)
    assert recall(found.ids, exact(QUERIES, alive=np.isin(IDS, where))) >= 0.93
    assert set(found.ids.ravel().tolist()) <= set(where.tolist())
    assert index.search(QUERIES, K, recall=0.95).n_asked.mean() < N_SHARDS


@pytest.mark.parametrize(
    "where", [np.ones(len(VECTORS), dtype=bool), [[1, 2], [3]], [[1, 2], [3, 4]], [7.9], "7", 7]
)
def test_wrong_filters_are_refused(built_path: Path, where: object) -> None:
    """A filter is a list of ids; masks, lists for each query and fractions are none."""
    with pytest.raises(ValueError, match=r"expected where as ids int \[n\]"):
        ShardedIndex(built_path).search(QUERIES[:2], K, where=where)
    filter_ = l2route.RoutingIndex.build(VECTORS[:50]).filter([3])
    with pytest.raises(ValueError, match=r"expected where as ids int \[n\]"):
        ShardedIndex(built_path).search(QUERIES[:2], K, where=filter_)


def test_an_empty_filter_leaves_no_answers(built_path: Path) -> None:
    """With no id that may be an answer there is none."""
    index = ShardedIndex(built_path)
    for given in ([], np.empty(0), [10**12]):
        assert (index.search(QUERIES[:5], K, where=given).ids == -1).all()
        assert (index.search(QUERIES[:5], K, recall=0.9, where=given).ids == -1).all()


def test_wrong_recalls_are_refused(built_path: Path) -> None:
    """A recall is above 0 and at most 1, also where it is for the shards only."""
    index = ShardedIndex(built_path)
    for wrong in (0.0, 1.5, -1.0, float("nan")):
        for n_probe in (None, 1):
            with pytest.raises(ValueError, match="expected a recall in"):
                index.search(LOG[:3], K, recall=wrong, n_probe=n_probe)
