"""The oracle: hops from every vertex to a query's target, computed for 512 targets at a time.

A block holds the hops to up to 512 targets, bit-sliced in four planes [n, 8, 4]: bit t % 64 of
`block[v, t // 64, p]` is bit p of the hops from vertex v to the block's target t. Blocks are
computed on demand, some are held in memory, and all can be cached on disk.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from operator import index as index_of
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.files.atomic import replacing
from l2route.files.hashing import hash_arrays
from l2route.files.memory import aligned_zeros
from l2route.files.npy import map_npy, write_npy
from l2route.files.progress import Progress
from l2route.graph.graph import Graph
from l2route.graph.report import hops_from

BLOCK_TARGETS = 512
"""Targets of a block, as many as a cache line has bits."""
MAX_HOPS = 14
"""Value that means 14 hops or more."""
UNREACHABLE = 15
"""Value that means that there is no path, or that the hops were pruned."""
_N_PLANES = 4
_ALL_ONES = np.uint64(2**64 - 1)  # 64 targets unreachable, in each of the four planes
_RUN = 8192  # vertices pruned at a time, which bounds the temporaries
_ABANDONED = 3600.0  # age in seconds from which on a partial file is taken to be left by a crash
_FORMAT = "l2route-hops-1"  # part of every key: raised when the layout of files changes


@dataclass(frozen=True, slots=True)
class TargetPlaces:
    """Block and column of each query's target."""

    block_of: NDArray[np.int32]
    """[n_queries]"""
    column_of: NDArray[np.int32]
    """Column within the block, in [0, 512) [n_queries]."""


