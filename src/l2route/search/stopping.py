"""Learned stopping: a rule that chooses a slack for each query, from its walk so far.

A rule has levels, slacks from short to long. When a walk has met one, the rule estimates from a few
features how many of the k nearest neighbours are missing, and how many more vectors the next levels
would score. The walk ends where `power · log(missing) − log(vectors)` is below a threshold: it goes
on where much is missing, or where going on is cheap.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index as index_of
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.search.searcher import Searcher, check_queries, check_threads

FEW_WALKS = 500
"""Fewer queries are refused: the rule would be noise."""
N_WALKS = 8000
"""Maximum number of queries that a rule is learned from."""
N_LEVELS = 20
"""Levels of a rule."""
HORIZON = 5
"""Levels ahead whose cost is estimated."""
N_SCOUTS = 400
"""Queries by which the range of slacks is chosen."""
SCOUTED = 0.005 * 1.15 ** np.arange(40)
"""Slacks to choose the range from."""
FOUND = (0.85, 0.998)
"""Share of what the longest walks find at the first level, and at the last."""
MOST_DEVIATIONS = 4.0
"""Features are clipped to so many standard deviations, as in cpp/search/stopping.hpp."""
RIDGE = 1.0
"""Penalty of squared weights, in rows."""
N_STEPS = 20
"""Maximum number of Newton steps."""

ARRAYS = ("slacks", "centre", "scale", "missing", "cost")
"""Fields of a rule that are several numbers."""
Floats = NDArray[np.float64]
RuleKey = tuple[str, int]
"""Space and k of a rule."""


class FewWalksError(ValueError):
    """A log has too few queries to learn from, or too few whose walks find k vertices."""


@dataclass(frozen=True)  # without slots: what was made for the core is kept
class StoppingRule:
    """When walks in one space for k answers end; see the module."""

    space: str
    """Name of the routing space."""
    k: int
    """Answers per query."""
    slacks: tuple[float, ...]
    """Slacks of the levels, ascending."""
    centre: tuple[float, ...]
    """Mean of each feature."""
    scale: tuple[float, ...]
    """Standard deviation of each feature, above 0."""
    missing: tuple[float, ...]
    """Weights of the logarithm of the number of missing neighbours, by term."""
    cost: tuple[float, ...]
    """Weights of the logarithm of the number of vectors that HORIZON levels score, by term."""
    _made: dict[tuple[float, float, int], _core.StopRule] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        n, n_terms = _core.N_STOP_FEATURES, _core.N_STOP_TERMS
        lengths = tuple(map(len, (self.centre, self.scale, self.missing, self.cost)))
        if lengths != (n, n, n_terms, n_terms) or not self.slacks or self.k < 1:
            got = f"{lengths}, {len(self.slacks)} slacks and k of {self.k}"
            expected = f"a rule of {n} features and {n_terms} terms with slacks and k of at least 1"
            raise ValueError(f"expected {expected}, got {got}")
        numbers = np.array([*self.centre, *self.scale, *self.missing, *self.cost, *self.slacks])
        if not np.isfinite(numbers).all() or (np.abs(numbers) > 1e30).any():
            raise ValueError("expected finite numbers in a stopping rule, got others")
        if min(self.scale) < 1e-30 or min(self.slacks) < 0 or (np.diff(self.slacks) < 0).any():
            raise ValueError("expected scales above 0 and ascending slacks, got others")

    @property
    def key(self) -> RuleKey:
        """What the rule is for."""
        return self.space, self.k

    def weights(self, power: float) -> Floats:
        """Weights of the terms of `power · log(missing) − log(vectors)` [n_terms]."""
        return np.asarray(power * np.array(self.missing) - np.array(self.cost))

    def values(self, features: NDArray[np.float32], power: float) -> Floats:
        """What is compared with a threshold [...], of features [..., n_features]."""
        rows = terms(_standard(features, self.centre, self.scale))
        return np.asarray(rows @ self.weights(power))

    def core_of(self, threshold: float | None, power: float, first: int) -> _core.StopRule | None:
        """The rule for the core; None without a threshold."""
        return None if threshold is None else self.core(threshold, power, first)

    def core(self, threshold: float, power: float, first: int) -> _core.StopRule:
        """The rule for the core, made once.

        Args:
            threshold: walks end where the value is below.
            power: weight of what is missing against cost.
            first: the level that walks begin with.
        """
        key = (threshold, power, first)
        if key not in self._made:
            factors = _factors(self.slacks)
            weights = self.weights(power).tolist()
            self._made[key] = _core.StopRule(
                factors, self.centre, self.scale, weights, threshold, min(first, len(factors) - 1)
            )
        return self._made[key]

    def entry(self) -> dict[str, Any]:
        """The rule as a dict of plain values, for meta.json."""
        arrays = {name: list(getattr(self, name)) for name in ARRAYS}
        return {"space": self.space, "k": self.k, **arrays}

    @classmethod
    def of_entry(cls, entry: dict[str, Any]) -> "StoppingRule":
        """The inverse of `entry`."""
        arrays = {name: tuple(map(float, entry[name])) for name in ARRAYS}
        return cls(str(entry["space"]), int(entry["k"]), **arrays)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Walks at every level."""

    features: NDArray[np.float32]
    """[n_queries, n_levels, n_features]"""
    n_scored: NDArray[np.int32]
    """[n_queries, n_levels]"""
    best: NDArray[np.int32]
    """Row numbers of the vertices that would be reranked [n_queries, n_levels, n_best]."""

    @property
    def are_described(self) -> NDArray[np.bool_]:
        """Which walks met their levels [n_queries]: others found fewer than k vertices."""
        return np.asarray(self.features.any(axis=(1, 2)))


