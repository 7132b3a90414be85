"""The commands `cluster …`: sharded indexes, in this process or on a Ray cluster."""

import json
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from l2route.cli.fields import with_fields
from l2route.cli.options import Json, Queries, a_share, at_least
from l2route.cli.progress import bar
from l2route.cluster.building import BuildOptions, build_sharded
from l2route.cluster.cluster import Cluster
from l2route.cluster.deployment import deployment_of, import_serve
from l2route.cluster.fleet import end_shared
from l2route.cluster.folder import Folder
from l2route.cluster.manifest import Manifest
from l2route.cluster.operating import recall_of
from l2route.cluster.rays import connected
from l2route.cluster.router import Kind
from l2route.cluster.sharded import ShardedIndex
from l2route.data.truth import read_truth
from l2route.data.vectors import check_vectors
from l2route.files.formats import read_array
from l2route.serve.options import API_KEY, ServeOptions

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
cluster = typer.Typer(
    help="Indexes of several shards, built, searched and served by Ray.", no_args_is_help=True
)
Place = Annotated[str, typer.Argument(help="Directory, or URL of fsspec, of a sharded index.")]
Address = Annotated[
    str | None,
    typer.Option(help="Ray cluster: auto, local for a new one, or its address."),
]
Replicas = Annotated[
    int | None,
    typer.Option(
        callback=at_least(0),
        help="Actors of each shard; 0 to search in this process. By default as built.",
    ),
]
Count = Annotated[int, typer.Option("-k", callback=at_least(1), help="Answers per query.")]
Recall = Annotated[
    float | None, typer.Option(callback=a_share, help="Recall@k to reach on merged answers.")
]
Cores = Annotated[float, typer.Option("--cpus", help="Cores that Ray reserves for an actor.")]
APPLICATION = "l2route"
"""Name of what `cluster serve` runs in Ray Serve."""
OWN = re.compile(rf"{APPLICATION}-[0-9a-f]{{8}}")
"""Names of its deployments: each process has another one."""
OFFERED = {
    "n_shards": "--shards",
    "metric": "--metric",
    "k": "-k",
    "recall": "--recall",
    "minutes": "--minutes",
    "routing": "--routing",
    "degree": "--degree",
    "cells": "--cells",
    "replicas": "--replicas",
    "cpus": "--cpus",
    "engine": "--engine",
    "tries": "--tries",
    "seed": "--seed",
}
"""Fields of `BuildOptions` that the command line offers, and their flags."""


