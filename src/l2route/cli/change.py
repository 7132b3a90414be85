"""Commands that change the vectors of an index: `add`, `delete`, `update`."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from l2route.cli.maintain import changed
from l2route.cli.names import NAMES, NamesOption, labels_of, names_of_new
from l2route.cli.options import IDS, VECTORS, Force, Index, Json, OutInstead, Threads
from l2route.cli.progress import bar
from l2route.files.formats import read_array
from l2route.files.ids import read_ids
from l2route.files.names import read_names
from l2route.files.progress import Progress
from l2route.index import RoutingIndex

Ids = Annotated[str, typer.Argument(help=f"Ids: {IDS}.")]
Vectors = Annotated[str, typer.Argument(help=f"Vectors: {VECTORS}.")]


def add(
    index: Index,
    vectors: Vectors,
    ids: Annotated[
        str | None,
        typer.Option(help=f"Their ids: {IDS}. By default the numbers after the largest so far."),
    ] = None,
    labels: NamesOption = None,
    threads: Threads = 0,
    out: OutInstead = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Add vectors to an index, under ids that it does not have."""
    rows, given = read_array(vectors), None if ids is None else read_ids(ids)
    names = None if labels is None else names_of_new(labels, len(rows), given)

    def step(opened: RoutingIndex, progress: Progress) -> dict[str, Any]:
        added = opened.add(rows, given, names=names, n_threads=threads, progress=progress)
        return {"added": len(added), "ids": added.tolist()}

    facts = _change(index, out, force, f"adding {len(rows):,} vectors", step)
    numbers = "" if given is not None else f" as {facts['ids'][0]} to {facts['ids'][-1]}"
    _print(f"added {len(rows):,} vectors{numbers}", facts, as_json)


def delete(
    index: Index,
    ids: Annotated[str | None, typer.Argument(help=f"Ids: {IDS}.")] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Names in place of ids: one per line of a .txt, or .parquet:column."),
    ] = None,
    out: OutInstead = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Delete vectors from an index, by their ids or by their names."""
    if (ids is None) == (labels is None):
        got = "neither" if ids is None else "both"
        raise ValueError(f"expected either IDS or --labels, got {got}")
    gone = None if ids is None else read_ids(ids)
    names = [] if labels is None else [name for name in read_names(labels)[0] if name is not None]

    def step(opened: RoutingIndex, _: Progress) -> dict[str, Any]:
        found = opened.names.ids(names) if gone is None else gone
        opened.delete(found)
        return {"deleted": len(found)}

    n = len(names) if gone is None else len(gone)
    facts = _change(index, out, force, f"deleting {n:,} vectors", step)
    _print(f"deleted {n:,} vectors", facts, as_json)


def label(
    index: Index,
    labels: Annotated[str, typer.Argument(help=f"Names of ids: {NAMES}.")],
    out: OutInstead = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Give the vectors of an index names, in place of those that they have.

    Without ids the file has a name for every vector: that in line or row i, from 0, is for id i.
    """

    def step(opened: RoutingIndex, _: Progress) -> dict[str, Any]:
        has_ids = Path(labels).suffix.lower() == ".tsv"
        opened.name(labels_of(labels, opened.ids if has_ids else np.arange(len(opened))))
        return {"n_names": len(opened.names)}

    facts = _change(index, out, force, "naming vectors", step)
    _print(f"{facts['n_names']:,} names", facts, as_json)


def update(
    index: Index,
    ids: Ids,
    vectors: Vectors,
    threads: Threads = 0,
    out: OutInstead = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Give ids of an index new vectors."""
    given, rows = read_ids(ids), read_array(vectors)

    def step(opened: RoutingIndex, progress: Progress) -> dict[str, Any]:
        opened.update(given, rows, n_threads=threads, progress=progress)
        return {"updated": len(given)}

    facts = _change(index, out, force, f"updating {len(rows):,} vectors", step)
    _print(f"updated {len(rows):,} vectors", facts, as_json)


def _change(
    index: Path,
    out: Path | None,
    force: bool,
    title: str,
    step: Callable[[RoutingIndex, Progress], dict[str, Any]],
) -> dict[str, Any]:
    """Change a saved index, and return what was done, with the time of the change and its save."""
    with changed(index, out, force) as opened:
        start = time.perf_counter()
        with bar(title) as progress:
            done = step(opened, progress)
    return {**done, "seconds": time.perf_counter() - start, "n_vectors": len(opened)}


def _print(done: str, facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts))
    else:
        print(f"{done} in {facts['seconds']:.2f} s; {facts['n_vectors']:,} vectors now")
