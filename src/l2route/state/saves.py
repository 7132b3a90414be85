"""Saves of an index: whole, or what changed since the last one."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.files.meta import Saved
from l2route.files.patches import Layout, Patch
from l2route.files.storage import StaleError, append_patch
from l2route.state.buffers import PER_SLOT
from l2route.state.current import Current
from l2route.state.entry_record import VERTICES
from l2route.state.living import Living, Slots
from l2route.state.names import rows_of_names
from l2route.state.persist import arrays_of_rows, meta_of, write_state
from l2route.state.state import IndexState


def save(current: Current, path: Path | None) -> None:
    """Write an index into a directory: what changed since it was saved there, or all of it.

    Args:
        current: the index. Changes wait until a living index is written; searches do not.
        path: the directory; None for that of the last save or load.
    """
    target = _target(current, path)
    if current.state.living is None:
        _save_constant(current, current.state, target)
        return
    with current.alone():
        state = current.state
        assert state.living is not None
        saved = current.saved_as(state)
        if saved is None or saved.path != target or saved.should_fold or not _fits(state, saved):
            _save_whole(current, state, target)
            return
        try:
            _save_changes(current, state, state.living, saved)
        except StaleError:
            _save_whole(current, state, target)


def _save_constant(current: Current, state: IndexState, path: Path) -> None:
    renamed = state.names.take_changes()
    try:
        saved = write_state(path, state)
    except BaseException:
        state.names.note_changes(renamed)
        raise
    current.note_saved(state, saved)


def _target(current: Current, path: Path | None) -> Path:
    if path is not None:
        return path.absolute()
    if current.saved is None:
        raise ValueError("expected a path for an index that was neither saved nor loaded, got none")
    return current.saved.path


def _fits(state: IndexState, saved: Saved) -> bool:
    """Whether what is saved has all arrays that change, with rows like theirs and no more."""
    for name, array in _changing_arrays(state):
        before = saved.layouts.get(name)
        if before is None or before != Layout(array.dtype, (before.shape[0], *array.shape[1:])):
            return False
        if before.shape[0] > len(array):
            return False
    return True


def _changing_arrays(state: IndexState) -> list[tuple[str, NDArray[Any]]]:
    """Arrays that additions and deletions change, with their names."""
    arrays = arrays_of_rows(state).items()
    return [
        each for each in arrays if each[0] in ("entries", VERTICES) or PER_SLOT.fullmatch(each[0])
    ]


def _save_whole(current: Current, state: IndexState, path: Path) -> None:
    assert state.living is not None
    store = state.living.store
    changes = store.take_changes()
    try:
        _save_constant(current, state, path)
    except BaseException:
        store.note_changes(*changes)
        raise


def _save_changes(current: Current, state: IndexState, living: Living, saved: Saved) -> None:
    changes, renamed = living.store.take_changes(), state.names.take_changes()
    try:
        patch = _patch(state, saved, *changes, renamed)
        saved = append_patch(saved, meta_of(state), patch)
    except BaseException:
        living.store.note_changes(*changes)
        state.names.note_changes(renamed)
        raise
    current.note_saved(state, saved)


def _patch(
    state: IndexState, saved: Saved, changed: Slots, renewed: Slots, renamed: set[int] | None
) -> Patch:
    """The rows of arrays that differ from the saved ones.

    Args:
        state: the state of a living index.
        saved: what is saved.
        changed: slots whose neighbour lists have changed.
        renewed: slots whose vectors or labels have changed.
        renamed: ids whose names have changed; None if that is not known.
    """
    rows, lengths = {}, {}
    for name, array in _changing_arrays(state):
        n_saved = saved.layouts[name].shape[0]
        new = np.arange(n_saved, len(array))
        known: NDArray[np.integer[Any]] = changed if name == "neighbors" else renewed
        if name == "entries":
            known = np.arange(n_saved)
        elif name == VERTICES:
            known = np.flatnonzero((array < 0).any(axis=1))  # deletions only remove entry points
        numbers = np.union1d(known, new).astype(np.int64)
        rows[name] = (numbers, array[numbers])
        lengths[name] = len(array)
    for name, added in rows_of_names(state.names, renamed, saved.layouts, state.slots_of).items():
        rows[name] = added
        lengths[name] = saved.layouts[name].shape[0] + len(added[0])
    return Patch(rows, lengths)
