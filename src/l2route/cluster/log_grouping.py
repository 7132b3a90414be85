"""Cells regrouped by a query log: cells that hold neighbours of the same queries share a shard.

Two cells are linked by the number of queries whose neighbours, among a sample of the vectors, lie
in both. Links between shards are what makes queries ask several of them. Cells move to the shard
that they are linked to most, alone or in exchange for another cell, as long as that cuts fewer
links and no shard becomes too large.
"""

from __future__ import annotations

import faiss
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
N_NEAREST = 5
"""Neighbours of a query in the sample that link their cells."""
N_ROUNDS = 20
"""Most passes over all cells."""


def links_of(queries: Floats, sample: Floats, cells: NDArray[np.int64], n_cells: int) -> Floats:
    """How often two cells hold neighbours of one query [n_cells, n_cells], symmetric.

    Args:
        queries: logged queries [n, dim], as they are compared with centroids.
        sample: vectors [m, dim], at least N_NEAREST.
        cells: the cell of each vector of the sample [m].
        n_cells: number of cells.
    """
    _, nearest = faiss.knn(queries, sample, min(N_NEAREST, len(sample)))
    found = cells[nearest]  # [n, N_NEAREST]
    links = np.zeros((n_cells, n_cells), dtype=np.float32)
    for i in range(found.shape[1]):
        for j in range(i):
            np.add.at(links, (found[:, i], found[:, j]), 1)
    links += links.T
    np.fill_diagonal(links, 0)
    return links


def regroup(
    shards: NDArray[np.int32],
    links: Floats,
    weights: NDArray[np.int64],
    room: float,
    seed: int = 0,
) -> NDArray[np.int32]:
    """Move cells between shards as long as fewer links are cut.

    Args:
        shards: the shard of each cell [n_cells].
        links: symmetric, with a diagonal of 0 [n_cells, n_cells].
        weights: vectors in each cell [n_cells].
        room: largest weight of a shard; one that is heavier does not grow.
        seed: of the order in which cells are looked at.

    Returns:
        The shard of each cell; no shard loses its last cell.
    """
    state = _Grouping(shards.copy(), links, weights, room)
    rng = np.random.default_rng(seed)
    for _ in range(N_ROUNDS):
        n_moved = sum(state.improve(int(cell)) for cell in rng.permutation(len(shards)))
        if not n_moved:
            break
    return state.shards


class _Grouping:
    """Cells in shards, with the links from every cell to every shard."""

    def __init__(
        self, shards: NDArray[np.int32], links: Floats, weights: NDArray[np.int64], room: float
    ) -> None:
        self.shards, self._links, self._weights, self._room = shards, links, weights, room
        n_shards = int(shards.max()) + 1
        self._loads = np.bincount(shards, weights=weights, minlength=n_shards)
        self._counts = np.bincount(shards, minlength=n_shards)
        self._to = np.stack([links[:, shards == s].sum(axis=1) for s in range(n_shards)], axis=1)

    def improve(self, cell: int) -> bool:
        """Move a cell to the shard where it gains most, or exchange it for one of its cells."""
        home = int(self.shards[cell])
        gains = self._to[cell] - self._to[cell, home]
        fits = self._loads + self._weights[cell] <= self._room
        fits[home] = True
        best = int(np.argmax(np.where(fits, gains, -np.inf)))
        if best != home and gains[best] > 0 and self._counts[home] > 1:
            self._move(cell, best)
            return True
        wanted = int(np.argmax(gains))
        return gains[wanted] > 0 and self._exchange(cell, wanted, float(gains[wanted]))

    def _exchange(self, cell: int, shard: int, gain: float) -> bool:
        """Exchange a cell for the cell of another shard with which most is gained."""
        home, others = int(self.shards[cell]), np.flatnonzero(self.shards == shard)
        gains = gain + self._to[others, home] - self._to[others, shard]
        gains = gains - 2 * self._links[others, cell]
        more = self._weights[cell] - self._weights[others]
        fits = (self._loads[shard] + more <= self._room) & (self._loads[home] - more <= self._room)
        gains = np.where(fits, gains, 0)
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            return False
        self._move(cell, shard)
        self._move(int(others[best]), home)
        return True

    def _move(self, cell: int, shard: int) -> None:
        home = self.shards[cell]
        self.shards[cell] = shard
        for at, sign in ((home, -1), (shard, 1)):
            self._loads[at] += sign * self._weights[cell]
            self._counts[at] += sign
            self._to[:, at] += sign * self._links[:, cell]
