"""The commands `search` and `evaluate`."""

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

from l2route.cli.names import shown
from l2route.cli.options import (
    IDS,
    Guaranteed,
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
from l2route.data.labels import Labels
from l2route.data.metrics import N_ANSWERS
from l2route.data.truth import Truth, exact_distances, exact_neighbors, read_truth
from l2route.data.vectors import check_vectors
from l2route.evaluation.measure import measure
from l2route.evaluation.plots import plot_recall_against_budget
from l2route.evaluation.tables import as_json, as_markdown, rich_table
from l2route.files.formats import read_array, write_npz
from l2route.files.ids import read_ids
from l2route.index import RoutingIndex, load
from l2route.search.guarantee import Guarantee, check_guarantee
from l2route.search.limits import Limits, check_alone
from l2route.search.result import SearchResult
from l2route.search.space import RoutingSpace

K = Annotated[int, typer.Option("-k", callback=at_least(1), help="Answers per query.")]
Budget = Annotated[
    int | None, typer.Option(callback=at_least(1), help="Distance computations per query.")
]
Beam = Annotated[int | None, typer.Option(callback=at_least(1), help="Beam width.")]
Slack = Annotated[
    float | None,
    typer.Option(callback=at_least(0), help="Fraction beyond the k-th best distance to walk."),
]
Rerank = Annotated[
    int | None,
    typer.Option(callback=at_least(0), help="Candidates to rerank by true distance."),
]
Recall = Annotated[
    float | None,
    typer.Option(callback=a_share, help="Recall@k to reach, in place of all other limits."),
]
Where = Annotated[
    str | None,
    typer.Option(
        help=f"Vectors that may be answers: ids ({IDS}), or a boolean per vector in the order of "
        "`RoutingIndex.ids`."
    ),
]
Budgets = Annotated[
    str | None, typer.Option("--budget", help="Distance computations, e.g. 128,256,512.")
]
Beams = Annotated[str | None, typer.Option("--ef", help="Beam widths, e.g. 32,64.")]
Slacks = Annotated[
    str | None,
    typer.Option("--slack", help="Fractions beyond the k-th best distance to walk, e.g. 0.05,0.1."),
]
Recalls = Annotated[
    str | None,
    typer.Option("--recall", help="Recalls@10 to reach by calibrated settings, e.g. 0.9,0.95."),
]
Neighbors = Annotated[
    str | None,
    typer.Option(help="File of true neighbours, at least 10 ids per query; computed if not given."),
]
Plot = Annotated[Path | None, typer.Option(help="Draw recall against budget into this file.")]
FIRST_BUDGET = 128
"""Smallest default budget; doubled until rerank and projection take at most half of it."""


def search(
    index: Index,
    queries: Queries,
    k: K = 10,
    budget: Budget = None,
    ef: Beam = None,
    rerank: Rerank = None,
    slack: Slack = None,
    recall: Recall = None,
    guarantee: Guaranteed = None,
    where: Where = None,
    space: Space = None,
    threads: Threads = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write ids and distances to this .npz.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer queries; print the answers, or write them to a file."""
    limits = Limits(budget, ef, slack, rerank)
    if recall is not None:
        check_alone(recall, limits)
    passing = None if where is None else read_ids(where, may_be_mask=True)
    opened = load(index)
    kind = None if guarantee is None else check_guarantee(guarantee)
    if recall is not None:
        _announce_calibration(opened, index, recall, k, space, kind)
    result = opened.search(
        read_array(queries),
        k,
        where=passing,
        **limits._asdict(),
        recall=recall,
        guarantee=kind,
        space=space,
        n_threads=threads,
    )
    if out is not None:
        names = ("ids", "distances", "n_computed", "n_hops")
        write_npz(out, {name: getattr(result, name) for name in names})
    elif as_json:
        print(json.dumps({"answers": _answers(result, opened.names)}))
    else:
        for row, ids in enumerate(result.ids.tolist()):
            found = [id_ for id_ in ids if id_ != -1]
            answers = shown(opened.names, found) if len(opened.names) else " ".join(map(str, found))
            print(f"{row}: {answers}")


def _answers(result: SearchResult, names: Labels) -> list[dict[str, Any]]:
    """Ids and distances of each query, and names if there are some, without padding."""
    rows = zip(result.ids.tolist(), result.distances.tolist(), strict=True)
    answers: list[dict[str, Any]] = [
        {
            "ids": [i for i in ids if i != -1],
            "distances": [d for i, d in zip(ids, distances, strict=True) if i != -1],
        }
        for ids, distances in rows
    ]
    for answer in answers if len(names) else ():
        answer["names"] = names.names(answer["ids"])
    return answers


def evaluate(
    index: Index,
    queries: Queries,
    budget: Budgets = None,
    ef: Beams = None,
    truth: Neighbors = None,
    rerank: Rerank = None,
    slack: Slacks = None,
    recall: Recalls = None,
    guarantee: Guaranteed = None,
    space: Space = None,
    threads: Threads = 1,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    plot: Plot = None,
    as_json_: Json = False,
) -> None:
    """Measure recall, also of the worst queries, distance computations, hops and time."""
    asked: list[dict[str, Any]] = [
        each._asdict() for each in _listed_limits(budget, ef, slack, rerank)
    ]
    recalls = fractions("--recall", recall, 1)
    for each in recalls:
        check_alone(each, Limits(rerank=rerank))
    opened = load(index)
    probes = check_vectors("queries", read_array(queries), opened.dim)
    kind = None if guarantee is None else check_guarantee(guarantee)
    if kind is not None and not recalls:
        raise ValueError(f"expected --guarantee with --recall, got {kind} without")
    for each in recalls:
        _announce_calibration(opened, index, each, N_ANSWERS, space, kind)
        asked.append({"recall": each, "guarantee": kind})
    if not asked:
        default = _default_limits(opened.searcher(space).space, rerank)
        asked = [limits._asdict() for limits in default]
    known = _truth(opened, probes, truth, cache=_writable(Path(queries).parent))
    rows = [
        measure(opened, probes, known, **each, space=space, n_threads=threads) for each in asked
    ]
    if plot is not None:
        plot_recall_against_budget(rows, plot, f"{index.name}: recall against budget")
    if as_json_:
        context = {"index": str(index), "queries": queries, "n_queries": len(probes)}
        print(as_json(rows, {**context, "n_threads": threads}))
    elif markdown:
        print(as_markdown(rows))
    else:
        Console().print(rich_table(rows, f"{len(probes):,} queries of {queries}"))


def _listed_limits(
    budget: str | None, ef: str | None, slack: str | None, rerank: int | None
) -> list[Limits]:
    """Every budget, every beam width, or every pair if both are given; then every slack."""
    budgets, efs = numbers("--budget", budget, 1), numbers("--ef", ef, 1)
    listed = [
        Limits(one, other, rerank=rerank)
        for one in budgets or (None,)
        for other in efs or (None,)
        if budgets or efs
    ]
    return listed + [Limits(slack=each, rerank=rerank) for each in fractions("--slack", slack)]


def _announce_calibration(
    index: RoutingIndex,
    path: Path,
    recall: float,
    k: int,
    space: str | None,
    guarantee: Guarantee | None,
) -> None:
    """Print that a setting is calibrated now, if it is, and the command that would keep it."""
    name = index.searcher(space).space.name
    facts = index.info()["settings"]
    kept = {(each["space"], each["k"], each["target"], each["guarantee"]) for each in facts}
    if index.validation is None or (name, k, recall, guarantee or "mean") in kept:
        return
    named = "" if space is None else f" --space {shlex.quote(space)}"
    named += "" if guarantee is None else f" --guarantee {guarantee}"
    print(
        f"l2route: measuring now, on {len(index.validation.queries):,} validation queries, a "
        f"setting that reaches a recall@{k} of {recall:g}; to keep it: "
        f"l2route calibrate {shlex.quote(str(path))} --recall {recall:g} -k {k}{named}",
        file=sys.stderr,
    )


def _default_limits(space: RoutingSpace, rerank: int | None) -> list[Limits]:
    """Three budgets, each twice the one before."""
    _, _, n_rerank, _ = Limits(rerank=rerank).resolve(space, N_ANSWERS)
    first = FIRST_BUDGET
    while first < 2 * (n_rerank + space.n_projection):
        first *= 2
    return [Limits(budget, rerank=rerank) for budget in (first, 2 * first, 4 * first)]


def _truth(
    index: RoutingIndex, probes: NDArray[np.float32], source: str | None, cache: Path | None
) -> Truth:
    base, metric = index.base.vectors(), index.base.metric
    if source is not None:
        ids = index.rows_of(read_neighbors(index, source, len(probes))[:, :N_ANSWERS])
        if ids.shape[1] < min(N_ANSWERS, len(base)):
            raise ValueError(f"{source}: expected {N_ANSWERS} neighbours, got {ids.shape[1]}")
        return Truth(ids, exact_distances(base, probes, ids, metric))
    with bar("exact neighbours") as progress:
        return exact_neighbors(base, probes, N_ANSWERS, metric, cache=cache, progress=progress)


def read_neighbors(index: RoutingIndex, source: str, n_queries: int) -> NDArray[np.int64]:
    """Read true neighbours from a file [n_queries, depth]; ids are as in answers."""
    highest = len(index) - 1 if index.labels is None else int(index.labels.max())
    return read_truth(source, highest + 1, n_queries)


def _writable(directory: Path) -> Path | None:
    """The directory, or None if its mode is read-only, which the superuser respects too."""
    is_open = bool(directory.stat().st_mode & 0o222)
    return directory if is_open and os.access(directory, os.W_OK) else None
