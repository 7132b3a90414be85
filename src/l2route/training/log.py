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
    """Objective, first term: see `Lesson`."""
    topk: float
    """Objective, second term."""
    found: float
    """Fraction of the batch's walks that visited their target."""
    kept: float
    """Fraction of those that had it among the k best."""
    recall: float
    """Recall@k on the validation queries that choose."""
    best: float
    """Best such recall so far."""
    seconds: float
    """Time since the run began."""
    seconds_left: float
    """Estimated time to its end."""


@contextmanager
def event_log(path: Path | None) -> Iterator[Callable[[Event], None]]:
    """A function that appends events to a file, one JSON line each; None: that does nothing.

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
