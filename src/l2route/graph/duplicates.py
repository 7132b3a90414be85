"""Equal vectors: a graph is built over the distinct ones, and copies are attached to it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.files.memory import aligned_zeros

FAN_OUT = 4
"""Most copies in the list of a copy: few, so that a search need not score all copies."""
_BLOCK = 65_536  # rows hashed at a time


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Groups of equal vectors among n vectors. All but the first of a group are its copies."""

    first: NDArray[np.int64]
    """Row of the first vector of each group, ascending [n_distinct]."""
    owners: NDArray[np.int32]
    """Group of each row, as an index into `first` [n]."""

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> "Duplicates":
        """Group finite vectors [n, dim] by exact comparison; −0 equals 0."""
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

        The first vector of a group gets the first copy as a neighbour, in place of its last one if
        its list is full. The copies form a tree: each has up to FAN_OUT further copies as
        neighbours, and the first vector if there is room. So a search that finds a vector finds
        its copies, and they take only one place of its list.

        Args:
            neighbors: lists of the distinct vectors, in their numbering, padded with −1
                [n_distinct, at most width].
            width: length of a list.

        Returns:
            Lists in the numbering of all vectors, padded with −1 [n, width].
        """
        lists = aligned_zeros((len(self.owners), width), np.int32)
        lists[:] = -1
        lists[self.first, : neighbors.shape[1]] = np.where(
            neighbors >= 0, self.first[neighbors], -1
        )
        is_copy = np.ones(len(self.owners), dtype=bool)
        is_copy[self.first] = False
        copies = np.flatnonzero(is_copy)
        copies = copies[np.argsort(self.owners[copies], kind="stable")]  # [n_copies], by group
        groups, begin, size = np.unique(self.owners[copies], return_index=True, return_counts=True)
        _write_copies(lists, copies, self.first[self.owners[copies]], begin, size)
        firsts = self.first[groups]  # [n_groups]
        free = (lists[firsts] < 0).argmax(axis=1)
        is_full = lists[firsts, -1] >= 0
        lists[firsts, np.where(is_full, width - 1, free)] = copies[begin]
        return lists


def _write_copies(
    lists: NDArray[np.int32],
    copies: NDArray[np.int64],
    owners: NDArray[np.int64],
    begin: NDArray[np.int64],
    size: NDArray[np.int64],
) -> None:
    """Write the lists of copies: a tree per group, with links back to the first vector.

    Args:
        lists: neighbour lists, modified in place [n, width].
        copies: rows of the copies, by group [n_copies].
        owners: row of the first vector of each copy's group [n_copies].
        begin: start of each group in `copies` [n_groups].
        size: number of copies of each group [n_groups].
    """
    width = lists.shape[1]
    fan_out = max(1, min(FAN_OUT, width - 1))
    begins, ends = np.repeat(begin, size), np.repeat(begin + size, size)
    ranks = np.arange(len(copies)) - begins
    for branch in range(fan_out):
        child = begins + fan_out * ranks + branch + 1
        has_child = child < ends
        lists[copies[has_child], branch] = copies[child[has_child]]
    n_children = (lists[copies, :fan_out] >= 0).sum(axis=1)
    has_room = n_children < width
    lists[copies[has_room], n_children[has_room]] = owners[has_room]


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
