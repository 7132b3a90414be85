"""What a run says of itself on disk: JSON lines, and TensorBoard's events if it is installed."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """A validation, as progress displays and logs have it."""

    step: int
    n_steps: int
    routing: float
    topk: float
    found: float
    kept: float
    recall: float
    best: float
    seconds: float
    seconds_left: float


@contextmanager
def event_log(path: Path | None) -> Iterator[Callable[[Event], None]]:
    """A function that appends events to a file, one JSON line each, or does nothing for None.

    TensorBoard, where there is one, reads its own events from the directory `path` with `.tb`
    appended.
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
