"""Commands that keep an index as it is and bring it back: `snapshot`, `restore`, `versions`."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from l2route.cli.options import Index, Json, at_least
from l2route.files.snapshots import (
    Snapshot,
    list_snapshots,
    remove_snapshot,
    restore_snapshot,
    take_snapshot,
)

Name = Annotated[str, typer.Argument(help="Name of a snapshot.")]


def snapshot(
    index: Index,
    name: Annotated[
        str | None,
        typer.Argument(help="Letters, digits, _, - and .; by default the time."),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            callback=at_least(1),
            help="Snapshots to keep, this one included; older ones are removed. By default all.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Keep an index as it is, with all that its servers have acknowledged.

    The snapshot is the directory snapshots/NAME in that of the index. It is an index itself, can be
    copied by any tool, and shares its files with the index as hard links.
    """
    taken = take_snapshot(index, name, keep)
    print(json.dumps(_facts(taken)) if as_json else taken.path)


def restore(index: Index, name: Name) -> None:
    """Make an index what a snapshot is; running servers follow.

    Whatever the index was is gone, with all changes since the snapshot, unless another one has it.
    """
    restore_snapshot(index, name)
    print(f"{index} is what {name} is")


def versions(
    index: Index,
    remove: Annotated[
        str | None, typer.Option(help="Name of a snapshot to remove before they are listed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the snapshots of an index, oldest first."""
    if remove is not None:
        remove_snapshot(index, remove)
    found = list_snapshots(index)
    if as_json:
        print(json.dumps([_facts(each) for each in found]))
        return
    table = Table("name", "taken", "MB", "version", box=None)
    for each in found:
        taken = each.created.strftime("%Y-%m-%d %H:%M:%S UTC")
        table.add_row(each.name, taken, f"{each.n_bytes / 1e6:,.1f}", each.version[:16])
    Console().print(table)


def _facts(found: Snapshot) -> dict[str, Any]:
    return {
        "name": found.name,
        "path": str(found.path),
        "version": found.version,
        "created": found.created.isoformat(),
        "n_bytes": found.n_bytes,
    }
