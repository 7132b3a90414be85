"""A routing model of one's own: one class with two methods.

    python examples/own_model.py

This one moves every vector towards the mean of its neighbours, by a share per dimension that it
learns, and learns what a vertex gains for each doubling of the links that lead to it.
"""

import numpy as np
import torch
from torch import Tensor, nn

from l2route import RoutingIndex
from l2route.data.public import demo_words
from l2route.models.features import propagate


class Surroundings(nn.Module):
    """Score α(⟨x + w∘(Ax − x), q⟩ − |x|²/2 + c·log₂(links to v)); w and c are learned."""

    def __init__(self, index: RoutingIndex, sharpness: float = 40.0) -> None:
        super().__init__()
        vectors = np.ascontiguousarray(index.base.vectors())
        vectors /= np.sqrt((vectors**2).sum(axis=1).mean())
        links = index.graph.neighbors[index.graph.neighbors >= 0]
        n_links = np.bincount(links, minlength=len(vectors))
        self.sharpness = sharpness
        self.vectors = torch.from_numpy(vectors)
        self.steps = torch.from_numpy(propagate(index.graph, vectors) - vectors)
        self.halves = torch.from_numpy((vectors**2).sum(axis=1) / 2)
        self.popularity = torch.from_numpy(np.log2(1 + n_links).astype(np.float32))
        self.shares = nn.Parameter(torch.zeros(vectors.shape[1]))
        self.gain = nn.Parameter(torch.zeros(()))

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Vectors [n, dim] and biases [n]."""
        vectors = self.vectors + self.shares * self.steps
        return self.sharpness * vectors, self.sharpness * (
            self.gain * self.popularity - self.halves
        )

    def queries(self, queries: Tensor) -> Tensor:
        """Queries as they are [batch, dim]."""
        return queries


def main() -> None:
    """Learn with it on ten thousand words."""
    data = demo_words(n_base=10_000, n_learn=40_000, n_query=1_000).dataset
    index = RoutingIndex.build(data.base, degree=16, entry=0, refine=False)
    print(index.learn(data.learn, budget=128, model=Surroundings(index), minutes=0.5))


if __name__ == "__main__":
    main()
