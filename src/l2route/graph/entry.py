"""Entry points of a search: medoids, or the longest vectors."""

from collections.abc import Sequence
from operator import index as index_of
from typing import Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.graph.graph import check_entries

N_ENTRIES = 32
"""Number of clusters for "medoids", and of vectors for "longest"."""
MAX_EXPONENT = 40
"""Sums of squares of values up to 2**40, or down to 2**-40, fit in float32."""
N_CLUSTERED = 10_000
"""Maximum number of vectors to cluster; larger sets are sampled."""


def faiss_seed(seed: int) -> int:
    """Convert any integer to a seed for faiss."""
    return index_of(seed) % 2**31  # some of faiss's seeds have 31 bits


def medoid(vectors: NDArray[np.float32]) -> int:
    """The vertex nearest to the mean of all vectors [n, dim]."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    parts = np.array_split(vectors, -(-len(vectors) // 4096))  # bounds the float64 copies
    distances = [((part - mean) ** 2).sum(axis=1) for part in parts]
    return int(np.concatenate(distances).argmin())


def medoids(vectors: NDArray[np.float32], seed: int = 0) -> NDArray[np.int32]:
    """Vertices nearest to the centres of up to 32 clusters of the vectors [n, dim], ascending."""
    vectors, seed = rescaled(vectors), faiss_seed(seed)
    n_clusters = min(N_ENTRIES, len(vectors))
    sample = np.random.default_rng(seed).permutation(len(vectors))[:N_CLUSTERED]
    clustering = faiss.Clustering(vectors.shape[1], n_clusters)
    clustering.seed, clustering.niter, clustering.verbose = seed, 10, False
    clustering.min_points_per_centroid = 1
    clustering.max_points_per_centroid = N_CLUSTERED
    clustering.train(np.ascontiguousarray(vectors[sample]), faiss.IndexFlatL2(vectors.shape[1]))
    centres = faiss.vector_to_array(clustering.centroids).reshape(n_clusters, -1)
    nearest = faiss.knn(centres, np.ascontiguousarray(vectors), 1)[1][:, 0]
    return np.unique(nearest).astype(np.int32)


def rescaled(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors, scaled by a power of two if their squares would not fit in float32.

    faiss aborts the process when it clusters such vectors.
    """
    exponent = int(np.frexp(np.abs(vectors).max())[1])
    return vectors if abs(exponent) <= MAX_EXPONENT else np.ldexp(vectors, -exponent)


def longest(vectors: NDArray[np.float32]) -> NDArray[np.int32]:
    """The 32 longest vectors, ascending ids: most of the largest inner products are with them."""
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    return np.sort(np.argsort(-squares, kind="stable")[:N_ENTRIES]).astype(np.int32)


Entry = int | Sequence[int] | Literal["medoid", "medoids", "longest"]


def resolve_entry(entry: Entry, vectors: NDArray[np.float32], seed: int = 0) -> NDArray[np.int32]:
    """Vertex ids [n_entries] of an entry, for vectors [n, dim]."""
    if is_medoid(entry):
        return np.array([medoid(vectors)], dtype=np.int32)
    if isinstance(entry, str) and entry == "medoids":
        return medoids(vectors, seed)
    if isinstance(entry, str) and entry == "longest":
        return longest(vectors)
    ids = np.atleast_1d(np.array(entry))
    if ids.ndim != 1 or not len(ids) or ids.dtype.kind not in "iu":
        raise ValueError(
            f"expected entries: a vertex id, several, medoid, medoids or longest, got {entry!r}"
        )
    if ids.min() < 0 or ids.max() >= len(vectors):
        raise ValueError(f"expected entries in [0, {len(vectors)}), got {ids.tolist()}")
    entries = ids.astype(np.int32)
    check_entries(entries, len(vectors))
    return entries


def is_medoid(entry: Entry) -> bool:
    """Whether an entry is "medoid", which for HNSW and NSG stands for their own entry point."""
    return isinstance(entry, str) and entry == "medoid"
