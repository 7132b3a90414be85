"""Served: the index that a server answers from, and the labels of its vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from l2route.index import RoutingIndex, load

if TYPE_CHECKING:
    from l2route.data.labels import Labels


class Served:
    """The index that is served, which a reload replaces as a whole.

    A request reads `index` once and uses only that.

    Args:
        path: directory of the index.
        labels: labels of its vectors.
        mmap: map the arrays instead of reading them.
    """

    def __init__(self, path: Path, labels: Labels | None = None, *, mmap: bool = False) -> None:
        self.path, self.labels, self._mmap = path, labels, mmap
        self.index: RoutingIndex = load(path, mmap=mmap)