def record(
    searcher: Searcher,
    queries: NDArray[np.float32],
    slacks: Sequence[float],
    k: int,
    rerank: int,
    n_threads: int = 0,
) -> Recorded:
    """Walk with queries through all levels.

    Args:
        searcher: the searcher, whose space has distances.
        queries: [n_queries, dim].
        slacks: slacks of the levels, ascending.
        k: answers per query.
        rerank: true distances at the end; 0 where routing scores are true distances.
        n_threads: threads to use; 0 for all cores.
    """
    factors = _factors(slacks)
    found = _core.record_walks(searcher.core, queries, factors, k, rerank, n_threads)
    return Recorded(*found)


def learn_rule(
    searcher: Searcher, queries: object, k: int = 10, *, seed: int = 0, n_threads: int = 0
) -> StoppingRule:
    """Learn when walks should end from queries, without their true neighbours.

    What the longest walk finds takes the place of the true neighbours.

    Args:
        searcher: the searcher, whose space must have distances.
        queries: queries like those of later searches, at least 500 [n_queries, dim].
        k: answers per query.
        seed: seed of the choice of queries, if there are more than 8,000.
        n_threads: threads to walk with; 0 for all cores.
    """
    rows = check_queries(queries, searcher.base.dim)
    k, n_threads = index_of(k), check_threads(n_threads)
    if len(rows) < FEW_WALKS:
        got = len(rows)
        raise FewWalksError(f"expected at least {FEW_WALKS} queries to learn from, got {got}")
    if searcher.space.origin is None:
        name = searcher.space.name
        raise ValueError(f"expected a space whose scores can be turned into distances, got {name}")
    if not 1 <= k <= len(searcher.base.rows):
        raise ValueError(f"expected k in [1, {len(searcher.base.rows)}], got {k}")
    order = np.random.default_rng(seed).permutation(len(rows))[:N_WALKS]
    chosen = np.ascontiguousarray(rows[order])
    rerank = 0 if searcher.space.is_exact else 2 * k
    slacks = _range(searcher, chosen[:N_SCOUTS], k, rerank, n_threads)
    walks = record(searcher, chosen, slacks, k, rerank, n_threads)
    missing = _missing(searcher, chosen, walks.best, k)
    return _fitted(searcher.space.name, k, slacks, walks, missing)


def _range(
    searcher: Searcher, queries: NDArray[np.float32], k: int, rerank: int, n_threads: int
) -> list[float]:
    """Slacks of the levels, and of HORIZON more, from some that find little on."""
    walks = record(searcher, queries, SCOUTED.tolist(), k, rerank, n_threads)
    found = 1 - _missing(searcher, queries, walks.best, k).mean(axis=0) / k
    low = SCOUTED[max(int((found >= FOUND[0]).argmax()) - 1, 0)]
    high = max(SCOUTED[int((found >= FOUND[1]).argmax())], 2 * low)
    step = (high / low) ** (1 / (N_LEVELS - 1))
    return [float(low * step**level) for level in range(N_LEVELS + HORIZON)]


