"""Calibration of a sharded index whose shards are searched by tasks, one for each of them."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.arrays import read_array
from l2route.cluster.folder import Folder
from l2route.cluster.manifest import Manifest, Point
from l2route.cluster.merge import Answer, answer_of
from l2route.cluster.operating import Search, find_point
from l2route.cluster.partition import Partition
from l2route.cluster.router import Kind, Router
from l2route.cluster.runners import Done, Needs, Runner, Task, run_all
from l2route.cluster.shard import Asked, OpenShard
from l2route.search.calibrate import OutOfReachError

Floats = NDArray[np.float32]
COPIES = 2
"""Times that the arrays of a shard are in memory while it is opened and searched."""


def search_shard(
    folder: Folder, manifest: Manifest, number: int, queries: Floats, k: int, inner: float
) -> Answer:
    """Answer queries from one shard, which is opened for that."""
    shard = OpenShard(folder, manifest, number)
    return answer_of(number, np.arange(len(queries)), shard.search(queries, Asked(k, recall=inner)))


def search_by(runner: Runner, folder: Folder, manifest: Manifest) -> Search:
    """A function that asks all shards by tasks, and remembers what it was asked."""
    known: dict[tuple[int, float], list[Answer]] = {}

    def search(queries: Floats, k: int, inner: float) -> list[Answer]:
        if (k, inner) not in known:
            answers: list[Answer] = []

            def note(done: Done) -> None:
                answers.append(done.result)

            tasks = [
                Task(f"measuring shard {n}", (folder, manifest, n, queries, k, inner))
                for n in range(len(manifest.shards))
            ]
            n_bytes = COPIES * max(shard.n_bytes for shard in manifest.shards)
            run_all(runner, search_shard, tasks, Needs(1.0, n_bytes), note)
            known[k, inner] = answers
        return known[k, inner]

    return search


def calibrated_by(
    runner: Runner, folder: Folder, manifest: Manifest, recall: float, k: int
) -> Manifest:
    """The manifest with a setting that reaches a recall@k, and the better of both routers.

    The learned router is kept if it asks fewer shards than centroids do at that recall. If none
    reaches the recall, there is no setting.
    """
    arrays = {name: read_array(folder, entry) for name, entry in manifest.arrays.items()}
    partition = Partition(arrays["centroids"], arrays["cells"].astype(np.int32), manifest.metric)
    router, search = Router.of(arrays, partition), search_by(runner, folder, manifest)
    kinds: list[Kind] = ["centroids"] if router.weights is None else ["centroids", "learned"]
    points: dict[str, Point] = {}
    for kind in kinds:
        try:
            points[kind] = find_point(
                router, arrays["queries"], arrays["neighbors"], search, k, recall, kind
            )
        except OutOfReachError:
            continue
    facts = dict(manifest.facts) | {"points": {kind: asdict(p) for kind, p in points.items()}}
    if not points:
        return replace(manifest, facts=facts)
    best = min(points.values(), key=lambda point: (point.n_asked, point.n_computed))
    kept = manifest.arrays
    if best.router == "centroids":
        kept = {name: entry for name, entry in kept.items() if not name.startswith("router_")}
    return replace(manifest, arrays=kept, facts=facts).with_point(best)
