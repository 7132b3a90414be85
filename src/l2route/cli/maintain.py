"""Commands for an existing index: `info`, `refine`, `renumber`, `compress`, `calibrate`."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from l2route.cli.options import (
    Force,
    Guaranteed,
    Index,
    Json,
    OutInstead,
    Space,
    Threads,
    a_share,
    at_least,
)
from l2route.cli.progress import bar
from l2route.files.formats import read_array
from l2route.files.storage import check_index_target
from l2route.graph.report import report
from l2route.index import RoutingIndex, load
from l2route.rewiring.refine import ALPHA, N_CANDIDATES, check_refinement
from l2route.search.codes import Compression
from l2route.search.guarantee import check_guarantee


@contextmanager
def changed(
    index: Path, out: Path | None, force: bool, queries: str | None = None
) -> Iterator[RoutingIndex]:
    """Load an index to change it; it is saved at the end, unless an error occurs.

    Args:
        index: its directory.
        out: directory to save it into, instead of its own.
        force: whether to replace an index there, or what others made of this one meanwhile.
        queries: file of validation queries, which replace those of the index.
    """
    target = index if out is None else out
    check_index_target(target, force=force or out is None)
    opened = load(index)
    if queries is not None:
        opened.validate_with(read_array(queries))
    yield opened
    opened.save(target, overwrite=force)


def info(index: Index, as_json: Json = False) -> None:
    """Describe an index: size, graph, reachability, spaces, settings, losses."""
    print_info(load(index), as_json)


def print_info(index: RoutingIndex, as_json: bool) -> None:
    """Print the description of an index, as a table or as JSON."""
    facts = index.info()
    if as_json:
        print(json.dumps(facts))
        return
    graph, spaces = facts.pop("graph"), facts.pop("spaces")
    settings, losses = facts.pop("settings"), facts.pop("losses")
    rules = facts.pop("rules")
    facts.pop("drifts")  # an index that was just loaded has none
    table = Table(show_header=False, box=None)
    for name, value in {**facts, **graph}.items():
        shown = f"{value:,.2f}" if isinstance(value, float) else str(value)
        table.add_row(name.replace("_", " "), shown)
    table.add_row("spaces", "\n".join(map(_space, spaces)))
    if settings:
        table.add_row("settings", "\n".join(map(_setting, settings)))
    if rules:
        learned = "\n".join(f"{rule['space']}: k of {rule['k']}" for rule in rules)
        table.add_row("stopping rules", learned)
    if losses:
        table.add_row("compression", "\n".join(map(_loss, losses)))
    Console().print(table)


def refine(
    index: Index,
    degree: Annotated[
        int | None,
        typer.Option(
            help="Largest number of neighbours; by default as it is, 8 or 32 more with a log."
        ),
    ] = None,
    candidates: Annotated[
        int, typer.Option(help="Nearest vertices that neighbours are chosen from.")
    ] = N_CANDIDATES,
    alpha: Annotated[float, typer.Option(help="At least 1; larger keeps more neighbours.")] = ALPHA,
    queries: Annotated[
        str | None,
        typer.Option(help="A query log: add edges and entry points that its queries lack."),
    ] = None,
    k: Annotated[int, typer.Option("-k", callback=at_least(1), help="Answers per query.")] = 10,
    recall: Annotated[
        float, typer.Option(callback=a_share, help="Recall@k at which a log has to pay.")
    ] = 0.95,
    threads: Threads = 0,
    out: OutInstead = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose better neighbours for every vertex, and renumber vertices as `renumber` does.

    With --queries, neighbours stay, and edges and entry points from the query log are added, if
    queries that are held out are then expected to take less time. Run it before `learn`. Settings
    and losses measured before are dropped; ids of answers stay the same.
    """
    check_refinement(None if queries is not None else degree, candidates, alpha, threads)
    with changed(index, out, force) as opened:
        before = asdict(report(opened.graph))
        with bar(f"refining {len(opened):,} vertices") as progress:
            found = opened.refine(
                degree=degree,
                n_candidates=candidates,
                alpha=alpha,
                queries=None if queries is None else read_array(queries),
                k=k,
                recall=recall,
                n_threads=threads,
                progress=progress,
            )
        opened.renumber()
    after = asdict(report(opened.graph))
    if as_json:
        log = None if found is None else found.facts()
        print(json.dumps({"before": before, "after": after, "log": log}))
        return
    if found is not None:
        print(found)
    for name in ("mean_degree", "max_degree", "n_unreachable", "max_hops"):
        title = name.removeprefix("n_").replace("_", " ")
        print(f"{title}: {before[name]:,.4g} before, {after[name]:,.4g} after")