def _missing(
    searcher: Searcher, queries: NDArray[np.float32], best: NDArray[np.int32], k: int
) -> Floats:
    """Neighbours that each level has not found, of those found at the last [n_queries, n_levels].

    Args:
        searcher: the searcher.
        queries: [n_queries, dim].
        best: vertices that would be reranked [n_queries, n_levels, n_best].
        k: answers per query.
    """
    last = best[:, -1]
    distances = searcher.base.exact_distances(queries, last.astype(np.int64))
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    wanted = np.take_along_axis(last, order, axis=1)  # [n_queries, k]
    n_found = np.zeros(best.shape[:2])
    for rank in range(k):
        n_found += (best == wanted[:, rank, None, None]).any(axis=2) & (wanted[:, rank, None] >= 0)
    return np.asarray((wanted >= 0).sum(axis=1)[:, None] - n_found)


def _fitted(
    space: str, k: int, slacks: Sequence[float], walks: Recorded, missing: Floats
) -> StoppingRule:
    """The rule that recorded walks show; those that no level ends are left out."""
    levels, known = slice(0, N_LEVELS), walks.are_described
    if known.sum() < FEW_WALKS:
        expected = f"at least {FEW_WALKS} queries whose walks find {k} vertices"
        raise FewWalksError(f"expected {expected}, got {known.sum()} of {len(known)}")
    features = walks.features[known, levels].reshape(-1, walks.features.shape[2])
    centre = features.mean(axis=0, dtype=np.float64)
    scale = np.maximum(features.std(axis=0, dtype=np.float64), 1e-6)
    rows = terms(_standard(features, centre, scale))  # [n_queries · N_LEVELS, n_terms]
    more = walks.n_scored[known, HORIZON:] - walks.n_scored[known, :-HORIZON]
    return StoppingRule(
        space,
        k,
        tuple(slacks[levels]),
        tuple(centre.tolist()),
        tuple(scale.tolist()),
        tuple(_poisson(rows, missing[known, levels].ravel()).tolist()),
        tuple(_least_squares(rows, np.log1p(more[:, levels].ravel())).tolist()),
    )


def terms(features: Floats) -> Floats:
    """1, each feature, and each product of two [..., n_terms], of features [..., n_features]."""
    first, second = np.triu_indices(features.shape[-1])
    ones = np.ones((*features.shape[:-1], 1))
    return np.concatenate([ones, features, features[..., first] * features[..., second]], axis=-1)


def _standard(features: NDArray[np.float32], centre: Any, scale: Any) -> Floats:
    deviations = (features - np.asarray(centre)) / np.asarray(scale)
    return np.asarray(np.clip(deviations, -MOST_DEVIATIONS, MOST_DEVIATIONS), dtype=np.float64)


def _poisson(rows: Floats, counts: Floats) -> Floats:
    """Weights by which exp(rows · weights) is the mean of counts, by Newton's method."""
    weights = np.zeros(rows.shape[1])
    weights[0] = np.log(max(counts.mean(), 1e-6))
    for _ in range(N_STEPS):
        means = np.exp(np.clip(rows @ weights, -14, 7))
        slope = rows.T @ (counts - means) - RIDGE * weights
        curvature = (rows * means[:, None]).T @ rows + RIDGE * np.eye(len(weights))
        step = np.clip(np.linalg.solve(curvature, slope), -1, 1)
        weights += step
        if np.abs(step).max() < 1e-4:
            break
    return weights


def _least_squares(rows: Floats, values: Floats) -> Floats:
    square = rows.T @ rows + RIDGE * np.eye(rows.shape[1])
    return np.asarray(np.linalg.solve(square, rows.T @ values), dtype=np.float64)


def _factors(slacks: Sequence[float]) -> list[float]:
    """Factors of squared distances."""
    return [min((1 + slack) ** 2, 1e30) for slack in slacks]
