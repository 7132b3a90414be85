"""What a build keeps until its manifest is written: rows of each shard, and what is known so far.

Everything is in the folder `work` of the sharded index. A part of the source that is divided leaves
a mark, so that a build goes on where it was cut off. `plan.json` names the attempt that goes on: an
earlier one that wakes up, and one whose build was finished by another, changes nothing any more.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.cluster.arrays import read_array, write_array
from l2route.cluster.folder import Folder
from l2route.cluster.manifest import MANIFEST
from l2route.cluster.partition import Partition
from l2route.cluster.runners import BuildError
from l2route.cluster.sources import Part
from l2route.files.atomic import locked
from l2route.files.npy import write_npy
from l2route.state.changing import checked_ids

WORK = "work"
PLAN = "plan.json"
LOCK = ".build.lock"
"""Locked while a sharded index is built."""
MAX_PART_BYTES = 1 << 28
"""Largest part of a source in memory."""
LEAST_ROWS_OF_SHARD = 4096
"""Rows of a part for each shard, if memory allows: fewer and larger files."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The files of a build, as one attempt at it sees them."""

    root: Folder
    """The folder of the sharded index."""
    build: str
    """Name of the build."""
    attempt: str
    """Name of this attempt."""
    rows_name: str = ""
    """Folder of the divided rows, if they are of one attempt only."""

    @property
    def folder(self) -> Folder:
        """What goes when the build is finished."""
        return self.root.sub(WORK)

    @property
    def _divided(self) -> Folder:
        return self.folder.sub(self.rows_name) if self.rows_name else self.folder

    def begin(self, options: dict[str, Any]) -> None:
        """Take the place of earlier attempts."""
        plan = {"build": self.build, "attempt": self.attempt, "options": options}
        self.root.replace(PLAN, json.dumps(plan).encode())
        self.forget("built-")  # by tasks that were killed

    def check(self) -> None:
        """Refuse to go on if the build is finished, or if another attempt has begun."""
        expected = f"{self.root}: expected that attempt {self.attempt} builds it"
        if self.root.has(MANIFEST):
            raise BuildError(f"{expected}, got a finished build")
        found = json.loads(self.root.read(PLAN)).get("attempt")
        if found != self.attempt:
            raise BuildError(f"{expected}, got {found}, which began later")

    def keep(self, name: str, content: dict[str, Any], **arrays: NDArray[Any]) -> None:
        """Keep a result of a step: a few values, and arrays."""
        self.folder.make()
        entries = {key: write_array(self.folder, key, array) for key, array in arrays.items()}
        text = json.dumps({"values": content, "arrays": entries}).encode()
        self.check()
        self.folder.replace(f"{name}.json", text)

    def kept(self, name: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
        """A result that was kept; None if there is none."""
        if not self.folder.has(f"{name}.json"):
            return None
        content = json.loads(self.folder.read(f"{name}.json"))
        entries = content["arrays"].items()
        return content["values"], {key: read_array(self.folder, entry) for key, entry in entries}

    def keep_rows(self, shard: int, part: int, ids: NDArray[Any], rows: NDArray[Any]) -> None:
        """Keep the rows of a part that belong to a shard."""
        place = self._divided.sub(_directory(shard))
        place.make()
        for name, array in (("rows", rows), ("ids", ids)):
            stream = io.BytesIO()
            write_npy(stream, np.ascontiguousarray(array))
            place.replace(f"{name}-{part:06d}.npy", stream.getvalue())

    def rows(self, shard: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Ids [n] and vectors [n, dim] of a shard, in the order of the source."""
        place = self._divided.sub(_directory(shard))
        return _joined(place, "ids-"), _joined(place, "rows-")

    def count_rows(self, n_shards: int) -> list[int]:
        """Rows of each shard, once all parts are divided.

        Shards without rows are refused, and ids that are repeated, in whatever parts and shards.
        """
        places = [self._divided.sub(_directory(shard)) for shard in range(n_shards)]
        ids = [_arrays(place, "ids-") for place in places]
        empty = [shard for shard, each in enumerate(ids) if not each]
        if empty:
            expected = f"expected at least one vector in each of {n_shards} shards"
            raise ValueError(f"{expected}, got none in shard {empty[0]}: build fewer shards")
        checked_ids(np.concatenate([array for each in ids for array in each]))
        return [sum(len(array) for array in each) for each in ids]

    def is_divided(self, part: int) -> bool:
        """Whether all rows of a part are kept."""
        return self._divided.has(f"done-{part:06d}")

    def n_divided(self) -> int:
        """Parts whose rows are kept."""
        return sum(name.startswith("done-") for name in self._divided.names())

    def mark_divided(self, part: int) -> None:
        """Note that all rows of a part are kept."""
        self.check()
        self._divided.replace(f"done-{part:06d}", b"1\n")

    def forget(self, prefix: str) -> None:
        """Remove folders whose names begin so."""
        for name in self.folder.names():
            if name.startswith(prefix):
                self.folder.sub(name).remove_tree()

    def remove(self) -> None:
        """Remove everything."""
        self.folder.remove_tree()


@contextmanager
def alone(folder: Folder, build: str) -> Iterator[None]:
    """Exclude other builds into a folder where there are locks; refuse one of something else."""
    folder.make()
    _check_plan(folder, build)  # before a lock is made in a directory of others
    with ExitStack() as held:
        if folder.is_local:
            try:
                held.enter_context(locked(folder.path / LOCK, 0))
            except TimeoutError:
                expected = f"{folder}: expected no other build of it"
                raise BuildError(f"{expected}, got one that runs") from None
        _check_plan(folder, build)
        yield


def _check_plan(folder: Folder, build: str) -> None:
    if not folder.has(PLAN):
        others = [each for each in folder.names() if each != LOCK]
        if others:
            expected = f"{folder}: expected an empty directory or an unfinished build"
            raise ValueError(f"{expected}, got {others[0]} in it")
    elif json.loads(folder.read(PLAN)).get("build") != build:
        expected = f"{folder}: expected a build of the same vectors, queries and options"
        raise ValueError(f"{expected}, got another")


def divide_part(workspace: Workspace, partition: Partition, number: int, part: Part) -> list[int]:
    """Keep the rows of a part under the shards that they belong to; once more does no harm.

    Returns:
        Rows of each shard.
    """
    ids, rows = part.read()
    shards = partition.assign(rows)
    workspace.check()
    for shard in np.unique(shards):
        is_here = shards == shard
        workspace.keep_rows(int(shard), number, ids[is_here], rows[is_here])
    workspace.mark_divided(number)
    counts: list[int] = np.bincount(shards, minlength=partition.n_shards).tolist()
    return counts


def rows_per_part(n_shards: int, dim: int) -> int:
    """Rows of a part: enough for large files of each shard, few enough for memory."""
    return max(1, min(max(65_536, LEAST_ROWS_OF_SHARD * n_shards), MAX_PART_BYTES // (4 * dim)))


def _directory(shard: int) -> str:
    return f"shard-{shard:04d}"


def _joined(place: Folder, prefix: str) -> NDArray[Any]:
    """The arrays of all parts of a shard, in the order of the parts, as one."""
    arrays = _arrays(place, prefix)
    if not arrays:
        raise ValueError(f"{place}: expected rows of a shard, got none")
    return np.concatenate(arrays)


def _arrays(place: Folder, prefix: str) -> list[NDArray[Any]]:
    """The arrays of all parts of a shard, in the order of the parts."""
    return [_loaded(place, name) for name in place.names() if name.startswith(prefix)]


def _loaded(place: Folder, name: str) -> NDArray[Any]:
    array = np.load(io.BytesIO(place.read_all(name)), allow_pickle=False)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fi":
        raise ValueError(f"{place}/{name}: expected an array of numbers, got another file")
    return array
