"""Nearest neighbours of every vector among the others, by faiss."""

from collections.abc import Iterator
from contextlib import contextmanager
from operator import index as index_of

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric
from l2route.graph.entry import faiss_seed


def faiss_metric(metric: Metric) -> int:
    """Faiss's constant for a metric; cosine is l2 between unit vectors."""
    return int(faiss.METRIC_INNER_PRODUCT if metric == "ip" else faiss.METRIC_L2)


def knn_lists(
    base: NDArray[np.float32], metric: Metric, k: int, *, exact: bool, seed: int = 0
) -> NDArray[np.int64]:
    """Nearest neighbours of every vector among the others [n, min(k, n − 1)].

    Approximate lists come from an inverted file, whose result does not depend on the number of
    threads; missing neighbours are −1.
    """
    n = len(base)
    k = min(index_of(k), n - 1)
    if k < 1:
        raise ValueError(f"expected at least 2 vectors for a k-NN graph, got {n}")
    if exact:
        _, found = faiss.knn(base, base, k + 1, metric=faiss_metric(metric))
    else:
        found = _search_inverted_file(base, metric, k + 1, seed)
    return _without_self(found)


def _search_inverted_file(
    base: NDArray[np.float32], metric: Metric, k: int, seed: int
) -> NDArray[np.int64]:
    n_lists = max(1, min(len(base) // 39, int(4 * np.sqrt(len(base)))))
    quantizer = faiss.IndexFlat(base.shape[1], faiss_metric(metric))
    index = faiss.IndexIVFFlat(quantizer, base.shape[1], n_lists, faiss_metric(metric))
    index.cp.seed = faiss_seed(seed)
    index.cp.min_points_per_centroid = 1  # no warning about few vectors
    index.train(base)
    index.add(base)
    index.nprobe = min(n_lists, 32)
    _, found = index.search(base, k)
    return np.asarray(found, dtype=np.int64)


def _without_self(found: NDArray[np.int64]) -> NDArray[np.int64]:
    keep = found != np.arange(len(found))[:, None]
    keep[keep.all(axis=1), -1] = False  # an equal vector was found instead of the vector itself
    others: NDArray[np.int64] = found[keep].reshape(len(found), -1)
    return others


@contextmanager
def faiss_threads(n_threads: int) -> Iterator[None]:
    """Set the number of faiss's threads within a block; 0 leaves it unchanged."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(index_of(n_threads) or before)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
