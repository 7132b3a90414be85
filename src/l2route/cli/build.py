"""The command `build`: an index, plain or ready to serve."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
import typer
from numpy.typing import NDArray

from l2route.cli.maintain import print_info
from l2route.cli.names import NamesOption, labels_of
from l2route.cli.options import IDS, Force, Json, a_share, at_least, numbers
from l2route.cli.progress import bar, step_bars
from l2route.data.labels import Labels
from l2route.data.vectors import Metric
from l2route.files.formats import read_array
from l2route.files.ids import read_ids
from l2route.files.storage import check_index_target
from l2route.graph.build import (
    DEGREE,
    GraphKind,
    GraphOptions,
    check_kind,
    served_entry,
)
from l2route.graph.duplicates import Duplicates
from l2route.graph.entry import Entry
from l2route.graph.report import report as report_graph
from l2route.index import RoutingIndex
from l2route.interop.faiss_import import from_faiss
from l2route.interop.hnswlib_import import from_hnswlib
from l2route.recipe.build import follow
from l2route.recipe.steps import Recipe, Routing

Origin = Literal["vectors", "faiss", "hnswlib"]
Ids = NDArray[np.integer[Any]]
DEFAULTS = Recipe()


def build(
    source: Annotated[str, typer.Argument(help="Vectors, or an index of faiss or hnswlib.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write the index into.")],
    metric: Annotated[
        Metric | None,
        typer.Option(help="l2 (default), ip or cosine; required for hnswlib's files."),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(help="Query log to learn from; the index is also compressed and calibrated."),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(
            callback=a_share,
            help="Recall@k to reach, 0.95 by default; without --queries, measured on held-out "
            "vectors.",
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", callback=at_least(1), help="Answers per query, 10 by default."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(callback=at_least(0), help="Time limit of learning, 5 by default."),
    ] = None,
    routing: Annotated[
        Routing | None,
        typer.Option(help="Routing vectors: auto (default), int2, int4, int8, float16 or float32."),
    ] = None,
    graph: Annotated[
        GraphKind, typer.Option(help="l2route, nsw, hnsw, nsg, knn or approximate-knn.")
    ] = "l2route",
    degree: Annotated[int, typer.Option(help="Largest number of neighbours of a vertex.")] = DEGREE,
    ef_construction: Annotated[
        int | None,
        typer.Option(
            help="Beam width while building: for l2route as the data need, 300 for nsw and hnsw."
        ),
    ] = None,
    entry: Annotated[
        str | None,
        typer.Option(
            help="Where searches start: id, ids (1,2,3), medoid, medoids or longest; by default "
            "medoids, longest for ip, or the entry point of hnsw and nsg."
        ),
    ] = None,
    refined: Annotated[
        bool | None,
        typer.Option("--refine/--no-refine", help="Choose better neighbours; by default for nsw."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    threads: Annotated[
        int | None,
        typer.Option(
            help="Threads, 0 for all cores; with more than one, runs differ unless the graph is "
            "l2route. By default all cores for l2route and with --queries or --recall, else 1."
        ),
    ] = None,
    pca_dim: Annotated[
        int | None,
        typer.Option(
            callback=at_least(1), help="Build and route on this many principal components."
        ),
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(help=f"Ids of the vectors: {IDS}. By default row numbers."),
    ] = None,
    labels: NamesOption = None,
    origin: Annotated[
        Origin, typer.Option("--from", help="What SOURCE is: vectors, faiss or hnswlib.")
    ] = "vectors",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Build an index over vectors, or import the graph of another library.

    With --queries the index is ready to serve: learned, compressed and calibrated for --recall.
    """
    check_index_target(out, force=force)
    start = None if entry is None else _entry(entry)
    if origin != "vectors":
        _refuse({"--ids": ids}, "--from vectors")
    chosen_ids = None if ids is None else read_ids(ids)
    if queries is not None or recall is not None:
        plain = {"--entry": entry, "--refine": refined, "--pca-dim": pca_dim}
        _refuse(
            {**plain, "--from": None if origin == "vectors" else origin},
            "neither --queries nor --recall",
        )
        recipe = Recipe(
            metric=metric or "l2",
            k=DEFAULTS.k if k is None else k,
            recall=DEFAULTS.recall if recall is None else recall,
            routing=routing or DEFAULTS.routing,
            minutes=DEFAULTS.minutes if minutes is None else minutes,
            graph=graph,
            degree=degree,
            ef_construction=ef_construction,
            seed=seed,
            n_threads=threads or 0,
        )
        _build_served(source, queries, recipe, chosen_ids, labels, out, force, as_json)
        return
    _refuse({"-k": k, "--minutes": minutes, "--routing": routing}, "--queries or --recall")
    if origin == "vectors":
        chosen = served_entry(graph, metric or "l2") if start is None else start
        options = GraphOptions(graph, degree, ef_construction, chosen, seed, threads)
        index = _build_plain(source, metric or "l2", options, refined, pca_dim, chosen_ids, labels)
    else:
        index = _import(source, origin, metric, start)
        index.name(_labels(labels, len(index), None))
    index.save(out, overwrite=force)
    print_info(index, as_json)
    _warn_of_graph(index, out)


