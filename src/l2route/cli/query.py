"""The command line's part for queries: `search` and `evaluate`."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from l2route.cli.options import (
    Index,
    Json,
    Queries,
    Space,
    Threads,
    a_share,
    at_least,
    fractions,
    numbers,
)
from l2route.cli.progress import bar
from l2route.data.metrics import N_ANSWERS
from l2route.data.truth import Truth, exact_distances, exact_neighbors, read_truth
from l2route.data.vectors import check_vectors
from l2route.evaluation.measure import measure, measure_all
from l2route.evaluation.plots import plot_recall_against_budget
from l2route.evaluation.tables import as_json, as_markdown, rich_table
from l2route.files.formats import read_array, write_npz
from l2route.index import RoutingIndex, load
from l2route.search.searcher import Searcher

Budgets = Annotated[
    str | None, typer.Option("--budget", help="Distance computations, e.g. 128,256,512.")
]
Beams = Annotated[str | None, typer.Option("--ef", help="Beam widths, e.g. 32,64.")]
Rerank = Annotated[
    int | None,
    typer.Option(
        callback=at_least(0), help="Of the budget, true distances at the end, if routing needs it."
    ),
]
FIRST_BUDGET = 128
"""The least budget that is measured by default, unless nothing of it were left for the walk."""


def search(
    index: Index,
    queries: Queries,
    k: Annotated[int, typer.Option("-k", callback=at_least(1), help="Answers per query.")] = 10,
    budget: Annotated[
        int | None, typer.Option(callback=at_least(1), help="Distance computations per query.")
    ] = None,
    ef: Annotated[int | None, typer.Option(callback=at_least(1), help="Beam width.")] = None,
    rerank: Rerank = None,
    slack: Annotated[
        float | None,
        typer.Option(
            callback=at_least(0), help="How much farther than the k-th best a walk may go."
        ),
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(callback=a_share, help="Recall to reach, in place of all other limits."),
    ] = None,
    space: Space = None,
    threads: Threads = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write ids and distances to this .npz.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer queries; print them, or keep them in a file."""
    if recall is not None and not budget is ef is slack is rerank is None:
        raise ValueError("expected --recall, or else --budget, --ef, --slack and --rerank")
    opened = load(index)
    if recall is not None:
        _tell_of_measuring(opened, index, recall, k, space)
    result = opened.search(
        read_array(queries),
        k,
        budget,
        ef,
        rerank,
        space,
        threads,
        slack=slack,
        recall=recall,
    )
    if out is not None:
        write_npz(
            out,
            {
                "ids": result.ids,
                "distances": result.distances,
                "n_computed": result.n_computed,
                "n_hops": result.n_hops,
            },
        )
    elif as_json:
        rows = zip(result.ids.tolist(), result.distances.tolist(), strict=True)
        answers = [
            {
                "ids": [i for i in ids if i >= 0],
                "distances": [d for i, d in zip(ids, distances, strict=True) if i >= 0],
            }
            for ids, distances in rows
        ]
        print(json.dumps({"answers": answers}))
    else:
        for row, ids in enumerate(result.ids.tolist()):
            print(f"{row}: {' '.join(str(i) for i in ids if i >= 0)}")