@cluster.command()
@with_fields(BuildOptions, OFFERED, BuildOptions)
def build(
    source: Annotated[str, typer.Argument(help="Vectors, or a directory of Parquet files.")],
    out: Annotated[str, typer.Option("--out", "-o", help="Empty directory, or URL of fsspec.")],
    options: BuildOptions,
    queries: Annotated[str | None, typer.Option(help="Query log to learn from.")] = None,
    column: Annotated[str | None, typer.Option(help="Column of vectors, of a table.")] = None,
    id_column: Annotated[str | None, typer.Option(help="Column of ids, of a table.")] = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Build a sharded index, or finish a build that was interrupted."""
    log = None if queries is None else read_array(queries)
    with bar(f"building {options.n_shards} shards") as show:
        manifest = build_sharded(
            source,
            out,
            options,
            queries=log,
            column=column,
            id_column=id_column,
            address=address,
            progress=lambda step, done, total: show(done, total) if step == "shards" else None,
        )
    facts = {
        "path": out,
        "n_vectors": manifest.n_vectors,
        "shards": [shard.n_vectors for shard in manifest.shards],
        "points": [_point(each) for each in manifest.points],
        "build": dict(manifest.facts),
    }
    if as_json:
        print(json.dumps(facts))
        return
    print(f"{out}: {manifest.n_vectors:,} vectors in {len(manifest.shards)} shards")
    for point in manifest.points:
        print(
            f"recall@{point.k} of {point.recall:.3f} with {point.n_asked:.2f} shards asked and "
            f"{point.n_computed:,.0f} distance computations per query, by the router {point.router}"
        )


def _point(point: Any) -> dict[str, Any]:
    return {name: getattr(point, name) for name in point.__dataclass_fields__}


@contextmanager
def _opened(
    path: str, replicas: int | None, address: str | None, cpus: float
) -> Iterator[ShardedIndex | Cluster]:
    """The index in this process, or on a Ray cluster until the end of the block."""
    if replicas == 0:
        yield ShardedIndex(path)
    else:
        with Cluster(path, replicas=replicas, address=address, cpus=cpus) as made:
            yield made


@cluster.command()
def search(
    index: Place,
    queries: Queries,
    k: Count = 10,
    recall: Recall = None,
    ef: Annotated[int | None, typer.Option(callback=at_least(1), help="Beam width.")] = None,
    n_probe: Annotated[
        int | None, typer.Option(callback=at_least(1), help="Shards that each query asks.")
    ] = None,
    replicas: Replicas = None,
    address: Address = None,
    cpus: Cores = 0.5,
    as_json: Json = False,
) -> None:
    """Answer queries, each on a line: ids, nearest first."""
    with _opened(index, replicas, address, cpus) as opened:
        found = opened.search(read_array(queries), k, recall=recall, ef=ef, n_probe=n_probe)
    if as_json:
        answers = {
            "ids": found.ids.tolist(),
            "distances": found.distances.tolist(),
            "n_asked": found.n_asked.tolist(),
            "coverage": found.coverage,
        }
        print(json.dumps(answers))
    else:
        for row in found.ids.tolist():
            print(*(id_ for id_ in row if id_ != -1))


@cluster.command()
def evaluate(
    index: Place,
    queries: Queries,
    truth: Annotated[
        str | None,
        typer.Option(help="Ids of true neighbours; by default of an exact search of all shards."),
    ] = None,
    k: Count = 10,
    recall: Annotated[float, typer.Option(callback=a_share, help="Recall@k to reach.")] = 0.95,
    replicas: Replicas = 0,
    address: Address = None,
    cpus: Cores = 0.5,
    as_json: Json = False,
) -> None:
    """Measure recall, shards asked and distance computations of each router, and of all shards."""
    with _opened(index, replicas, address, cpus) as opened:
        probes = check_vectors("queries", read_array(queries), opened.dim)
        if truth is None:
            widest = max(shard.n_vectors for shard in opened.manifest.shards)
            known = opened.search(probes, k, ef=widest).ids
        else:
            known = read_truth(truth, 2**62, len(probes))[:, :k]
        rows = _measured(opened, probes, known, k, recall)
    if as_json:
        print(json.dumps(rows))
    else:
        _print_rows(rows, f"{len(probes):,} queries, recall@{k} of {recall:g}")


def _measured(
    opened: ShardedIndex | Cluster, probes: Floats, known: Ids, k: int, recall: float
) -> list[dict[str, Any]]:
    """A row for every router, and one for all shards."""
    kinds: list[Kind] = ["centroids"]
    kinds += ["learned"] if opened.router.weights is not None else []
    rows = []
    for kind in kinds:
        point = opened.calibrate(recall, k, router=kind)
        began = time.perf_counter()
        found = opened.search(probes, k, recall=recall)
        rows.append(_row(kind, found, known, point.inner, time.perf_counter() - began))
    began = time.perf_counter()
    found = opened.search(probes, k, n_probe=opened.n_shards, recall=recall)
    rows.append(_row("all shards", found, known, recall, time.perf_counter() - began))
    return rows


def _row(name: str, found: Any, known: Any, inner: float, seconds: float) -> dict[str, Any]:
    return {
        "router": name,
        "recall": recall_of(found.ids, np.asarray(known)),
        "n_asked": float(found.n_asked.mean()),
        "n_computed": float(found.n_computed.mean()),
        "inner": inner,
        "seconds": seconds,
    }


def _print_rows(rows: list[dict[str, Any]], title: str) -> None:
    table = Table(title=title)
    for heading in rows[0]:
        table.add_column(heading, justify="left" if heading == "router" else "right")
    for row in rows:
        table.add_row(*(each if isinstance(each, str) else f"{each:,.3f}" for each in row.values()))
    Console().print(table)


@cluster.command()
def info(index: Place, as_json: Json = False) -> None:
    """Print the shards, the router and the settings of an index; every shard is checked."""
    facts = ShardedIndex(index).info()
    if as_json:
        print(json.dumps(facts))
        return
    shards, points = facts.pop("shards"), facts.pop("points")
    facts.pop("build")
    for name, value in facts.items():
        print(f"{name}: {value}")
    for shard in shards:
        changed = ", changed since it was built" if shard["is_changed"] else ""
        print(f"{shard['directory']}: {shard['n_vectors']:,} vectors{changed}")
    for point in points:
        print("setting: " + ", ".join(f"{name} {value}" for name, value in point.items()))


def _check_cores(ray: Any, manifest: Manifest, replicas: int | None, cpus: float) -> None:
    """Refuse what would wait for ever: more actors than the nodes have cores for."""
    n_actors = len(manifest.shards) * (replicas or manifest.replicas)
    needed, there = cpus * (n_actors + 1), float(ray.cluster_resources().get("CPU", 0))
    if needed > there + 1e-9:
        expected = f"{needed:g} cores for {n_actors} actors of shards and the server"
        raise ValueError(
            f"expected {expected}, --cpus {cpus:g} each, got a cluster with {there:g}: "
            "use fewer --replicas or --cpus"
        )


@cluster.command()
def serve(
    index: Place,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    recall: Recall = None,
    replicas: Annotated[
        int | None, typer.Option(callback=at_least(1), help="Actors of each shard.")
    ] = None,
    address: Address = None,
    cpus: Cores = 0.5,
) -> None:
    """Serve an index over HTTP by Ray Serve, with the routes of `l2route serve`, until a signal."""
    ray = connected(address)
    ray_serve = import_serve()
    options = ServeOptions(host=host, port=port, recall=recall, api_key=os.environ.get(API_KEY))
    place = index if "://" in index else str(Path(index).absolute())
    _check_cores(ray, Manifest.read(Folder(place)), replicas, cpus)
    ray_serve.start(http_options={"host": host, "port": port}, proxy_location="HeadOnly")
    name = f"{APPLICATION}-{secrets.token_hex(4)}"  # of actors that no other process has
    app = deployment_of(place, options, name=name, cpus=cpus, replicas=replicas)
    with _running(ray, ray_serve, app, name):
        is_over = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: is_over.set())
        print(f"serving {index} at http://{host}:{port}", flush=True)
        is_over.wait()
    ray.shutdown()


@contextmanager
def _running(ray: Any, ray_serve: Any, app: Any, name: str) -> Iterator[None]:
    """Run an application until the end of the block, and end it with all of its actors.

    It takes the place of one that an earlier process has left, or still waits for. Of Serve nothing
    else is ended: others may have applications there.
    """
    left = _deployments(ray_serve)
    if left:
        ray_serve.delete(APPLICATION)
        for each in left:
            end_shared(ray, each)
    try:
        ray_serve.run(app, name=APPLICATION, route_prefix="/")
        yield
    finally:
        if name in _deployments(ray_serve):  # no later process has taken its place
            ray_serve.delete(APPLICATION)
        end_shared(ray, name)


def _deployments(ray_serve: Any) -> list[str]:
    """Names of the deployments of the application, which are also those of its actors."""
    there = ray_serve.status().applications.get(APPLICATION)
    return [] if there is None else [each for each in there.deployments if OWN.fullmatch(each)]
