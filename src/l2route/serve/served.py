"""Served: the index that a server answers from, and the labels of its vectors."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route.data.labels import Labels
from l2route.index import load
from l2route.search.filter import filter_of_ids

Ids = NDArray[np.int64]
LOG = logging.getLogger("l2route.serve")


class ReloadError(Exception):
    """A newer save cannot take the place of the index that is served."""


class Served:
    """The index that is served, and what the server does with it.

    Any number of threads may search `index`; the methods that change something are for one thread
    at a time.

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
        self.path, self._n_threads = path, n_threads
        self._labels = dict(labels or ())  # of vectors that were not deleted here
        self.index = load(path, mmap=mmap)
        self._name()
        self.n_reloads = 0

    @property
    def labels(self) -> Labels | None:
        """The names of ids; None if there are none."""
        names = self.index.names
        return names if len(names) else None

    @property
    def is_newer(self) -> bool:
        """Whether the directory holds something that is not served."""
        return self.index.is_behind

    @property
    def has_changes(self) -> bool:
        """Whether there are changes that are not on disk."""
        return self.index.has_unsaved

    @property
    def has_journal(self) -> bool:
        """Whether there are changes that are on disk in the journal alone."""
        return self.index.n_journal_bytes > 0

    def filter(self, ids: Ids) -> object:
        """A filter for `where` in searches, of ids of which the index may lack some."""
        return filter_of_ids(ids)

    def add(self, vectors: object, ids: object, labels: list[str] | None) -> Ids:
        """Add vectors, and return their ids; see `RoutingIndex.add`."""
        return self.index.add(vectors, ids, names=labels, n_threads=self._n_threads)

    def update(self, ids: Ids, vectors: object) -> Ids:
        """Give ids new vectors; see `RoutingIndex.update`."""
        self.index.update(ids, vectors, n_threads=self._n_threads)
        return ids

    def delete(self, ids: Ids) -> Ids:
        """Delete vectors; see `RoutingIndex.delete`."""
        self.index.delete(ids)
        for id_ in ids.tolist():
            self._labels.pop(id_, None)
        return ids

    def commit(self, *, follows: bool = True) -> None:
        """Write what has changed into the journal; afterwards it survives a crash."""
        self.index.commit(merge=follows)

    def save(self, *, follows: bool = True) -> None:
        """Save the index, and empty its journal."""
        self.index.save(merge=follows)

    def reload(self) -> bool:
        """Serve what other processes have saved, with changes made here that are not on disk.

        An index that was restored or replaced is served as it is.

        Returns:
            Whether there was something.
        """
        version = self.index.saved_version
        try:
            has_news = self.index.refresh(discard=True, n_threads=self._n_threads)
        except (OSError, ValueError) as error:
            raise ReloadError(f"{self.path}: the newer save is not served: {error}") from error
        if self.index.saved_version != version:  # otherwise it was in the journal
            self._name()
            self.n_reloads += 1
            LOG.info("%s: serving a newer save of %d vectors", self.path, len(self.index))
        return has_news

    def _name(self) -> None:
        """Name the ids that have no name; the names are written with the next save."""
        if not self._labels:
            return
        named = self.index.names
        known = set(self.index) - {id_ for id_, _ in named}
        pairs = [(id_, name) for id_, name in self._labels.items() if id_ in known]
        named.add([name for _, name in pairs], np.array([id_ for id_, _ in pairs], "i8"))
