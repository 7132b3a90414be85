"""Arguments that several commands take."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

T = TypeVar("T")
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
    return _listed(int, option, text, "128,256,512")


def fractions(option: str, text: str | None) -> list[float]:
    """Numbers with commas between them; none of no text."""
    return _listed(float, option, text, "0.9,0.95")


def _listed(kind: Callable[[str], T], option: str, text: str | None, example: str) -> list[T]:
    if text is None:
        return []
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected {option} like {example}, got {text!r}") from None
