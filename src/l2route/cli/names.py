"""Names of vectors on the command line: read from files, given to an index, printed."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from l2route.data.labels import Labels
from l2route.files.names import read_names

Ids = NDArray[np.integer[Any]]
NAMES = "a name per line of a .txt, an id and a name per line of a .tsv, or .parquet:column"
"""What a file of names may be, for help."""
NamesOption = Annotated[
    str | None,
    typer.Option("--labels", help=f"Names of the vectors: {NAMES}. They are kept in the index."),
]


def labels_of(source: str, ids: Ids) -> Labels:
    """Read names of vectors: one for each, or some by their ids.

    Args:
        source: the file.
        ids: ids of all vectors, in the order of names without ids.
    """
    names, named = read_names(source)
    if named is None and len(names) != len(ids):
        raise ValueError(f"{source}: expected {len(ids)} names, one per vector, got {len(names)}")
    others = [] if named is None else named[~np.isin(named, ids)].tolist()
    if others:
        raise ValueError(f"{source}: expected ids of the vectors, got {others[0]}")
    return Labels.of(names, ids if named is None else named)


def names_of_new(source: str, n: int, ids: Ids | None) -> list[str | None]:
    """Read names of vectors that are added [n].

    Args:
        source: the file.
        n: number of vectors.
        ids: ids of the vectors; None if they get new ones.
    """
    if ids is None and Path(source).suffix.lower() == ".tsv":
        raise ValueError(f"{source}: expected a name per line for vectors without ids, got a .tsv")
    chosen = np.arange(n) if ids is None else ids
    return labels_of(source, chosen).names(chosen)


def shown(names: Labels, ids: list[int]) -> str:
    """Answers with names: `cat (17), dog (5), 99`."""
    found = zip(ids, names.names(ids), strict=True)
    return ", ".join(str(id_) if name is None else f"{_line(name)} ({id_})" for id_, name in found)


def _line(name: str) -> str:
    """A name without characters that move the cursor or change the terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)
