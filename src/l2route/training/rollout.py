"""Walks of the agent and what they teach, batch by batch."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from l2route import _core
from l2route.graph import Graph
from l2route.memory import pad_rows
from l2route.models import RoutingModel
from l2route.oracle import HopOracle


@dataclass(frozen=True, slots=True)
class WalkOptions:
    """How the agent walks while it learns."""

    routing: int
    """Scores a walk may compute."""
    rerank: int
    """The paper's k."""
    temperature: float
    routing_weight: float
    topk_weight: float
    teacher_forcing: bool
    n_threads: int


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a batch of walks came to."""

    routing: float
    """Mean over walks of the sum of log P(v ∈ Ref(H))."""
    topk: float
    """Mean over walks that visited the target of log P(v* ∈ TopK)."""
    found: float
    """Share of walks that visited the target."""


class Rollouts:
    """Walks for training queries, and the gradient of the objective in a model's parameters.

    Args:
        graph: the graph to walk; upper layers are not used.
        queries: scaled training queries [n_queries, dim].
        oracle: hops to each query's target.
        options: how to walk.
    """

    def __init__(
        self, graph: Graph, queries: NDArray[np.float32], oracle: HopOracle, options: WalkOptions
    ) -> None:
        self.graph, self.oracle, self.options = graph, oracle, options
        self.queries = torch.from_numpy(queries)
        self._fixed: tuple[Tensor, NDArray[np.float32]] | None = None

    def teach(self, model: RoutingModel, batch: NDArray[np.int64], seed: int) -> Lesson:
        """Walk for a batch of queries and add the gradient of the loss to the model's `.grad`."""
        options = self.options
        vectors, bias = model.vertices()  # [n, width], [n]
        queries = self.queries[torch.from_numpy(batch)].to(vectors.device)
        routed = model.queries(queries)  # [batch, width]
        vertex_rows = self._vertex_rows(vectors)
        query_rows = pad_rows(_array(routed))
        blocks, block_of = np.unique(self.oracle.places.block_of[batch], return_inverse=True)
        walks = _core.rollout(
            neighbors=self.graph.neighbors,
            entries=self.graph.entries,
            vertex_rows=vertex_rows,
            bias=np.ascontiguousarray(_array(bias)),
            query_rows=query_rows,
            blocks=[self.oracle.block(int(block)) for block in blocks],
            block_of=block_of.astype(np.int32),
            target_of=self.oracle.places.column_of[batch],
            query_ids=batch,
            budget=options.routing,
            k=options.rerank,
            temperature=options.temperature,
            routing_weight=options.routing_weight,
            topk_weight=options.topk_weight,
            teacher_forcing=options.teacher_forcing,
            seed=seed,
            n_threads=options.n_threads,
        )
        offsets, vertices, slopes, routing, topk, _, is_found = walks
        share = -1.0 / len(batch)  # the loss is the negative objective, averaged over walks
        outputs, gradients = [], []
        if routed.requires_grad:
            rows = _core.query_gradient(
                offsets=offsets,
                vertices=vertices,
                slopes=slopes,
                vertex_rows=vertex_rows,
                n_threads=options.n_threads,
            )
            outputs.append(routed)
            gradients.append(_like(routed, rows[:, : routed.shape[1]]) * share)
        if vectors.requires_grad or bias.requires_grad:
            rows, sums = _core.vertex_gradient(
                offsets=offsets,
                vertices=vertices,
                slopes=slopes,
                query_rows=query_rows,
                n_vertices=self.graph.n_vertices,
                n_threads=options.n_threads,
            )
            for output, gradient in ((vectors, rows[:, : vectors.shape[1]]), (bias, sums)):
                if output.requires_grad:
                    outputs.append(output)
                    gradients.append(_like(output, gradient) * share)
        torch.autograd.backward(outputs, gradients)
        found = float(is_found.mean())
        return Lesson(float(routing.mean()), float(topk[is_found].mean()) if found else 0.0, found)

    def _vertex_rows(self, vectors: Tensor) -> NDArray[np.float32]:
        """Padded rows; those of a model with constant vertices are made once."""
        if vectors.requires_grad:
            return pad_rows(_array(vectors))
        if self._fixed is None or self._fixed[0] is not vectors:
            self._fixed = (vectors, pad_rows(_array(vectors)))
        return self._fixed[1]


def _array(tensor: Tensor) -> NDArray[np.float32]:
    """Values of a tensor wherever it is; walks are of the CPU."""
    values: NDArray[np.float32] = tensor.detach().cpu().numpy()
    return values


def _like(tensor: Tensor, values: NDArray[np.float32]) -> Tensor:
    """Values as a tensor where another one is."""
    return torch.from_numpy(values).to(tensor.device)


def batches(
    oracle: HopOracle, n_queries: int, batch_size: int, window: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    """Batches of queries without end, in a random order of epochs.

    Blocks of targets are taken `window` at a time, so that no more need be in memory; within a
    window queries come at random.
    """
    rng = np.random.default_rng(seed)
    block_of = oracle.places.block_of
    while True:
        order = rng.permutation(oracle.n_blocks)
        for begin in range(0, len(order), window):
            chosen = order[begin : begin + window]
            queries = rng.permutation(np.flatnonzero(np.isin(block_of, chosen)))
            oracle.prefetch(chosen.tolist())
            for start in range(0, len(queries), batch_size):
                batch = queries[start : start + batch_size]
                if len(batch) == batch_size or n_queries < batch_size or start == 0:
                    yield batch
