"""A training run: steps, validations, the best weights so far, checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from operator import index as index_of
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from l2route.models.collapse import space_of
from l2route.models.protocol import has_constant_vertices
from l2route.search.entry_rows import starts_of
from l2route.search.limits import left_for_routing
from l2route.search.origin import with_origin
from l2route.search.space import RoutingSpace
from l2route.training.aim import Aim
from l2route.training.checkpoint import Origin, read_checkpoint, write_checkpoint
from l2route.training.clock import Clock, timed
from l2route.training.log import Event
from l2route.training.options import Goal, LearnOptions
from l2route.training.oracle import HopOracle
from l2route.training.problem import CHOOSING, Problem
from l2route.training.rollout import Lesson, Rollouts, WalkOptions, batches

WARM_UP = 0.05
"""Fraction of the steps in which the learning rate rises."""
PLATEAU = 0.3
"""Fraction of the steps after which it falls."""
AVERAGING = 0.99
"""Decay of the average of weights that is validated and kept."""
FILTER_WALKS, NETWORK_WALKS = 500, 4000
"""Walks per step, of models with constant vertices and of others."""
MIN_STEPS = 2000
"""Smallest limit on the number of steps, however few queries there are."""
N_VALIDATIONS = 20
"""Validations of a run, unless they would take too much of its time."""
VALIDATION_SHARE = 0.25
"""Largest fraction of the time since the first step that validations may have taken before
another one starts; the last one always does."""
FIRST_STEP = 4.0
"""Expected time of the first step, in passes over all vertices: a network makes one forward and
about two backward."""
PREFETCH_SHARE = 0.1
"""Time for computing hops between two looks at the clock, as a fraction of a run's time limit."""
DIVERGED = 0.05
"""Drop of the validated recall below the best one that counts as divergence."""


