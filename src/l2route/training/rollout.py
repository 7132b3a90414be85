"""Walks for batches of training queries, and the gradient of the objective."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from l2route import _core
from l2route.graph.graph import Graph
from l2route.models.protocol import RoutingModel, ShiftedModel
from l2route.search.entry_rows import Starts
from l2route.search.layout import pad_rows
from l2route.search.searcher import MAX_THREADS
from l2route.training.options import LearnOptions
from l2route.training.oracle import HopOracle


@dataclass(frozen=True, slots=True)
class WalkOptions:
    """How walks are sampled and weighted; fields without a text are as in `LearnOptions`."""

    routing: int
    """Scores that a walk may compute."""
    k: int
    """The paper's k: the target has to be among the k best visited vertices."""
    temperature: float
    routing_weight: float
    topk_weight: float
    topk_sharpness: float
    teacher_forcing: bool
    n_threads: int

    @classmethod
    def of(
        cls, options: LearnOptions, routing: int, rerank: int, original_dim: int
    ) -> "WalkOptions":
        """Options of walks that compute `routing` scores and rerank `rerank` vertices."""
        shrinking = original_dim / (options.dim or original_dim)
        return cls(
            routing=routing,
            k=rerank,
            temperature=options.temperature,
            routing_weight=0.0 if options.objective == "topk" else 1.0,
            topk_weight=options.topk_weight * routing * shrinking,
            topk_sharpness=options.topk_sharpness,
            teacher_forcing=options.objective == "teacher",
            n_threads=min(options.n_threads, MAX_THREADS),
        )

    def core(self, seed: int) -> _core.RolloutOptions:
        """The options as the core takes them, with the seed of the noise."""
        return _core.RolloutOptions(
            budget=self.routing,
            k=self.k,
            temperature=self.temperature,
            routing_weight=self.routing_weight,
            topk_weight=self.topk_weight,
            topk_sharpness=self.topk_sharpness,
            teacher_forcing=self.teacher_forcing,
            seed=seed,
        )


@dataclass(frozen=True, slots=True)
class Lesson:
    """Means over a batch of walks."""

    routing: float
    """Mean over walks of the sum of log P(v ∈ Ref(H))."""
    topk: float
    """Mean over walks that visited the target of log P(v* ∈ TopK)."""
    found: float
    """Fraction of walks that visited the target."""
    kept: float
    """Fraction of these walks that have the target among the k best."""


