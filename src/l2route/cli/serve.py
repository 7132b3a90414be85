"""The command `serve`. Its options are fields of `ServeOptions`, its help their docstrings."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from l2route.cli.fields import with_fields
from l2route.cli.options import Index
from l2route.data.labels import Labels
from l2route.extras import install
from l2route.serve.options import API_KEY, ServeOptions

OFFERED = {
    "host": "--host",
    "port": "--port",
    "threads": "--threads",
    "recall": "--recall",
    "timeout": "--timeout",
    "max_queue": "--max-queue",
    "max_batch": "--max-batch",
    "max_connections": "--max-connections",
    "max_k": "--max-k",
    "max_rows": "--max-rows",
    "max_ids": "--max-ids",
    "max_budget": "--max-budget",
    "max_work": "--max-work",
    "max_body_mb": "--max-body-mb",
    "save_seconds": "--save-seconds",
    "reload": "--reload/--no-reload",
    "reload_seconds": "--reload-seconds",
    "log_queries": "--log-queries",
    "log_sample": "--log-sample",
    "log_mb": "--log-mb",
    "log_files": "--log-files",
}
"""Fields of `ServeOptions` that the command line offers, and their flags."""


def _with_key(**chosen: Any) -> ServeOptions:
    """The options of the command line, and the key of the environment."""
    return ServeOptions(**chosen, api_key=os.environ.get(API_KEY))


@with_fields(ServeOptions, OFFERED, _with_key)
def serve(
    index: Index,
    options: ServeOptions,
    labels: Annotated[
        Path | None,
        typer.Option(help="Names for ids without one: a .tsv of ids and names, or a .txt."),
    ] = None,
    mmap: Annotated[
        bool, typer.Option("--mmap", help="Map the index instead of reading it.")
    ] = False,
) -> None:
    """Serve an index over HTTP: searches, changes, metrics and a page."""
    try:
        from l2route.serve.run import run
        from l2route.serve.served import Served
    except ImportError as error:
        raise ImportError(f"serving needs: {install('serve')}") from error
    names = None if labels is None else Labels.read(labels)
    served = Served(index, names, mmap=mmap, n_threads=options.threads)
    logging.basicConfig(level=logging.INFO, format="l2route: %(message)s", stream=sys.stderr)

    def say(address: str) -> None:
        print(f"serving {len(served.index):,} vectors of {index} at {address}", flush=True)

    run(served, options, say)
