"""The query log, split into queries to learn from and queries to measure on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
N_VALIDATION = 2000
"""Most validation queries."""
VALIDATION_SHARE = 0.2
"""Share of the distinct queries that validate, at the most."""
N_LEARN = 50_000
"""Most queries whose true neighbours are found, to learn from."""


@dataclass(frozen=True, slots=True)
class QuerySplit:
    """Distinct queries: first those to learn from, then those to measure on."""

    queries: Floats
    """[n, dim]"""
    n_learn: int
    """How many are for learning."""

    @property
    def validation(self) -> Floats:
        """Queries that nothing is learned from."""
        return self.queries[self.n_learn :]

    def of_shard(self, truth: NDArray[Any], shard: int) -> Floats:
        """Queries to learn from that have a true neighbour in a shard.

        Args:
            truth: ids and shards of the true neighbours [2, n, depth].
            shard: number of the shard.
        """
        has: NDArray[np.bool_] = (truth[1, : self.n_learn] == shard).any(axis=1)
        own: Floats = self.queries[: self.n_learn][has]
        return own


def split_queries(log: Floats, seed: int) -> QuerySplit:
    """Split the distinct queries of a log by chance."""
    distinct = np.unique(log, axis=0)
    if len(distinct) < 2:
        raise ValueError(f"expected at least 2 distinct queries, got {len(distinct)}")
    order = np.random.default_rng(seed).permutation(len(distinct))
    n_validation = max(1, min(N_VALIDATION, int(VALIDATION_SHARE * len(distinct))))
    chosen, held = order[n_validation:][:N_LEARN], order[:n_validation]
    return QuerySplit(np.ascontiguousarray(distinct[np.concatenate([chosen, held])]), len(chosen))
