"""ShardedIndex: a directory of ordinary indexes, searched in one process.

It is the plain twin of `Cluster`: the same router, the same calls of the same shards and the same
merge, one shard after another.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.arrays import read_array
from l2route.cluster.building import BuildOptions, Engine, build_sharded
from l2route.cluster.errors import LateError
from l2route.cluster.folder import Folder
from l2route.cluster.manifest import Manifest, Point
from l2route.cluster.merge import Answer, ClusterResult, answer_of, merge
from l2route.cluster.operating import find_point
from l2route.cluster.partition import Partition
from l2route.cluster.rays import Address
from l2route.cluster.router import Kind, Router
from l2route.cluster.shard import Asked, OpenShard
from l2route.cluster.tasks import Progress
from l2route.recipe.steps import Routing
from l2route.search.calibrate import check_recall
from l2route.search.limits import Limits
from l2route.search.searcher import check_queries

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
ALL_SHARDS = -1e29
"""A threshold that every shard reaches."""
FINISH_SECONDS = 10.0
"""Seconds to wait at the start for who else changes a shard."""


class Sharded:
    """The manifest, router and validation queries of a sharded index, without its shards.

    Args:
        path: directory, or URL of fsspec.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = Folder(path)
        self.manifest = Manifest.read(self.folder)
        arrays = {
            name: read_array(self.folder, entry) for name, entry in self.manifest.arrays.items()
        }
        for name in ("centroids", "cells"):
            if name not in arrays:
                raise ValueError(f"{path}: expected an array {name}, got none")
        cells = arrays["cells"].astype(np.int32)
        partition = Partition(arrays["centroids"], cells, self.manifest.metric)
        self.router = Router.of(arrays, partition)
        got = (partition.n_shards, partition.centroids.shape[1])
        if got != (len(self.manifest.shards), self.manifest.dim):
            expected = f"{len(self.manifest.shards)} shards of {self.manifest.dim} dimensions"
            raise ValueError(f"{path}: expected {expected}, got {got[0]} of {got[1]}")
        self.validation = _validation_of(arrays, self.manifest.dim)

    @property
    def dim(self) -> int:
        """Dimension of the vectors and of queries."""
        return self.manifest.dim

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self.manifest.shards)

    def chosen(
        self,
        queries: Floats,
        point: Point | None,
        n_probe: int | None,
        router: Kind | None = None,
    ) -> NDArray[np.bool_]:
        """The shards that each query asks [n, n_shards]; all without a point and a number."""
        if n_probe is not None:
            return self.router.nearest(queries, n_probe, router)
        if point is None or point.threshold <= ALL_SHARDS:
            return np.ones((len(queries), self.n_shards), dtype=bool)
        return self.router.choose(queries, point.threshold, _kind(point.router))

    def cost(self, point: Point | None, n_probe: int | None, router: Kind | None = None) -> float:
        """Distance computations of the router, for what `chosen` was asked."""
        if n_probe is not None:
            return self.router.cost(router or self.router.kind)
        if point is None or point.threshold <= ALL_SHARDS:
            return 0.0
        return self.router.cost(_kind(point.router))

    def known_point(self, recall: float, k: int, *, is_filtered: bool = False) -> Point | None:
        """The setting that reaches a recall@k, if it was measured; None if it has to be.

        Without validation queries, and with a filter, all shards are asked for that recall: what a
        filter leaves may be in shards that the query would not ask.
        """
        check_recall(recall)
        if self.validation is None or is_filtered:
            n = float(self.n_shards)
            return Point(k, recall, "centroids", ALL_SHARDS, recall, recall, n, 0.0)
        for each in self.manifest.points:
            if (each.k, each.target) == (k, recall):
                return each
        return None

    def keep(self, point: Point, *, save: bool = False) -> None:
        """Keep a setting, also in the manifest if that is asked for."""
        self.manifest = self.manifest.with_point(point)
        if save:
            replace(Manifest.read(self.folder), points=self.manifest.points).write(self.folder)


