"""The command `compare`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from l2route.cli.options import above_zero, at_least
from l2route.data.dataset import Dataset
from l2route.data.vectors import Metric
from l2route.evaluation.compare import report as speeds
from l2route.evaluation.compare.methods import select
from l2route.evaluation.compare.run import Comparison
from l2route.evaluation.compare.run import compare as run_comparison
from l2route.files.atomic import replace_text


def compare(
    data: Annotated[
        Path, typer.Option(help="Base, learn and query (.npz, .hdf5), or raw results (.json).")
    ],
    methods: Annotated[str | None, typer.Option(help="Methods, e.g. l2route,hnswlib.")] = None,
    metric: Annotated[
        Metric | None, typer.Option(help="l2, ip or cosine; by default the file's.")
    ] = None,
    minutes: Annotated[
        float, typer.Option(callback=above_zero, help="Time limit of learning.")
    ] = 10.0,
    rounds: Annotated[
        int, typer.Option(callback=at_least(1), help="Times that every setting is timed.")
    ] = 3,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Directory for raw results, table and picture.")
    ] = Path("out/compare"),
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """Measure recall@10 against queries per second of l2route and other libraries, in one run."""
    names = None if methods is None else [name.strip() for name in methods.split(",")]
    select("compare", names)  # refuses unknown names before the data are read
    if data.suffix == ".json":
        result = Comparison.read(data)
    else:
        dataset, raw = Dataset.read(data, metric), out / f"{data.stem}.json"
        result = run_comparison(
            dataset,
            names,
            minutes=minutes,
            n_rounds=rounds,
            seed=seed,
            out=raw,
            on_message=_print_message,
        )
    _write(result, out)
    if markdown:
        print(speeds.as_markdown(result))
    else:
        Console().print(speeds.caption(result), *speeds.rich_tables(result), sep="\n")


def _print_message(message: str) -> None:
    Console(stderr=True, highlight=False).print(message, soft_wrap=True)


def _write(result: Comparison, out: Path) -> None:
    """Write the picture and the table."""
    out.mkdir(parents=True, exist_ok=True)
    speeds.plot(result, out / f"{result.data}.png")
    replace_text(out / f"{result.data}.md", speeds.as_markdown(result))
