"""Building a sharded index: divided, built shard by shard, routed, calibrated; resumable.

Every step keeps its result in the folder, so that a build whose process was killed goes on where it
was: parts that were divided, true neighbours that were found and shards that were built are not
done again. The manifest is the last file that is written.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.arrays import write_array
from l2route.cluster.calibrating import calibrated_by
from l2route.cluster.folder import Folder
from l2route.cluster.manifest import MANIFEST, Manifest, Shard
from l2route.cluster.partition import Partition, make_partition
from l2route.cluster.query_split import QuerySplit, split_queries
from l2route.cluster.rays import Address
from l2route.cluster.router import Router
from l2route.cluster.router_learning import RouterOptions, learn_router, shares_of
from l2route.cluster.runners import (
    Clock,
    Done,
    LocalRunner,
    Needs,
    RayRunner,
    Runner,
    Task,
    run_all,
)
from l2route.cluster.sources import Source, source_of
from l2route.cluster.tasks import (
    Progress,
    ShardRecipe,
    build_shard,
    bytes_of_build,
    bytes_of_rows,
    directory_of,
    finished_shard,
    merged_neighbors,
    neighbors_in_shard,
)
from l2route.cluster.workspace import Workspace, alone, divide_part, rows_per_part
from l2route.data.vectors import check_metric, check_vectors
from l2route.files.hashing import hash_arrays
from l2route.recipe.steps import Routing

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Engine = Literal["local", "ray"]
SAMPLE_PER_CELL = 256
"""Vectors of the sample for each cell of the partition."""
FEW_QUERIES = 50
"""With fewer queries of its own a shard learns nothing, and is measured on those of all shards."""
DEPTH = 100
"""True neighbours that are kept of each validation query, at the most."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How a sharded index is built."""

    n_shards: int = 4
    """Number of shards."""
    metric: str = "l2"
    """l2, ip or cosine."""
    k: int = 10
    """Answers per query."""
    recall: float = 0.95
    """Recall@k to reach on merged answers."""
    minutes: float = 5.0
    """Time limit of learning within each shard; 0 to learn nothing there."""
    routing: Routing = "int8"
    """Element type of routing vectors."""
    degree: int = 16
    """Largest number of neighbours of a vertex."""
    cells: int = 0
    """Centroids of all shards; 0 for 32 per shard, or as the sample allows."""
    replicas: int = 2
    """Copies of each shard that a cluster keeps by default."""
    cpus: float = 1.0
    """Cores of a task that builds a shard; others take one."""
    engine: Engine = "local"
    """local: in this process; ray: by tasks of a Ray cluster."""
    tries: int = 3
    """How often a task is tried before its shard is named."""
    seed: int = 0
    """Seed of every random choice."""

    def __post_init__(self) -> None:
        check_metric(self.metric)
        for name in ("n_shards", "k", "replicas", "tries", "degree"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of at least 1, got {getattr(self, name)}")
        if not 0 < self.recall <= 1 or self.minutes < 0 or self.cpus <= 0:
            got = f"{self.recall}, {self.minutes} and {self.cpus}"
            raise ValueError(f"expected a recall in (0, 1], minutes and cpus from 0 up, got {got}")
        if self.engine not in ("local", "ray"):
            raise ValueError(f"expected the engine local or ray, got {self.engine!r}")

    @property
    def recipe(self) -> ShardRecipe:
        """How each shard is built."""
        return ShardRecipe(
            check_metric(self.metric),
            self.k,
            self.recall,
            self.routing,
            self.minutes,
            self.degree,
            self.seed,
            max(1, int(self.cpus)),
        )


def build_sharded(
    source: object,
    path: str | Path,
    options: BuildOptions,
    *,
    queries: object = None,
    ids: object = None,
    column: str | None = None,
    id_column: str | None = None,
    address: Address = None,
    progress: Progress | None = None,
) -> Manifest:
    """Build a sharded index into a folder, or finish a build that was interrupted.

    Args:
        source: an array; a path of a file, which may be larger than memory, or of a directory of
            Parquet files; a `ray.data.Dataset`.
        path: an empty directory, or one with an unfinished build of the same; or a URL of fsspec.
        options: how to build.
        queries: query log [n_queries, dim].
        ids: ids of an array's vectors; row numbers by default.
        column: column of vectors, of a table.
        id_column: column of ids, of a table.
        address: of a Ray cluster, for the engine ray.
        progress: called with the step, the amount done and the total amount.
    """
    opened = source_of(source, ids=ids, column=column, id_column=id_column)
    log = None if queries is None else check_vectors("queries", queries, opened.dim)
    runner: Runner = LocalRunner(options.tries)
    if options.engine == "ray":
        runner = RayRunner(address, options.tries)
        runner.check_cores(options.cpus)
    return _Build(opened, Folder(path), options, log, runner, progress or _ignore).finish()


@dataclass
class _Build:
    """One build, step by step."""

    source: Source
    folder: Folder
    options: BuildOptions
    log: Floats | None
    runner: Runner
    progress: Progress
    facts: dict[str, Any] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    """Vectors of each shard, once they are divided."""

    def finish(self) -> Manifest:
        """Do all steps that are not done."""
        name = self._name()
        with alone(self.folder, name):
            self.workspace = Workspace(self.folder, name, secrets.token_hex(8))
            if not self.folder.has(MANIFEST):
                self._build()
            self.workspace.remove()  # also if an earlier run was cut off after the manifest
            return self._calibrated()

    def _build(self) -> None:
        """Build all that is missing; the manifest is the last."""
        self.workspace.begin(self._content())
        split = None if self.log is None else split_queries(self.log, self.options.seed)
        partition = self._partition(split)
        self._divide(partition)
        truth = None if split is None else self._truth(split, partition.n_shards)
        shards = self._shards(partition, split, truth)
        router = self._router(partition, split, truth)
        manifest = self._manifest(shards, router, split, truth)
        self.workspace.check()
        manifest.write(self.folder)

    def _calibrated(self) -> Manifest:
        """The manifest with a setting that reaches the recall, if there are queries to measure on.

        The learned router is kept if it then asks fewer shards than the centroids.
        """
        options, before = self.options, self.folder.read(MANIFEST)
        manifest = Manifest.read(self.folder)
        key = (options.k, options.recall)
        if "queries" not in manifest.arrays or key in {(p.k, p.target) for p in manifest.points}:
            return manifest
        calibrated = calibrated_by(self.runner, self.folder, manifest, options.recall, options.k)
        if self.folder.read(MANIFEST) != before:  # somebody else has calibrated it meanwhile
            return Manifest.read(self.folder)
        calibrated.write(self.folder)
        for name in manifest.arrays.keys() - calibrated.arrays.keys():
            self.folder.remove(manifest.arrays[name]["file"])
        return calibrated

    def _content(self) -> dict[str, Any]:
        """The options that say what is built."""
        return {
            key: value for key, value in asdict(self.options).items() if key not in _NOT_CONTENT
        }

    def _name(self) -> str:
        """The name of the build: the same for the same vectors, queries and options."""
        parts = [json.dumps(self._content(), sort_keys=True), self.source.fingerprint()]
        logged = [] if self.log is None else [self.log]
        return hash_arrays(" ".join(parts), *logged)

    def _partition(self, split: QuerySplit | None) -> Partition:
        """Divide a sample, by the part of the log that is for learning if there is one."""
        metric = check_metric(self.options.metric)
        kept = self.workspace.kept("partition")
        if kept is None:
            clock, options = Clock(), self.options
            n = SAMPLE_PER_CELL * (options.cells or 32 * options.n_shards)
            _, sample = self.source.sample(max(n, options.n_shards), options.seed)
            made = make_partition(
                sample,
                options.n_shards,
                metric,
                n_cells=options.cells or None,
                queries=None if split is None else split.queries[: split.n_learn],
                seed=options.seed,
            )
            arrays = {"centroids": made.centroids, "cells": made.shards}
            self.workspace.keep("partition", {"seconds": clock.seconds}, **arrays)
            kept = self.workspace.kept("partition")
        assert kept is not None
        self.facts["partition_seconds"] = kept[0]["seconds"]
        return Partition(kept[1]["centroids"], kept[1]["cells"], metric)

    def _divide(self, partition: Partition) -> None:
        """Keep the rows of the source by shard, and count them."""
        kept = self.workspace.kept("divided")
        if kept is not None:
            self.counts = kept[0]["counts"]
            self.workspace = replace(self.workspace, rows_name=kept[0].get("rows", ""))
            return
        if not self.source.is_repeatable:  # the same numbers of parts now stand for other rows
            self.workspace.forget("rows-")
            self.workspace = replace(self.workspace, rows_name=f"rows-{self.workspace.attempt}")
        clock, n_done = Clock(), self.workspace.n_divided()
        n_rows = rows_per_part(partition.n_shards, self.source.dim)

        def tasks() -> Iterator[Task]:
            for number, part in enumerate(self.source.parts(n_rows)):
                if not self.workspace.is_divided(number):
                    arguments = (self.workspace, partition, number, part)
                    yield Task(f"part {number}", arguments)

        def note(done: Done) -> None:
            nonlocal n_done
            n_done += 1
            self.progress("divide", n_done, n_done)

        n_bytes = bytes_of_rows(self.source.largest_part(n_rows), self.source.dim)
        needs = Needs(1.0, n_bytes, self.source.sent_bytes(n_rows))
        run_all(self.runner, divide_part, tasks(), needs, note)
        self.counts = self.workspace.count_rows(partition.n_shards)
        values = {"seconds": clock.seconds, "n_parts": n_done, "counts": self.counts}
        self.workspace.keep("divided", values | {"rows": self.workspace.rows_name})

    def _truth(self, split: QuerySplit, n_shards: int) -> NDArray[Any]:
        """Shards and ids of the true neighbours of all queries.

        Returns:
            Ids, and beside them shards [2, n_queries, depth].
        """
        kept = self.workspace.kept("truth")
        if kept is not None:
            return kept[1]["truth"]
        clock, depth = Clock(), max(self.options.k, min(DEPTH, self.options.k * 2))
        found: dict[int, tuple[Ids, Floats]] = {}

        def note(done: Done) -> None:
            found[done.task.arguments[1]] = done.result
            self.progress("neighbours", len(found), n_shards)

        metric = check_metric(self.options.metric)
        tasks = [
            Task(f"neighbours in shard {n}", (self.workspace, n, split.queries, depth, metric))
            for n in range(n_shards)
        ]
        needs = Needs(1.0, bytes_of_rows(max(self.counts), self.source.dim))
        run_all(self.runner, neighbors_in_shard, tasks, needs, note)
        truth = merged_neighbors([found[n] for n in range(n_shards)], depth)
        self.workspace.keep("truth", {"seconds": clock.seconds}, truth=truth)
        return truth

    def _shards(
        self, partition: Partition, split: QuerySplit | None, truth: NDArray[Any] | None
    ) -> list[Shard]:
        """Build all shards that are not built."""
        clock, n_shards = Clock(), partition.n_shards
        done: dict[int, Shard] = {}
        tasks = []
        for number in range(n_shards):
            shard = finished_shard(self.workspace, number)
            if shard is not None:
                done[number] = shard
                continue
            self.workspace.check()
            self.folder.sub(directory_of(number)).remove_tree()  # what is there is not whole
            own, recipe = None, self.options.recipe
            if split is not None and truth is not None:
                own = split.of_shard(truth, number)
                if len(own) < FEW_QUERIES:
                    own, recipe = split.queries[: split.n_learn], replace(recipe, minutes=0)
            arguments = (self.workspace, number, own, recipe)
            tasks.append(Task(f"shard {number}", arguments))
        self.facts["n_shards_resumed"] = len(done)

        def note(end: Done) -> None:
            facts = {key: end.result[key] for key in Shard.__dataclass_fields__}
            done[end.task.arguments[1]] = Shard(**facts)
            self.progress("shards", len(done), n_shards)

        n_bytes = bytes_of_build(max(self.counts), self.source.dim, self.options.recipe)
        run_all(self.runner, build_shard, tasks, Needs(self.options.cpus, n_bytes), note)
        self.facts["shards_seconds"] = clock.seconds
        return [done[number] for number in range(n_shards)]

    def _router(
        self, partition: Partition, split: QuerySplit | None, truth: NDArray[Any] | None
    ) -> Router:
        """Learn which shards to ask, from the part of the log that is for learning."""
        router = Router(partition)
        if split is None or truth is None:
            return router
        clock = Clock()
        shards = truth[1, : split.n_learn, : self.options.k].astype(np.int32)
        learned = learn_router(
            router,
            split.queries[: split.n_learn],
            shares_of(shards, partition.n_shards),
            RouterOptions(seed=self.options.seed),
        )
        self.facts["router_seconds"] = clock.seconds
        return learned

    def _manifest(
        self,
        shards: list[Shard],
        router: Router,
        split: QuerySplit | None,
        truth: NDArray[Any] | None,
    ) -> Manifest:
        """The manifest, whose arrays are written before it."""
        arrays: dict[str, NDArray[Any]] = dict(router.arrays())
        if split is not None and truth is not None:
            arrays |= {"queries": split.validation, "neighbors": truth[0, split.n_learn :]}
        counts = [shard.n_vectors for shard in shards]
        self.facts |= {"largest_share": max(counts) / sum(counts)}
        return Manifest(
            build=self.workspace.build,
            metric=check_metric(self.options.metric),
            dim=self.source.dim,
            k=self.options.k,
            shards=tuple(shards),
            arrays={name: write_array(self.folder, name, each) for name, each in arrays.items()},
            replicas=self.options.replicas,
            facts=self.facts,
        )


_NOT_CONTENT = ("engine", "cpus", "tries", "replicas")
"""Options that change how, but not what is built."""


def _ignore(step: str, done: int, total: int) -> None:
    """Report nothing."""