class ShardedIndex(Sharded):
    """A sharded index, all shards of which are opened in this process.

    Args:
        path: directory, or URL of fsspec.
        mmap: map the arrays of the shards instead of reading them.
    """

    def __init__(self, path: str | Path, *, mmap: bool = False) -> None:
        super().__init__(path)
        self.shards = [
            OpenShard(self.folder, self.manifest, number, mmap=mmap)
            for number in range(self.n_shards)
        ]
        with suppress(OSError, LateError):  # who changes the index next tries again
            self._finish_moves(time.time() + FINISH_SECONDS)

    def _finish_moves(self, deadline: float) -> None:
        """Finish moves of ids from shard to shard that were left by a fault."""
        for shard in self.shards:
            for move in shard.moves():
                arrived = move.ids[shard.holds(move.ids)]
                for other in self.shards if len(arrived) else ():
                    other.delete(arrived, [move], deadline)
                shard.end_moves([move], arrived, deadline)

    @classmethod
    def build(
        cls,
        source: object,
        path: str | Path,
        *,
        n_shards: int = 4,
        queries: object = None,
        recall: float = 0.95,
        k: int = 10,
        metric: str = "l2",
        minutes: float = 5.0,
        routing: Routing = "int8",
        degree: int = 16,
        cells: int = 0,
        replicas: int = 2,
        cpus: float = 1.0,
        engine: Engine = "local",
        tries: int = 3,
        seed: int = 0,
        ids: object = None,
        column: str | None = None,
        id_column: str | None = None,
        address: Address = None,
        progress: Progress | None = None,
    ) -> ShardedIndex:
        """Build a sharded index, or finish a build of the same that was interrupted; open it.

        Vectors are divided by balanced k-means, and every shard is built, learned, compressed and
        calibrated by itself. With a query log the index learns which shards to ask, and finds what
        reaches the recall on merged answers. Without one, all shards are asked.

        Args:
            source: an array; a path of a file, which may be larger than memory, or of a directory
                of Parquet files; a `ray.data.Dataset`.
            path: an empty directory, or one with an unfinished build of the same; or a URL of
                fsspec.
            n_shards: number of shards.
            queries: query log [n_queries, dim].
            recall: recall@k to reach on merged answers.
            k: answers per query.
            metric: l2, ip or cosine.
            minutes: time limit of learning within each shard; 0 to learn nothing there.
            routing: element type of routing vectors.
            degree: largest number of neighbours of a vertex.
            cells: centroids of all shards; 0 for 32 per shard, or as the sample allows.
            replicas: copies of each shard that a cluster keeps by default.
            cpus: cores of a task that builds a shard.
            engine: local: in this process; ray: by tasks of a Ray cluster.
            tries: how often a task is tried before its shard is named.
            seed: seed of every random choice.
            ids: ids of an array's vectors; row numbers by default.
            column: column of vectors, of a table.
            id_column: column of ids, of a table.
            address: of a Ray cluster, for the engine ray.
            progress: called with the step, the amount done and the total amount.
        """
        options = BuildOptions(
            n_shards=n_shards,
            metric=metric,
            k=k,
            recall=recall,
            minutes=minutes,
            routing=routing,
            degree=degree,
            cells=cells,
            replicas=replicas,
            cpus=cpus,
            engine=engine,
            tries=tries,
            seed=seed,
        )
        build_sharded(
            source,
            path,
            options,
            queries=queries,
            ids=ids,
            column=column,
            id_column=id_column,
            address=address,
            progress=progress,
        )
        return cls(path)

    def __len__(self) -> int:
        return sum(len(shard.index) for shard in self.shards)

    def search(
        self,
        queries: object,
        k: int = 10,
        *,
        recall: float | None = None,
        n_probe: int | None = None,
        router: Kind | None = None,
        budget: int | None = None,
        ef: int | None = None,
        slack: float | None = None,
        rerank: int | None = None,
        where: object = None,
        n_threads: int = 0,
    ) -> ClusterResult:
        """Find the k nearest neighbours of each query over all shards.

        Without a recall and `n_probe` every shard is asked.

        Args:
            queries: [n_queries, dim], or one query [dim].
            k: answers per query.
            recall: recall@k to reach with the fewest distance computations, over shards asked and
                the recall within them; in place of the limits below. With a filter every shard is
                asked for that recall.
            n_probe: shards that each query asks: the best by the router.
            router: scores for `n_probe`: centroids or learned; by default what there is.
            budget: as in `RoutingIndex.search`, within every shard that is asked.
            ef: as in `RoutingIndex.search`.
            slack: as in `RoutingIndex.search`.
            rerank: as in `RoutingIndex.search`.
            where: ids that may be answers [n].
            n_threads: threads; 0 for all cores.
        """
        rows = check_queries(queries, self.dim)
        point = None
        if recall is not None and n_probe is None:
            point = self.known_point(recall, k, is_filtered=where is not None)
            point = point or self.calibrate(recall, k)
        asked = asked_of(k, Limits(budget, ef, slack, rerank), recall, point, where)
        chosen = self.chosen(rows, point, n_probe, router)
        answers = [
            answer_of(number, wanted, shard.search(rows[wanted], asked, n_threads))
            for number, shard in enumerate(self.shards)
            if len(wanted := np.flatnonzero(chosen[:, number]))
        ]
        cost = self.cost(point, n_probe, router)
        return merge(answers, len(rows), k, self.dim, router_cost=cost)

    def calibrate(
        self, recall: float, k: int = 10, *, router: Kind | None = None, save: bool = False
    ) -> Point:
        """Find what reaches a recall@k on the validation queries, and keep it.

        Args:
            recall: recall@k to reach on merged answers.
            k: answers per query.
            router: scores to use; by default what the router has.
            save: whether to write it into the manifest.
        """
        queries, truth = needed_validation(self)
        point = find_point(self.router, queries, truth, self._ask_all, k, recall, router)
        self.keep(point, save=save)
        return point

    def _ask_all(self, queries: Floats, k: int, inner: float) -> list[Answer]:
        rows = np.arange(len(queries))
        return [
            answer_of(number, rows, shard.search(queries, Asked(k, recall=inner), 0))
            for number, shard in enumerate(self.shards)
        ]

    def info(self) -> dict[str, Any]:
        """Summary of the index, as a dict of plain values."""
        return info_of(self, [shard.facts() for shard in self.shards], [])


