"""The command `report`: the picture of a build, or the page of a run of the paper's experiments."""

from pathlib import Path
from typing import Annotated

import typer

from l2route.files.atomic import replace_text
from l2route.files.meta import META
from l2route.recipe.picture import PICTURES, write_picture
from l2route.recipe.report import BuildReport

PLAN = "plan.json"
"""The file by which a run of experiments is known."""


def report(
    source: Annotated[
        Path,
        typer.Argument(
            help="An index that `build` made for a recall, a report saved as .json, or the "
            "directory of a run of experiments.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File to write: of a build .png, .svg, .pdf, .html or .json, SOURCE.report.png by "
            "default; of a run .html, RUN/report.html by default.",
        ),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Of a run: file to write the tables to as Markdown.")
    ] = None,
) -> None:
    """Draw what each step of a build brought, or write a page of a run's results.

    Of a build: queries a second after each step, and what was kept. Of a run: its results beside
    the paper's. Nothing is run.
    """
    if _is_run(source):
        _write_run(source, out, markdown)
        return
    if markdown is not None:
        raise ValueError(f"expected a run of experiments with --markdown, got {source}")
    _draw_build(source, out)


def _is_run(source: Path) -> bool:
    """Whether a directory holds a run of experiments and no index; refuses what is neither."""
    if not source.exists():
        raise ValueError(f"expected an index, a report or a run, got no {source}")
    if not source.is_dir() or (source / META).exists():
        return False
    if not (source / PLAN).exists():
        expected = f"an index ({META}) or a run of experiments ({PLAN})"
        raise ValueError(f"expected {expected} in {source}, got neither")
    return True


def _draw_build(source: Path, out: Path | None) -> None:
    """Print the table of a build, and write its picture."""
    named = source if source.name.strip(".") else source.resolve()
    target = named.with_name(f"{named.stem}.report.png") if out is None else out
    kinds = (*PICTURES, "json")
    if target.suffix[1:].lower() not in kinds:
        raise ValueError(f"expected a file .{', .'.join(kinds)}, got {target.name!r}")
    build = BuildReport.load(source)
    print(build)
    if target.suffix.lower() == ".json":
        build.save(target)
    else:
        write_picture(build, target)
    print(target)


def _write_run(run: Path, out: Path | None, markdown: Path | None) -> None:
    """Write the page of a run of experiments."""
    from l2route.reproduce.page import write_page
    from l2route.reproduce.store import Store
    from l2route.reproduce.summary import as_markdown, summarize

    store = Store(run)
    tables = summarize(store)
    target = run / "report.html" if out is None else out
    write_page(tables, store, target)
    if markdown is not None:
        replace_text(markdown, as_markdown(tables, store))
    print(target)
