"""Options that several commands share."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from l2route.search.guarantee import GUARANTEES

T = TypeVar("T", int, float)


def at_least(least: int) -> Callable[[float | None], float | None]:
    """Return a callback that refuses an option below a number."""

    def check(value: float | None) -> float | None:
        if value is not None and not value >= least:
            raise typer.BadParameter(f"expected at least {least}, got {value:g}")
        return value

    return check


def above_zero(value: float | None) -> float | None:
    """Refuse an option that is not above 0."""
    if value is not None and not value > 0:
        raise typer.BadParameter(f"expected a number above 0, got {value:g}")
    return value


def a_share(value: float | None) -> float | None:
    """Refuse an option that is not above 0 and at most 1."""
    if value is not None and not 0 < value <= 1:
        raise typer.BadParameter(f"expected a recall in (0, 1], got {value:g}")
    return value


def a_guarantee(value: str | None) -> str | None:
    """Refuse an option that is no guarantee."""
    if value is not None and value not in GUARANTEES:
        raise typer.BadParameter(f"expected one of {', '.join(GUARANTEES)}, got {value}")
    return value


Guaranteed = Annotated[
    str | None,
    typer.Option(
        "--guarantee",
        callback=a_guarantee,
        help="What reaches the recall: mean (the default), or p95: 95% of the queries.",
    ),
]
IDS = "one per line of a .txt, or integers in .npy, .npz:key, .hdf5:key or .parquet:column"
"""What a file of ids may be, for help."""
Index = Annotated[Path, typer.Argument(help="Directory of an index.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
OutInstead = Annotated[
    Path | None, typer.Option("--out", "-o", help="Write here instead of over INDEX.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace the index that is where this one is written.")
]
Space = Annotated[str | None, typer.Option(help="Routing space; by default the index's last.")]
Threads = Annotated[int, typer.Option(callback=at_least(0), help="Threads; 0 for all cores.")]
VECTORS = ".npy, .npz:key, .fvecs, .bvecs, .fbin, .hdf5:key, .parquet:column …"
"""What a file of vectors may be, for help."""
Queries = Annotated[str, typer.Option(help=f"Vectors: {VECTORS}.")]


def numbers(option: str, text: str | None, least: int = 0) -> list[int]:
    """Parse whole numbers separated by commas; an empty list if there is no text."""
    listed = _listed(int, option, text, "128,256,512")
    if listed and min(listed) < least:
        raise ValueError(f"expected {option} of at least {least}, got {text}")
    return listed


def fractions(option: str, text: str | None, most: float = math.inf) -> list[float]:
    """Parse numbers from 0 up separated by commas; an empty list if there is no text."""
    listed = _listed(float, option, text, "0.9,0.95")
    if not all(0 <= each <= most for each in listed):
        raise ValueError(f"expected {option} from 0 to {most:g}, got {text}")
    return listed


def _listed(kind: Callable[[str], T], option: str, text: str | None, example: str) -> list[T]:
    if text is None:
        return []
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected {option} like {example}, got {text!r}") from None
