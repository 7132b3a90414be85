"""A routing model of one's own: one class with two methods.

    python examples/own_model.py

This one scales every dimension and gives every vertex a bias of its own. It is too simple to beat
the plain graph (the index then stays as it was); it shows what is needed.
"""

import numpy as np
import torch
from torch import Tensor, nn

from l2route import RoutingIndex
from l2route.datasets import demo_words


class ScaledVectors(nn.Module):
    """Score ⟨α·w∘x, q⟩ + b: weights per dimension, a bias per vertex."""

    def __init__(self, vectors: np.ndarray, sharpness: float = 40.0) -> None:
        super().__init__()
        length = np.sqrt((vectors**2).sum(axis=1).mean())
        self.scaled = torch.from_numpy(vectors / length * sharpness)
        self.weights = nn.Parameter(torch.ones(vectors.shape[1]))
        self.bias = nn.Parameter(torch.zeros(len(vectors)))

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Vectors [n, dim] and biases [n]."""
        return self.scaled * self.weights, self.bias

    def queries(self, queries: Tensor) -> Tensor:
        """Queries as they are [batch, dim]."""
        return queries


def main() -> None:
    """Learn with it on a few thousand words."""
    data = demo_words(n_base=10_000, n_learn=10_000, n_query=1_000).dataset
    index = RoutingIndex.build(data.base)
    report = index.learn(data.learn, budget=128, model=ScaledVectors(data.base), minutes=0.5)
    print(f"validation recall@1 at 128: {report.plain:.3f} plain, {report.learned:.3f} learned")


if __name__ == "__main__":
    main()
