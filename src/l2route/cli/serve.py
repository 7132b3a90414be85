"""The command `serve`. Its options are fields of `ServeOptions`, its help their docstrings."""

import logging
import os
import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from l2route.cli.options import Index
from l2route.data.labels import Labels
from l2route.extras import install
from l2route.serve.options import API_KEY, ServeOptions, descriptions

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


def with_serve_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each offered field; it gets all of them as `options`."""
    types, defaults, helps = get_type_hints(ServeOptions), ServeOptions(), descriptions()
    added = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=getattr(defaults, name),
            annotation=Annotated[types[name], typer.Option(flag, help=helps[name])],
        )
        for name, flag in OFFERED.items()
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in OFFERED}
        command(**given, options=ServeOptions(**chosen, api_key=os.environ.get(API_KEY)))

    own = [each for each in signature(command).parameters.values() if each.name != "options"]
    named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own]
    run.__signature__ = signature(command).replace(  # type: ignore[attr-defined] # read by typer
        parameters=[*named, *added]
    )
    return run


@with_serve_options
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
