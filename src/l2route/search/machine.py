"""How long the parts of a search take on a machine, and what follows for a whole search."""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.files.memory import aligned_zeros
from l2route.search.result import SearchResult
from l2route.search.searcher import Searcher
from l2route.search.space import RoutingSpace

LINE = 64
"""Bytes of a cache line."""
FOOTPRINTS = (2**20, 2**25, 2**28)
"""Bytes of rows at which reading is measured: in the second-level cache, in the third or just
beyond it, and in memory."""
N_READ, N_TIMED = 20_000, 5
"""Rows read at random in a measurement, and measurements, of which the fastest counts."""
ROW_LINES = (1, 8)
"""Cache lines of the rows that are read."""
TYPICAL_SHORT_NS = 9.5
"""Reading and scoring a row of one line by itself, where all rows are in the second-level cache, on
a typical machine; other machines are faster or slower in proportion."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Nanoseconds that parts of a search take on one thread.

    Reading a random row takes time by its cache lines, and by where all rows together have room.
    The other numbers are fitted to searches of graphs of degree 32 (decision 42).
    """

    line_ns: tuple[float, float, float] = (0.74, 2.9, 5.2)
    """Reading and scoring a cache line of codes, with rows of FOOTPRINTS bytes in all."""
    hop_ns: float = 190.0
    """All else that a walk does with an expanded vertex: which of its neighbours are new, and their
    ranks among all found."""
    rerank_ns: float = 26.0
    """All else of a reranked vector."""
    product_ns: float = 0.01
    """One product of a coded query matrix, or one addition of a rotation."""
    query_ns: float = 1040.0
    """All else of a query."""

    def read_ns(self, row_bytes: int, n_rows: int) -> float:
        """Time to read and score a random row of this many bytes, one of so many."""
        footprint = float(np.log(max(1, row_bytes * n_rows)))
        line = float(np.interp(footprint, np.log(FOOTPRINTS), self.line_ns))
        return -(-row_bytes // LINE) * line

    def map_ns(self, space: RoutingSpace) -> float:
        """Time to map a query into a space."""
        if space.rotation is not None:
            n_rounds, dim = space.rotation.signs.shape
            return float(self.product_ns * n_rounds * dim * np.log2(dim))
        return 0.0 if space.query_matrix is None else self.product_ns * space.query_matrix.size

    def each_ns(self, searcher: Searcher, found: SearchResult) -> NDArray[np.float64]:
        """Expected times of searches, in batches on one thread, that found this [n_queries]."""
        space, base = searcher.space, searcher.base
        routed = self.read_ns(space.rows[0].nbytes, len(space.rows))
        reranked = self.rerank_ns + self.read_ns(base.rows[0].nbytes, len(base.rows))
        fixed = self.query_ns + self.map_ns(space)
        total: NDArray[np.float64] = (
            fixed
            + found.n_routing * routed
            + found.n_hops * self.hop_ns
            + found.n_rerank * reranked
        )
        return total

    def search_ns(self, searcher: Searcher, found: SearchResult) -> float:
        """The mean of `each_ns`."""
        return float(self.each_ns(searcher, found).mean())

    @classmethod
    def measured(cls) -> "Machine":
        """This machine: reading is measured, in about a second; the rest is taken in proportion."""
        typical, lines, cached_ns = cls(), list[float](), np.inf
        for footprint in FOOTPRINTS:
            short, long = (_read_ns(n_lines, footprint) for n_lines in ROW_LINES)
            line = max(0.0, long - short) / (ROW_LINES[1] - ROW_LINES[0])
            lines.append(max(line, *lines, 0.1))
            cached_ns = min(cached_ns, short)
        slower = max(float(cached_ns), 0.1) / TYPICAL_SHORT_NS
        return cls(
            line_ns=(lines[0], lines[1], lines[2]),
            hop_ns=slower * typical.hop_ns,
            rerank_ns=slower * typical.rerank_ns,
            product_ns=slower * typical.product_ns,
            query_ns=slower * typical.query_ns,
        )


def _read_ns(n_lines: int, footprint: int) -> float:
    """Nanoseconds to read and score a random row of codes, with rows of so many bytes in all."""
    width = n_lines * LINE
    n = footprint // width
    numbers = aligned_zeros((n, width), np.uint8)
    numbers += np.uint8(1)  # memory that was never written to is one page of zeros
    ones = np.ones(width, dtype=np.float32)
    rows = _core.Rows(numbers, "ip", offset=ones, scale=ones)
    rng, taken = np.random.default_rng(0), list[float]()
    for _ in range(N_TIMED):
        ids = rng.integers(0, n, N_READ, dtype=np.int32)
        begin = time.perf_counter()
        rows.scores_at(ones, ids)
        taken.append(time.perf_counter() - begin)
    return 1e9 * min(taken) / N_READ


TYPICAL = Machine()
"""A machine by which settings are compared where none was measured: two cores of an AMD EPYC of
2022. The same on every machine, so that an index and its settings do not depend on where they are
made."""