class Run:
    """The state of a run: model, averaged weights, optimizer, best weights so far.

    Args:
        problem: graph and queries.
        options: how to learn.
        goals: budgets, reranks and numbers of neighbours to learn for.
        model: the model to train.
        clock: the run's time.
        checkpoint: file for the state, which is resumed from if it exists.
        cache: directory for hops to targets.
    """

    def __init__(
        self,
        problem: Problem,
        options: LearnOptions,
        goals: tuple[Goal, ...],
        model: Any,
        clock: Clock,
        checkpoint: Path | None = None,
        cache: Path | None = None,
    ) -> None:
        self.problem, self.options, self.goals = problem, options, goals
        self.model, self.checkpoint, self.clock = model, checkpoint, clock
        self.dim = options.dim or problem.base.dim
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.start = [p.detach().clone() for p in self.parameters]
        self.optimizer = self._fresh_optimizer()
        self.average = [p.detach().clone() for p in self.parameters]
        self.kept = [p.detach().clone() for p in self.parameters]
        self.best = -1.0
        self.peak = options.learning_rate
        self.step, self.done_before = 0, 0.0
        self.window: int | None = None
        n_walks = FILTER_WALKS if has_constant_vertices(model) else NETWORK_WALKS
        self.batch_size = options.batch_size or n_walks
        n_walks = len({goal.budget for goal in goals}) * len(problem.train)
        self.max_steps = max(MIN_STEPS, options.epochs * n_walks / self.batch_size)
        if checkpoint is not None:
            made_with = asdict(options) | {"goals": [asdict(goal) for goal in goals]}
            self.origin = Origin.of(made_with, problem, model)
            if checkpoint.exists():
                self._restore(read_checkpoint(checkpoint, self.origin))
        self._last_step = self._validating = self._reserved = 0.0
        self._begin = 0.0
        self.rollouts, self.batches = self._walks(cache)

    def _walks(self, cache: Path | None) -> tuple[Rollouts, Iterator[NDArray[np.int64]]]:
        """The rollouts, and the batches that are left."""
        problem, options = self.problem, self.options
        targets = problem.targets.ravel()
        oracle = HopOracle(
            problem.graph,
            targets,
            cache=cache,
            max_blocks=problem.sizes.blocks,
            n_threads=options.n_threads,
        )
        if self.window is None:
            self.window = self._affordable_blocks(oracle)
        rollouts = Rollouts(
            problem.graph,
            problem.train * np.float32(problem.scale),
            problem.hidden,
            oracle,
            [self._walks_to(k) for k in problem.target_ks],
            starts_of(problem.graph, problem.base.metric, problem.train, self.dim),
        )
        sizes = (len(targets), self.batch_size, self.window)
        return rollouts, batches(oracle, *sizes, seed=options.seed, first=self.step)

    def _walks_to(self, k: int) -> list[WalkOptions]:
        """How walks to one of the k nearest are sampled, for each budget.

        A budget has as many scores as any other, so small ones have more walks. Those cost less,
        and what they learn serves large budgets too, more than the other way round.
        """
        dim, goals = self.problem.base.dim, [goal for goal in self.goals if goal.k == k]
        n_projection = 0 if self.dim == dim else self.dim
        walks = []
        for goal in goals:
            routing = left_for_routing(goal.budget, goal.rerank, n_projection, self.dim, dim)
            n_turns = max(1, round(goals[-1].budget / goal.budget))
            walks += n_turns * [WalkOptions.of(self.options, routing, goal.rerank, dim)]
        return walks

    def _affordable_blocks(self, oracle: HopOracle) -> int:
        """Blocks of hops to compute at a time, within memory and time."""
        seconds = self.clock.allowance(PREFETCH_SHARE)
        if seconds is None:
            return oracle.max_blocks
        _, taken = timed(lambda: oracle.block(0))
        n_blocks = int(seconds * oracle.n_threads / max(taken, 1e-9))
        return max(1, min(oracle.max_blocks, n_blocks))

    def prepare(self, aim: Aim, n_contests: int) -> None:
        """Measure the current state, and reserve time for the work after the last step.

        That is a validation, choosing an interpolation, and comparing spaces.
        """
        with _weights(self.parameters, self.average):
            space, collapsing = timed(self._space)
        recall, validating = timed(lambda: self._recall_of(space))
        if self.best < 0:
            self.best = recall
        if self.clock.limit is None:
            return
        _, moving = timed(lambda: with_origin(space, self.problem.base))
        per_share = aim.seconds + collapsing + moving
        contests = n_contests * (aim.seconds + 2 * validating)
        last = collapsing + validating
        self._reserved = last + (len(aim.shares) + 1) * per_share + contests
        self._last_step = FIRST_STEP * collapsing

    def events(self) -> Iterator[Event]:
        """Take all steps; yields an event per validation."""
        self._begin = self.clock.spent()
        while (share := self.share()) < 1:
            lesson, self._last_step = timed(self._learn)
            after = self.share()
            is_due = int(after * N_VALIDATIONS) > int(share * N_VALIDATIONS)
            if after >= 1 or (is_due and self._has_time_to_validate()):
                begin = self.clock.spent()
                event = self._validate(lesson)
                self._validating += self.clock.spent() - begin
                yield event

    def _has_time_to_validate(self) -> bool:
        if self.clock.limit is None:
            return True
        return self._validating <= VALIDATION_SHARE * (self.clock.spent() - self._begin)

    def share(self) -> float:
        """Fraction of the run that is done, by steps, or else by time or passes."""
        if self.options.steps is not None:
            return self.step / self.options.steps
        left = self.clock.left()
        elapsed = self.clock.spent() - self._begin + self._last_step  # including the next step
        available = (left or 0.0) + self.clock.spent() - self._begin - self._reserved
        of_time = 1.0 if elapsed >= available else elapsed / available
        of_time = self.done_before + (1 - self.done_before) * of_time
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
        if recall < self.best - DIVERGED:
            self._go_back()
        if self.checkpoint is not None:
            write_checkpoint(self.checkpoint, self._state(), self.origin, self.problem.sizes)
        share, spent = self.share(), self.clock.spent()
        return Event(
            self.step,
            round(self.step / share),
            lesson.routing,
            lesson.topk,
            lesson.found,
            lesson.kept,
            recall,
            self.best,
            spent,
            spent * (1 / share - 1),
        )

    def _keep_if_better(self) -> float:
        with _weights(self.parameters, self.average):
            recall = self._recall_of(self._space())
        if recall > self.best:
            self.best = recall
            self.kept = [a.clone() for a in self.average]
        return recall

    def _recall_of(self, space: RoutingSpace) -> float:
        """Recall@k on the choosing queries within the budget, averaged over all goals."""
        n_threads = self.options.n_threads
        recalls = [self.problem.recalls(space, goal, CHOOSING, n_threads) for goal in self.goals]
        return float(np.mean(recalls))

    def _go_back(self) -> None:
        """Return to the best weights with half the learning rate: the run has diverged."""
        _copy(self.kept, self.parameters)
        _copy(self.kept, self.average)
        self.peak /= 2
        self.optimizer = self._fresh_optimizer()

    def _fresh_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters, lr=0.0, betas=(0.9, 0.99))

    def space_at(self, share: float) -> RoutingSpace:
        """The space of weights between the initial ones, 0, and the best ones, 1."""
        pairs = zip(self.start, self.kept, strict=True)
        with _weights(self.parameters, [start.lerp(best, share) for start, best in pairs]):
            return with_origin(self._space(), self.problem.base)

    def _space(self) -> RoutingSpace:
        problem, options, base = self.problem, self.options, self.problem.base
        rerank = options.rerank if options.recall is None else self.goals[0].rerank
        return space_of(self.model, base.dim, self.dim, problem.scale, rerank, base)

    def _state(self) -> dict[str, Any]:
        return {
            "parameters": [p.detach() for p in self.parameters],
            "average": self.average,
            "kept": self.kept,
            "optimizer": self.optimizer.state_dict(),
            "peak": self.peak,
            "step": self.step,
            "share": self.share(),
            "spent": self.clock.spent(),
            "window": self.window,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        """Continue from a state; its best recall is measured again."""
        try:
            for name, into in (
                ("parameters", self.parameters),
                ("average", self.average),
                ("kept", self.kept),
            ):
                _copy(state[name], into)
            self.optimizer.load_state_dict(state["optimizer"])
            self.peak, self.done_before = float(state["peak"]), float(state["share"])
            self.step, self.window = index_of(state["step"]), index_of(state["window"])
            spent = float(state["spent"])
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            expected = f"{self.checkpoint}: expected a state of this model"
            raise ValueError(f"{expected}, got {error}") from error
        self._require_in("peak", self.peak, 0, self.options.learning_rate)
        self._require_in("share", self.done_before, 0, 1)
        self._require_in("step", self.step, 0, self.options.steps or np.ceil(self.max_steps))
        self._require_in("window", self.window, 1, self.problem.sizes.blocks)
        self._require_in("spent", spent, 0, np.finfo(np.float64).max)
        self.clock.charge(spent)
        with _weights(self.parameters, self.kept):
            self.best = self._recall_of(self._space())

    def _require_in(self, name: str, value: float, low: float, high: float) -> None:
        if not low <= value <= high:
            expected = f"{self.checkpoint}: expected {name} in [{low:g}, {high:g}]"
            raise ValueError(f"{expected}, got {value}")


@contextmanager
def _weights(parameters: list[Tensor], values: list[Tensor]) -> Iterator[None]:
    """Set parameters to other values within a `with` block."""
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
