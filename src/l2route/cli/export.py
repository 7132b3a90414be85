"""Commands that export an index to faiss, or l2route to ann-benchmarks and VIBE."""

from pathlib import Path
from typing import Annotated

import faiss
import typer

from l2route.cli.options import Index, Space
from l2route.files.atomic import replacing
from l2route.index import load
from l2route.interop.annbench import write_module
from l2route.interop.faiss_export import EF_SEARCH, to_faiss

Directory = Annotated[
    Path,
    typer.Option("--out", "-o", help="Directory for the three files; its name should be l2route."),
]
export = typer.Typer(help="Write an index for another system.")


@export.command("faiss")
def export_faiss(
    index: Index,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for faiss.read_index.")],
    space: Space = None,
    ef: Annotated[int, typer.Option(help="Beam width, faiss's efSearch.")] = EF_SEARCH,
    rerank: Annotated[
        int | None,
        typer.Option(help="Candidates to rerank for ten answers; the whole beam by default."),
    ] = None,
) -> None:
    """Write an index that stock faiss reads and searches."""
    made = to_faiss(load(index), space=space, ef=ef, rerank=rerank)
    with replacing(out) as beside:
        faiss.write_index(made, str(beside))
    print(out)


@export.command("annbench")
def export_annbench(out: Directory) -> None:
    """Write the module, configuration and Dockerfile that ann-benchmarks runs l2route with."""
    write_module(out, "ann-benchmarks")
    print(out)


@export.command("vibe")
def export_vibe(out: Directory) -> None:
    """Write the module, configuration and image.def that VIBE runs l2route with."""
    write_module(out, "vibe")
    print(out)


@export.callback()
def targets() -> None:
    """Write an index for another system."""