class Rollouts:
    """Walks for training queries, and the gradient of the objective in a model's parameters.

    Args:
        graph: the graph; walks descend through its upper layers first.
        queries: scaled training queries [n_queries, dim].
        hidden: vertex hidden from each query's walk, −1 for none [n_queries].
        oracle: hops to the targets of all queries, n_targets per query in the order of the queries.
        options: for each target of a query the ways to walk to it, which take turns.
        starts: where the walk of each query starts; None for the graph's entry points.
    """

    def __init__(
        self,
        graph: Graph,
        queries: NDArray[np.float32],
        hidden: NDArray[np.int32],
        oracle: HopOracle,
        options: Sequence[Sequence[WalkOptions]],
        starts: Starts | None = None,
    ) -> None:
        self.graph, self.hidden, self.oracle, self.starts = graph, hidden, oracle, starts
        self.queries = torch.from_numpy(queries)
        self.n_targets = len(oracle.places.block_of) // len(queries)
        self.kinds = list(dict.fromkeys(each for ways in options for each in ways))
        self.kind_of = np.array([[self.kinds.index(each) for each in ways] for ways in options])
        self._fixed: tuple[Tensor, NDArray[np.float32]] | None = None
        self._places: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None

    def teach(self, model: RoutingModel, batch: NDArray[np.int64], seed: int) -> Lesson:
        """Walk for a batch and add the gradient of the loss to the model's `.grad`.

        Args:
            model: the model.
            batch: positions of targets [batch]; target i belongs to query i // n_targets.
            seed: seed of the noise.
        """
        vectors, bias = model.vertices()  # [n, width], [n]
        shifts = model.shifts() if isinstance(model, ShiftedModel) else None
        batch, parts = self._by_kind(batch)
        queries = self.queries[torch.from_numpy(batch // self.n_targets)].to(vectors.device)
        routed = model.queries(queries)  # [batch, width]
        vertex_rows, biases = self._vertex_rows(vectors, bias, shifts)
        scored = _core.Rows(vertex_rows, "ip", bias=biases)
        query_rows = pad_rows(_array(routed))
        walked = [
            self._walk(kind, scored, query_rows[part], batch[part], seed, routed.requires_grad)
            for kind, part in zip(self.kinds, parts, strict=True)
            if part.start < part.stop
        ]
        walks = _Walks.joined(walked)
        gradients = []
        if routed.requires_grad:
            gradients.append((routed, walks.query_gradient))
        if vectors.requires_grad or bias.requires_grad:
            rows, sums = walks.vertex_gradient(query_rows, self.graph.n_vertices)
            gradients += [(vectors, rows), (bias, sums)]
        if shifts is not None and shifts[1].requires_grad:
            ids, shift = shifts
            columns = pad_rows(query_rows[:, : shift.shape[1] - 1])
            rows, sums = walks.at(self._place_of(ids)).vertex_gradient(columns, len(ids))
            gradients.append((shift, np.column_stack([rows[:, : shift.shape[1] - 1], sums])))
        taught = [(output, gradient) for output, gradient in gradients if output.requires_grad]
        share = -1.0 / len(batch)  # the loss is the negative objective, averaged over walks
        torch.autograd.backward(
            [output for output, _ in taught],
            [_like(output, gradient) * share for output, gradient in taught],
        )
        return walks.lesson()

    def _by_kind(self, batch: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[slice]]:
        """The batch ordered by kind of walk, and the part of each kind."""
        n_ways = self.kind_of.shape[1]
        kinds = self.kind_of[batch % self.n_targets, np.arange(len(batch)) % n_ways]  # [batch]
        order = np.argsort(kinds, kind="stable")
        ends = np.searchsorted(kinds[order], np.arange(len(self.kinds) + 1)).tolist()
        return batch[order], [slice(*ends[kind : kind + 2]) for kind in range(len(self.kinds))]

    def _walk(
        self,
        options: WalkOptions,
        rows: _core.Rows,
        query_rows: NDArray[np.float32],
        batch: NDArray[np.int64],
        seed: int,
        with_query_gradient: bool,
    ) -> "_Walks":
        places = self.oracle.places
        blocks, block_of = np.unique(places.block_of[batch], return_inverse=True)
        targets = _core.Targets(
            [self.oracle.block(int(block)) for block in blocks],
            block_of.astype(np.int32),
            places.column_of[batch],
        )
        walks = _core.rollout(
            self.graph.core,
            rows,
            query_rows,
            targets,
            options.core(seed),
            query_ids=batch,
            hidden=self.hidden[batch // self.n_targets],
            with_query_gradient=with_query_gradient,
            n_threads=options.n_threads,
            starts=self._starts_of(batch // self.n_targets, options.routing),
        )
        return _Walks(*walks, options.n_threads)

    def _starts_of(
        self, queries: NDArray[np.int64], budget: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]] | None:
        """Where the walks of queries start, and its cost, by the rule of searches."""
        starts = self.starts
        if starts is None or starts.max_cost >= budget:
            return None
        return starts.vertices[queries], starts.costs[queries]

    def _vertex_rows(
        self, vectors: Tensor, bias: Tensor, shifts: tuple[NDArray[np.int64], Tensor] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Padded rows and biases; constant rows are padded once, then only shifted."""
        if vectors.requires_grad:
            return pad_rows(_array(vectors)), np.ascontiguousarray(_array(bias))
        if self._fixed is None or self._fixed[0] is not vectors:
            self._fixed = (vectors, pad_rows(_array(vectors)))
        rows, biases = self._fixed[1], _array(bias).copy()
        if shifts is not None:
            ids, shift = shifts[0], _array(shifts[1])
            width = shift.shape[1] - 1
            rows[ids, :width] = _array(vectors[torch.from_numpy(ids), :width]) + shift[:, :-1]
            biases[ids] += shift[:, -1]
        return rows, biases

    def _place_of(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """Position of each vertex in `ids`, −1 if it is not there [n]; computed once."""
        if self._places is None or self._places[0] is not ids:
            places = np.full(self.graph.n_vertices, -1, dtype=np.int32)
            places[ids] = np.arange(len(ids), dtype=np.int32)
            self._places = (ids, places)
        return self._places[1]


@dataclass(frozen=True, slots=True)
class _Walks:
    """Visits of a batch and their gradients; those of query i are [offsets[i], offsets[i + 1])."""

    offsets: NDArray[np.int64]
    vertices: NDArray[np.int32]
    gradients: NDArray[np.float32]
    routing: NDArray[np.float32]
    topk: NDArray[np.float32]
    n_steps: NDArray[np.int32]
    is_found: NDArray[np.bool_]
    is_kept: NDArray[np.bool_]
    query_gradient: NDArray[np.float32]
    """Sum over each query's visits of gradient times vertex row [n_queries, width]."""
    n_threads: int

    @classmethod
    def joined(cls, parts: Sequence["_Walks"]) -> "_Walks":
        """Walks of several parts of a batch, one after the other."""
        if len(parts) == 1:
            return parts[0]
        counts = np.concatenate([np.diff(part.offsets) for part in parts])
        arrays = {
            each.name: np.concatenate([getattr(part, each.name) for part in parts])
            for each in fields(cls)
            if each.name not in ("offsets", "n_threads")
        }
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return cls(offsets=offsets, n_threads=parts[0].n_threads, **arrays)

    def at(self, place_of: NDArray[np.int32]) -> "_Walks":
        """Only the visits of vertices with a position in `place_of` [n], renumbered by it."""
        places = place_of[self.vertices]  # [n_visits]
        kept = places >= 0
        n_kept = np.concatenate([[0], np.cumsum(kept)])  # [n_visits + 1]
        return replace(
            self,
            offsets=n_kept[self.offsets],
            vertices=places[kept],
            gradients=self.gradients[kept],
        )

    def vertex_gradient(
        self, query_rows: NDArray[np.float32], n_vertices: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Sums of gradient times query row [n_vertices, width] and of gradients [n_vertices]."""
        return _core.vertex_gradient(
            offsets=self.offsets,
            vertices=self.vertices,
            gradients=self.gradients,
            query_rows=query_rows,
            n_vertices=n_vertices,
            n_threads=self.n_threads,
        )

    def lesson(self) -> Lesson:
        """Means over the walks."""
        found = self.is_found
        if not found.any():
            return Lesson(float(self.routing.mean()), 0.0, 0.0, 1.0)
        return Lesson(
            routing=float(self.routing.mean()),
            topk=float(self.topk[found].mean()),
            found=float(found.mean()),
            kept=float(self.is_kept[found].mean()),
        )


def _array(tensor: Tensor) -> NDArray[np.float32]:
    """Values of a tensor on the CPU, where walks run."""
    values: NDArray[np.float32] = tensor.detach().cpu().numpy()
    return values


def _like(tensor: Tensor, values: NDArray[np.float32]) -> Tensor:
    """Values as a tensor on another one's device, without the padding of rows."""
    columns = values[:, : tensor.shape[1]] if tensor.ndim > 1 else values
    return torch.from_numpy(columns).to(tensor.device)


def batches(
    oracle: HopOracle, n_targets: int, batch_size: int, window: int, *, seed: int, first: int = 0
) -> Iterator[NDArray[np.int64]]:
    """Endless batches of targets, each epoch in a random order.

    Blocks of targets are taken `window` at a time, so that no more have to be in memory; within a
    window the order is random.

    Args:
        oracle: hops, by blocks of targets.
        n_targets: number of targets of all queries.
        batch_size: targets per batch.
        window: blocks held in memory at once.
        seed: seed of the order.
        first: number of batches to skip; hops that only they need are not computed.
    """
    rng = np.random.default_rng(seed)
    block_of = oracle.places.block_of
    while True:
        order = rng.permutation(oracle.n_blocks)
        for begin in range(0, len(order), window):
            chosen = order[begin : begin + window]
            queries = rng.permutation(np.flatnonzero(np.isin(block_of, chosen)))
            n_batches = -(-len(queries) // batch_size)
            if len(queries) % batch_size and n_batches > 1 and n_targets >= batch_size:
                n_batches -= 1  # the last batch would be smaller: skipped
            if first >= n_batches:
                first -= n_batches
                continue
            oracle.prefetch(chosen.tolist())
            for number in range(first, n_batches):
                yield queries[number * batch_size : (number + 1) * batch_size]
            first = 0
