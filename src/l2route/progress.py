"""Progress bars on the error stream, so that answers on the output stay clean."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as TimeLeftColumn


class Learning(Protocol):
    """What the display of learning shows of a validation."""

    @property
    def step(self) -> int: ...  # noqa: D102 # its names say it
    @property
    def n_steps(self) -> int: ...  # noqa: D102
    @property
    def routing(self) -> float: ...  # noqa: D102
    @property
    def recall(self) -> float: ...  # noqa: D102
    @property
    def best(self) -> float: ...  # noqa: D102


@contextmanager
def learning_bar() -> Iterator[Callable[[Learning], None]]:
    """Show loss, validation recall and time left while the block runs."""
    columns = (
        SpinnerColumn(),
        TextColumn("learning"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TimeLeftColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)

        def show(event: Learning) -> None:
            text = f"loss {-event.routing:.1f}  recall {event.recall:.3f}  best {event.best:.3f}"
            progress.update(task, completed=event.step, total=event.n_steps, description=text)

        yield show


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar while the block runs; call what it gives with the amount done and in all."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeLeftColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=None)

        def advance(done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total)

        yield advance
