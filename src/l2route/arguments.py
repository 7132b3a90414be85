"""Arguments that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

Index = Annotated[Path, typer.Argument(help="Directory of an index.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
OutInstead = Annotated[
    Path | None, typer.Option("--out", "-o", help="Write here instead of over INDEX.")
]
Space = Annotated[str | None, typer.Option(help="Routing space; by default the index's last.")]
Threads = Annotated[int, typer.Option(help="Threads; 0 for all cores.")]
Queries = Annotated[
    str, typer.Option(help="Vectors: .npy, .npz:key, .fvecs, .bvecs, .fbin, .hdf5:key …")
]


def numbers(option: str, text: str | None) -> list[int]:
    """Whole numbers with commas between them; none of no text."""
    if text is None:
        return []
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected {option} like 128,256,512, got {text!r}") from None
