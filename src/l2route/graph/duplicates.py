"""Equal vectors: the first of them stands in the graph, the others behind it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.files.memory import aligned_zeros

FAN_OUT = 4
"""Further copies that a copy leads to: few, so that walks need not score all of a crowd."""
_BLOCK = 65_536  # rows that are hashed at a time


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Which of many vectors are equal."""

    first: NDArray[np.int64]
    """Row number of each distinct vector, first of those that equal it, ascending [n_distinct]."""
    owners: NDArray[np.int32]
    """Which of the distinct vectors each row equals [n]."""

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
        """Vectors that equal an earlier one."""
        return len(self.owners) - len(self.first)

    def spread(self, neighbors: NDArray[np.int32], width: int) -> NDArray[np.int32]:
        """Neighbours of all vectors, from those of the distinct ones.

        A vector that has copies gives one place of its list to the first of them; each copy leads
        to a few more, and back. So copies are found with the vector, and take one place of it.

        Args:
            neighbors: numbers of distinct vectors, padded with −1 [n_distinct, at most width].
            width: places of a list.
        """
        lists = aligned_zeros((len(self.owners), width), np.int32)
        lists[:] = -1
        called = np.where(neighbors >= 0, self.first[neighbors], -1)
        lists[self.first, : neighbors.shape[1]] = called
        copies = np.ones(len(self.owners), dtype=bool)
        copies[self.first] = False
        crowd = np.flatnonzero(copies)
        crowd = crowd[np.argsort(self.owners[crowd], kind="stable")]  # [n_copies], copies together
        owners, begin, size = np.unique(self.owners[crowd], return_index=True, return_counts=True)
        _lead_on(lists, crowd, self.first[self.owners[crowd]], begin, size)
        giving = self.first[owners]
        free = (lists[giving] < 0).argmax(axis=1)
        is_full = lists[giving, -1] >= 0
        lists[giving, np.where(is_full, width - 1, free)] = crowd[begin]
        return lists


def _lead_on(
    lists: NDArray[np.int32],
    crowd: NDArray[np.int64],
    owners: NDArray[np.int64],
    begin: NDArray[np.int64],
    size: NDArray[np.int64],
) -> None:
    """Write the lists of copies: trees, each node of which leads back to the owner of the copies.

    Args:
        lists: to be written into [n, width].
        crowd: row numbers of copies, those of an owner together [n_copies].
        owners: row numbers of the vectors that they are copies of [n_copies].
        begin: where in the crowd the copies of each owner begin [n_owners].
        size: how many they are [n_owners].
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
    leads_back = n_children < width
    lists[crowd[leads_back], n_children[leads_back]] = owners[leads_back]


def _bits(vectors: NDArray[np.float32]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(vectors + np.float32(0)).view(np.uint32)  # of -0 it makes 0


def _hashes(vectors: NDArray[np.float32]) -> NDArray[np.uint64]:
    """A number per vector that is the same for equal ones [n]."""
    rng = np.random.default_rng(0)
    weights = rng.integers(2**63, size=vectors.shape[1], dtype=np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    parts = range(0, len(vectors), _BLOCK)
    return np.concatenate(
        [_bits(vectors[at : at + _BLOCK]).astype(np.uint64) @ weights for at in parts]
    )
