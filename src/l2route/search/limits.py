"""What a search may spend."""

from dataclasses import dataclass
from operator import index as index_of
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Budget:
    """Distance computations one query may spend, in units of the original dimension."""

    routing: int
    """Distances computed between the query and routing vectors while walking."""
    rerank: int = 0
    """Walked vertices whose true distance is computed at the end."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "routing", index_of(self.routing))
        object.__setattr__(self, "rerank", index_of(self.rerank))
        if self.routing < 1 or self.rerank < 0:
            raise ValueError(
                f"expected routing of at least 1 and rerank of at least 0, "
                f"got {self.routing} and {self.rerank}"
            )

    @classmethod
    def of_total(
        cls, total: int, dim: int, routing_dim: int, rerank: int = 0, projected: bool | None = None
    ) -> "Budget":
        """Spend a total on rerank and projection first and on routing what is left.

        In the paper's terms rDCS = C · (DCS − k − d) with C = D/d, and DCS − k without projection.

        Args:
            total: distance computations in the original dimension (the paper's DCS).
            dim: the original dimension D.
            routing_dim: the routing dimension d.
            rerank: vertices to rerank (the paper's k).
            projected: whether the query is multiplied by a d×D matrix; by default if d ≠ D.
        """
        left = total - rerank - _projection(dim, routing_dim, projected)
        routing = left * dim // routing_dim
        if routing < 1:
            raise ValueError(
                f"expected a budget that leaves something to route with after {rerank} for rerank "
                f"and {_projection(dim, routing_dim, projected)} for the projection, got {total}"
            )
        return cls(routing, rerank)

    def cost(self, dim: int, routing_dim: int, projected: bool | None = None) -> float:
        """What spending all of it costs, in distance computations of the original dimension."""
        projection = _projection(dim, routing_dim, projected)
        return float(spent(self.routing, self.rerank, projection, routing_dim, dim))


def spent(routing: Any, rerank: Any, projection: int, routing_dim: int, dim: int) -> Any:
    """Distance computations in units of the original dimension, of numbers or of arrays.

    Args:
        routing: routing vectors scored.
        rerank: true distances.
        projection: what mapping a query into the space costs.
        routing_dim: the routing dimension.
        dim: the original dimension.
    """
    return routing * np.float64(routing_dim) / dim + (projection + rerank)


def _projection(dim: int, routing_dim: int, projected: bool | None) -> int:
    is_projected = routing_dim != dim if projected is None else projected
    return routing_dim if is_projected else 0
