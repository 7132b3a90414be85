"""Laws of regrouping cells by a log: fewer links are cut, and shards stay equal."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from l2route.cluster.log_grouping import N_NEAREST, links_of, regroup
from l2route.cluster.partition import make_partition
from sharding import LOG, VECTORS


def cut(shards: np.ndarray, links: np.ndarray) -> float:
    """Links between cells of different shards, by a plain sum."""
    return float(links[shards[:, None] != shards[None]].sum())


@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(6, 30))
def test_no_link_more_is_cut(seed: int, n_shards: int, n_cells: int) -> None:
    """Regrouping never cuts more, empties no shard, and keeps to the room where shards did."""
    rng = np.random.default_rng(seed)
    links = rng.integers(0, 5, (n_cells, n_cells)).astype(np.float32)
    links = np.triu(links, 1) + np.triu(links, 1).T
    weights = rng.integers(1, 9, n_cells)
    shards = np.concatenate([np.arange(n_shards), rng.integers(0, n_shards, n_cells - n_shards)])
    loads = np.bincount(shards, weights=weights)
    room = max(1.05 * weights.sum() / n_shards, float(loads.max()))
    after = regroup(shards.astype(np.int32), links, weights, room)
    assert cut(after, links) <= cut(shards, links)
    assert set(after.tolist()) == set(range(n_shards))
    assert np.bincount(after, weights=weights).max() <= room


def test_links_are_pairs_of_neighbours() -> None:
    """A link counts the queries that have neighbours in both cells, by a plain loop."""
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 6, len(VECTORS))
    expected = np.zeros((6, 6))
    for query in LOG[:40]:
        order = np.argsort(((query - VECTORS) ** 2).sum(axis=1))[:N_NEAREST]
        for i in order:
            for j in order:
                if cells[i] != cells[j]:
                    expected[cells[i], cells[j]] += 1
    np.testing.assert_array_equal(links_of(LOG[:40], VECTORS, cells, 6), expected)


def test_neighbours_share_shards_more_often() -> None:
    """Regrouped by a log, the neighbours of other queries lie in fewer shards."""
    rng = np.random.default_rng(1)
    base, log, queries = (rng.normal(size=(n, 5)).astype(np.float32) for n in (3000, 3000, 500))
    distances = ((queries[:, None] - base) ** 2).sum(axis=2)
    nearest = np.argsort(distances, axis=1)[:, :10]

    def n_shards(**options: object) -> float:
        made = make_partition(base, 6, "l2", n_cells=60, **options)  # type: ignore[arg-type]
        return float(np.mean([len(set(row)) for row in made.assign(base)[nearest].tolist()]))

    assert n_shards(queries=log) < n_shards()