def evaluate(
    index: Index,
    queries: Queries,
    budget: Budgets = None,
    ef: Beams = None,
    truth: Annotated[
        str | None,
        typer.Option(help="Ids of true neighbours, at least 10 a query; computed if not given."),
    ] = None,
    rerank: Rerank = None,
    slack: Annotated[
        str | None,
        typer.Option(help="How much farther than the k-th best walks may go, e.g. 0.05,0.1."),
    ] = None,
    recall: Annotated[
        str | None,
        typer.Option(help="Recalls whose settings the index finds or has, e.g. 0.9,0.95."),
    ] = None,
    space: Space = None,
    threads: Threads = 1,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw recall against budget into this file.")
    ] = None,
    as_json_: Json = False,
) -> None:
    """Measure recall, distance computations, hops and time at each setting."""
    budgets, efs = numbers("--budget", budget, 1), numbers("--ef", ef, 1)
    limits: list[dict[str, Any]] = [
        {"slack": each, "rerank": rerank} for each in fractions("--slack", slack)
    ]
    recalls = fractions("--recall", recall, 1)
    if recalls and rerank is not None:
        raise ValueError("expected --recall, which finds its own rerank, or --rerank, got both")
    opened = load(index)
    probes = check_vectors("queries", read_array(queries), opened.dim)
    for each in recalls:
        _tell_of_measuring(opened, index, each, N_ANSWERS, space)
        limits.append(opened.setting(each, N_ANSWERS, space).limits)
    if not budgets and not efs and not limits:
        budgets = _default_budgets(opened.searcher(space), rerank)
    known = _truth(opened, probes, truth, cache=_writable(Path(queries).parent))
    rows = []
    if budgets or efs:
        rows = measure_all(
            opened, probes, known, budgets, efs, rerank=rerank, space=space, n_threads=threads
        )
    rows += [
        measure(opened, probes, known, space=space, n_threads=threads, **each) for each in limits
    ]
    context = {"index": str(index), "queries": queries, "n_queries": len(probes)}
    if plot is not None:
        plot_recall_against_budget(rows, plot, f"{index.name}: recall against budget")
    if as_json_:
        print(as_json(rows, {**context, "n_threads": threads}))
    elif markdown:
        print(as_markdown(rows))
    else:
        Console().print(rich_table(rows, f"{len(probes):,} queries of {queries}"))


def _tell_of_measuring(
    index: RoutingIndex, path: Path, recall: float, k: int, space: str | None
) -> None:
    """Say that a setting is measured now, if it is, and what would keep it."""
    name = index.searcher(space).space.name
    kept = {(each["space"], each["k"], each["target"]) for each in index.info()["settings"]}
    if index.validation is None or (name, k, recall) in kept:
        return
    named = "" if space is None else f" --space {shlex.quote(space)}"
    print(
        f"l2route: measuring now, on {len(index.validation.queries):,} queries of the index, what "
        f"reaches a recall@{k} of {recall:g}; to keep what is found: "
        f"l2route calibrate {shlex.quote(str(path))} --recall {recall:g} -k {k}{named}",
        file=sys.stderr,
    )


def _default_budgets(searcher: Searcher, rerank: int | None) -> list[int]:
    """Three budgets, each twice the one before."""
    taken = searcher.space.n_projection
    if searcher.reranks:
        taken += max(N_ANSWERS, searcher.space.rerank) if rerank is None else rerank
    first = FIRST_BUDGET
    while first < 2 * taken:
        first *= 2
    return [first, 2 * first, 4 * first]


def _truth(
    index: RoutingIndex, probes: NDArray[np.float32], source: str | None, cache: Path | None
) -> Truth:
    base, metric = index.base.vectors(), index.base.metric
    if source is not None:
        ids = index.rows_of(read_named(index, source, len(probes))[:, :N_ANSWERS])
        if ids.shape[1] < min(N_ANSWERS, len(base)):
            raise ValueError(f"{source}: expected {N_ANSWERS} neighbours, got {ids.shape[1]}")
        return Truth(ids, exact_distances(base, probes, ids, metric))
    with bar("exact neighbours") as progress:
        return exact_neighbors(base, probes, N_ANSWERS, metric, cache=cache, progress=progress)


def read_named(index: RoutingIndex, source: str, n_queries: int) -> NDArray[np.int64]:
    """True neighbours out of a file, called as answers call them."""
    highest = len(index) - 1 if index.labels is None else int(index.labels.max())
    return read_truth(source, highest + 1, n_queries)


def _writable(directory: Path) -> Path | None:
    """The directory, unless its owner has closed it, which binds the superuser too."""
    is_open = bool(directory.stat().st_mode & 0o222)
    return directory if is_open and os.access(directory, os.W_OK) else None