def renumber(index: Index, out: OutInstead = None, force: Force = False) -> None:
    """Store neighbouring vertices near each other in memory; ids of answers stay the same."""
    with changed(index, out, force) as opened:
        opened.renumber()


def compress(
    index: Index,
    routing: Annotated[
        Literal[Compression, "none"],
        typer.Option(help="int2, int4, int8 or float16 for routing vectors, or none."),
    ] = "int8",
    vectors: Annotated[
        Literal["float16"] | None,
        typer.Option(help="float16 for original vectors; by default as they are."),
    ] = None,
    inline: Annotated[
        bool, typer.Option("--inline", help="Keep neighbours' codes with every vertex in memory.")
    ] = False,
    queries: Annotated[
        str | None,
        typer.Option(help="Queries to measure the loss of recall on, kept in the index."),
    ] = None,
    space: Space = None,
    out: OutInstead = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compress routing vectors, original vectors or both, and print the loss of recall."""
    with changed(index, out, force, queries) as opened:
        before = opened.info()["bytes_per_vector"]
        chosen = None if routing == "none" else routing
        opened.compress(chosen, vectors=vectors, space=space, inlined=inline)
    facts = {"before": before, "after": opened.info()["bytes_per_vector"]}
    losses = opened.info()["losses"]
    if as_json:
        print(json.dumps({"bytes_per_vector": facts, "losses": losses}))
        return
    print(f"bytes per vector: {before:,.0f} before, {facts['after']:,.0f} after")
    for loss in losses:
        print(_loss(loss))


def calibrate(
    index: Index,
    recall: Annotated[float, typer.Option(callback=a_share, help="Recall@k to reach.")],
    k: Annotated[int, typer.Option("-k", callback=at_least(1), help="Answers per query.")] = 10,
    queries: Annotated[
        str | None,
        typer.Option(
            help="Queries to measure on; they replace the validation queries of the index."
        ),
    ] = None,
    learn_from: Annotated[
        str | None,
        typer.Option(help="Other queries, at least 500, to learn from when walks should end."),
    ] = None,
    guarantee: Guaranteed = None,
    space: Space = None,
    threads: Threads = 0,
    out: OutInstead = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find the setting that reaches a recall at the least cost, and keep it in the index."""
    kind = check_guarantee(guarantee or "mean")
    with changed(index, out, force, queries) as opened:
        if learn_from is not None:
            opened.learn_stopping(read_array(learn_from), k, space=space, n_threads=threads)
        found = opened.setting(recall, k, guarantee=kind, space=space, n_threads=threads)
    setting = asdict(found)
    print(json.dumps(setting) if as_json else _setting(setting))


def _space(space: Mapping[str, Any]) -> str:
    kind = f"int{space['code_bits']}" if space["dtype"] == "uint8" else space["dtype"]
    return f"{space['name']} ({space['dim']}-d {space['scorer']}, {kind})"


def _setting(setting: Mapping[str, Any]) -> str:
    ef, slack = setting["ef"], setting["slack"]
    width = f"slack {slack:g}" if ef is None else f"ef {ef}"
    if setting["threshold"] is not None:
        width = f"a learned rule (under filters {width})"
    whose = " for 95% of queries" if setting["guarantee"] == "p95" else ""
    return (
        f"{setting['space']}: recall@{setting['k']} of {setting['target']:g}{whose} takes {width} "
        f"and rerank {setting['rerank']}; {setting['recall']:.4f} on validation queries"
    )


def _loss(loss: Mapping[str, Any]) -> str:
    return (
        f"{loss['space']}: recall@{loss['k']} {loss['before']:.4f} before, {loss['after']:.4f} "
        f"after, with a beam of {loss['ef']}, on validation queries"
    )
