"""Real vectors and options for tests of learning."""

from dataclasses import replace
from typing import Any

from l2route.data.public import demo_words
from l2route.training.log import Event
from l2route.training.loop import learn_space
from l2route.training.options import LearnOptions
from l2route.training.problem import Problem

OPTIONS = LearnOptions(budget=96, rerank=8, steps=40, batch_size=200, n_validation=1000)

ENOUGH = 400
"""Steps after which the learned space is better at a confidence of 99%."""


def words() -> Any:
    """Real vectors, few enough for a test."""
    return demo_words(n_base=4_000, n_learn=10_000, n_query=500).dataset


def losses(problem: Problem, options: LearnOptions, **more: Any) -> list[Event]:
    """Events of a run, without their times."""
    events: list[Event] = []
    learn_space(problem, options, on_event=events.append, **more)
    return [replace(event, seconds=0.0, seconds_left=0.0) for event in events]
