"""Saves of an index: whole, what changed since the last one, or changes for the journal."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.files.atomic import make_directory
from l2route.files.meta import Saved
from l2route.files.patches import Layout, Patch
from l2route.files.storage import (
    StaleError,
    append_changes,
    append_patch,
    exclusive,
    is_behind,
    version_at,
)
from l2route.state.buffers import PER_SLOT
from l2route.state.current import Current, Unsaved
from l2route.state.entry_record import VERTICES
from l2route.state.living import Living, Slots
from l2route.state.merging import catch_up, values_of
from l2route.state.names import rows_of_names
from l2route.state.persist import arrays_of_rows, meta_of, write_state
from l2route.state.state import IndexState

MAX_COMMIT_BYTES = 1 << 26
"""Vectors that are appended to the journal at the most; more are saved, which is read faster."""


def save(
    current: Current, path: Path | None, *, overwrite: bool = False, merges: bool = True
) -> None:
    """Write an index into a directory: what changed since it was saved there, or all of it.

    Args:
        current: the index. Changes wait meanwhile; searches do not.
        path: the directory; None for that of the last save or load.
        overwrite: whether to replace any index there.
        merges: whether to bring in what others have saved there; otherwise it is a StaleError.
    """
    with current.alone():
        known = _known(current, path)
        if overwrite or known is None:
            target = _target(current, path)
            _save_whole(current, target, None, overwrite=overwrite)
        elif known is not current.saved:
            if is_behind(known):
                raise StaleError(f"{known.path}: expected what was saved there last, got another")
            _save_whole(current, known.path, known)
        else:
            _save_own(current, known.path, merges)
        current.unsaved = Unsaved()


def commit(current: Current, *, follows: bool = True) -> None:
    """Append what has changed to the journal of the directory, or save what it cannot hold.

    Args:
        current: an index that has a directory. Changes wait meanwhile; searches do not.
        follows: whether to bring in what others have saved there; otherwise it is a StaleError.
    """
    with current.alone():
        known = _known(current, None)
        assert known is not None
        n_bytes = 4 * current.state.base.dim * len(current.unsaved.ids())
        is_small = known.journal is not None and n_bytes <= MAX_COMMIT_BYTES
        if current.unsaved.is_rebuilt or not is_small or version_at(known.path) is None:
            _save_own(current, known.path, follows)
        elif current.unsaved:
            with _own(current, known.path, follows) as held:
                changes = values_of(current.state, current.unsaved.ids())
                assert current.saved is not None
                current.saved = append_changes(current.saved, changes, held=held)
        current.unsaved = Unsaved()


def _known(current: Current, path: Path | None) -> Saved | None:
    """What the index knows of a directory; None if it never read or wrote it."""
    if path is None:
        _target(current, path)
        return current.saved
    each = [current.saved] if current.saved is not None else []
    for saved in [*each, *current.seen.values()]:
        if path.absolute() == saved.path or (path.exists() and _is_same(path, saved.path)):
            return saved
    return None


def _is_same(path: Path, other: Path) -> bool:
    return other.exists() and path.samefile(other)


def _target(current: Current, path: Path | None) -> Path:
    if path is not None:
        return path.absolute()
    if current.saved is None:
        raise ValueError("expected a path for an index that was neither saved nor loaded, got none")
    return current.saved.path


@contextmanager
def _own(current: Current, path: Path, follows: bool) -> Iterator[bool]:
    """Lock the directory of an index, and bring in what others have saved there.

    Yields:
        Whether there are locks.
    """
    make_directory(path)
    with exclusive(path) as held:
        assert current.saved is not None
        if follows:
            catch_up(current)
        elif is_behind(current.saved):
            expected = f"{path}: expected version {current.saved.version[:16]} of the index"
            raise StaleError(f"{expected}, got a newer one: reload it first")
        yield held


def _save_own(current: Current, path: Path, merges: bool) -> None:
    """Save over what the directory holds of this index."""
    with _own(current, path, merges) as held:
        state, saved = current.state, current.saved
        known = None if version_at(path) is None else saved  # the directory may have been removed
        if state.living is not None and known is not None:
            saved = current.saved_as(state)
            if saved is not None and not saved.should_fold and _fits(state, saved):
                try:
                    _save_changes(current, state, state.living, saved, held)
                    return
                except StaleError:  # of names, which were not saved before
                    pass
        _save_whole(current, path, known, held=held)


def _save_whole(
    current: Current,
    path: Path,
    known: Saved | None,
    *,
    overwrite: bool = False,
    held: bool | None = None,
) -> None:
    state = current.state
    store = None if state.living is None else state.living.store
    changes = None if store is None else store.take_changes()
    renamed = state.names.take_changes()
    rebuilt = current.unsaved.is_rebuilt or known is not current.saved
    how = {"is_rebuilt": rebuilt, "overwrite": overwrite}
    try:
        saved = write_state(path, state, known, held=held, **how)
    except BaseException:
        if store is not None and changes is not None:
            store.note_changes(*changes)
        state.names.note_changes(renamed)
        raise
    current.note_saved(state, saved)


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


def _save_changes(
    current: Current, state: IndexState, living: Living, saved: Saved, held: bool
) -> None:
    changes, renamed = living.store.take_changes(), state.names.take_changes()
    try:
        patch = _patch(state, saved, *changes, renamed)
        saved = append_patch(saved, meta_of(state), patch, held=held)
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