def _refuse(options: Mapping[str, object], expected: str) -> None:
    """Refuse options that need other options, or exclude them."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ValueError(f"expected {expected} with {given[0]}")


def _labels(source: str | None, n: int, ids: Ids | None) -> Labels:
    """The names of n vectors, none if there is no file of names."""
    return Labels() if source is None else labels_of(source, np.arange(n) if ids is None else ids)


def _build_served(
    source: str,
    queries: str | None,
    recipe: Recipe,
    ids: Ids | None,
    labels: str | None,
    out: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Do what `l2route.build` does, and print its report."""
    vectors = read_array(source)
    log = None if queries is None else read_array(queries)
    names = _labels(labels, len(vectors), ids)
    with step_bars() as (progress, on_event):
        index, report = follow(recipe, vectors, log, ids=ids, progress=progress, on_event=on_event)
    index.name(names)
    index.save(out, overwrite=force)
    if as_json:
        print(json.dumps(report.facts() | {"index": index.info()}))
    else:
        print(f"{report}\nthe same as a picture: l2route report {shlex.quote(str(out))}")
    _warn_of_graph(index, out)


def _build_plain(
    source: str,
    metric: Metric,
    options: GraphOptions,
    refined: bool | None,
    pca_dim: int | None,
    ids: Ids | None,
    labels: str | None,
) -> RoutingIndex:
    check_kind(options.kind, metric)
    vectors = read_array(source)
    names = _labels(labels, len(vectors), ids)
    with bar(f"building {options.kind} over {len(vectors):,} vectors") as progress:
        index = RoutingIndex.build(
            vectors,
            metric=metric,
            graph=options.kind,
            degree=options.degree,
            ef_construction=options.ef_construction,
            entry=options.entry,
            seed=options.seed,
            n_threads=options.n_threads,
            pca_dim=pca_dim,
            refine=refined,
            ids=ids,
            progress=progress,
        )
    index.name(names)
    return index


def _import(
    source: str, origin: Origin, metric: Metric | None, entry: Entry | None
) -> RoutingIndex:
    with bar(f"importing from {origin}") as progress:
        progress(0, None)
        if origin == "faiss":
            return from_faiss(source, entry=entry)
        return from_hnswlib(source, metric, entry=entry)


def _entry(text: str) -> Entry:
    if text in ("medoid", "medoids", "longest"):
        return cast(Entry, text)
    ids = numbers("--entry", text)
    return ids[0] if len(ids) == 1 else ids


def _warn_of_graph(index: RoutingIndex, path: Path) -> None:
    """Warn of vectors that are copies of others, and of vectors that no search can reach."""
    n = f"{len(index):,}"
    if n_copies := Duplicates.of(index.base.vectors()).n_copies:
        message = f"{n_copies:,} of {n} vectors are copies of others"
        print(f"l2route: {message}; answers may hold several copies", file=sys.stderr)
    if n_unreachable := report_graph(index.graph).n_unreachable:
        print(
            f"l2route: warning: no search finds {n_unreachable:,} of {n} vectors, because no path "
            f"leads to them; l2route refine {shlex.quote(str(path))} makes paths",
            file=sys.stderr,
        )
