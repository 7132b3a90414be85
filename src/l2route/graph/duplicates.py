"""Equal vectors: a graph is built over the first of each; the copies are attached to it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.files.memory import aligned_zeros

FAN_OUT = 4
"""Copies that a copy has as neighbours: few, so that a search need not score all copies."""
_BLOCK = 65_536  # rows hashed at a time


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The groups of equal vectors among n vectors."""

    first: NDArray[np.int64]
    """Row of the first vector of each group, ascending [n_distinct]."""
    owners: NDArray[np.int32]
    """Group of each row, as an index into `first` [n]."""

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> "Duplicates":
        """Compare finite vectors [n, dim] exactly; −0 equals 0."""
        rows = np.arange(len(vectors))
        hashes = _hashes(vectors)
        _, places, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        alike = np.flatnonzero(counts[places] > 1)
        if len(alike):
            contents = _bits(vectors[alike])
            whole = contents.view(np.dtype((np.void, contents.itemsize * contents.shape[1])))
            _, earliest, group = np.unique(whole[:, 0], return_index=True, return_inverse=True)
            rows[alike] = alike[earliest[group]]
        first, owners = np.unique(rows, return_inverse=True)
        return cls(first, owners.astype(np.int32))

    @property
    def n_copies(self) -> int:
        """Number of vectors that equal an earlier one."""
        return len(self.owners) - len(self.first)

    def spread(self, neighbors: NDArray[np.int32], width: int) -> NDArray[np.int32]:
        """Neighbour lists of all vectors, from those of the distinct ones.

        The first vector of a group has its first copy as a neighbour. Each copy has up to FAN_OUT
        further copies and the first vector as neighbours. So copies are found with their vector
        and take one place of its list.

        Args:
            neighbors: lists of the distinct vectors, in their numbering, padded with −1
                [n_distinct, at most width].
            width: length of a list.

        Returns:
            Lists in the numbering of all vectors, padded with −1 [n, width].
        """
        lists = aligned_zeros((len(self.owners), width), np.int32)
        lists[:] = -1
        called = np.where(neighbors >= 0, self.first[neighbors], -1)
        lists[self.first, : neighbors.shape[1]] = called
        copies = np.ones(len(self.owners), dtype=bool)
        copies[self.first] = False
        crowd = np.flatnonzero(copies)
        crowd = crowd[np.argsort(self.owners[crowd], kind="stable")]  # [n_copies], by group
        owners, begin, size = np.unique(self.owners[crowd], return_index=True, return_counts=True)
        _write_copies(lists, crowd, self.first[self.owners[crowd]], begin, size)
        giving = self.first[owners]
        free = (lists[giving] < 0).argmax(axis=1)
        is_full = lists[giving, -1] >= 0
        lists[giving, np.where(is_full, width - 1, free)] = crowd[begin]
        return lists


def _write_copies(
    lists: NDArray[np.int32],
    crowd: NDArray[np.int64],
    owners: NDArray[np.int64],
    begin: NDArray[np.int64],
    size: NDArray[np.int64],
) -> None:
    """Write the lists of copies: a tree per group, with links from every copy to the first vector.

    Args:
        lists: neighbour lists, modified in place [n, width].
        crowd: rows of the copies, by group [n_copies].
        owners: row of the first vector of each copy's group [n_copies].
        begin: start of each group in `crowd` [n_groups].
        size: number of copies of each group [n_groups].
    """
    width = lists.shape[1]
    fan_out = max(1, min(FAN_OUT, width - 1))
    begins, ends = np.repeat(begin, size), np.repeat(begin + size, size)
    ranks = np.arange(len(crowd)) - begins
    for branch in range(fan_out):
        child = begins + fan_out * ranks + branch + 1
        has_child = child < ends
        lists[crowd[has_child], branch] = crowd[child[has_child]]
    n_children = (lists[crowd, :fan_out] >= 0).sum(axis=1)
    has_room = n_children < width
    lists[crowd[has_room], n_children[has_room]] = owners[has_room]


def _bits(vectors: NDArray[np.float32]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(vectors + np.float32(0)).view(np.uint32)  # -0 + 0 is 0


def _hashes(vectors: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Hash of each vector [n]; equal vectors have equal hashes."""
    rng = np.random.default_rng(0)
    weights = rng.integers(2**63, size=vectors.shape[1], dtype=np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    parts = range(0, len(vectors), _BLOCK)
    return np.concatenate(
        [_bits(vectors[at : at + _BLOCK]).astype(np.uint64) @ weights for at in parts]
    )
