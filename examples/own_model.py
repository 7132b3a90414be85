"""A custom routing model: one class with two methods.

    python examples/own_model.py

This one moves every vector towards the mean of its neighbours, by a learned fraction per dimension,
and adds a learned constant to a vertex's score for each doubling of its in-degree.
"""

import argparse

import numpy as np
import torch
from torch import Tensor, nn

from l2route import RoutingIndex
from l2route.data.public import demo_words
from l2route.models.features import propagate
from l2route.models.protocol import unit_scale


class Surroundings(nn.Module):
    """Score α(⟨x + w∘(Ax − x), q⟩ − |x|²/2 + c·log₂(1 + in-degree)); w and c are learned."""

    def __init__(self, index: RoutingIndex, sharpness: float = 40.0) -> None:
        super().__init__()
        vectors = index.base.vectors() * unit_scale(index.base.vectors())
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
        """Queries unchanged [batch, dim]."""
        return queries


def main() -> None:
    """Train the model on word vectors and print the report."""
    parser = argparse.ArgumentParser(description="Train a custom model.")
    parser.add_argument("--vectors", type=int, default=10_000, help="vectors to search")
    parser.add_argument("--minutes", type=float, default=0.5, help="time limit of learning")
    given = parser.parse_args()
    data = demo_words(n_base=given.vectors, n_learn=4 * given.vectors, n_query=1).dataset
    index = RoutingIndex.build(data.base, degree=16, entry=0, refine=False)
    model = Surroundings(index)
    print(index.learn(data.learn, budget=128, model=model, minutes=given.minutes))


if __name__ == "__main__":
    main()
