"""Indexes beyond one machine: shards on Ray, and learning which of them to ask."""

from l2route.cluster.batch import BatchSearcher
from l2route.cluster.cluster import Cluster
from l2route.cluster.errors import ClusterWarning, PartialError, QueueFullError
from l2route.cluster.merge import ClusterResult
from l2route.cluster.sharded import ShardedIndex

__all__ = [
    "BatchSearcher",
    "Cluster",
    "ClusterResult",
    "ClusterWarning",
    "PartialError",
    "QueueFullError",
    "ShardedIndex",
]
