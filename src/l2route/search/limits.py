"""Limits of a search: how long a walk goes on, and how many distances it may compute."""

from dataclasses import asdict, dataclass
from operator import index as index_of
from typing import Any, NamedTuple

import numpy as np

from l2route.search.space import RoutingSpace

DEFAULT_BUDGET = 256
"""Distance computations per query of a search without limits, and that learning is for."""
MAX_K = 2**31 - 1
"""Answers per query that the core can count."""
MAX_EF_WITH_SLACK = 2048
"""Widest beam of a search with a slack, and its beam where no ef is given."""


class CoreLimits(NamedTuple):
    """Limits as the core takes them: every default is filled in, none is beyond the graph."""

    routing: int
    """Routing vectors scored, at most."""
    beam: int
    """Beam width; 0 for as wide as `routing`."""
    rerank: int
    """True distances at the end; 0 where routing scores are true distances."""
    slack: float
    """How much farther than the k-th best a walk goes, as a share; −1 for no such limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a search, per query. A walk ends at the first that it meets."""

    budget: int | None = None
    """Distance computations in units of the original dimension, rerank and projection included;
    never exceeded. Without budget, ef and slack it is 256, or twice what rerank and projection take
    if that is more."""
    ef: int | None = None
    """Beam width: the walk ends when the ef best vertices found are expanded. At least k and the
    vertices to rerank are kept in any case."""
    slack: float | None = None
    """The walk ends when the next vertex is farther than 1 + slack times the k-th best."""
    rerank: int | None = None
    """True distances at the end, in spaces whose scores are not true distances. By default with a
    budget as many as the space asks for, and at least k; without one the whole beam, or with a
    slack 2k."""

    def resolve(self, space: RoutingSpace, k: int) -> CoreLimits:
        """Check the limits and fill in all defaults.

        Args:
            space: the space that is searched.
            k: answers per query.
        """
        _check_k(k)
        ef, slack = self._ef(), self._slack(space)
        n_rerank = self._n_rerank(space, k, ef)
        n = len(space.rows) + 1  # a larger limit is none
        n_routing = n - 1
        if self.budget is not None or ef is None:
            n_routing = min(n, self._n_routing(space, n_rerank))
        return CoreLimits(n_routing, min(n, ef or 0), min(n, n_rerank), slack)

    def _ef(self) -> int | None:
        """Beam width; None for none, which a slack does not have."""
        if self.ef is None:
            return None if self.slack is None else MAX_EF_WITH_SLACK
        ef = index_of(self.ef)
        if ef < 1:
            raise ValueError(f"expected ef of at least 1, got {ef}")
        if self.slack is not None and ef > MAX_EF_WITH_SLACK:
            raise ValueError(f"expected ef of at most {MAX_EF_WITH_SLACK} with a slack, got {ef}")
        return ef

    def _slack(self, space: RoutingSpace) -> float:
        if self.slack is None:
            return -1.0
        if not 0 <= self.slack < np.inf:
            raise ValueError(f"expected a finite slack of at least 0, got {self.slack}")
        if space.origin is None:
            raise ValueError(
                "expected a space whose scores can be turned into distances for a slack, "
                f"got {space.name!r}"
            )
        return float(self.slack)

    def _n_rerank(self, space: RoutingSpace, k: int, ef: int | None) -> int:
        if self.rerank is not None:
            return _checked_rerank(index_of(self.rerank), space)
        if space.is_exact:
            return 0
        if self.budget is not None or ef is None:
            return max(k, space.rerank)
        return max(k, ef) if self.slack is None else 2 * k

    def _n_routing(self, space: RoutingSpace, n_rerank: int) -> int:
        n_projection = space.n_projection
        total = self.budget
        if total is None:
            total = max(DEFAULT_BUDGET, 2 * (n_rerank + n_projection))
        return left_for_routing(
            index_of(total), n_rerank, n_projection, space.dim, space.original_dim
        )


def check_alone(recall: float, limits: Limits) -> None:
    """Refuse limits beside a recall, whose setting has limits of its own."""
    others = [f"{name}={value}" for name, value in asdict(limits).items() if value is not None]
    if others:
        raise ValueError(
            "expected a recall, or else budget, ef, slack and rerank, "
            f"got recall={recall} with {', '.join(others)}"
        )


def left_for_routing(total: int, rerank: int, n_projection: int, routing_dim: int, dim: int) -> int:
    """Routing vectors that a total budget pays for, after rerank and projection.

    In the paper's terms rDCS = C · (DCS − k − d) with C = D/d, and DCS − k without projection.

    Args:
        total: distance computations in the original dimension (the paper's DCS).
        rerank: true distances at the end (the paper's k).
        n_projection: distance computations that mapping a query into the space costs (d or 0).
        routing_dim: dimension of the routing vectors (d).
        dim: the original dimension (D).
    """
    routing = (total - rerank - n_projection) * dim // routing_dim
    if routing < 1:
        least = rerank + n_projection - (-routing_dim // dim)
        raise ValueError(
            f"expected a budget of at least {least}, with {rerank} for rerank and {n_projection} "
            f"for the projection, got {total}"
        )
    return routing


def spent(routing: Any, rerank: Any, n_projection: int, routing_dim: int, dim: int) -> Any:
    """Distance computations in units of the original dimension, as a number or as an array.

    Args:
        routing: routing vectors scored.
        rerank: true distances.
        n_projection: distance computations that mapping a query into the space costs.
        routing_dim: dimension of the routing vectors.
        dim: the original dimension.
    """
    return routing * np.float64(routing_dim) / dim + (n_projection + rerank)


def _check_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"expected k of at least 1, got {k}")
    if k > MAX_K:
        raise ValueError(f"expected k of at most {MAX_K}, got {k}")


def _checked_rerank(rerank: int, space: RoutingSpace) -> int:
    """What is reranked of a rerank that was asked for; nothing where scores are true distances."""
    if rerank < 0:
        raise ValueError(f"expected rerank of at least 0, got {rerank}")
    if space.is_exact:
        return 0
    if rerank < 1:
        raise ValueError(
            f"expected rerank of at least 1 in space {space.name!r}, whose scores are not true "
            f"distances, got {rerank}"
        )
    return rerank
