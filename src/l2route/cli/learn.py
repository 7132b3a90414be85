"""The command that learns."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from l2route.cli.maintain import changed
from l2route.cli.options import (
    Index,
    Json,
    OutInstead,
    Queries,
    Threads,
    a_share,
    above_zero,
    at_least,
)
from l2route.cli.progress import learning_bars
from l2route.cli.query import read_named
from l2route.files.formats import read_array
from l2route.files.memory import available_bytes
from l2route.index import RoutingIndex
from l2route.search.limits import DEFAULT_BUDGET
from l2route.training.footprint import expected_bytes
from l2route.training.options import ModelName, Objective


def learn(
    index: Index,
    queries: Queries,
    budget: Annotated[
        int | None,
        typer.Option(
            callback=at_least(1), help="Total distance computations to learn for, 256 by default."
        ),
    ] = None,
    rerank: Annotated[
        int | None,
        typer.Option(
            callback=at_least(1), help="Of them, true distances at the end; 8 by default, or K."
        ),
    ] = None,
    k: Annotated[
        int,
        typer.Option("-k", callback=at_least(1), help="Nearest neighbours that are to be found."),
    ] = 1,
    recall: Annotated[
        float | None,
        typer.Option(callback=a_share, help="Recall@k to learn for, in place of a budget."),
    ] = None,
    dim: Annotated[
        int | None, typer.Option(callback=at_least(1), help="Routing dimension, if smaller.")
    ] = None,
    model: Annotated[ModelName, typer.Option(help="filter, gcn or ffn.")] = "filter",
    objective: Annotated[Objective, typer.Option(help="imitation, teacher or topk.")] = "imitation",
    hidden: Annotated[
        int | None,
        typer.Option(
            callback=at_least(1), help="Hidden units of gcn and ffn (1024), or of filter (none)."
        ),
    ] = None,
    minutes: Annotated[
        float, typer.Option(callback=above_zero, help="Time at the most, set-up included.")
    ] = 5.0,
    steps: Annotated[
        int | None, typer.Option(callback=at_least(1), help="Number of steps, instead of minutes.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    neighbors: Annotated[
        str | None,
        typer.Option(help="Ids of the queries' true neighbours; computed if not given."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keeps the state of the run; a run goes on from it.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="JSON lines, one per validation.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Directory to keep true neighbours and hops in.")
    ] = None,
    count_repeats: Annotated[
        bool,
        typer.Option("--count-repeats", help="Learn from a query as often as the log has it."),
    ] = False,
    memory_gb: Annotated[
        float | None,
        typer.Option(help="Memory for hops to targets; by default 6.4, or half of what is free."),
    ] = None,
    threads: Threads = 0,
    out: OutInstead = None,
    as_json: Json = False,
) -> None:
    """Learn from training queries where to walk; searches of the index then use it."""
    if recall is not None and (budget is not None or rerank is not None):
        raise ValueError("expected --recall, or else --budget and --rerank, got both")
    if rerank is not None and k > rerank:
        raise ValueError(f"expected -k of at most the rerank, {rerank}, got {k}")
    total = DEFAULT_BUDGET if budget is None else budget
    if rerank is not None and rerank >= total:
        raise ValueError(f"expected a --rerank below the budget, {total}, got {rerank}")
    with changed(index, out) as opened, learning_bars() as (progress, on_event):
        sample = read_array(queries)
        known = None if neighbors is None else read_named(opened, neighbors, len(sample))
        _tell_memory(opened, len(sample) * k, dim, memory_gb, threads)
        learned = opened.learn(
            sample,
            budget,
            rerank,
            dim,
            model,
            minutes,
            seed,
            k=k,
            recall=recall,
            neighbors=known,
            objective=objective,
            hidden_dim=hidden,
            steps=steps,
            n_threads=threads,
            count_repeats=count_repeats,
            memory_gb=memory_gb,
            checkpoint=checkpoint,
            log=log,
            cache=cache,
            progress=progress,
            on_event=on_event,
        )
    if as_json:
        print(json.dumps(learned.facts()))
        return
    print(f"{learned} ({learned.n_steps:,} steps, {learned.seconds:.0f} s)")


def _tell_memory(
    index: RoutingIndex, n_targets: int, dim: int | None, memory_gb: float | None, threads: int
) -> None:
    """Say how much memory learning will take, before it starts."""
    expected = expected_bytes(
        len(index),
        index.dim,
        min(len(index), n_targets),
        is_projected=dim is not None and dim < index.dim,
        memory_gb=memory_gb,
        n_threads=threads,
    )
    free = available_bytes()
    said = f"learning takes about {expected / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"
    too_much = "; --memory-gb takes less" if expected > free else ""
    print(f"l2route: {said}{too_much}", file=sys.stderr)
