"""The training loop: walk, learn, validate, keep the best."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from l2route.features import principal_axes, vertex_features
from l2route.models import GraphFilter, RoutingModel, space_of
from l2route.networks import FeedForward, FilterNetwork, GraphNetwork
from l2route.oracle import HopOracle
from l2route.spaces import BaseVectors, RoutingSpace, original_space, pca_space, with_origin
from l2route.training.aim import Aim
from l2route.training.checkpoint import read_checkpoint, write_checkpoint
from l2route.training.log import Event, event_log
from l2route.training.options import LearnOptions
from l2route.training.problem import (
    Problem,
    calibrate_sharpness,
    find_crossroads,
    max_blocks,
)
from l2route.training.rollout import Lesson, Rollouts, WalkOptions, batches

WARM_UP = 0.05
"""Share of the steps in which the step size rises."""
PLATEAU = 0.3
"""Share of the steps after which it falls."""
AVERAGING = 0.99
"""Decay of the average of weights that is validated and kept."""
FILTER_WALKS, NETWORK_WALKS = 500, 4000
"""Walks per step, of the filter and of models over the whole graph."""
MIN_STEPS = 2000
"""Steps that few queries are learned from, however many passes that is."""
N_VALIDATIONS = 20
"""Times that a run is validated."""


@dataclass(frozen=True, slots=True)
class Report:
    """What learning came to; recalls are recall@k on validation queries at the total budget."""

    plain: float
    """Of the space that was there before: original vectors, or PCA of the same dimension."""
    learned: float
    """Of the best state of the model."""
    n_steps: int
    seconds: float
    sharpness: float
    is_better: bool
    """Whether the learned space beats the plain one, and is to be used."""
    budget: int
    """Total distance computations that were learned for."""
    rerank: int
    """Of the budget, true distances at the end."""
    share: float = 1.0
    """How far from the start to the best state the space is: all the way, if not for a recall."""
    cost: float | None = None
    """Bytes that searches read at the recall that was learned for, in those of the plain space."""


def make_model(
    problem: Problem, options: LearnOptions, plain: RoutingSpace, sharpness: float
) -> nn.Module:
    """The model that the options name, started so that it ranks like the plain space."""
    vectors = np.ascontiguousarray(problem.base.vectors()) * np.float32(problem.scale)
    shared: dict[str, Any] = {
        "seed": options.seed,
        "query_matrix": plain.query_matrix,
        "scorer": plain.scorer,
        **({} if options.hidden_dim is None else {"hidden_dim": options.hidden_dim}),
    }
    if options.model == "ffn":
        return FeedForward(vectors, plain.dim, sharpness, **shared)
    if options.model == "gcn":
        return GraphNetwork(vectors, problem.graph.neighbors, plain.dim, sharpness, **shared)
    axes = principal_axes(vectors)
    turned = np.asarray(vectors @ axes, dtype=np.float32)
    is_projected = plain.query_matrix is not None
    features = vertex_features(problem.graph, turned, with_products=is_projected)
    if options.hidden_dim is not None:
        return FilterNetwork(features.rows, vectors, plain.dim, sharpness, **shared)
    crossroads = find_crossroads(problem, options)
    return GraphFilter(
        features, vectors, axes, sharpness, plain.query_matrix, plain.scorer, crossroads
    )


def plain_space(base: BaseVectors, dim: int | None) -> RoutingSpace:
    """What is there without learning: the original vectors, or PCA to fewer dimensions."""
    return original_space(base) if dim is None or dim == base.dim else pca_space(base, dim)


def learn_space(
    problem: Problem,
    options: LearnOptions,
    *,
    model: RoutingModel | None = None,
    checkpoint: Path | None = None,
    log: Path | None = None,
    cache: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> tuple[RoutingSpace, Report]:
    """Learn a routing space.

    Args:
        problem: queries with their neighbours.
        options: how to learn.
        model: a model of one's own, in place of the one that options name.
        checkpoint: file to save the state in at every validation, and to go on from if it exists.
        log: file to append an event per validation to, as JSON lines; TensorBoard's go beside it.
        cache: directory to keep the hops to all targets in, half a byte per target and vertex.
        on_event: told of every validation.

    Returns:
        The best space by validation recall, or between it and the start the one of least cost at
        the recall that is learned for, and how it did.
    """
    begin = time.perf_counter()
    if options.dim is not None and options.dim > problem.base.dim:
        raise ValueError(f"expected dim of at most {problem.base.dim}, got {options.dim}")
    plain = plain_space(problem.base, options.dim)
    aim = None if options.recall is None else Aim(problem, plain, options)
    options = options if aim is None else aim.options
    sharpness = options.sharpness or calibrate_sharpness(problem, options)
    learner = make_model(problem, options, plain, sharpness) if model is None else model
    if not isinstance(learner, RoutingModel) or not isinstance(learner, nn.Module):
        raise ValueError("expected a model with the methods vertices and queries, an nn.Module")
    is_small = isinstance(learner, GraphFilter)
    if not is_small and torch.cuda.is_available():
        learner.to("cuda")
    with torch_threads(1 if is_small else 0):
        run = Run(problem, options, learner, checkpoint, cache)
        before = problem.recall(plain, options)
        with event_log(log) as write:
            for event in run.events():
                write(event)
                if on_event is not None:
                    on_event(event)
        share, cost = (1.0, None) if aim is None else aim.cheapest(run.space_at)
        space = run.space_at(share)
    report = Report(
        plain=before,
        learned=run.best,
        n_steps=run.step,
        seconds=time.perf_counter() - begin,
        sharpness=sharpness,
        is_better=run.best > before if cost is None else cost < 1,
        budget=options.budget,
        rerank=options.rerank,
        share=share,
        cost=cost,
    )
    return space, report


@contextmanager
def torch_threads(n_threads: int) -> Iterator[None]:
    """Threads of torch for the length of a block; 0 leaves them.

    A filter's matrices are small: a second thread would spend its time waiting, and the walks have
    threads of their own.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Run:
    """The state of a run: model, averages, optimizer, best so far."""

    def __init__(
        self,
        problem: Problem,
        options: LearnOptions,
        model: Any,
        checkpoint: Path | None,
        cache: Path | None,
    ) -> None:
        self.problem, self.options, self.model = problem, options, model
        self.checkpoint = checkpoint
        self.digest = "" if checkpoint is None else problem.digest()
        dim = problem.base.dim
        self.dim = options.dim or dim
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.start = [p.detach().clone() for p in self.parameters]
        self.optimizer = self._fresh_optimizer()
        self.average = [p.detach().clone() for p in self.parameters]
        self.kept = [p.detach().clone() for p in self.parameters]
        self.best = -1.0
        self.peak = options.learning_rate
        self.step, self.spent = 0, 0.0
        if checkpoint is not None and checkpoint.exists():
            self._restore(read_checkpoint(checkpoint, asdict(options), self.digest))
        window = max_blocks(problem.graph)
        targets = problem.targets.ravel()
        n_threads = options.n_threads
        oracle = HopOracle(
            problem.graph, targets, cache=cache, max_blocks=window, n_threads=n_threads
        )
        routing = self._space().budget(options.budget, dim, options.rerank)
        self.rollouts = Rollouts(
            problem.graph,
            problem.train * np.float32(problem.scale),
            problem.hidden,
            oracle,
            WalkOptions.of(options, routing.routing, dim),
        )
        batch_size = options.batch_size or (
            FILTER_WALKS if isinstance(model, GraphFilter) else NETWORK_WALKS
        )
        self.batches = batches(oracle, len(targets), batch_size, window, options.seed)
        self.max_steps = max(MIN_STEPS, options.epochs * len(problem.train) / batch_size)
        for _ in range(self.step):  # a run that goes on goes on with the next batch
            next(self.batches)

    def events(self) -> Iterator[Event]:
        """Take all steps, validating now and then."""
        started = time.perf_counter() - self.spent
        if self.best < 0:
            self._keep_if_better()
        while (share := self.share()) < 1:
            lesson = self._learn()
            self.spent = time.perf_counter() - started
            if int(self.share() * N_VALIDATIONS) > int(share * N_VALIDATIONS):
                yield self._validate(lesson)
                self.spent = time.perf_counter() - started

    def share(self) -> float:
        """How much of the run is done: of its steps, or else of its time or its passes."""
        if self.options.steps is not None:
            return self.step / self.options.steps
        of_time = self.spent / (60 * self.options.minutes)
        return min(1.0, max(of_time, self.step / self.max_steps))

    def _learn(self) -> Lesson:
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak * self._schedule()
        self.optimizer.zero_grad()
        seed = (self.options.seed * 1_000_003 + self.step) % 2**64
        lesson = self.rollouts.teach(self.model, next(self.batches), seed)
        if all(bool(torch.isfinite(p.grad).all()) for p in self.parameters if p.grad is not None):
            self.optimizer.step()
        else:
            self._go_back()
        self.step += 1
        decay = min(AVERAGING, self.step / (self.step + 10))
        for average, parameter in zip(self.average, self.parameters, strict=True):
            average.lerp_(parameter.detach(), 1 - decay)
        return lesson

    def _schedule(self) -> float:
        """One cycle: a short rise, a plateau, half a cosine down."""
        share = self.share()
        rise = min(1.0, 0.05 + share / WARM_UP)
        fall = max(0.0, (share - PLATEAU) / (1 - PLATEAU))
        return rise * 0.5 * (1 + float(np.cos(np.pi * fall)))

    def _validate(self, lesson: Lesson) -> Event:
        recall = self._keep_if_better()
        if recall < self.best - 0.05:
            self._go_back()
        if self.checkpoint is not None:
            options = asdict(self.options)
            write_checkpoint(self.checkpoint, self._state(), options, self.digest)
        share = self.share()
        return Event(
            self.step,
            round(self.step / share),
            lesson.routing,
            lesson.topk,
            lesson.found,
            lesson.kept,
            recall,
            self.best,
            self.spent,
            self.spent * (1 / share - 1),
        )

    def _keep_if_better(self) -> float:
        with _weights(self.parameters, self.average):
            space = self._space()
        recall = self.problem.recall(space, self.options)
        if recall > self.best:
            self.best = recall
            self.kept = [a.clone() for a in self.average]
        return recall

    def _go_back(self) -> None:
        """Return to the best weights with half the step size: the run has diverged."""
        _copy(self.kept, self.parameters)
        _copy(self.kept, self.average)
        self.peak /= 2
        self.optimizer = self._fresh_optimizer()

    def _fresh_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters, lr=0.0, betas=(0.9, 0.99))

    def space_at(self, share: float) -> RoutingSpace:
        """The space of weights that went a share of the way from the start to the best ones."""
        pairs = zip(self.start, self.kept, strict=True)
        with _weights(self.parameters, [start.lerp(best, share) for start, best in pairs]):
            return with_origin(self._space(), self.problem.base)

    def _space(self) -> RoutingSpace:
        problem = self.problem
        return space_of(self.model, problem.base.dim, self.dim, problem.scale, self.options.rerank)

    def _state(self) -> dict[str, Any]:
        return {
            "parameters": [p.detach() for p in self.parameters],
            "average": self.average,
            "kept": self.kept,
            "optimizer": self.optimizer.state_dict(),
            "best": self.best,
            "peak": self.peak,
            "step": self.step,
            "spent": self.spent,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        _copy(state["parameters"], self.parameters)
        _copy(state["average"], self.average)
        _copy(state["kept"], self.kept)
        self.optimizer.load_state_dict(state["optimizer"])
        self.best, self.peak = state["best"], state["peak"]
        self.step, self.spent = state["step"], state["spent"]


@contextmanager
def _weights(parameters: list[Tensor], values: list[Tensor]) -> Iterator[None]:
    """Parameters with other values for the length of a block."""
    before = [parameter.detach().clone() for parameter in parameters]
    _copy(values, parameters)
    try:
        yield
    finally:
        _copy(before, parameters)


@torch.no_grad()
def _copy(values: list[Tensor], into: list[Tensor]) -> None:
    for tensor, value in zip(into, values, strict=True):
        tensor.copy_(value)
