"""Learning from start to end: a model, a run, a space, a report."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from l2route.models.features import principal_axes, vertex_features
from l2route.models.networks import FeedForward, FilterNetwork, GraphNetwork
from l2route.models.protocol import GraphFilter, RoutingModel
from l2route.search.base import BaseVectors
from l2route.search.space import RoutingSpace, original_space, pca_space
from l2route.training.aim import Aim, BudgetAim, RecallAim
from l2route.training.clock import Clock
from l2route.training.footprint import expected_bytes
from l2route.training.log import Event, event_log
from l2route.training.options import LearnOptions
from l2route.training.problem import (
    CONFIRMING,
    Problem,
    calibrate_sharpness,
    find_hubs,
)
from l2route.training.report import Report
from l2route.training.run import Run

_LOG = logging.getLogger(__name__)


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
    rotated = np.asarray(vectors @ axes, dtype=np.float32)
    is_projected = plain.query_matrix is not None
    features = vertex_features(problem.graph, rotated, with_products=is_projected)
    if options.hidden_dim is not None:
        return FilterNetwork(features.rows, vectors, plain.dim, sharpness, **shared)
    hubs = find_hubs(problem, options)
    return GraphFilter(features, vectors, axes, sharpness, plain.query_matrix, plain.scorer, hubs)


def plain_space(base: BaseVectors, dim: int | None) -> RoutingSpace:
    """What is there without learning: the original vectors, or PCA to fewer dimensions."""
    return original_space(base) if dim is None or dim == base.dim else pca_space(base, dim)


def learn_space(
    problem: Problem,
    options: LearnOptions,
    *,
    model: RoutingModel | None = None,
    rivals: Sequence[RoutingSpace] = (),
    checkpoint: Path | None = None,
    log: Path | None = None,
    cache: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
    clock: Clock | None = None,
) -> tuple[RoutingSpace, Report]:
    """Learn a routing space.

    Args:
        problem: queries with their neighbours.
        options: how to learn.
        model: a model of one's own, in place of the one that options name.
        rivals: spaces that the learned one has to beat, beside the plain one of its dimension.
        checkpoint: file to save the state in at every validation, and to go on from if it exists.
        log: file to append an event per validation to, as JSON lines; TensorBoard's go beside it.
        cache: directory to keep the hops to all targets in, half a byte per target and vertex.
        on_event: told of every validation.
        clock: the run's time; by default it starts here.

    Returns:
        The best space by the recall of the validation queries that choose, or between it and the
        start the one of least cost at the recall that is learned for, and how it did on those that
        confirm.
    """
    clock = clock or Clock(options.time_limit)
    _tell_memory(problem, options)
    if options.dim is not None and options.dim > problem.base.dim:
        raise ValueError(f"expected dim of at most {problem.base.dim}, got {options.dim}")
    plain = plain_space(problem.base, options.dim)
    aim = _aim(problem, plain, options, clock)
    options = aim.options
    sharpness = options.sharpness or calibrate_sharpness(problem, options)
    learner = make_model(problem, options, plain, sharpness) if model is None else model
    if not isinstance(learner, RoutingModel) or not isinstance(learner, nn.Module):
        raise ValueError("expected a model with the methods vertices and queries, an nn.Module")
    is_small = isinstance(learner, GraphFilter)
    if not is_small and torch.cuda.is_available():
        learner.to("cuda")
    with torch_threads(1 if is_small else 0):
        run = Run(problem, options, learner, checkpoint, cache, clock)
        run.prepare(aim, n_contests=1 + len(rivals))
        with event_log(log) as write:
            for event in run.events():
                write(event)
                if on_event is not None:
                    on_event(event)
        share, space = aim.choose(run.space_at) if run.step else (0.0, run.space_at(0.0))
    return space, _report(run, aim, space, share, [plain, *rivals], sharpness)


def _tell_memory(problem: Problem, options: LearnOptions) -> None:
    """Log how much memory the run will take, before it takes it."""
    expected = expected_bytes(
        problem.graph.n_vertices,
        problem.base.dim,
        len(np.unique(problem.targets)),
        is_projected=options.dim not in (None, problem.base.dim),
        memory_gb=options.memory_gb,
        n_threads=options.n_threads,
    )
    _LOG.info("learning takes about %.1f GB of memory beside the index", expected / 1e9)


def _aim(problem: Problem, plain: RoutingSpace, options: LearnOptions, clock: Clock) -> Aim:
    if options.recall is None:
        return BudgetAim(problem, options)
    return RecallAim(problem, plain, options, clock)


def _report(
    run: Run,
    aim: Aim,
    space: RoutingSpace,
    share: float,
    rivals: Sequence[RoutingSpace],
    sharpness: float,
) -> Report:
    """Hold the space against its rivals, the plain one of its dimension first."""
    problem, options = run.problem, aim.options
    contested = rivals if run.step else ()
    contests = [each for rival in contested if (each := aim.contest(space, rival)) is not None]
    plain, learned = (
        float(problem.recalls(each, options, CONFIRMING).mean()) for each in (rivals[0], space)
    )
    cost = contests[0].ours / contests[0].theirs if contests else 1.0
    return Report(
        k=options.k,
        recall=options.recall,
        budget=options.budget,
        rerank=options.rerank,
        plain=plain,
        learned=learned,
        cost=None if options.recall is None else cost,
        share=share,
        contests=tuple(contests),
        n_queries=problem.n_queries,
        n_distinct=problem.n_distinct,
        n_choosing=aim.n_choosing,
        n_confirming=aim.n_confirming,
        n_steps=run.step,
        seconds=run.clock.spent(),
        sharpness=sharpness,
    )


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
