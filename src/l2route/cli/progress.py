"""Progress bars on the error stream, so that answers on the output stay clean."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from l2route.files.progress import Progress as Advance

StepAdvance = Callable[[str, int, int | None], None]
"""Called with the step, the amount done and the total amount."""
STEP_TITLES = {"build": "building", "refine": "refining", "learn": "exact neighbours"}
"""Titles of the bars of a build's steps."""


class Learning(Protocol):
    """The figures of a validation that are shown."""

    @property
    def step(self) -> int:
        """Steps taken."""

    @property
    def n_steps(self) -> int:
        """Expected number of steps in total."""

    @property
    def routing(self) -> float:
        """First term of the objective; its negative is the loss."""

    @property
    def recall(self) -> float:
        """Recall@k on validation queries."""

    @property
    def best(self) -> float:
        """Best recall@k so far."""


@contextmanager
def bar(title: str) -> Iterator[Advance]:
    """Show a bar from the first call of the function that it yields.

    An error before that, such as a wrong option, is then the only line on the terminal.
    """
    with _shown_when_called() as progress:
        yield _advancer(progress, title)


@contextmanager
def learning_bars() -> Iterator[tuple[Advance, Callable[[Learning], None]]]:
    """Show two bars: one for finding true neighbours, one with loss, recall and time left."""
    with _shown_when_called() as progress:
        advance = _advancer(progress, "exact neighbours")
        task = progress.add_task("learning", total=None)
        yield advance, _learning_shower(progress, task)


@contextmanager
def step_bars() -> Iterator[tuple[StepAdvance, Callable[[Learning], None]]]:
    """Show a bar for each step of a build, from its first progress on, and one for learning."""
    with _shown_when_called() as progress:
        bars: dict[str, Advance] = {}

        def advance(step: str, done: int, total: int | None) -> None:
            if step not in bars:
                bars[step] = _advancer(progress, STEP_TITLES.get(step, step))
            bars[step](done, total)

        learning: list[Callable[[Learning], None]] = []

        def show(event: Learning) -> None:
            if not learning:
                task = progress.add_task("learning", total=None)
                learning.append(_learning_shower(progress, task))
            learning[0](event)

        yield advance, show


def _learning_shower(progress: Progress, task: TaskID) -> Callable[[Learning], None]:
    def show(event: Learning) -> None:
        text = f"loss {-event.routing:.1f}, recall {event.recall:.3f}, best {event.best:.3f}"
        progress.start()
        progress.update(task, completed=event.step, total=event.n_steps, description=text)

    return show


@contextmanager
def _shown_when_called() -> Iterator[Progress]:
    progress = _display()
    try:
        yield progress
    finally:
        if progress.live.is_started:  # else stopping would print an empty line
            progress.stop()


def _display() -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True))


def _advancer(progress: Progress, title: str) -> Advance:
    task = progress.add_task(title, total=None)

    def advance(done: int, total: int | None) -> None:
        progress.start()
        progress.update(task, completed=done, total=total)

    return advance
