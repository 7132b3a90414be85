"""Training on one problem: makes the model, runs the steps, chooses the space, reports."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from l2route.models.protocol import RoutingModel, check_model, has_constant_vertices
from l2route.search.gain import Gain
from l2route.search.limits import left_for_routing
from l2route.search.space import RoutingSpace
from l2route.training.aim import Aim, BudgetAim, RecallAim
from l2route.training.clock import Clock
from l2route.training.log import Event, event_log
from l2route.training.options import LearnOptions
from l2route.training.problem import CONFIRMING, Problem
from l2route.training.report import Report
from l2route.training.run import Run
from l2route.training.start import calibrate_sharpness, make_model, plain_space


def learn_space(
    problem: Problem,
    options: LearnOptions,
    model: RoutingModel | None = None,
    *,
    rivals: Sequence[RoutingSpace] = (),
    checkpoint: Path | None = None,
    log: Path | None = None,
    cache: Path | None = None,
    on_event: Callable[[Event], None] | None = None,
    clock: Clock | None = None,
) -> tuple[RoutingSpace, Report]:
    """Learn a routing space; the arguments and results are those of `train`."""
    clock = clock or Clock(options.time_limit)
    plain = plain_space(problem.base, options.dim)
    aim = _aim(problem, plain, options, clock)
    sharpness = options.sharpness or calibrate_sharpness(problem, aim.spending, options.n_threads)
    if model is None:
        learner = make_model(problem, options, aim.spending, plain, sharpness)
    else:
        learner = check_model(model)
    is_small = has_constant_vertices(learner)  # type: ignore[arg-type] # checked, or made here
    if not is_small and torch.cuda.is_available():
        learner.to("cuda")
    with torch_threads(1 if is_small else 0):
        run = Run(problem, options, aim.spending, learner, clock, checkpoint, cache)
        run.prepare(aim, n_contests=1 + len(rivals))
        with event_log(log) as write:
            for event in run.events():
                write(event)
                if on_event is not None:
                    on_event(event)
        share, space = aim.choose(run.space_at) if run.step else (0.0, run.space_at(0.0))
    report = _report(run, aim, space, share, [plain, *rivals], sharpness)
    return replace(space, gain=_gain(report, space, plain)), report


def _gain(report: Report, space: RoutingSpace, plain: RoutingSpace) -> Gain:
    """What was learned, as the index keeps it."""
    projection, dim = space.n_projection, space.original_dim
    return Gain(
        k=report.k,
        budget=report.budget,
        routing=left_for_routing(report.budget, report.rerank, projection, space.dim, dim),
        rerank=report.rerank,
        pca_dim=None if plain.is_exact else plain.dim,
        plain=report.plain,
        learned=report.learned,
    )


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
    """Compare the space with its rivals, the plain one of its dimension first."""
    problem, options = run.problem, run.options
    contested = rivals if run.step else ()
    contests = [each for rival in contested if (each := aim.contest(space, rival)) is not None]
    plain, learned = (
        float(problem.recalls(each, aim.spending, CONFIRMING, options.n_threads).mean())
        for each in (rivals[0], space)
    )
    cost = contests[0].ours / contests[0].theirs if contests else 1.0
    return Report(
        k=options.k,
        recall=options.recall,
        budget=aim.spending.budget,
        rerank=aim.spending.rerank,
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
        validation=problem.to_keep(),
    )


@contextmanager
def torch_threads(n_threads: int) -> Iterator[None]:
    """Set the number of torch threads within a `with` block; 0 leaves it unchanged.

    A filter's matrices are small: a second torch thread would mostly wait, and walks have threads
    of their own.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
