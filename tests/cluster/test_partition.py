"""Laws of the partition: nearest centroid, equal shards, the same in any parts."""

import numpy as np
import pytest

from l2route.cluster.partition import SPARE, Partition, group_cells, make_partition
from sharding import VECTORS


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("n_shards", [1, 3, 8])
def test_shards_are_nearly_equal(metric: str, n_shards: int) -> None:
    """No shard of the sample is larger than the mean by more than the spare and one cell."""
    made = make_partition(VECTORS, n_shards, metric)  # type: ignore[arg-type]
    sizes = np.bincount(made.assign(VECTORS), minlength=n_shards)
    cells = np.bincount(
        np.argmin(((made.prepared(VECTORS)[:, None] - made.centroids) ** 2).sum(axis=2), axis=1)
    )
    assert sizes.min() > 0
    assert sizes.max() <= (1 + SPARE) * len(VECTORS) / n_shards + cells.max()


def test_a_vector_goes_to_the_shard_of_its_nearest_centroid() -> None:
    """The shard of a vector is that of the centroid that a plain comparison finds."""
    made = make_partition(VECTORS, 4, "l2")
    nearest = np.argmin(((VECTORS[:, None] - made.centroids) ** 2).sum(axis=2), axis=1)
    np.testing.assert_array_equal(made.assign(VECTORS), made.shards[nearest])


def test_parts_are_divided_as_the_whole() -> None:
    """A stream in parts of any size is divided as all of it at once."""
    made = make_partition(VECTORS, 4, "l2")
    parts = [made.assign(VECTORS[i : i + 37]) for i in range(0, len(VECTORS), 37)]
    np.testing.assert_array_equal(np.concatenate(parts), made.assign(VECTORS))
    assert len(made.assign(VECTORS[:0])) == 0


def test_no_shard_is_without_a_cell() -> None:
    """Every shard has a cell, also if all weight is in one."""
    rng = np.random.default_rng(0)
    weights = np.zeros(9, dtype=np.int64)
    weights[0] = 1000
    shards = group_cells(rng.normal(size=(9, 4)).astype(np.float32), weights, 9)
    assert sorted(shards.tolist()) == list(range(9))


def test_a_seed_makes_the_same_partition() -> None:
    """The same sample and seed give the same partition."""
    first, again = (make_partition(VECTORS, 3, "l2", seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.centroids, again.centroids)
    np.testing.assert_array_equal(first.shards, again.shards)


def test_wrong_partitions_are_refused() -> None:
    """Shards beyond the vectors, cells without centroids and shards without cells are errors."""
    with pytest.raises(ValueError, match="shards"):
        make_partition(VECTORS[:3], 4, "l2")
    centroids = VECTORS[:4]
    for cells in (np.array([0, 1, 3, 3]), np.array([0, 1]), np.zeros((4, 1), int)):
        with pytest.raises(ValueError, match="expected"):
            Partition(centroids, cells.astype(np.int32), "l2")
    with pytest.raises(ValueError, match="finite"):
        Partition(centroids * np.float32(np.nan), np.zeros(4, np.int32), "l2")
