"""Rollouts with gradients: walks per second of training.

    python benchmarks/rollouts.py                              # random vectors, 100K × 100
    python benchmarks/rollouts.py --index glove100.l2r         # vectors and graph of a saved index

Walks are those of training: noisy, at a budget of 256 with 8 reranked, with the gradient of the
objective in every score, and in vertex vectors (a model that learns a vector per vertex) or in
queries (the filter, whose features are wider than the vectors). Medians over the repetitions.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from l2route.index import RoutingIndex, load
from l2route.search.space import original_space
from l2route.training.options import LearnOptions
from l2route.training.oracle import HopOracle
from l2route.training.problem import Problem, pose
from l2route.training.rollout import Rollouts, WalkOptions
from l2route.training.start import calibrate_sharpness, make_model


class Table(torch.nn.Module):
    """A learned vector and bias for every vertex; it starts at the base vectors."""

    def __init__(self, vectors: NDArray[np.float32], sharpness: float) -> None:
        super().__init__()
        halves = (vectors**2).sum(axis=1) / 2
        self.rows = torch.nn.Parameter(torch.from_numpy(sharpness * vectors))
        self.bias = torch.nn.Parameter(torch.from_numpy(sharpness * (halves.mean() - halves)))

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Vectors [n, dim] and biases [n]."""
        return self.rows, self.bias

    def queries(self, queries: Tensor) -> Tensor:
        """Queries unchanged [batch, dim]."""
        return queries


def random_index(n: int, dim: int) -> RoutingIndex:
    """Normal vectors with a decaying spectrum, in an NSW graph."""
    rng = np.random.default_rng(0)
    spread = 1 / np.sqrt(1 + np.arange(dim))
    vectors = rng.normal(size=(n, dim)).astype(np.float32) * spread
    return RoutingIndex.build(vectors, degree=16, entry=0, graph="nsw", refine=False)


def sample_queries(index: RoutingIndex, n: int) -> NDArray[np.float32]:
    """Base vectors plus noise [n, dim]."""
    rng = np.random.default_rng(1)
    vectors = index.base.vectors()
    chosen = vectors[rng.integers(len(vectors), size=n)]
    return (chosen + 0.1 * vectors.std() * rng.normal(size=chosen.shape)).astype(np.float32)


def walks_per_second(
    problem: Problem, model: object, options: LearnOptions, n_walks: int, n_repeats: int
) -> float:
    """Median over repetitions of one batch, all gradients included."""
    batch = np.arange(min(n_walks, len(problem.train)))
    oracle = HopOracle(problem.graph, problem.targets[batch].ravel(), max_blocks=len(batch))
    (goal,) = options.goals
    walk = WalkOptions.of(options, goal.budget - goal.rerank, goal.rerank, problem.base.dim)
    queries = problem.train[batch] * np.float32(problem.scale)
    rollouts = Rollouts(problem.graph, queries, problem.hidden[batch], oracle, walk)
    seconds = []
    for repeat in range(n_repeats + 1):  # the first one computes hops
        begin = time.perf_counter()
        rollouts.teach(model, batch, repeat)  # type: ignore[arg-type]
        seconds.append(time.perf_counter() - begin)
    return len(batch) / statistics.median(seconds[1:])


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--index", type=Path, help="a saved index, instead of random vectors")
    parser.add_argument("--vertices", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    index = (
        load(arguments.index)
        if arguments.index
        else random_index(arguments.vertices, arguments.dim)
    )
    options = LearnOptions(
        budget=256,
        rerank=8,
        n_threads=arguments.threads,
        learns_from_base=False,
    )
    graph = index.graph.entered_at(index.graph.entries)
    problem = pose(graph, index.base, sample_queries(index, 2 * arguments.batch), options)
    goals, plain = options.goals, original_space(index.base)
    sharpness = calibrate_sharpness(problem, goals, arguments.threads)
    vectors = np.ascontiguousarray(index.base.vectors()) * np.float32(problem.scale)
    models = {
        "a vector for each vertex": Table(vectors, sharpness),
        "filter": make_model(problem, options, goals, plain, sharpness),
    }
    torch.set_num_threads(1)
    print(f"{len(index):,} vertices × {index.dim}, {arguments.threads} threads")
    print("| model | width | walks/s |\n|---|---|---|")
    for name, model in models.items():
        width = model.vertices()[0].shape[1]  # type: ignore[operator]
        speed = walks_per_second(problem, model, options, arguments.batch, arguments.repeats)
        print(f"| {name} | {width} | {speed:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