def needed_validation(sharded: Sharded) -> tuple[Floats, Ids]:
    """The validation queries and the ids of their true neighbours; refuses an index without."""
    if sharded.validation is None:
        raise ValueError(
            f"{sharded.folder}: expected validation queries to measure on, got none: "
            "build with queries"
        )
    return sharded.validation


def asked_of(
    k: int, limits: Limits, recall: float | None, point: Point | None, where: object
) -> Asked:
    """What every shard is asked for."""
    if recall is not None:
        check_recall(recall)
    if recall is not None and limits != Limits():
        raise ValueError(f"expected either a recall or limits, got {recall} and {limits}")
    ids = None if where is None else _checked_where(where)
    inner = recall if point is None else point.inner
    return Asked(k, limits, None if recall is None else inner, ids)


def _checked_where(where: object) -> Ids:
    """The ids of a filter, ascending."""
    try:
        given = np.asarray(where)
    except ValueError:  # lists of different lengths
        given = np.empty((), dtype=object)
    if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
        got = f"{given.dtype} {list(given.shape)}"
        raise ValueError(f"expected where as ids int [n], the same for all queries, got {got}")
    if given.dtype.kind == "u" and given.size and given.max() > np.iinfo(np.int64).max:
        raise ValueError(f"expected ids of 64 bits, got {given.max()}")
    return np.unique(given.astype(np.int64))


def info_of(
    sharded: Sharded, facts: list[dict[str, Any] | None], sizes: list[tuple[int, int]]
) -> dict[str, Any]:
    """Summary of a sharded index; for a shard that gives no facts, its size as known last."""
    manifest = sharded.manifest
    shards: list[dict[str, Any]] = []
    for number, (built, now) in enumerate(zip(manifest.shards, facts, strict=True)):
        known = now or dict(zip(("n_vectors", "n_bytes"), sizes[number], strict=True))
        is_changed = now is not None and now["version"] != built.version
        shards.append(
            {"shard": number, "directory": built.directory}
            | known
            | {"is_open": now is not None, "is_changed": is_changed}
        )
    return {
        "path": str(sharded.folder),
        "n_vectors": sum(each["n_vectors"] for each in shards),
        "n_bytes": sum(each["n_bytes"] for each in shards),
        "dim": manifest.dim,
        "metric": manifest.metric,
        "router": sharded.router.kind,
        "n_centroids": len(sharded.router.partition.shards),
        "n_validation": 0 if sharded.validation is None else len(sharded.validation[0]),
        "points": [_fields(each) for each in manifest.points],
        "shards": shards,
        "build": dict(manifest.facts),
    }


def _fields(point: Point) -> dict[str, Any]:
    return {name: getattr(point, name) for name in point.__dataclass_fields__}


def _kind(name: str) -> Kind:
    return "learned" if name == "learned" else "centroids"


def _validation_of(arrays: Mapping[str, NDArray[Any]], dim: int) -> tuple[Floats, Ids] | None:
    """Validation queries [n, dim] and ids of their true neighbours [n, depth], checked."""
    if "queries" not in arrays:
        return None
    queries, truth = arrays["queries"], arrays["neighbors"]
    is_right = queries.ndim == 2 and truth.ndim == 2 and len(queries) == len(truth) > 0
    if not is_right or queries.shape[1] != dim or not np.isfinite(queries).all():
        got = f"{list(queries.shape)} and {list(truth.shape)}"
        raise ValueError(f"expected validation queries [n, {dim}] and neighbours, got {got}")
    return queries.astype(np.float32), truth.astype(np.int64)
