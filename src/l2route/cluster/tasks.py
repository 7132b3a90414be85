"""The tasks of a build that run shard by shard, in whatever process."""

from __future__ import annotations

import secrets
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.folder import Copy
from l2route.cluster.manifest import SHARD, Shard, read_mark, write_mark
from l2route.cluster.operating import inner_recalls
from l2route.cluster.runners import Clock
from l2route.cluster.workspace import Workspace
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import Metric
from l2route.files.meta import META, version_of
from l2route.index import RoutingIndex
from l2route.recipe.build import build
from l2route.recipe.steps import Routing
from l2route.search.calibrate import OutOfReachError
from l2route.search.validation import CalibrationWarning

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
COPIES = 4
"""Times that vectors are in memory, as float32, while they are divided or searched exactly."""
COPIES_OF_BUILD = 8
"""Times that they are while a shard is built, with its graph; measured with 120,000 vectors."""
LEARNING_BYTES = 5 << 28
"""Memory of learning beside that, torch included; measured with 15,000 to 120,000 vectors."""


@dataclass(frozen=True, slots=True)
class ShardRecipe:
    """How shards are built; fields as the arguments of `l2route.build`."""

    metric: Metric = "l2"
    k: int = 10
    recall: float = 0.95
    routing: Routing = "int8"
    minutes: float = 5.0
    degree: int = 16
    seed: int = 0
    n_threads: int = 1


def bytes_of_rows(n_rows: int, dim: int) -> int:
    """Memory of a task that divides vectors, or searches them exactly."""
    return COPIES * 4 * n_rows * dim


def bytes_of_build(n_rows: int, dim: int, recipe: ShardRecipe) -> int:
    """Memory of a task that builds a shard."""
    per_row = COPIES_OF_BUILD * 4 * dim + 4 * recipe.degree
    return per_row * n_rows + (LEARNING_BYTES if recipe.minutes else 0)


def neighbors_in_shard(
    workspace: Workspace, shard: int, queries: Floats, depth: int, metric: Metric
) -> tuple[Ids, Floats]:
    """True neighbours of queries within one shard, by id [n, depth]; −1 where there are fewer."""
    workspace.check()
    ids, rows = workspace.rows(shard)
    truth = exact_neighbors(rows, queries, depth, metric)
    return np.where(truth.ids < 0, -1, ids[truth.ids]), truth.distances


def merged_neighbors(found: list[tuple[Ids, Floats]], depth: int) -> Ids:
    """Ids and shards of the nearest over all shards [2, n_queries, depth]."""
    ids = np.concatenate([each for each, _ in found], axis=1)
    distances = np.concatenate([each for _, each in found], axis=1)
    shards = np.repeat(np.arange(len(found)), depth)[None].repeat(len(ids), axis=0)
    order = np.lexsort((ids, distances), axis=1)[:, :depth]
    best = np.take_along_axis(ids, order, axis=1)
    at = np.where(best == -1, -1, np.take_along_axis(shards, order, axis=1))
    return np.stack([best, at])


def build_shard(
    workspace: Workspace, number: int, queries: Floats | None, recipe: ShardRecipe
) -> dict[str, Any]:
    """Build, learn, compress and calibrate a shard, and save it; the mark says that it is whole.

    A shard that is whole already, by an earlier call, is left as it is.

    Returns:
        The facts of the shard, as in the manifest, and seconds.
    """
    clock = Clock()
    workspace.check()
    if (done := finished_shard(workspace, number)) is not None:
        return asdict(done)
    ids, rows = workspace.rows(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        index, report = build(
            rows,
            queries,
            metric=recipe.metric,
            k=min(recipe.k, len(rows)),
            recall=recipe.recall,
            routing=recipe.routing,
            minutes=recipe.minutes,
            degree=recipe.degree,
            seed=recipe.seed,
            n_threads=recipe.n_threads,
            ids=ids,
        )
        for inner in inner_recalls(recipe.recall) if index.validation is not None else ():
            _measure(index, inner, recipe)
    facts = _published(index, workspace, number)
    return facts | {"seconds": clock.seconds, "report": str(report)}


def _measure(index: RoutingIndex, inner: float, recipe: ShardRecipe) -> None:
    """Measure a setting, so that searches need not; one that is out of reach is left out."""
    try:
        index.setting(inner, min(recipe.k, len(index)), n_threads=recipe.n_threads)
    except OutOfReachError:
        return


def _published(index: RoutingIndex, workspace: Workspace, number: int) -> dict[str, Any]:
    """Save a shard under its name, unless one is there, and return the facts of what is there.

    On this machine it is saved elsewhere and renamed. In a store it is uploaded, its mark last.
    """
    place = workspace.root.sub(directory_of(number))
    workspace.check()
    if place.is_local:
        made = workspace.folder.sub(f"built-{secrets.token_hex(8)}")
        try:
            index.save(made.path)
            facts = facts_of(index, number)
            write_mark(made, workspace.build, number, facts)
            workspace.check()
            if made.rename(place):
                return facts
        finally:
            made.remove_tree()
    elif not place.has(SHARD):
        with tempfile.TemporaryDirectory(prefix="l2route-shard-") as directory:
            copy = Copy(place)
            copy.path = Path(directory)
            index.save(copy.path)
            copy.push(workspace.check)
        workspace.check()
        write_mark(place, workspace.build, number, facts_of(index, number))
    return read_mark(place, workspace.build, number)


def facts_of(index: RoutingIndex, number: int) -> dict[str, Any]:
    """What the manifest says about a shard that was just saved."""
    return {
        "directory": directory_of(number),
        "n_vectors": len(index),
        "n_bytes": index.n_bytes,
        "lowest_id": int(index.ids.min()),
        "highest_id": int(index.ids.max()),
        "version": str(index.saved_version),
    }


def finished_shard(workspace: Workspace, number: int) -> Shard | None:
    """The facts of a shard that is whole; None if it has to be built."""
    place = workspace.root.sub(directory_of(number))
    try:
        shard = Shard(**read_mark(place, workspace.build, number))
        text = place.read(META)
    except (OSError, ValueError, TypeError):
        return None
    return shard if version_of(text) == shard.version else None


def directory_of(number: int) -> str:
    """Name of the directory of a shard."""
    return f"shard-{number:04d}"


Progress = Callable[[str, int, int], None]
"""Called with the step, the amount done and the total amount."""
