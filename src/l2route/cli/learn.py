"""The command `learn`. Its options are fields of `LearnOptions`, its help their docstrings."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from l2route.cli.fields import with_fields
from l2route.cli.maintain import changed
from l2route.cli.options import Force, Index, Json, OutInstead, Queries
from l2route.cli.progress import learning_bars
from l2route.cli.query import read_neighbors
from l2route.files.formats import read_array
from l2route.training.options import LearnOptions

OFFERED = {
    "budget": "--budget",
    "rerank": "--rerank",
    "k": "-k",
    "recall": "--recall",
    "dim": "--dim",
    "model": "--model",
    "objective": "--objective",
    "hidden_dim": "--hidden",
    "minutes": "--minutes",
    "steps": "--steps",
    "seed": "--seed",
    "count_repeats": "--count-repeats",
    "memory_gb": "--memory-gb",
    "n_threads": "--threads",
}
"""Fields of `LearnOptions` that the command line offers, and their flags."""


@with_fields(LearnOptions, OFFERED, LearnOptions)
def learn(
    index: Index,
    queries: Queries,
    options: LearnOptions,
    neighbors: Annotated[
        str | None,
        typer.Option(help="File of the queries' true neighbours; computed if not given."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File that the run is saved to, and resumed from.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="File for JSON lines, one per validation.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Directory to cache true neighbours and hops in.")
    ] = None,
    out: OutInstead = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Learn routing vectors from training queries; searches use them if they are better."""
    with changed(index, out, force) as opened, learning_bars() as (progress, on_event):
        sample = read_array(queries)
        known = None if neighbors is None else read_neighbors(opened, neighbors, len(sample))
        with _messages_on_stderr():
            learned = opened.learn(
                sample,
                options,
                neighbors=known,
                checkpoint=checkpoint,
                log=log,
                cache=cache,
                progress=progress,
                on_event=on_event,
            )
    if as_json:
        print(json.dumps(learned.facts()))
    else:
        print(f"{learned} ({learned.n_steps:,} steps, {learned.seconds:.0f} s)")


class _StderrHandler(logging.Handler):
    """Prints messages on the error stream, above progress bars if there are any."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"l2route: {record.getMessage()}", file=sys.stderr)


@contextmanager
def _messages_on_stderr() -> Iterator[None]:
    """Print the log messages of learning, such as the memory that it takes."""
    logger, handler = logging.getLogger("l2route.training"), _StderrHandler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
