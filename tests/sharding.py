"""Small sharded indexes, and the data that they are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from documents import small_data
from l2route.cluster.sharded import ShardedIndex

N, DIM, N_SHARDS, K = 1500, 12, 3, 5
VECTORS, LOG, QUERIES = small_data(N, DIM)
LOG = np.concatenate([LOG, small_data(N, DIM, seed=0)[0][::2] + 0.01]).astype(np.float32)
IDS = np.random.default_rng(3).permutation(N).astype(np.int64) * 3 + 7
"""Ids that are not row numbers."""


def build_small(path: str | Path, **options: Any) -> ShardedIndex:
    """Three shards of 1,500 vectors of float32, with a router learned from 1,500 queries."""
    small = {"n_shards": N_SHARDS, "k": K, "minutes": 0, "routing": "float32", "degree": 12}
    given = {"queries": LOG, "ids": IDS} | small | options
    return ShardedIndex.build(given.pop("source", VECTORS), path, **given)


def exact(queries: NDArray[np.float32], k: int = K, alive: Any = None) -> NDArray[np.int64]:
    """Ids of the true neighbours, by a plain sort of all distances, ties by id."""
    rows = np.arange(N) if alive is None else np.flatnonzero(alive)
    distances = ((queries[:, None].astype(np.float64) - VECTORS[rows]) ** 2).sum(axis=2)
    order = np.lexsort((np.broadcast_to(IDS[rows], distances.shape), distances), axis=1)
    found: NDArray[np.int64] = IDS[rows][order[:, :k]]
    return found


def recall(found: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Mean share of the true neighbours among the answers."""
    pairs = zip(found, truth, strict=True)
    return float(np.mean([len({*a.tolist()} & {*b.tolist()}) / len(b) for a, b in pairs]))
