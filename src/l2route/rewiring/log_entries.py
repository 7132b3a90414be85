"""Entry points from a query log: where walks of like queries end, a walk can begin."""

from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric, normalize
from l2route.graph.entry import faiss_seed, rescaled
from l2route.graph.entry_table import EntryTable

N_COORDINATES = 64
"""Most coordinates of queries by which clusters are told apart: a row of codes is a cache line."""
MAX_CLUSTERS = 256
"""Most clusters of queries."""
QUERIES_PER_CLUSTER = 16
"""Fewest queries per cluster, on average."""
WIDTH = 4
"""Entry points of a cluster."""
DEPTH = 10
"""Nearest neighbours of a query that are counted."""
COVERED = 0.8
"""Share of the queries of a group whose cluster is among those of the group."""
N_ITERATIONS = 10
"""Iterations of k-means."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """How large a table of entry points is: a larger one starts nearer and costs more to read."""

    n_clusters: int = MAX_CLUSTERS
    """Most clusters of queries; their groups are the square root of as many."""
    n_coordinates: int = N_COORDINATES
    """Most coordinates of queries by which clusters are told apart."""
    width: int = WIDTH
    """Entry points of a cluster."""
    covered: float = COVERED
    """Share of the queries of a group whose cluster is among those of the group."""


SERVED = TableShape()
"""For searches that score some hundred vertices or more."""


def entries_of_log(
    queries: NDArray[np.float32],
    nearest: NDArray[np.int32],
    metric: Metric,
    seed: int = 0,
    shape: TableShape = SERVED,
) -> EntryTable:
    """Cluster queries, and choose for each cluster the vertices that its queries find most often.

    Clusters are told apart by the coordinates in which queries vary most, up to 64 of them, so that
    finding one costs little. A group of clusters has those of four fifths of the queries that are
    nearest to it. These are the numbers of the default shape.

    Args:
        queries: distinct queries [n_queries, dim].
        nearest: their true neighbours, nearest first [n_queries, at least 1].
        metric: by which the queries are searched.
        seed: seed of k-means.
        shape: how large the table is.
    """
    if not 1 <= len(queries) == len(nearest):
        got = f"{len(queries)} and {len(nearest)}"
        raise ValueError(f"expected as many queries as neighbours, at least 1, got {got}")
    parts, coordinates = _told_apart(queries, metric, shape.n_coordinates)
    n_clusters = min(shape.n_clusters, -(-len(parts) // QUERIES_PER_CLUSTER))
    n_groups = round(np.sqrt(n_clusters))
    is_spherical = metric == "ip"
    centroids = _clustered(parts, n_clusters, is_spherical, seed)
    groups = _clustered(parts, n_groups, is_spherical, seed)
    cluster_of, group_of = (_nearest(parts, each, metric) for each in (centroids, groups))
    return EntryTable(
        coordinates,
        groups,
        centroids,
        _members(group_of, cluster_of, n_groups, n_clusters, shape.covered),
        _most_found(cluster_of, nearest[:, :DEPTH], n_clusters, shape.width),
    )


def _told_apart(
    queries: NDArray[np.float32], metric: Metric, n_coordinates: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The coordinates of queries in which they vary most [n_queries, d], and which those are."""
    rows = queries if metric == "l2" else normalize(queries)
    spread = rescaled(rows).var(axis=0, dtype=np.float64)
    most = np.argsort(-spread, kind="stable")[:n_coordinates]
    coordinates = np.sort(most).astype(np.int32)
    return np.ascontiguousarray(rows[:, coordinates]), coordinates


def _clustered(
    rows: NDArray[np.float32], n_clusters: int, is_spherical: bool, seed: int
) -> NDArray[np.float32]:
    """Centroids of k-means over rows [n, d]; of length 1 if spherical [n_clusters, d]."""
    scaled = rescaled(rows)
    clustering = faiss.Clustering(rows.shape[1], n_clusters)
    clustering.seed, clustering.niter, clustering.verbose = faiss_seed(seed), N_ITERATIONS, False
    clustering.min_points_per_centroid = 1
    clustering.spherical = is_spherical
    flat = faiss.IndexFlatIP if is_spherical else faiss.IndexFlatL2
    clustering.train(scaled, flat(rows.shape[1]))
    centroids = faiss.vector_to_array(clustering.centroids).reshape(n_clusters, -1)
    shrunk = np.abs(rows).max() / max(np.abs(scaled).max(), np.finfo(np.float32).tiny)
    return np.ascontiguousarray(centroids * (1 if is_spherical else shrunk), dtype=np.float32)


def _nearest(
    rows: NDArray[np.float32], centroids: NDArray[np.float32], metric: Metric
) -> NDArray[np.int64]:
    """The centroid that a search takes for each row [n]."""
    measure = faiss.METRIC_INNER_PRODUCT if metric == "ip" else faiss.METRIC_L2
    found: NDArray[np.int64] = faiss.knn(rows, centroids, 1, metric=measure)[1][:, 0]
    return found


def _members(
    group_of: NDArray[np.int64],
    cluster_of: NDArray[np.int64],
    n_groups: int,
    n_clusters: int,
    covered: float,
) -> NDArray[np.int32]:
    """The clusters that most queries of a group are in, padded with −1 [n_groups, longest]."""
    counts = np.zeros((n_groups, n_clusters), dtype=np.int64)
    np.add.at(counts, (group_of, cluster_of), 1)
    order = np.argsort(-counts, axis=1, kind="stable")
    ranked = np.take_along_axis(counts, order, axis=1)
    before = np.cumsum(ranked, axis=1) - ranked
    is_member = (ranked > 0) & (before < covered * ranked.sum(axis=1, keepdims=True))
    is_member[:, 0] = True  # also of a group without queries
    members = np.where(is_member, order, -1)[:, : is_member.sum(axis=1).max()]
    return np.ascontiguousarray(members, dtype=np.int32)


def _most_found(
    cluster_of: NDArray[np.int64], nearest: NDArray[np.int32], n_clusters: int, width: int
) -> NDArray[np.int32]:
    """The vertices that are most often among the nearest of a cluster's queries [n, width]."""
    n = int(nearest.max()) + 1
    clusters = np.repeat(cluster_of, nearest.shape[1])
    keys, counts = np.unique(clusters * n + nearest.ravel(), return_counts=True)
    order = np.lexsort((keys, -counts, keys // n))
    clusters, vertices = keys[order] // n, keys[order] % n
    first = np.searchsorted(clusters, np.arange(n_clusters))
    ranks = np.arange(len(clusters)) - first[clusters]
    kept = ranks < width
    chosen = np.full((n_clusters, width), -1, dtype=np.int32)
    chosen[clusters[kept], ranks[kept]] = vertices[kept]
    return chosen
