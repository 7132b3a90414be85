"""Gain: what learning brought when it was done."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gain:
    """Recall@k of a learned space and of the plain one, when it was learned or compressed."""

    k: int
    """Answers per query."""
    budget: int
    """Total distance computations per query of the plain space."""
    routing: int
    """Routing vectors per query that the learned space scores."""
    rerank: int
    """True distances at the end of a search in the learned space."""
    pca_dim: int | None
    """Dimension of the plain space, by PCA; None for the original vectors."""
    plain: float
    """Recall@k of the plain space."""
    learned: float
    """Recall@k of the learned space."""

    def __post_init__(self) -> None:
        counts = (self.k, self.budget, self.routing, self.rerank, self.pca_dim or 1)
        if min(counts) < 1:
            raise ValueError(f"expected a gain with counts of at least 1, got {counts}")
