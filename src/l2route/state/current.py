"""Current: the one reference through which searches see the state of an index."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from operator import index as index_of
from threading import Lock, get_ident

from l2route.search.calibrate import calibrate
from l2route.search.searcher import Searcher
from l2route.search.setting import Setting
from l2route.state.state import IndexState


class Current:
    """The current state of an index: read at any time, replaced as a whole.

    A reader takes `state` once and uses only that: it sees the index before a change or after it.
    Changes run one after another.
    """

    def __init__(self, state: IndexState) -> None:
        self.state = state
        self._change, self._swap = Lock(), Lock()
        self._changer: int | None = None

    @contextmanager
    def changing(self) -> Iterator[IndexState]:
        """Hold the lock of changes, and yield the current state; call `swap` with the new one."""
        if self._changer == get_ident():
            raise RuntimeError("expected one change of an index at a time, got one within another")
        with self._change:
            self._changer = get_ident()
            try:
                yield self.state
            finally:
                self._changer = None

    def change(self, step: Callable[[IndexState], IndexState]) -> None:
        """Replace the state by the result of a function of it."""
        with self.changing() as before:
            self.swap(before, step(before))

    def swap(self, before: IndexState, after: IndexState) -> None:
        """Replace the state `before` by `after`, and add settings that were measured meanwhile."""
        with self._swap:
            self.state = after.with_settings_of(self.state, before)

    def setting(
        self, state: IndexState, searcher: Searcher, recall: float, k: int, n_threads: int
    ) -> Setting:
        """The cheapest setting of a state's searcher that reaches a recall@k, measured once."""
        k, recall = index_of(k), float(recall)
        known = state.settings.get((searcher.space.name, k, recall))
        if known is not None:
            return known
        if state.validation is None:
            raise ValueError(
                "expected validation queries to measure recall on, got none: "
                "call learn or validate_with first"
            )
        setting, _ = calibrate(searcher, state.validation, k, recall, n_threads)
        self.add_setting(state, setting)
        return setting

    def add_setting(self, measured: IndexState, setting: Setting) -> None:
        """Keep a setting measured on a state if it is valid for the current one."""
        key = (setting.space, setting.k, setting.target)
        with_setting = replace(measured, settings={**measured.settings, key: setting})
        with self._swap:
            self.state = self.state.with_settings_of(with_setting, self.state)
