"""Training from start to end: from a graph and a query log to a routing space and a report."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from l2route.files.memory import available_bytes
from l2route.files.progress import Progress
from l2route.graph.graph import Graph
from l2route.models.protocol import RoutingModel
from l2route.search.base import BaseVectors
from l2route.search.space import RoutingSpace
from l2route.search.validation import warn_of_doubts
from l2route.training.checkpoint import read_sizes
from l2route.training.clock import Clock
from l2route.training.footprint import expected_bytes
from l2route.training.log import Event
from l2route.training.loop import learn_space
from l2route.training.options import LearnOptions
from l2route.training.problem import Judge, Problem, pose
from l2route.training.report import Report

_LOG = logging.getLogger(__name__)


def train(
    graph: Graph,
    base: BaseVectors,
    queries: object,
    options: LearnOptions,
    model: RoutingModel | None = None,
    *,
    neighbors: object = None,
    rivals: Sequence[RoutingSpace] = (),
    checkpoint: Path | None = None,
    log: Path | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
    on_event: Callable[[Event], None] | None = None,
    judge: Judge | None = None,
) -> tuple[RoutingSpace, Report]:
    """Learn a routing space from a query log.

    Args:
        graph: the graph to walk.
        base: base vectors.
        queries: the log [n_queries, dim].
        options: how to learn.
        model: a custom model, in place of the one that the options name.
        neighbors: true neighbours of the queries, if they are known: row numbers [n_queries, at
            least k], nearest first. Those of validation queries are computed anyway.
        rivals: spaces that the learned one has to beat, besides the plain one of its dimension.
        checkpoint: file that the state is saved to at every validation, and resumed from.
        log: file that an event per validation is appended to, as JSON lines; TensorBoard's events,
            if it is installed, go to the directory of this name and `.tb`.
        cache: directory that keeps true neighbours and hops to targets.
        progress: called with queries done and in total while true neighbours are found.
        on_event: called after every validation.
        judge: measures spaces on validation queries, in place of recall@k within the budget.

    Returns:
        The space with the best validated recall within the budget, or with the least cost at the
        target recall, and a report on how it compares.
    """
    clock = Clock(options.time_limit)
    problem = pose(
        graph,
        base,
        queries,
        options,
        neighbors=neighbors,
        progress=progress,
        cache=cache,
        clock=clock,
        sizes=read_sizes(checkpoint) if checkpoint is not None and checkpoint.exists() else None,
        judge=judge,
    )
    warn_of_doubts(problem.validation, base, stacklevel=4)  # the caller of RoutingIndex.learn
    _log_memory(problem, options)
    return learn_space(
        problem,
        options,
        model,
        rivals=rivals,
        checkpoint=checkpoint,
        log=log,
        cache=cache,
        on_event=on_event,
        clock=clock,
    )


def _log_memory(problem: Problem, options: LearnOptions) -> None:
    """Log how much memory the run will take; a warning if that is more than is free."""
    expected = expected_bytes(
        problem.graph.n_vertices,
        problem.base.dim,
        len(np.unique(problem.targets)),
        is_projected=options.dim not in (None, problem.base.dim),
        memory_gb=options.memory_gb,
        n_threads=options.n_threads,
    )
    free = available_bytes()
    message = f"learning takes about {expected / 1e9:.1f} GB of memory beside the index"
    if expected > free:
        _LOG.warning("%s, %.1f GB are free; memory_gb limits it", message, free / 1e9)
    else:
        _LOG.info("%s, %.1f GB are free", message, free / 1e9)
