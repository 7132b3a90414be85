"""Living: the buffers of an index that changes in place, while others search it.

The rows of the buffers are slots. A slot is live (it has an id), dead (deleted, but still in the
graph) or free. When the room for more slots is used up, larger buffers take their place; searches
that began before finish on the old ones.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.files.progress import Progress
from l2route.graph.build import served_entry
from l2route.graph.entry import N_ENTRIES, resolve_entry
from l2route.graph.entry_table import EntryTable
from l2route.graph.graph import Graph
from l2route.rewiring.refine import ALPHA
from l2route.search.base import BaseVectors
from l2route.search.encode import encode_vertices
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace, original_space
from l2route.search.vertex_map import FilterMap
from l2route.state.buffers import Arrays, capacity_for, with_room
from l2route.state.forks import Step

MAX_ENTRIES = 2 * N_ENTRIES
"""Room for entry points: roots of the tree, and vertices chosen among all."""
BATCH = 1024
"""Vectors that are inserted at a time."""
EF_INSERTION = 300
"""Beam width of the walks that find neighbours for new vectors."""
N_CANDIDATES = 300
"""Nearest vectors among which the neighbours of a new one are chosen."""
RENEWED = 4
"""Vertices that get new neighbours for every vector that is added, one after another. Without it,
what is added and deleted makes the graph worse."""
RENEWED_TOGETHER = 32
"""Vertices that are renewed at a time, at least: few walks keep neither threads nor memory busy."""
EF_RENEWAL = 48
"""Beam width of the walks that find new neighbours, and number of candidates."""
TRIM_ALPHA = 1.1
"""Alpha by which lists are cut that have overflowed."""
REPAIR_ALPHA = 1.0
"""Alpha by which the neighbours of deleted vertices are joined. A larger one fills lists with near
vertices, which is worse on data that are hard to search."""
MAX_DEAD = 0.01
"""Share of dead slots above which an insertion first repairs the graph."""
MAX_DEAD_AFTER_DELETION = 0.05
"""Share of dead slots above which a deletion repairs the graph."""
MAX_STALE = 0.2
"""Share of vectors added or deleted after which learned spaces are encoded anew: routing vectors of
vertices whose surroundings have changed lose half of what learning gained."""
MIN_REPAIRED = 64
"""Fewest dead slots worth a repair, which reads all neighbour lists."""
MAX_ADDITIONS = 64
"""Changes that filters can follow without being evaluated anew, if they only added vectors."""
NO_IDS = np.zeros(0, dtype=np.int64)
"""An array without ids, to join others to."""
MAX_WAIT = 1000
"""Milliseconds that an update waits for searches that began before it: one that lasts longer may
miss the vectors that are replaced."""

Slots = NDArray[np.int32]
"""Numbers of slots [n]."""


@dataclass(slots=True)
class Counts:
    """What has happened to a living index; handed on when its buffers grow."""

    next_id: int = 0
    """The id of the next vector that is added without one."""
    n_changed: int = 0
    """Vectors added and deleted since the true neighbours of validation queries were computed."""
    n_when_entered: int = 0
    """Live vectors when entry points were last chosen."""
    n_since_encoded: int = 0
    """Vectors added and deleted since learned spaces were last encoded as a whole."""
    version: int = 0
    """Number of changes."""


class Living:
    """Buffers of an index, and their slots. One thread at a time may change them.

    Args:
        base: metric and dimension of the vectors.
        spaces: routing spaces beside the original one, whose rows and biases are in `arrays`.
        arrays: vectors, neighbors, labels and the spaces' rows and biases, by the names under which
            they are saved, and parents and copies (see cpp/live/links.hpp); one row per slot.
        entries: entry points, padded with −1 [MAX_ENTRIES].
        n_slots: slots in use.
        counts: what has happened so far.
        table: entry points that depend on the query; deletions change it in place.
    """

    def __init__(
        self,
        base: BaseVectors,
        spaces: tuple[RoutingSpace, ...],
        arrays: Arrays,
        entries: NDArray[np.int32],
        n_slots: int,
        counts: Counts,
        table: EntryTable | None = None,
    ) -> None:
        self.arrays, self.entries, self.counts = arrays, entries, counts
        self.labels: NDArray[np.int64] = arrays["labels"]
        self._step = Step()
        self._n_to_renew = 0
        self._additions: tuple[tuple[int, NDArray[np.int64]], ...] = ()  # versions and new ids
        self.store = _core.Store(
            lists=arrays["neighbors"],
            parents=arrays["parents"],
            copies=arrays["copies"],
            labels=self.labels,
            entries=entries,
            n_slots=n_slots,
            longest=_longest_square(arrays["vectors"][:n_slots]),
        )
        self.base = replace(base, rows=arrays["vectors"])
        self.graph = Graph.with_room(arrays["neighbors"], entries, table)
        self.spaces = (original_space(self.base), *_moved(spaces, arrays))
        self.searchers = self._searchers()
        self._exact = _core.Rows(self.base.rows, self.base.scorer)
        width = arrays["neighbors"].shape[1]
        self._inserting = _insert_options(width, EF_INSERTION, N_CANDIDATES)
        self._renewing = _insert_options(width, EF_RENEWAL, EF_RENEWAL)

    def __len__(self) -> int:
        return self.store.n_live

    def grown(self, n_more: int) -> Living:
        """Buffers with room for n more slots: these if they have it, otherwise larger copies."""
        if self.store.room >= n_more:
            return self
        n_slots = self.store.n_slots
        arrays = with_room(self.arrays, n_slots, capacity_for(n_slots + n_more))
        entries, changes = self.entries.copy(), self.store.take_changes()
        table = self.graph.table
        grown = Living(self.base, self.spaces[1:], arrays, entries, n_slots, self.counts, table)
        grown.store.note_changes(*changes)
        return grown

    def _searchers(self) -> dict[str, Searcher]:
        return {
            space.name: Searcher(self.graph, space, self.base, store=self.store)
            for space in self.spaces
        }

    @property
    def is_stale(self) -> bool:
        """Whether learned spaces should be encoded anew."""
        return self.counts.n_since_encoded > MAX_STALE * len(self) and any(
            isinstance(space.vertex_map, FilterMap) for space in self.spaces
        )

    def encode_anew(self) -> None:
        """Encode all live slots in learned spaces, by their neighbours as they are now.

        Rows are written into new buffers: searches that are running go on with the old ones.
        """
        live = self.live().astype(np.int32)
        arrays, spaces = dict(self.arrays), list(self.spaces)
        for i, space in enumerate(self.spaces[1:]):
            if not isinstance(space.vertex_map, FilterMap):
                continue
            names = [name for name in (f"space{i}_rows", f"space{i}_bias") if name in arrays]
            own = {name: arrays[name] for name in names}
            arrays |= with_room(own, len(self.labels), len(self.labels))
            spaces[i + 1] = _with_rows(space, i, arrays)
            self._encode(spaces[i + 1], live)
        self.arrays, self.spaces = arrays, tuple(spaces)
        self.searchers = self._searchers()
        self.store.note_changes(live[:0], live)
        self.counts.n_since_encoded = 0

    def ids(self) -> NDArray[np.int64]:
        """Ids of the vectors, in the order of their slots."""
        labels = self.store.labels()
        _, first = np.unique(labels, return_index=True)  # a vector being replaced is there twice
        return np.asarray(labels[np.sort(first[labels[first] != -1])])

    def live(self) -> NDArray[np.int64]:
        """Live slots, ascending."""
        return np.flatnonzero(self.labels[: self.store.n_slots] != -1)

    def differ(self, slots: Slots, vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which vectors [n, dim] are not those of slots [n], as the index stores them."""
        known = self.base.rows[slots, : self.base.dim]
        return np.asarray((known != vectors.astype(known.dtype)).any(axis=1))

    def insert(
        self,
        vectors: NDArray[np.float32],
        ids: NDArray[np.int64],
        replaces: bool,
        n_threads: int,
        progress: Progress,
    ) -> None:
        """Insert vectors; if that is interrupted, none of them is in the index.

        Args:
            vectors: [n, dim], scaled to unit length for cosine; there has to be room for them.
            ids: their ids, distinct [n].
            replaces: whether the ids are in slots, which are then deleted; otherwise all are new.
            n_threads: threads; 0 for all cores.
            progress: called with vectors inserted and in total.
        """
        self.mend_tree()
        with self._step if replaces else nullcontext():  # a fork does not see ids in two slots
            try:
                self.store.begin(replaces)
                for begin in range(0, len(ids), BATCH):
                    progress(begin, len(ids))
                    part = slice(begin, begin + BATCH)
                    with nullcontext() if replaces else self._step:
                        self._insert_batch(vectors[part], ids[part], n_threads)
                progress(len(ids), len(ids))
                self.choose_entries()
                if replaces:
                    self.store.await_searches(MAX_WAIT)
                self._note(None if replaces else ids, len(ids) * (1 + replaces))
                self.store.commit()
                self._forget_entries()
            except BaseException:
                self.store.roll_back()
                self._note(None, 0)  # filters may have seen the slots
                raise
        if replaces:
            self.repair_beyond(MAX_DEAD_AFTER_DELETION, n_threads)

    def _insert_batch(
        self, vectors: NDArray[np.float32], ids: NDArray[np.int64], n_threads: int
    ) -> None:
        slots = self.store.take(ids)
        self.base.rows[slots, : self.base.dim] = vectors
        how: dict[str, Any] = {"exact": self._exact, "n_threads": n_threads}
        self.store.place(slots, options=self._inserting, **how)
        for space in self.spaces[1:]:
            self._encode(space, slots)
        self.store.publish(slots, ids, options=self._inserting, **how)
        self._n_to_renew += RENEWED * len(slots)
        if self._n_to_renew >= RENEWED_TOGETHER:
            self.store.renew(self._n_to_renew, options=self._renewing, **how)
            self._n_to_renew = 0

    def _encode(self, space: RoutingSpace, slots: Slots) -> None:
        """Write the routing vectors and biases of new slots, whose lists are known."""
        rows, bias = encode_vertices(space, self.base, self.graph.neighbors, slots)
        space.rows[slots] = rows
        if space.bias is not None:
            space.bias[slots] = bias

    def delete(self, slots: Slots, n_threads: int = 0) -> None:
        """Delete live slots."""
        with self._step:
            self.store.kill(slots)
            self._forget_entries()
            self._note(None, len(slots))
        self.repair_beyond(MAX_DEAD_AFTER_DELETION, n_threads)

    def _forget_entries(self) -> None:
        """No search begins at a deleted slot: its place may be given to another vector."""
        if self.graph.table is not None:
            self.graph.table.forget(self.labels)

    def repair_beyond(self, share: float, n_threads: int = 0) -> None:
        """Repair the graph if the share of dead slots is larger than this."""
        n_dead = self.store.n_dead
        if n_dead > max(MIN_REPAIRED, share * len(self)) or (n_dead and not len(self)):
            self.repair(n_threads)

    def repair(self, n_threads: int = 0) -> None:
        """Remove dead slots from the graph, as far as searches that are running permit."""
        with self._step:
            self.store.repair(self._exact, alpha=REPAIR_ALPHA, n_threads=n_threads)

    def repair_fully(self) -> None:
        """Remove dead slots from all lists; waits for searches that are running."""
        if self.store.n_dead > MIN_REPAIRED:
            with self._step:
                self.store.await_searches(MAX_WAIT)
            self.repair()

    def _note(self, added: NDArray[np.int64] | None, n: int) -> None:
        """Count a change of n vectors; `added` has their ids if they are new ones, or is None."""
        self.counts.n_changed += n
        self.counts.n_since_encoded += n
        version = self.counts.version + 1
        kept = () if added is None else (*self._additions, (version, added))
        self._additions = kept[-MAX_ADDITIONS:]
        self.counts.version = version

    def added_since(self, version: int) -> NDArray[np.int64] | None:
        """Ids added since a version; None if there were other changes, or too many."""
        additions = self._additions  # one read: a change may replace them
        if not additions or additions[0][0] > version + 1:
            return None
        return np.concatenate([ids for after, ids in additions if after > version] or [NO_IDS])

    def mend_tree(self) -> None:
        """Give live parents to the children of dead slots."""
        if self.store.n_dead:
            with self._step:
                self.store.mend_tree(self._exact, alpha=REPAIR_ALPHA)

    def choose_entries(self) -> None:
        """Choose entry points anew if the number of vectors has doubled since the last time."""
        if len(self) < 2 * self.counts.n_when_entered or len(self) < 2:
            return
        live = self.live()
        entry = served_entry("nsw", self.base.metric)
        chosen = live[resolve_entry(entry, np.ascontiguousarray(self.base.vectors()[live]))]
        parents = self.arrays["parents"]
        roots = self.entries[(self.entries >= 0) & (parents[self.entries] < 0)]
        others = chosen[~np.isin(chosen, roots)]
        self.store.set_entries(np.concatenate([roots, others]).astype(np.int32)[:MAX_ENTRIES])
        self.counts.n_when_entered = len(live)


def _insert_options(width: int, ef: int, n_candidates: int) -> _core.InsertOptions:
    return _core.InsertOptions(
        ef=ef,
        n_candidates=n_candidates,
        degree=width,
        trimmed=width,
        alpha=ALPHA,
        trim_alpha=TRIM_ALPHA,
    )


def _longest_square(rows: NDArray[Any]) -> float:
    """Squared length of the longest row; 0 if there is none."""
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float32)
    return float(squares.max(initial=0.0))


def _moved(spaces: tuple[RoutingSpace, ...], arrays: Arrays) -> list[RoutingSpace]:
    """Spaces with their rows in buffers. Copies of neighbours' rows are given up."""
    return [_with_rows(space, i, arrays) for i, space in enumerate(spaces)]


def _with_rows(space: RoutingSpace, i: int, arrays: Arrays) -> RoutingSpace:
    rows, bias = arrays[f"space{i}_rows"], arrays.get(f"space{i}_bias")
    return replace(space, rows=rows, bias=bias, inlined=False)
