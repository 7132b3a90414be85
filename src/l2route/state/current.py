"""Current: the one reference through which searches see the state of an index."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import index as index_of
from pathlib import Path
from threading import Lock, get_ident
from typing import NamedTuple, Self
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from l2route.files.meta import Saved
from l2route.search.calibrate import calibrate
from l2route.search.drift import Drift
from l2route.search.guarantee import Guarantee, check_guarantee
from l2route.search.searcher import Searcher
from l2route.search.selectivity import calibrate_filtered
from l2route.search.setting import Setting
from l2route.search.validation import Validation
from l2route.state.forks import renew_in_children
from l2route.state.living import MAX_DEAD, Counts, Living
from l2route.state.snapshot import dense_state, living_state, served, with_fresh_validation
from l2route.state.state import IndexState

MAX_CHANGED = 0.1
"""Share of the vectors that may be added or deleted before settings are measured again."""
MAX_TOUCHED = 1024
"""Arrays of touched ids before they are joined to one."""
MOST_UNDER_FILTERS = 0.999
"""Highest mean recall that is asked for under filters in place of another guarantee."""


class Mark(NamedTuple):
    """Tells whether a state is the one that was saved, and keeps none of its vectors in memory."""

    searchers: tuple[ref[Searcher], ...]
    counts: Counts | None
    validation: Validation | None

    @classmethod
    def of(cls, state: IndexState) -> Self:
        """The mark of a state."""
        counts = None if state.living is None else state.living.counts
        return cls(tuple(map(ref, state.searchers.values())), counts, state.validation)


@dataclass(slots=True)
class Unsaved:
    """What has changed in memory since the directory of an index was last read or written."""

    moved: list[NDArray[np.int64]] = field(default_factory=list)
    """Ids that were added, updated or deleted; an id may be there several times."""
    named: list[NDArray[np.int64]] = field(default_factory=list)
    """Ids that got a name or lost it."""
    is_rebuilt: bool = False
    """Whether the state was replaced: learned, refined, compressed, …"""
    is_relabelled: bool = False
    """Whether vectors got other ids: an id then stands for another vector than in the directory."""

    def __bool__(self) -> bool:
        return bool(self.moved or self.named) or self.is_rebuilt

    def touch(self, ids: NDArray[np.int64], *, moves: bool, names: bool) -> None:
        """Note ids whose vectors, names or both are about to be changed."""
        for touched, does in ((self.moved, moves), (self.named, names)):
            if does:
                touched.append(ids)
            if len(touched) >= MAX_TOUCHED:
                touched[:] = [np.concatenate(touched)]

    def lose_names(self, ids: NDArray[np.int64]) -> None:
        """Forget names of ids that others have deleted: they are names of vectors of the past."""
        if len(ids) and self.named:
            left = np.setdiff1d(np.concatenate(self.named), ids)
            self.named[:] = [left] if len(left) else []

    def ids(self) -> NDArray[np.int64]:
        """All ids that were touched, ascending."""
        return np.unique(np.concatenate([np.zeros(0, np.int64), *self.moved, *self.named]))


class Current:
    """The current state of an index: read at any time, replaced as a whole or changed in place.

    A reader takes `state` once and uses only that: it sees the index before a change that replaces
    the state or after it. Changes run one after another.
    """

    def __init__(
        self, state: IndexState, saved: Saved | None = None, *, is_mapped: bool = False
    ) -> None:
        self.recent_plans: dict[object, object] = {}  # by arguments; see `recent_plan`
        self.state, self.is_mapped = state, is_mapped
        self.saved, self._saved_mark = saved, Mark.of(state)  # what a directory holds
        self.seen: dict[Path, Saved] = {}  # what the directories of earlier saves held
        self.unsaved = Unsaved()
        self.renew_locks()
        renew_in_children(self)
        self._dense: tuple[Living, int, IndexState] | None = None  # the last snapshot

    @property
    def state(self) -> IndexState:
        """The state that searches see."""
        return self._state

    @state.setter
    def state(self, state: IndexState) -> None:
        self._state = state
        self.recent_plans.clear()  # plans keep the state that they were prepared for

    def renew_locks(self) -> None:
        """Make all locks anew, unlocked."""
        self._change, self._swap = Lock(), Lock()
        self._changer: int | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of changes."""
        if self._changer == get_ident():
            raise RuntimeError("expected one change of an index at a time, got one within another")
        with self._change:
            self._changer = get_ident()
            try:
                yield
            finally:
                self._changer = None

    @contextmanager
    def changing(self) -> Iterator[IndexState]:
        """Hold the lock of changes, and yield the current state; call `swap` with the new one.

        The state is constant: of a living index it is a copy, with fresh validation queries. An
        index without vectors is refused.
        """
        with self.alone():
            if self.state.n_vectors == 0:
                raise ValueError("expected an index with vectors, got an empty one")
            self._freshen()
            yield self._snapshot()

    def validation(self) -> Validation | None:
        """The validation queries, with their true neighbours among the rows of `dense`."""
        with self.alone():
            self._freshen()
            return self._snapshot().validation

    def fresh(self) -> IndexState:
        """The current state, with the true neighbours that validation queries have now."""
        if self.state.living is None:
            return self.state
        with self.alone():
            self._freshen()
            return self.state

    @contextmanager
    def living(self, n_more: int = 0) -> Iterator[Living]:
        """Hold the lock of changes, and yield buffers with room for n more vectors.

        The first time, the index is copied into such buffers.
        """
        with self.alone():
            yield self.opened(n_more)

    def opened(self, n_more: int = 0) -> Living:
        """The buffers that `living` yields; the lock of changes is held."""
        state = self.state
        if state.living is None:
            before, state = state, living_state(state)
            self._hand_over(before, state)
        assert state.living is not None
        return self._with_room(state, state.living, n_more)

    def touch(self, ids: NDArray[np.int64], *, moves: bool = False, names: bool = False) -> None:
        """Note ids that are about to be changed, if the index has a directory.

        Args:
            ids: the ids.
            moves: whether they are added, updated or deleted.
            names: whether they get names or lose them.
        """
        if self.saved is not None and len(ids):
            self.unsaved.touch(ids, moves=moves, names=names)

    def _with_room(self, state: IndexState, living: Living, n_more: int) -> Living:
        if n_more:
            living.repair_beyond(MAX_DEAD)
        larger = living.grown(n_more)
        if larger.is_stale:
            larger.encode_anew()
        if larger.searchers is not state.searchers:
            state = served(larger, state)
        if state is not self.state:
            with self._swap:
                self.state = state.with_settings_of(self.state, self.state)
        return larger

    def _hand_over(self, before: IndexState, living: IndexState) -> None:
        """Let a living state be saved as changes of the state it was made from, if that was."""
        if self._saved_mark.searchers == Mark.of(before).searchers:
            self._saved_mark = Mark.of(living)

    def note_drifts(self, drifts: Mapping[str, Drift]) -> None:
        """Keep the drifts that were measured last."""
        with self._swap:
            self.state = replace(self.state, drifts=drifts)
        self._dense = None

    def dense(self) -> IndexState:
        """The current state if it is constant, otherwise a copy that is."""
        if self.state.living is None:
            return self.state
        with self.alone():
            return self._snapshot()

    def saved_as(self, state: IndexState) -> Saved | None:
        """What a directory holds of a living state's slots; None if they were never saved."""
        before, after = self._saved_mark, Mark.of(state)
        is_same = before.counts is after.counts is not None
        return self.saved if is_same and before.validation is after.validation else None

    def note_saved(self, state: IndexState, saved: Saved) -> None:
        """Keep what a directory holds since this state was saved there."""
        if self.saved is not None:
            self.seen[self.saved.path] = self.saved
        self.saved, self._saved_mark = saved, Mark.of(state)

    def adopt(self, other: "Current") -> None:
        """Take the state of another index that was read from the directory of this one."""
        with self._swap:
            self.state = other.state
        self.saved, self._saved_mark = other.saved, other._saved_mark
        self._dense = None

    def _snapshot(self) -> IndexState:
        state = self.state
        living = state.living
        if living is None:
            return state
        if self._dense is None or self._dense[:2] != (living, living.counts.version):
            self._dense = (living, living.counts.version, dense_state(state))
        return self._dense[2]

    def _freshen(self) -> None:
        """Compute the true neighbours of validation queries again if vectors have changed."""
        fresh = with_fresh_validation(self.state)
        if fresh is not self.state:
            with self._swap:
                self.state = fresh
            self._dense = None

    def change(self, step: Callable[[IndexState], IndexState]) -> None:
        """Replace the state by the result of a function of it."""
        with self.changing() as before:
            self.swap(before, step(before))

    def swap(self, before: IndexState, after: IndexState) -> None:
        """Replace the state `before` by `after`, and add settings that were measured meanwhile."""
        self.unsaved.is_rebuilt = True
        with self._swap:
            self.state = after.with_settings_of(self.state, before)

    def setting(
        self,
        state: IndexState,
        searcher: Searcher,
        recall: float,
        k: int,
        n_threads: int,
        share: float = 1.0,
        guarantee: Guarantee = "mean",
    ) -> Setting:
        """The cheapest setting of a state's searcher that reaches a recall@k, measured once.

        Args:
            state: the state that is searched.
            searcher: a searcher of the state.
            recall: recall@k to reach.
            k: answers per query.
            n_threads: threads to measure with.
            share: share of the vectors that pass a filter, one of `selectivity.BANDS`; 1 for none.
            guarantee: what reaches the recall, the mean of the queries or 95% of them.
        """
        k, recall = index_of(k), float(recall)
        guarantee = check_guarantee(guarantee)
        known = state.settings.get((searcher.space.name, k, recall, share, guarantee))
        if known is not None and not self._is_outdated(state):
            return known
        if state.validation is None:
            raise ValueError(
                "expected validation queries to measure recall on, got none: "
                "call learn or validate_with first"
            )
        if state.n_vectors == 0:  # nothing can be missed
            rerank = 0 if searcher.space.is_exact else k
            return Setting(
                searcher.space.name, k, recall, rerank, 1.0, k, share=share, guarantee=guarantee
            )
        if state.living is not None:
            state = self.fresh()
            searcher = state.searcher(searcher.space.name)
        assert state.validation is not None
        if share == 1.0:
            rule = state.rules.get((searcher.space.name, k))
            asked = (searcher, state.validation, k, recall, n_threads)
            setting, _ = calibrate(*asked, guarantee, rule)
        else:
            plain = self.setting(state, searcher, recall, k, n_threads, 1.0, guarantee).plain
            if guarantee != "mean":  # the mean recall that it has without a filter
                plain = replace(plain, target=min(max(plain.recall, recall), MOST_UNDER_FILTERS))
            setting = calibrate_filtered(searcher, state.validation, plain, share, n_threads)
            setting = replace(setting, target=recall)
        self.add_setting(state, setting)
        return setting

    @staticmethod
    def _is_outdated(state: IndexState) -> bool:
        """Whether more vectors have changed than settings are kept for."""
        living = state.living
        return living is not None and living.counts.n_changed > MAX_CHANGED * len(living)

    def add_setting(self, measured: IndexState, setting: Setting) -> None:
        """Keep a setting measured on a state if it is valid for the current one."""
        with_setting = replace(measured, settings={**measured.settings, setting.key: setting})
        with self._swap:
            self.state = self.state.with_settings_of(with_setting, self.state)
