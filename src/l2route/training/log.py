"""The log of a run: JSON lines, and TensorBoard's events if it is installed."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """A validation, and the last batch before it."""

    step: int
    """Steps taken."""
    n_steps: int
    """Steps in total, estimated if the run is limited by time."""
    routing: float
    """First term of the objective, the sum over steps; see `Lesson`."""
    topk: float
    """Second term of the objective, log P(v* ∈ TopK)."""
    found: float
    """Fraction of the batch's walks that visited their target."""
    kept: float
    """Fraction of these walks that had the target among the k best."""
    recall: float
    """Recall@k on the choosing half of the validation queries."""
    best: float
    """Best of these recalls so far."""
    seconds: float
    """Time since the run began."""
    seconds_left: float
    """Estimated time to its end."""


@contextmanager
def event_log(path: Path | None) -> Iterator[Callable[[Event], None]]:
    """Yield a function that appends events to a file as JSON lines; without a path, does nothing.

    If TensorBoard is installed, its events go to the directory `path` with `.tb` appended.
    """
    if path is None:
        yield lambda event: None
        return
    boards = _boards(path.with_name(f"{path.name}.tb"))

    def write(event: Event) -> None:
        line = asdict(event)
        with path.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        for board in boards:
            for name in ("routing", "topk", "found", "kept", "recall", "best"):
                board.add_scalar(name, line[name], event.step)

    try:
        yield write
    finally:
        for board in boards:
            board.close()


def _boards(directory: Path) -> list[Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return []
    return [SummaryWriter(str(directory))]
