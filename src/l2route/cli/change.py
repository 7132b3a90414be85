"""Commands that change the vectors of an index: `add`, `delete`, `update`."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from l2route.cli.maintain import changed
from l2route.cli.options import IDS, Index, Json, OutInstead, Threads
from l2route.cli.progress import bar
from l2route.files.formats import read_array
from l2route.files.ids import read_ids
from l2route.files.progress import Progress
from l2route.index import RoutingIndex

Ids = Annotated[str, typer.Argument(help=f"Ids: {IDS}.")]
Vectors = Annotated[
    str, typer.Argument(help="Vectors: .npy, .npz:key, .fvecs, .bvecs, .fbin, .hdf5:key …")
]


def add(
    index: Index,
    vectors: Vectors,
    ids: Annotated[
        str | None,
        typer.Option(help=f"Their ids: {IDS}. By default the numbers after the largest so far."),
    ] = None,
    threads: Threads = 0,
    out: OutInstead = None,
    as_json: Json = False,
) -> None:
    """Add vectors to an index, under ids that it does not have."""
    rows, given = read_array(vectors), None if ids is None else read_ids(ids)

    def step(opened: RoutingIndex, progress: Progress) -> dict[str, Any]:
        added = opened.add(rows, given, n_threads=threads, progress=progress)
        return {"added": len(added), "ids": added.tolist()}

    facts = _change(index, out, f"adding {len(rows):,} vectors", step)
    numbers = "" if given is not None else f" as {facts['ids'][0]} to {facts['ids'][-1]}"
    _print(f"added {len(rows):,} vectors{numbers}", facts, as_json)


def delete(index: Index, ids: Ids, out: OutInstead = None, as_json: Json = False) -> None:
    """Delete vectors from an index, by their ids."""
    gone = read_ids(ids)

    def step(opened: RoutingIndex, _: Progress) -> dict[str, Any]:
        opened.delete(gone)
        return {"deleted": len(gone)}

    facts = _change(index, out, f"deleting {len(gone):,} vectors", step)
    _print(f"deleted {len(gone):,} vectors", facts, as_json)


def update(
    index: Index,
    ids: Ids,
    vectors: Vectors,
    threads: Threads = 0,
    out: OutInstead = None,
    as_json: Json = False,
) -> None:
    """Give ids of an index new vectors."""
    given, rows = read_ids(ids), read_array(vectors)

    def step(opened: RoutingIndex, progress: Progress) -> dict[str, Any]:
        opened.update(given, rows, n_threads=threads, progress=progress)
        return {"updated": len(given)}

    facts = _change(index, out, f"updating {len(rows):,} vectors", step)
    _print(f"updated {len(rows):,} vectors", facts, as_json)


def _change(
    index: Path,
    out: Path | None,
    title: str,
    step: Callable[[RoutingIndex, Progress], dict[str, Any]],
) -> dict[str, Any]:
    """Change a saved index, and return what was done, with the time of the change and its save."""
    with changed(index, out) as opened:
        start = time.perf_counter()
        with bar(title) as progress:
            done = step(opened, progress)
    return {**done, "seconds": time.perf_counter() - start, "n_vectors": len(opened)}


def _print(done: str, facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts))
    else:
        print(f"{done} in {facts['seconds']:.2f} s; {facts['n_vectors']:,} vectors now")
