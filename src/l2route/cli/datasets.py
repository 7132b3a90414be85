"""The command that lists and downloads public datasets."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from l2route.cli.options import Json
from l2route.cli.progress import bar
from l2route.data import public


def datasets(
    name: Annotated[
        str | None, typer.Argument(help="Dataset to download; without it, list them.")
    ] = None,
    directory: Annotated[Path, typer.Option(help="Directory for downloads.")] = Path("data"),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write it here: .npz or .hdf5.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    as_json: Json = False,
) -> None:
    """List public datasets, or download one, verified, resumed and split as in the paper."""
    if name is None:
        _print_datasets(as_json)
        return
    with bar(f"downloading {name}") as progress:
        data = public.load(name, directory, seed=seed, progress=progress)
    if out is not None:
        data.write(out)
    parts = {"base": data.base, "learn": data.learn, "query": data.query}
    shapes = {part: list(array.shape) for part, array in parts.items() if array is not None}
    print(json.dumps({"name": data.name, "metric": data.metric, **shapes}))


def _print_datasets(as_json: bool) -> None:
    entries = public.list_datasets()
    if as_json:
        print(json.dumps([_facts(entry) for entry in entries]))
        return
    table = Table("name", "dim", "metric", "licence", "paper", "description")
    for entry in entries:
        table.add_row(
            entry.name,
            str(entry.dim),
            entry.metric,
            entry.licence,
            entry.paper or "",
            entry.description,
        )
    Console().print(table)


def _facts(entry: public.PublicDataset) -> dict[str, object]:
    return {
        "name": entry.name,
        "description": entry.description,
        "licence": entry.licence,
        "dim": entry.dim,
        "metric": entry.metric,
        "paper": entry.paper,
        "urls": [file.url for file in entry.files],
    }
