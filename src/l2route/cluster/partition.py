"""The partition of vectors into shards: many small cells by k-means, grouped into equal shards.

A vector belongs to the cell of its nearest centroid, and a cell to one shard. So the shard of a
vector depends on that vector alone: a stream of any length is divided in parts, by any number of
processes, and the next vector that is added finds its shard in the same way. Shards are equal in
the sample that the cells were weighed on.
"""

from __future__ import annotations

from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.cluster.log_grouping import links_of, regroup
from l2route.data.vectors import Metric, normalize

Floats = NDArray[np.float32]
CELLS_PER_SHARD = 32
"""Centroids of a shard, if the sample is large enough."""
LEAST_IN_CELL = 40
"""Vectors of the sample for each cell."""
N_ITERATIONS = 12
"""Rounds of k-means, and of the grouping of cells."""
SPARE = 0.05
"""Share by which a shard may be larger than the mean in the sample."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Centroids of cells, and the shard of each."""

    centroids: Floats
    """[n_cells, dim]; of unit length for cosine."""
    shards: NDArray[np.int32]
    """[n_cells]"""
    metric: Metric

    def __post_init__(self) -> None:
        shape, n_cells = self.centroids.shape, len(self.shards)
        if len(shape) != 2 or shape[0] != n_cells or not n_cells or self.shards.ndim != 1:
            raise ValueError(f"expected centroids [{n_cells} > 0, dim], got {list(shape)}")
        if self.centroids.dtype != np.float32 or not np.isfinite(self.centroids).all():
            raise ValueError(f"expected finite float32 centroids, got {self.centroids.dtype}")
        if not np.array_equal(np.unique(self.shards), np.arange(self.shards.max() + 1)):
            raise ValueError("expected a cell or more for each shard, got a shard without")

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return int(self.shards.max()) + 1

    def prepared(self, vectors: Floats) -> Floats:
        """Vectors as they are compared with centroids: of unit length for cosine."""
        return normalize(vectors) if self.metric == "cosine" and len(vectors) else vectors

    def assign(self, vectors: Floats) -> NDArray[np.int32]:
        """The shard of each vector [n], that of its nearest centroid by l2."""
        if not len(vectors):
            return np.zeros(0, dtype=np.int32)
        _, cells = faiss.knn(self.prepared(vectors), self.centroids, 1)
        shards: NDArray[np.int32] = self.shards[cells[:, 0]]
        return shards


def make_partition(
    sample: Floats,
    n_shards: int,
    metric: Metric,
    *,
    n_cells: int | None = None,
    queries: Floats | None = None,
    seed: int = 0,
) -> Partition:
    """Divide a sample of vectors into shards of nearly equal size, by balanced k-means.

    Args:
        sample: vectors [n, dim], at least as many as shards.
        n_shards: number of shards.
        metric: l2, ip or cosine.
        n_cells: centroids of all shards; by default 32 per shard, or as the sample allows.
        queries: query log [n, dim], by which cells are regrouped.
        seed: seed of the first centroids.
    """
    n, dim = sample.shape
    if not 1 <= n_shards <= n:
        raise ValueError(f"expected 1 to {n} shards, as many as there are vectors, got {n_shards}")
    if n_cells is None:
        n_cells = min(CELLS_PER_SHARD * n_shards, n // LEAST_IN_CELL)
    n_cells = min(max(n_cells, n_shards), n)
    rows = normalize(sample) if metric == "cosine" else np.ascontiguousarray(sample)
    kmeans = faiss.Kmeans(
        dim, n_cells, niter=N_ITERATIONS, seed=seed + 1, min_points_per_centroid=1
    )
    kmeans.train(rows)
    centroids = np.ascontiguousarray(kmeans.centroids, dtype=np.float32)
    _, cells = faiss.knn(rows, centroids, 1)
    weights = np.bincount(cells[:, 0], minlength=n_cells)
    shards = group_cells(centroids, weights, n_shards, seed)
    if queries is not None and n_shards > 1:
        probes = normalize(queries) if metric == "cosine" else queries
        links = links_of(probes, rows, cells[:, 0], n_cells)
        shards = regroup(shards, links, weights, (1 + SPARE) * n / n_shards, seed)
    return Partition(centroids, shards, metric)


def group_cells(
    centroids: Floats, weights: NDArray[np.int64], n_shards: int, seed: int = 0
) -> NDArray[np.int32]:
    """Group cells into shards of nearly equal weight, cells of a shard being near each other.

    A round moves centres of shards to the means of their cells, and deals the cells out anew:
    those first that would lose most by their second choice, each to the nearest shard with room.

    Args:
        centroids: [n_cells, dim].
        weights: vectors in each cell [n_cells].
        n_shards: number of shards, at most n_cells.
        seed: seed of the first centres.

    Returns:
        The shard of each cell [n_cells]; no shard is without a cell.
    """
    kmeans = faiss.Kmeans(
        centroids.shape[1], n_shards, niter=N_ITERATIONS, seed=seed + 1, min_points_per_centroid=1
    )
    kmeans.train(centroids, weights=np.maximum(weights, 1).astype(np.float32))
    centres: Floats = kmeans.centroids
    room = (1 + SPARE) * weights.sum() / n_shards
    shards = np.zeros(len(centroids), dtype=np.int32)
    for _ in range(N_ITERATIONS):
        before = shards
        shards = _dealt(centroids, weights, centres, room)
        if np.array_equal(before, shards):
            break
        centres = _means(centroids, weights, shards, n_shards)
    return shards


def _dealt(
    centroids: Floats, weights: NDArray[np.int64], centres: Floats, room: float
) -> NDArray[np.int32]:
    """Deal cells out to shards with room; the lightest shard takes what fits nowhere."""
    n_shards = len(centres)
    distances = ((centroids[:, None, :] - centres[None]) ** 2).sum(axis=2)  # [n_cells, n_shards]
    ordered = np.sort(distances, axis=1)
    regret = ordered[:, min(1, n_shards - 1)] - ordered[:, 0]
    shards, loads = np.zeros(len(centroids), dtype=np.int32), np.zeros(n_shards)
    is_empty = np.ones(n_shards, dtype=bool)
    left = len(centroids)
    for cell in np.argsort(-regret, kind="stable"):
        fits = loads + weights[cell] <= room
        if left <= is_empty.sum():
            fits = is_empty.copy()  # one cell for each shard that has none
        if fits.any():
            shard = int(np.argmin(np.where(fits, distances[cell], np.inf)))
        else:
            shard = int(np.argmin(loads))
        shards[cell] = shard
        loads[shard] += weights[cell]
        is_empty[shard] = False
        left -= 1
    return shards


def _means(
    centroids: Floats, weights: NDArray[np.int64], shards: NDArray[np.int32], n_shards: int
) -> Floats:
    """Weighted means of the cells of each shard [n_shards, dim]."""
    sums = np.zeros((n_shards, centroids.shape[1]))
    totals = np.zeros(n_shards)
    heavy = np.maximum(weights, 1)
    np.add.at(sums, shards, centroids * heavy[:, None])
    np.add.at(totals, shards, heavy)
    return (sums / totals[:, None]).astype(np.float32)
