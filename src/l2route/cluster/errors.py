"""Errors of searches and changes over shards."""

import numpy as np
from numpy.typing import NDArray


class ShardError(Exception):
    """A replica cannot open its shard: files are missing or damaged."""


class LateError(Exception):
    """A change came after its deadline, or after that of another writer, and is not made."""


class PartialError(RuntimeError):
    """Shards gave no answer, and an answer without them was not asked for.

    Args:
        message: which shards, and why.
        ids: of an `add`, the ids that its vectors have in shards that did answer, or still will.
    """

    def __init__(self, message: str, ids: NDArray[np.int64] | None = None) -> None:
        super().__init__(message)
        self.ids = ids


class QueueFullError(RuntimeError):
    """As many batches wait as may: the caller has to slow down."""


class ClusterWarning(UserWarning):
    """Shards have no room on the cluster, or are not ready yet."""
