"""Limits of a search: when a walk ends, and how many distances it may compute."""

from math import inf
from operator import index as index_of
from typing import Any, NamedTuple, NoReturn

import numpy as np

from l2route.search.space import RoutingSpace

DEFAULT_BUDGET = 256
"""Default budget of a search without limits."""
MAX_K = 2**31 - 1
"""Largest k: the core counts answers in 32-bit integers."""
MAX_EF_WITH_SLACK = 2048
"""Widest beam of a search with a slack, and its default ef."""


class Limits(NamedTuple):  # immutable, and three times faster to make than a frozen dataclass
    """Limits of a search, per query. A walk ends at the first that it meets."""

    budget: int | None = None
    """Distance computations in units of the original dimension, rerank and projection included;
    never exceeded. Without budget, ef and slack it is 256, or twice the cost of rerank and
    projection if that is more."""
    ef: int | None = None
    """Beam width: the walk ends when the ef best vertices found are expanded. At least k and the
    vertices to rerank are kept in any case."""
    slack: float | None = None
    """The walk ends when the next vertex is farther than 1 + slack times the k-th best."""
    rerank: int | None = None
    """True distances at the end, in spaces whose scores are not true distances. Default: with a
    budget or without any limit the space's own `rerank`, at least k, and for learned spaces a
    tenth of the budget, or a 20th for k = 1; otherwise 2k with a slack, and the whole beam with an
    ef alone."""

    @property
    def is_budgeted(self) -> bool:
        """Whether the number of distance computations is bounded, by default or not."""
        budget, ef, slack, _ = self
        return budget is not None or (ef is None and slack is None)

    def resolve(self, space: RoutingSpace, k: int) -> tuple[int, int, int, float]:
        """Check the limits and fill in all defaults. It runs in every search, so it is fast.

        Args:
            space: the space that is searched.
            k: answers per query.

        Returns:
            Arguments of the core, counts capped at n + 1 for n vertices: maximum number of routing
            vectors to score; beam width, 0 for that number; number of true distances at the end, 0
            where routing scores are true distances; slack, −1 for none.
        """
        budget, ef, slack, rerank = self
        if not 1 <= k <= MAX_K:
            _refuse_k(k)
        if ef is not None:
            ef = check_ef(ef)
        if slack is not None:
            slack = _checked_slack(slack, ef, space)
            ef = ef or MAX_EF_WITH_SLACK
        if rerank is not None:
            rerank = _checked_rerank(rerank, space)
        elif space.is_exact:
            rerank = 0
        elif ef is None or budget is not None:
            rerank = space.default_rerank(k, DEFAULT_BUDGET if budget is None else budget)
        else:
            rerank = max(k, ef) if slack is None else 2 * k
        n = len(space.rows) + 1  # larger counts have no further effect
        has_budget = ef is None or budget is not None
        routing = _routing(budget, rerank, space) if has_budget else n - 1
        return (
            routing if routing < n else n,
            0 if ef is None else ef if ef < n else n,
            rerank if rerank < n else n,
            -1.0 if slack is None else slack,
        )

    def within(self, cap: int, space: RoutingSpace, k: int) -> "Limits":
        """These limits, and a budget of at most `cap`; what they leave open is as without it.

        Limits that no walk can exceed are returned as they are. By default rerank then takes at
        most half of the budget.

        Args:
            cap: distance computations per query that may be made.
            space: the space that is searched.
            k: answers per query.
        """
        rerank = self.resolve(space, k)[2]
        if self.budget is not None:
            budget = index_of(self.budget)
        elif self.is_budgeted:
            budget = default_budget(rerank, space.n_projection)
        else:
            budget = len(space.rows) + rerank + space.n_projection
        if budget <= cap:
            return self
        if self.rerank is None and not space.is_exact:
            return self._replace(budget=cap, rerank=min(rerank, max(k, cap // 2)))
        return self._replace(budget=cap)


NO_LIMITS = Limits()


def check_ef(ef: int) -> int:
    """The beam width as an int."""
    ef = index_of(ef)
    if ef < 1:
        raise ValueError(f"expected ef of at least 1, got {ef}")
    return ef


def check_alone(recall: float, limits: Limits) -> None:
    """Refuse limits given together with a recall, whose setting has limits of its own."""
    if limits != NO_LIMITS:
        given = limits._asdict().items()
        others = ", ".join(f"{name}={value}" for name, value in given if value is not None)
        raise ValueError(
            "expected a recall, or else budget, ef, slack and rerank, "
            f"got recall={recall} with {others}"
        )


def default_budget(rerank: int, n_projection: int) -> int:
    """The budget of a search without limits, of which rerank and projection take at most half."""
    return max(DEFAULT_BUDGET, 2 * (rerank + n_projection))


def left_for_routing(total: int, rerank: int, n_projection: int, routing_dim: int, dim: int) -> int:
    """Number of routing vectors that a total budget allows, after rerank and projection.

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
    """Cost in distance computations of the original dimension, of numbers or of arrays.

    Args:
        routing: routing vectors scored.
        rerank: true distances.
        n_projection: distance computations that mapping a query into the space costs.
        routing_dim: dimension of the routing vectors.
        dim: the original dimension.
    """
    return routing * np.float64(routing_dim) / dim + (n_projection + rerank)


def _refuse_k(k: int) -> NoReturn:
    if k < 1:
        raise ValueError(f"expected k of at least 1, got {k}")
    raise ValueError(f"expected k of at most {MAX_K}, got {k}")


def _checked_slack(slack: float, ef: int | None, space: RoutingSpace) -> float:
    if not 0 <= slack < inf:
        raise ValueError(f"expected a finite slack of at least 0, got {slack}")
    if ef is not None and ef > MAX_EF_WITH_SLACK:
        raise ValueError(f"expected ef of at most {MAX_EF_WITH_SLACK} with a slack, got {ef}")
    if space.origin is None:
        raise ValueError(
            "expected a space whose scores can be turned into distances for a slack, "
            f"got {space.name!r}"
        )
    return float(slack)


def _checked_rerank(rerank: int, space: RoutingSpace) -> int:
    """The given rerank, checked; 0 in spaces whose scores are true distances."""
    rerank = index_of(rerank)
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


def _routing(budget: int | None, rerank: int, space: RoutingSpace) -> int:
    """Number of routing vectors that a budget allows; None for the default budget."""
    n_projection = space.n_projection
    if budget is None:
        budget = default_budget(rerank, n_projection)
    return left_for_routing(index_of(budget), rerank, n_projection, space.dim, space.original_dim)
