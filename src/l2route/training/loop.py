"""Training on one problem: makes the model, runs the steps, chooses the space, reports."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from l2route.models.protocol import RoutingModel, check_model, has_constant_vertices
from l2route.search.calibrate import OutOfReachError
from l2route.search.gain import Gain
from l2route.search.limits import left_for_routing
from l2route.search.space import RoutingSpace
from l2route.training.aim import Aim, BudgetAim, RecallAim
from l2route.training.clock import Clock
from l2route.training.log import Event, event_log
from l2route.training.options import Goal, LearnOptions
from l2route.training.problem import CONFIRMING, Problem
from l2route.training.report import Reached, Report
from l2route.training.run import Run
from l2route.training.start import calibrate_sharpness, make_model, plain_space, start_space


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
    options = options.fitted(problem.base.dim, problem.graph.n_vertices)
    clock = clock or Clock(options.time_limit)
    plain = plain_space(problem.base, options.dim)
    start, aim = _start(problem, plain, options, clock, is_own=model is not None)
    sharpness = options.sharpness or calibrate_sharpness(problem, aim.goals, options.n_threads)
    if model is None:
        learner = make_model(problem, options, aim.goals, start, sharpness)
    else:
        learner = check_model(model)
    is_small = has_constant_vertices(learner)  # type: ignore[arg-type] # checked, or made here
    if not is_small and torch.cuda.is_available():
        learner.to("cuda")
    with torch_threads(1 if is_small else 0):
        run = Run(problem, options, aim.goals, learner, clock, checkpoint, cache)
        starts = [start] if start.name == plain.name else [start, plain]
        run.prepare(aim, n_contests=len(starts) + len(rivals))
        with event_log(log) as write:
            for event in run.events():
                write(event)
                if on_event is not None:
                    on_event(event)
        share, space = aim.choose(run.space_at) if run.step else (0.0, run.space_at(0.0))
    report = _report(run, aim, space, share, starts, rivals, sharpness)
    return replace(space, gain=_gain(run, report, space)), report


def _gain(run: Run, report: Report, space: RoutingSpace) -> Gain:
    """What was learned, as the index keeps it: of the middle budget and the smallest k.

    The plain space is the original one or PCA, which can be made again without queries.
    """
    projection, dim = space.n_projection, space.original_dim
    least = min(each.goal.k for each in report.reached)
    of_least = [each for each in report.reached if each.goal.k == least]
    middle = of_least[len(of_least) // 2]
    goal, plain = middle.goal, plain_space(run.problem.base, run.options.dim)
    before = run.problem.recalls(plain, goal, CONFIRMING, run.options.n_threads)
    return Gain(
        k=goal.k,
        budget=goal.budget,
        routing=left_for_routing(goal.budget, goal.rerank, projection, space.dim, dim),
        rerank=goal.rerank,
        pca_dim=None if plain.is_exact else plain.dim,
        plain=float(before.mean()),
        learned=middle.learned,
    )


def _start(
    problem: Problem, plain: RoutingSpace, options: LearnOptions, clock: Clock, is_own: bool
) -> tuple[RoutingSpace, Aim]:
    """The space to start from, and the training target.

    A space that knows the queries is taken if its walks are better than those of the plain one.

    Args:
        problem: graph and queries.
        plain: the plain space of the routing dimension.
        options: how to learn.
        clock: of the run.
        is_own: whether the model is the caller's own, which starts as it is.
    """
    aim = _aim(problem, plain, options, clock)
    aware = plain if is_own else start_space(problem, options)
    if aware.name == plain.name:
        return plain, aim
    try:
        other = _aim(problem, aware, options, clock)
    except OutOfReachError:
        return plain, aim
    return (aware, other) if other.merit(aware) > aim.merit(plain) else (plain, aim)


def _aim(problem: Problem, plain: RoutingSpace, options: LearnOptions, clock: Clock) -> Aim:
    if options.recall is None:
        return BudgetAim(problem, options)
    return RecallAim(problem, plain, options, clock)


def _report(
    run: Run,
    aim: Aim,
    space: RoutingSpace,
    share: float,
    starts: Sequence[RoutingSpace],
    rivals: Sequence[RoutingSpace],
    sharpness: float,
) -> Report:
    """Compare the space with what it started from, with the plain one, and with its rivals."""
    problem, options = run.problem, run.options
    contested = (*starts, *rivals) if run.step else ()
    contests = [each for rival in contested for each in aim.contests(space, rival)]
    unlearned = {each.name for each in starts}
    costs = [each.ours / each.theirs for each in contests if each.rival in unlearned]
    cost = max(costs, default=1.0)  # beside the best that was not learned
    return Report(
        recall=options.recall,
        reached=tuple(_reached(run, goal, starts[0], space) for goal in aim.goals),
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


def _reached(run: Run, goal: Goal, plain: RoutingSpace, space: RoutingSpace) -> Reached:
    """Recalls of a goal on the confirming queries."""
    n_threads = run.options.n_threads
    before, after = (
        float(run.problem.recalls(each, goal, CONFIRMING, n_threads).mean())
        for each in (plain, space)
    )
    return Reached(goal, before, after)


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
