"""The command line: one sub-command per stage, no logic of its own."""

import json
import shlex
import sys
import warnings
from pathlib import Path
from typing import Annotated, Literal, cast

import typer
from rich.console import Console
from rich.table import Table
from typer.main import get_command

from l2route import __version__
from l2route.cli import paper
from l2route.cli.compare import compare
from l2route.cli.demo import run_demo
from l2route.cli.export import export
from l2route.cli.learn import learn
from l2route.cli.maintain import (
    calibrate,
    compress,
    info,
    print_info,
    refine,
    renumber,
)
from l2route.cli.options import (
    Json,
    at_least,
    numbers,
)
from l2route.cli.progress import bar
from l2route.cli.query import evaluate, search
from l2route.data import public
from l2route.data.vectors import Metric
from l2route.files.formats import read_array
from l2route.files.storage import check_target
from l2route.graph.build import (
    DEGREE,
    EF_CONSTRUCTION,
    GraphKind,
    GraphOptions,
    check_kind,
    served_entry,
)
from l2route.graph.duplicates import Duplicates
from l2route.graph.entry import Entry
from l2route.graph.report import report
from l2route.index import RoutingIndex
from l2route.interop.faiss_import import from_faiss
from l2route.interop.hnswlib_import import from_hnswlib

app = typer.Typer(
    help="Graph nearest-neighbour search that learns from queries.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
Out = Annotated[Path, typer.Option("--out", "-o", help="Directory to write the index into.")]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"l2route {__version__}")
        raise typer.Exit


@app.callback()
def everywhere(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Graph nearest-neighbour search that learns from queries."""


@app.command()
def build(
    source: Annotated[str, typer.Argument(help="Vectors, or an index of faiss or hnswlib.")],
    out: Out,
    metric: Annotated[
        Metric | None,
        typer.Option(help="l2 (default), ip or cosine; hnswlib's files need to be told."),
    ] = None,
    graph: Annotated[
        GraphKind, typer.Option(help="nsw, hnsw, nsg, knn or approximate-knn.")
    ] = "nsw",
    degree: Annotated[int, typer.Option(help="Largest number of neighbours of a vertex.")] = DEGREE,
    ef_construction: Annotated[
        int, typer.Option(help="Beam width while building nsw and hnsw.")
    ] = EF_CONSTRUCTION,
    entry: Annotated[
        str | None,
        typer.Option(
            help="Where searches start: id, ids (1,2,3), medoid, medoids or longest; by default "
            "medoids, longest for ip, or what hnsw and nsg have of their own."
        ),
    ] = None,
    refined: Annotated[
        bool | None,
        typer.Option("--refine/--no-refine", help="Choose better neighbours; by default for nsw."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    threads: Annotated[
        int, typer.Option(help="More than one is faster and differs from run to run.")
    ] = 1,
    pca_dim: Annotated[
        int | None,
        typer.Option(
            callback=at_least(1), help="Build on and route by so many principal components."
        ),
    ] = None,
    origin: Annotated[
        Literal["vectors", "faiss", "hnswlib"],
        typer.Option("--from", help="What SOURCE is: vectors, faiss or hnswlib."),
    ] = "vectors",
    as_json: Json = False,
) -> None:
    """Build an index over vectors, or take over the graph of another library."""
    check_target(out)
    start = None if entry is None else _entry(entry)
    if origin == "vectors":
        measured = metric or "l2"
        chosen = served_entry(graph, measured) if start is None else start
        GraphOptions(graph, degree, ef_construction, chosen, seed, threads)  # refuses wrong ones
        check_kind(graph, measured)
        vectors = read_array(source)
        with bar(f"building {graph} over {len(vectors):,} vectors") as progress:
            index = RoutingIndex.build(
                vectors,
                metric=measured,
                graph=graph,
                degree=degree,
                ef_construction=ef_construction,
                entry=start,
                seed=seed,
                n_threads=threads,
                pca_dim=pca_dim,
                refine=refined,
                progress=progress,
            )
    else:
        with bar(f"importing from {origin}") as progress:
            progress(0, None)
            if origin == "faiss":
                index = from_faiss(source, entry=start)
            else:
                index = from_hnswlib(source, metric, entry=start)
    index.save(out)
    print_info(index, as_json)
    _warn_of_graph(index, out)


def _warn_of_graph(index: RoutingIndex, path: Path) -> None:
    """Say what of an index its owner may not expect: copies, and what no search finds."""
    n = f"{len(index):,}"
    if n_copies := Duplicates.of(index.base.vectors()).n_copies:
        said = f"{n_copies:,} of {n} vectors are copies of others; answers may hold several copies"
        print(f"l2route: {said}", file=sys.stderr)
    if n_lost := report(index.graph).n_unreachable:
        print(
            f"l2route: warning: no search finds {n_lost:,} of {n} vectors, because no path leads "
            f"to them; l2route refine {shlex.quote(str(path))} makes paths",
            file=sys.stderr,
        )


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for what the demo makes.")],
    seed: Annotated[int, typer.Option(help="Cuts the words into base and queries.")] = 0,
) -> None:
    """Search 100,000 real word vectors: build, learn, measure, show."""
    out.mkdir(parents=True, exist_ok=True)
    run_demo(out, Console(), seed)


for command in (
    learn,
    search,
    evaluate,
    refine,
    renumber,
    compress,
    calibrate,
    info,
    compare,
    paper.reproduce,
    paper.progress,
    paper.report,
):
    app.command()(command)
app.add_typer(export, name="export")


@app.command()
def datasets(
    name: Annotated[
        str | None, typer.Argument(help="Dataset to download; without it, list them.")
    ] = None,
    directory: Annotated[Path, typer.Option(help="Where downloads are kept.")] = Path("data"),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write it here: .npz or .hdf5.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Draws the split.")] = 0,
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


def _entry(text: str) -> Entry:
    if text in ("medoid", "medoids", "longest"):
        return cast(Entry, text)
    ids = numbers("--entry", text)
    return ids[0] if len(ids) == 1 else ids


def _print_datasets(as_json: bool) -> None:
    entries = public.list_datasets()
    if as_json:
        print(
            json.dumps(
                [
                    {
                        "name": entry.name,
                        "description": entry.description,
                        "licence": entry.licence,
                        "dim": entry.dim,
                        "metric": entry.metric,
                        "paper": entry.paper,
                        "urls": [file.url for file in entry.files],
                    }
                    for entry in entries
                ]
            )
        )
        return
    table = Table("name", "dim", "metric", "licence", "paper", "what")
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


def _print_warning(message: Warning | str, *_: object) -> None:
    print(f"l2route: warning: {message}", file=sys.stderr)


def main() -> None:
    """Run the command line; bad input is one clear line and exit code 2, a warning a line too."""
    warnings.showwarning = _print_warning  # type: ignore[assignment] # takes what it needs
    try:
        sys.exit(get_command(app).main(sys.argv[1:] or ["--help"], standalone_mode=False))
    except typer.TyperException as error:
        message = error.format_message()
    except (ValueError, ImportError, OSError) as error:
        message = str(error)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    print(f"l2route: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
