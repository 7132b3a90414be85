"""Errors of searches and changes over shards."""


class ShardError(Exception):
    """A replica cannot open its shard: files are missing or damaged."""


class PartialError(RuntimeError):
    """Shards gave no answer, and an answer without them was not asked for."""


class QueueFullError(RuntimeError):
    """As many batches wait as may: the caller has to slow down."""


class ClusterWarning(UserWarning):
    """Shards have no room on the cluster, or are not ready yet."""
