"""Served: the index that a server answers from, and the labels of its vectors."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route.data.labels import Labels
from l2route.files.meta import META, read_bytes, version_of
from l2route.index import RoutingIndex, load

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
        labels: names of its vectors; see `RoutingIndex.search` for their ids.
        labels_path: file that the names are written to when they change; None for none.
        mmap: map the arrays instead of reading them.
        n_threads: threads for changes; 0 for all cores.
    """

    def __init__(
        self,
        path: Path,
        labels: Labels | None = None,
        *,
        labels_path: Path | None = None,
        mmap: bool = False,
        n_threads: int = 0,
    ) -> None:
        self.path, self.labels, self.labels_path = path, labels, labels_path
        self._mmap, self._n_threads = mmap, n_threads
        self.index: RoutingIndex = load(path, mmap=mmap)
        self.n_reloads = 0
        self.has_changes = False  # that are not saved
        self._touched: set[int] = set()  # ids that were added, updated or deleted here
        self._unnamed: set[int] = set()  # ids that lose their names with the next save
        self._has_new_names = False

    @property
    def is_newer(self) -> bool:
        """Whether the directory holds another save than the one that is served."""
        try:
            found = version_of(read_bytes(self.path / META))
        except (OSError, ValueError):
            return False  # no index that could be loaded; a save makes one
        return found != self.index.saved_version

    def add(self, vectors: object, ids: object, labels: list[str] | None) -> Ids:
        """Add vectors, and return their ids; see `RoutingIndex.add`."""
        if labels is not None:
            self._check_labels(labels, len(np.atleast_2d(np.asarray(vectors))))
        added = self.index.add(vectors, ids, n_threads=self._n_threads)
        self._note(added)
        self._name(added, labels)
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
        self._unnamed |= set(ids.tolist())
        return ids

    def save(self) -> None:
        """Save what has changed; afterwards it survives a crash.

        New names are written before the vectors that they name, and names of deleted vectors are
        removed after these: a vector that is saved is never without its name.
        """
        if self.labels is not None and self._has_new_names:
            self._write_labels()
        self.index.save(self.path)
        self.has_changes = False
        if self.labels is not None and self._unnamed:
            self.labels.remove(np.fromiter(self._unnamed, np.int64))
            self._write_labels()
        self._unnamed.clear()

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
            if self._carry_over(newer):
                newer.save(self.path)
        except (OSError, ValueError) as error:
            raise ReloadError(f"{self.path}: the newer save is not served: {error}") from error
        self.index, self.has_changes = newer, False
        self.n_reloads += 1
        LOG.info("%s: serving a newer save of %d vectors", self.path, len(newer))
        return True

    def _name(self, added: Ids, labels: list[str] | None) -> None:
        """Name new vectors; those without a name do not keep that of a deleted one."""
        if self.labels is None:
            return
        names = [None] * len(added) if labels is None else labels
        if names != self.labels.names(added):
            self.labels.add(names, added)
            self._has_new_names = True
        self._unnamed -= set(added.tolist())

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
        return True

    def _check_labels(self, labels: list[str], n: int) -> None:
        if self.labels is None:
            raise ValueError("expected a server that has labels, got labels for one without")
        if self.labels_path is not None and self.labels_path.suffix.lower() != ".tsv":
            got = self.labels_path.name
            raise ValueError(f"expected a server whose labels are in a .tsv, got {got}")
        if len(labels) != n:
            raise ValueError(f"expected {n} labels, one per vector, got {len(labels)}")
        Labels.of(labels)  # refuses names that are none, before a vector is added

    def _write_labels(self) -> None:
        assert self.labels is not None
        if self.labels_path is not None:
            self.labels.write(self.labels_path)
        self._has_new_names = False
