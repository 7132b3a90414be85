"""What others have saved of an index, brought into memory with what was changed here.

Changes are those of ids: a vector or name that was changed here stays what it is here, and every
other one becomes what it is in the directory. A state that was learned, refined or compressed in
two places cannot be joined, nor one that was restored: that is a StaleError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import check_vectors
from l2route.files.journal import Changes
from l2route.files.meta import Saved
from l2route.files.progress import ignore
from l2route.files.storage import StaleError, changes_since, version_at
from l2route.search.encode import check_encodes
from l2route.state.current import Current, Unsaved
from l2route.state.persist import read_state
from l2route.state.state import IndexState

Ids = NDArray[np.int64]
Mask = Callable[[Ids], NDArray[np.bool_]]
"""Tells of each of some ids [n] whether it has a property."""
BLOCK = 65_536
"""Vectors that are compared at a time."""


def catch_up(current: Current, *, gives_way: bool = False, n_threads: int = 0) -> bool:
    """Bring in what others have saved since the directory was last read; the lock is held.

    Args:
        current: an index that has a directory.
        gives_way: whether an index that was replaced or restored there takes the place of this one
            with all its changes; otherwise that is a StaleError, if there are any.
        n_threads: threads; 0 for all cores.

    Returns:
        Whether there was something.
    """
    has_news = False
    while current.saved is not None and version_at(current.saved.path) is not None:
        try:
            found, saved = changes_since(current.saved)
        except StaleError:
            _join(current, gives_way, n_threads)
            has_news = True
            continue
        for changes in found:
            moved, named = _but_own(current.unsaved)
            apply_changes(current, changes, moved, named, n_threads)
            current.unsaved.lose_names(changes.gone[moved(changes.gone)])
        current.saved = saved
        return has_news or bool(found)
    return has_news  # a directory that is gone is made anew by a save


def values_of(state: IndexState, ids: Ids) -> Changes:
    """What ids are in a state."""
    slots = state.slots_of(ids) if len(ids) else ids
    here = ids[slots >= 0]
    rows = state.base.rows[slots[slots >= 0], : state.base.dim]
    return Changes(here, rows.astype(np.float32), state.names.names(here), ids[slots < 0])


def apply_changes(
    current: Current, changes: Changes, moved: Mask, named: Mask, n_threads: int = 0
) -> None:
    """Make ids what changes say; the lock of changes is held.

    Args:
        current: the index.
        changes: what ids are to be.
        moved: tells of ids [n] whether they get the vectors of the changes, or go.
        named: tells of ids [n] whether they get the names of the changes.
        n_threads: threads; 0 for all cores.
    """
    state, is_moved, is_named = current.state, moved(changes.ids), named(changes.ids)
    ids, vectors = changes.ids[is_moved], changes.vectors[is_moved]
    gone = changes.gone[moved(changes.gone)]
    if not is_named.any() and not len(ids) and not len(gone):
        return
    if len(ids):
        check_vectors("journalled vectors", vectors, state.base.dim)
        for searcher in state.searchers.values():
            if not searcher.space.is_exact:
                check_encodes(searcher.space)
    living = current.opened(len(ids))
    known = gone[living.store.slots_of(gone) >= 0]
    if len(known):
        living.delete(living.store.slots_of(known))
    current.state.names.remove(gone)
    slots = living.store.slots_of(ids)
    is_here = slots >= 0
    differs = is_here.copy()
    differs[is_here] = living.differ(slots[is_here], vectors[is_here])
    for chosen, replaces in ((differs, True), (~is_here, False)):
        if chosen.any():
            rows = np.ascontiguousarray(vectors[chosen], dtype=np.float32)
            living.insert(rows, ids[chosen].copy(), replaces, n_threads, ignore)
    if len(ids):
        living.counts.next_id = max(living.counts.next_id, int(ids.max()) + 1)
    is_named &= living.store.slots_of(changes.ids) >= 0
    names = [name for name, does in zip(changes.names, is_named.tolist(), strict=True) if does]
    current.state.names.add(names, changes.ids[is_named])


def _join(current: Current, gives_way: bool, n_threads: int) -> None:
    """Bring the newer save of the directory and this index together."""
    before = current.saved
    assert before is not None
    newer, saved = read_state(before.path, mmap=current.is_mapped)
    is_same_epoch = saved.descent.epoch == before.descent.epoch
    if not is_same_epoch and (gives_way or not current.unsaved):
        _check_alike(current.state, newer)
        current.adopt(Current(newer, saved))
        current.unsaved = Unsaved()
    elif not is_same_epoch:
        raise _stale(before, saved, "the index was replaced or restored")
    elif not current.unsaved.is_rebuilt:
        own = values_of(current.state, current.unsaved.ids())
        if saved.descent == before.descent:
            newer = newer.with_measured(current.state)
        other = Current(newer, saved)
        moved, named = (_among(ids) for ids in (current.unsaved.moved, current.unsaved.named))
        apply_changes(other, own, moved, named, n_threads)  # before it takes its place: it may fail
        current.adopt(other)
    elif saved.descent != before.descent or current.unsaved.is_relabelled:
        raise _stale(before, saved, "both were learned, refined, compressed or relabelled")
    else:
        others = _differences(current.state, newer)
        apply_changes(current, others, *_but_own(current.unsaved), n_threads)
        current.saved = saved


def _stale(before: Saved, after: Saved, why: str) -> StaleError:
    expected = f"{before.path}: expected version {before.version[:16]} of the index"
    return StaleError(
        f"{expected}, got {after.version[:16]}, and {why}: load it and change it again, "
        "save to another directory, or overwrite"
    )


def _check_alike(state: IndexState, newer: IndexState) -> None:
    """Refuse an index of other vectors: queries would not fit."""
    now, then = (f"{s.base.dim} dimensions, {s.base.metric}" for s in (state, newer))
    if now != then:
        raise ValueError(f"expected an index of {now}, got {then}")


def _differences(state: IndexState, newer: IndexState) -> Changes:
    """What has to be changed in a state for its ids to be what they are in a newer one."""
    here, there = state.ids, newer.ids
    slots = state.slots_of(there)
    is_other = slots < 0
    for begin in range(0, len(there), BLOCK):
        part = slice(begin, begin + BLOCK)
        known = np.flatnonzero(~is_other[part]) + begin
        rows = state.base.rows[slots[known], : state.base.dim]
        values = values_of(newer, there[known]).vectors.astype(rows.dtype)
        is_other[known] = (rows != values).any(axis=1)
    if len(state.names) or len(newer.names):
        pairs = zip(state.names.names(there), newer.names.names(there), strict=True)
        is_other |= np.array([own != name for own, name in pairs], dtype=bool)
    found = values_of(newer, there[is_other])
    return Changes(found.ids, found.vectors, found.names, np.setdiff1d(here, there))


def _among(touched: Sequence[Ids]) -> Mask:
    """Tells which ids are among those that were touched."""
    known = np.concatenate([np.zeros(0, np.int64), *touched])
    return lambda ids: np.isin(ids, known)


def _but_own(unsaved: Unsaved) -> tuple[Mask, Mask]:
    """Tell which ids get the vectors, and the names, of others: those that have none of here."""
    moved, named = _among(unsaved.moved), _among(unsaved.named)
    return lambda ids: ~moved(ids), lambda ids: ~named(ids)
