"""Served: the index that a server answers from, and the labels of its vectors."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route.data.labels import Labels
from l2route.files.meta import META, read_bytes, version_of
from l2route.index import RoutingIndex, load
from l2route.search.filter import filter_of_ids

Ids = NDArray[np.int64]
LOG = logging.getLogger("l2route.serve")


class ReloadError(Exception):
    """A newer save cannot take the place of the index that is served."""


class Served:
    """The index that is served, which a reload replaces as a whole.

    A request reads `index` once and uses only that. Any number of threads may; the methods that
    change something are for one thread at a time.

    Args:
        path: directory of the index.
        labels: names for ids of the index that have none; ids that it lacks are ignored.
        mmap: map the arrays instead of reading them.
        n_threads: threads for changes; 0 for all cores.
    """

    def __init__(
        self,
        path: Path,
        labels: Labels | None = None,
        *,
        mmap: bool = False,
        n_threads: int = 0,
    ) -> None:
        self.path, self._mmap, self._n_threads = path, mmap, n_threads
        self.index: RoutingIndex = load(path, mmap=mmap)
        if labels is not None:
            _name(self.index, labels)
        self.n_reloads = 0
        self.has_changes = False  # that are not saved
        self._touched: set[int] = set()  # ids that were added, updated or deleted here

    @property
    def labels(self) -> Labels | None:
        """The names of ids; None if there are none."""
        names = self.index.names
        return names if len(names) else None

    @property
    def is_newer(self) -> bool:
        """Whether the directory holds another save than the one that is served."""
        try:
            found = version_of(read_bytes(self.path / META))
        except (OSError, ValueError):
            return False  # no index that could be loaded; a save makes one
        return found != self.index.saved_version

    def filter(self, ids: Ids) -> object:
        """A filter for `where` in searches, of ids of which the index may lack some."""
        return filter_of_ids(ids)

    def add(self, vectors: object, ids: object, labels: list[str] | None) -> Ids:
        """Add vectors, and return their ids; see `RoutingIndex.add`."""
        added = self.index.add(vectors, ids, names=labels, n_threads=self._n_threads)
        self._note(added)
        return added

    def update(self, ids: Ids, vectors: object) -> Ids:
        """Give ids new vectors; see `RoutingIndex.update`."""
        self.index.update(ids, vectors, n_threads=self._n_threads)
        self._note(ids)
        return ids

    def delete(self, ids: Ids) -> Ids:
        """Delete vectors; see `RoutingIndex.delete`."""
        self.index.delete(ids)
        self._note(ids)
        return ids

    def save(self) -> None:
        """Save what has changed; afterwards it survives a crash."""
        self.index.save(self.path)
        self.has_changes = False

    def reload(self) -> bool:
        """Serve the newer save if there is one, with all changes that were made here.

        Vectors that were added, updated or deleted here are so in the newer save too: another
        process may have loaded the index before these changes. If there are any, the result is
        saved.

        Returns:
            Whether there was a newer save.
        """
        if not self.is_newer:
            return False
        try:
            newer = load(self.path, mmap=self._mmap)
            self._check_alike(newer)
            _name(newer, self.index.names)
            if self._carry_over(newer):
                newer.save(self.path)
        except (OSError, ValueError) as error:
            raise ReloadError(f"{self.path}: the newer save is not served: {error}") from error
        self.index, self.has_changes = newer, False
        self.n_reloads += 1
        LOG.info("%s: serving a newer save of %d vectors", self.path, len(newer))
        return True

    def _note(self, ids: Ids) -> None:
        self._touched.update(ids.tolist())
        self.has_changes = self.has_changes or len(ids) > 0

    def _check_alike(self, newer: RoutingIndex) -> None:
        """Refuse an index of other vectors: clients would send queries that do not fit."""
        now, then = (
            f"{each.dim} dimensions, {each.searcher().base.metric}" for each in (self.index, newer)
        )
        if now != then:
            raise ValueError(f"expected an index of {now}, got {then}")

    def _carry_over(self, newer: RoutingIndex) -> bool:
        """Make the changes that were made here in a newer index too; False if there are none."""
        if not self._touched:
            return False
        ids = np.fromiter(self._touched, np.int64)
        is_here, is_there = np.isin(ids, self.index.ids), np.isin(ids, newer.ids)
        if (gone := ids[~is_here & is_there]).size:
            newer.delete(gone)
        if (both := ids[is_here & is_there]).size:
            newer.update(both, self.index.vectors(both), n_threads=self._n_threads)
        if (missing := ids[is_here & ~is_there]).size:
            newer.add(self.index.vectors(missing), missing, n_threads=self._n_threads)
        newer.names.add(self.index.names.names(ids[is_here]), ids[is_here])
        return True


def _name(index: RoutingIndex, labels: Labels) -> None:
    """Name the ids of an index that have no name."""
    known = set(index) - {id_ for id_, _ in index.names}
    pairs = [(id_, name) for id_, name in labels if id_ in known]
    index.name(Labels.of([name for _, name in pairs], np.array([id_ for id_, _ in pairs], "i8")))