class HopOracle:
    """Hops from every vertex to every query's target; safe to use from several threads.

    Distinct targets are sorted and divided into blocks of 512. At most `max_blocks` blocks are held
    in memory, and one more per thread while it is computed.

    Args:
        graph: the graph; hops are counted in its bottom layer.
        targets: the target of each query, a vertex [n_queries].
        margin: keep the hops of a vertex only where it lies on a path from the entry to the
            target that is at most this much longer than the shortest (5 in the paper); other
            vertices read as unreachable. None keeps all.
        cache: directory to keep blocks in; made if missing, may be shared by oracles.
        max_blocks: largest number of blocks held in memory.
        n_threads: threads that compute blocks; 0 for all cores.
    """

    def __init__(
        self,
        graph: Graph,
        targets: NDArray[np.int64],
        *,
        margin: int | None = None,
        cache: Path | None = None,
        max_blocks: int = 4,
        n_threads: int = 0,
    ) -> None:
        _check_targets(targets, graph.n_vertices)
        self.graph = graph
        self.margin = _at_least("margin", 0, margin) if margin is not None else None
        self.max_blocks = _at_least("max_blocks", 1, max_blocks)
        self.n_threads = _at_least("n_threads", 0, n_threads) or os.cpu_count() or 1
        distinct, order = np.unique(targets, return_inverse=True)
        self.targets = distinct.astype(np.int32)  # [n_targets], ascending
        block_of, column_of = np.divmod(order.astype(np.int32), np.int32(BLOCK_TARGETS))
        self.places = TargetPlaces(block_of, column_of)
        self._from_entry = None if margin is None else hops_from(graph, graph.entries)
        self._cache = None if cache is None else BlockCache(cache)
        self._graph_key = "" if cache is None else _graph_key(graph, self.margin)
        self._lock = Lock()
        self._held: OrderedDict[int, NDArray[np.uint64]] = OrderedDict()  # last used at the end
        self._pending: dict[int, Future[NDArray[np.uint64]]] = {}

    @property
    def n_blocks(self) -> int:
        """Number of blocks of 512 targets; the last one may be shorter."""
        return -(-len(self.targets) // BLOCK_TARGETS)

    @property
    def n_held(self) -> int:
        """Number of blocks held in memory now."""
        return len(self._held)

    def targets_of(self, block: int) -> NDArray[np.int32]:
        """Targets of a block, by column [at most 512]."""
        if not 0 <= block < self.n_blocks:
            raise ValueError(f"expected a block in [0, {self.n_blocks}), got {block}")
        return self.targets[block * BLOCK_TARGETS : (block + 1) * BLOCK_TARGETS]

    def block(self, block: int) -> NDArray[np.uint64]:
        """Hops to the targets of a block [n, 8, 4], read-only: from memory, cache or computed.

        If several threads need the same block at once, one computes it and the others wait.
        """
        with self._lock:
            held = self._held.get(block)
            if held is not None:
                self._held.move_to_end(block)
                return held
            pending = self._pending.get(block)
            asked_first = pending is None
            if pending is None:
                pending = self._pending[block] = Future()
        if asked_first:
            self._settle(block, pending)
        return pending.result()

    def prefetch(self, blocks: Iterable[int]) -> None:
        """Compute or read several blocks in parallel, and hold them in memory."""
        wanted = sorted(set(blocks))
        if len(wanted) > self.max_blocks:
            raise ValueError(f"expected at most {self.max_blocks} blocks, got {len(wanted)}")
        self._compute(wanted, None)

    def compute_all(self, progress: Progress | None = None) -> None:
        """Compute all blocks that are not in the cache, in parallel.

        Args:
            progress: called with blocks done and in total.
        """
        if self._cache is None and self.n_blocks > self.max_blocks:
            raise ValueError(
                f"expected a cache or max_blocks of at least {self.n_blocks} to keep all blocks, "
                f"got max_blocks {self.max_blocks}"
            )
        self._compute(range(self.n_blocks), progress)

    def _compute(self, blocks: Iterable[int], progress: Progress | None) -> None:
        def ask(block: int) -> None:
            self.block(block)  # without returning it: the results would hold every block

        wanted = list(blocks)
        with ThreadPoolExecutor(self.n_threads) as pool:
            for done, _ in enumerate(pool.map(ask, wanted), start=1):
                if progress is not None:
                    progress(done, len(wanted))

    def _settle(self, block: int, pending: "Future[NDArray[np.uint64]]") -> None:
        """Obtain a block that is pending, and hand it or the error to the waiting threads."""
        try:
            hops = self._obtain(block)
        except BaseException as error:  # waiting threads need any kind of error
            with self._lock:
                del self._pending[block]
            pending.set_exception(error)
            return
        hops.setflags(write=False)
        with self._lock:
            del self._pending[block]
            self._held[block] = hops
            while len(self._held) > self.max_blocks:
                self._held.popitem(last=False)
        pending.set_result(hops)

    def _obtain(self, block: int) -> NDArray[np.uint64]:
        targets = self.targets_of(block)
        if self._cache is None:
            return self._compute_block(targets)
        key = hash_arrays(self._graph_key, targets)
        stored = self._cache.read(key)
        if stored is not None:
            return stored if self.margin is None else unpack_words(stored, self.graph.n_vertices)
        hops = self._compute_block(targets)
        self._cache.write(key, hops if self.margin is None else pack_words(hops))
        return hops

    def _compute_block(self, targets: NDArray[np.int32]) -> NDArray[np.uint64]:
        hops = _core.hops_to_targets(self.graph.core, targets)
        if self._from_entry is not None and self.margin is not None:
            prune(hops, targets, self._from_entry, self.margin)
        return hops


def _check_targets(targets: NDArray[np.int64], n_vertices: int) -> None:
    if targets.ndim != 1 or targets.dtype.kind not in "iu":
        raise ValueError(f"expected targets int64 [n_queries], got {targets.dtype} {targets.shape}")
    if len(targets) and (targets.min() < 0 or targets.max() >= n_vertices):
        raise ValueError(
            f"expected targets in [0, {n_vertices}), got {targets.min()} to {targets.max()}"
        )


def _at_least(name: str, low: int, value: int) -> int:
    if index_of(value) < low:
        raise ValueError(f"expected {name} of at least {low}, got {value}")
    return index_of(value)


def _graph_key(graph: Graph, margin: int | None) -> str:
    """Hash of all that a block depends on except its targets."""
    entries = [] if margin is None else [np.sort(graph.entries)]
    return hash_arrays(f"{_FORMAT} {margin}", *entries, graph.neighbors)


def decode_hops(block: NDArray[np.uint64], column: int) -> NDArray[np.uint8]:
    """Hops from every vertex to one target of a block [n]; MAX_HOPS is that many or more."""
    if not 0 <= column < BLOCK_TARGETS:
        raise ValueError(f"expected a column in [0, {BLOCK_TARGETS}), got {column}")
    word, bit = divmod(column, 64)
    bits = (block[:, word] >> np.uint64(bit)) & np.uint64(1)  # [n, 4]
    hops: NDArray[np.uint8] = bits.astype(np.uint8) @ np.array([1, 2, 4, 8], dtype=np.uint8)
    return hops


def prune(
    block: NDArray[np.uint64],
    targets: NDArray[np.int32],
    from_entry: NDArray[np.int32],
    margin: int,
) -> None:
    """Keep, in place, only hops on paths at most `margin` longer than the best from the entry.

    A vertex v keeps its hops to target t where
    hops(entry → v) + hops(v → t) ≤ hops(entry → t) + margin. Hops of 14 or more count as 14,
    which keeps too much rather than too little.

    Args:
        block: hops to the targets [n, 8, 4].
        targets: the block's targets, by column.
        from_entry: hops from the entry to every vertex, −1 if there is no path [n].
        margin: hops that a path may be longer than the shortest.
    """
    limits, is_allowed = _limits(from_entry[targets], int(from_entry.max()), margin)
    for begin in range(0, len(block), _RUN):
        part = block[begin : begin + _RUN]
        depth = from_entry[begin : begin + _RUN]
        kept = _at_most(part, limits[depth]) & is_allowed[depth]  # [run, 8]
        part |= ~kept[:, :, None]


def _limits(
    to_target: NDArray[np.int32], max_depth: int, margin: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Most hops to each target, bit-sliced, and whether any are allowed, by depth of a vertex.

    The last row, with index −1, is for vertices that the entry does not reach: nothing is allowed.
    """
    limits = np.full((max_depth + 2, BLOCK_TARGETS), -1, dtype=np.int64)
    depths = np.arange(max_depth + 1)[:, None]
    limits[:-1, : len(to_target)] = to_target.astype(np.int64) + margin - depths
    limits[:, : len(to_target)][:, to_target < 0] = -1
    most = np.clip(limits, 0, MAX_HOPS)
    planes = [_pack_bits((most >> plane) & 1 == 1) for plane in range(_N_PLANES)]
    return np.stack(planes, axis=2), _pack_bits(limits >= 0)


def _pack_bits(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """One bit per target [*, 512] as words of 64 [*, 8]."""
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)


def _at_most(hops: NDArray[np.uint64], limits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Whether bit-sliced hops [*, 8, 4] are within bit-sliced limits, a bit each [*, 8]."""
    is_less = np.zeros(hops.shape[:2], dtype=np.uint64)
    is_equal = ~is_less
    for plane in reversed(range(_N_PLANES)):
        hop, limit = hops[:, :, plane], limits[:, :, plane]
        is_less |= is_equal & ~hop & limit
        is_equal &= ~(hop ^ limit)
    return is_less | is_equal


def pack_words(block: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A block [n, 8, 4] without its words of 64 unreachable targets, as one array [*].

    First a byte per vertex with a bit for each word that is stored, then the planes of those words.
    """
    is_there = (block != _ALL_ONES).any(axis=2)  # [n, 8]
    flags = np.zeros(-(-len(block) // 8) * 8, dtype=np.uint8)
    flags[: len(block)] = np.packbits(is_there, axis=1, bitorder="little")[:, 0]
    return np.concatenate([flags.view(np.uint64), block[is_there].ravel()])


def unpack_words(packed: NDArray[np.uint64], n_vertices: int) -> NDArray[np.uint64]:
    """Inverse of `pack_words`: the block [n, 8, 4]."""
    n_flags = -(-n_vertices // 8)
    flags = packed[:n_flags].view(np.uint8)[:n_vertices]
    is_there = np.unpackbits(flags[:, None], axis=1, bitorder="little").astype(bool)
    block = aligned_zeros((n_vertices, BLOCK_TARGETS // 64, _N_PLANES), np.uint64)
    block[~is_there] = _ALL_ONES
    block[is_there] = packed[n_flags:].reshape(-1, _N_PLANES)
    return block


class BlockCache:
    """Arrays in a directory, each in a file named by its key and its content's checksum.

    A file is written under another name and renamed, so a crash leaves it whole or not at all. A
    file whose content does not match its checksum is removed.
    """

    def __init__(self, directory: Path) -> None:
        if directory.exists() and not directory.is_dir():
            raise ValueError(f"{directory}: expected a directory or nothing, got a file")
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._remove_abandoned()

    def read(self, key: str) -> NDArray[np.uint64] | None:
        """The array of a key, memory-mapped, its checksum verified; None if the cache has none."""
        for path in sorted(self.directory.glob(f"{key}.*.npy")):
            if path.is_dir():
                raise ValueError(f"{path}: expected a file, got a directory")
            array = _read_verified(path)
            if array is not None:
                return array
            path.unlink(missing_ok=True)
        return None

    def write(self, key: str, array: NDArray[np.uint64]) -> None:
        """Write an array under its key."""
        path = self.directory / f"{key}.{hash_arrays('', array)}.npy"
        with replacing(path) as temporary, temporary.open("wb") as stream:
            write_npy(stream, array)

    def _remove_abandoned(self) -> None:
        """Remove partial files of crashed writers; those of active writers are younger."""
        for path in self.directory.glob("*.partial"):
            with suppress(OSError):  # renamed by an active writer, or a directory
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()


def _read_verified(path: Path) -> NDArray[np.uint64] | None:
    """A mapped array whose content has the checksum in the file's name, or None."""
    try:
        array = np.asarray(map_npy(path))
    except (OSError, ValueError):
        return None
    expected = path.name.split(".")[1]
    is_sound = array.dtype == np.uint64 and array.flags.c_contiguous
    return array if is_sound and hash_arrays("", array) == expected else None
