"""The command line: one command per stage, registered here."""

import sys
import warnings
from typing import Annotated

import typer
from typer.main import get_command

from l2route import __version__
from l2route.cli import paper
from l2route.cli.build import build
from l2route.cli.change import add, delete, label, update
from l2route.cli.cluster import cluster
from l2route.cli.compare import compare
from l2route.cli.datasets import datasets
from l2route.cli.demo import demo
from l2route.cli.export import export
from l2route.cli.learn import learn
from l2route.cli.maintain import calibrate, compress, info, refine, renumber
from l2route.cli.query import evaluate, search
from l2route.cli.report import report
from l2route.cli.serve import serve
from l2route.cli.snapshots import restore, snapshot, versions
from l2route.cluster.errors import PartialError, QueueFullError
from l2route.cluster.runners import BuildError

app = typer.Typer(
    help="Graph nearest-neighbour search that learns from queries.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
ERRORS = (ValueError, ImportError, OSError, PartialError, QueueFullError, BuildError)
"""Errors that are one line; others are defects of the program, and have a traceback."""


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"l2route {__version__}")
        raise typer.Exit


@app.callback()
def everywhere(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Graph nearest-neighbour search that learns from queries."""


for command in (
    build,
    demo,
    learn,
    search,
    evaluate,
    serve,
    add,
    delete,
    update,
    label,
    refine,
    renumber,
    compress,
    calibrate,
    info,
    snapshot,
    restore,
    versions,
    compare,
    paper.reproduce,
    paper.progress,
    report,
    datasets,
):
    app.command()(command)
app.add_typer(export, name="export")
app.add_typer(cluster, name="cluster")


def _print_warning(message: Warning | str, *_: object) -> None:
    print(f"l2route: warning: {message}", file=sys.stderr)


def main() -> None:
    """Run the command line. Bad input is one line and exit code 2; a warning is one line too."""
    warnings.showwarning = _print_warning  # type: ignore[assignment] # it ignores file and line
    try:
        sys.exit(get_command(app).main(sys.argv[1:] or ["--help"], standalone_mode=False))
    except typer.TyperException as error:
        message = error.format_message()
    except ERRORS as error:
        message = str(error)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    print(f"l2route: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
