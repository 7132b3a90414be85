"""The project's own graph: vertices are inserted in batches, and then get new neighbours once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.files.memory import aligned_zeros
from l2route.files.progress import Progress, ignore
from l2route.graph.build import GraphOptions
from l2route.graph.duplicates import Duplicates
from l2route.graph.entry import faiss_seed, rescaled, resolve_entry
from l2route.graph.graph import Graph
from l2route.rewiring.connect import connect_graph
from l2route.rewiring.refine import ALPHA, N_CANDIDATES
from l2route.search.base import BaseVectors
from l2route.search.codes import encode, fit_codes
from l2route.search.layout import aligned_rows, pad_rows, padded_dim
from l2route.search.searcher import MAX_THREADS

BATCH = 1024
"""Vertices that are inserted at a time, and searched for on the graph without them."""
N_CODED = 20_000
"""Maximum number of vectors from which the scales of codes are computed."""
SECOND_BEAM = 0.75
"""Beam width of the second search for a vertex, which starts near it, as a share of the first."""


@dataclass(frozen=True, slots=True)
class Widths:
    """Lengths of lists while vertices are inserted, for a final degree."""

    width: int
    """Room in a list; it overflows beyond."""
    chosen: int
    """Neighbours chosen for a new vertex."""
    trimmed: int
    """Neighbours left when a list has overflowed."""

    @classmethod
    def of(cls, degree: int) -> "Widths":
        """Lengths that suit a final degree."""
        least = max(2, degree)
        return cls(least + least // 2, least, least)


@dataclass(frozen=True, slots=True)
class _Walked:
    """Vectors as walks see them while building: codes, scored by inner product."""

    rows: _core.Rows
    vectors: NDArray[np.float32]
    centre: NDArray[np.float32]
    """Subtracted from vectors, so that codes are exact far from the origin [dim]."""
    width: int

    @classmethod
    def of(cls, vectors: NDArray[np.float32], is_ip: bool) -> "_Walked":
        sample = vectors[:: -(-len(vectors) // N_CODED)]
        centre = sample.mean(axis=0, dtype=np.float64).astype(np.float32) * (not is_ip)
        codes = fit_codes(sample - centre)
        width = padded_dim(vectors.shape[1], np.uint8)
        numbers = aligned_zeros((len(vectors), width), np.uint8)
        bias = np.zeros(len(vectors), dtype=np.float32)
        for part in _parts(len(vectors)):
            moved = vectors[part] - centre
            bias[part] = 0 if is_ip else -0.5 * np.einsum("nd,nd->n", moved, moved)
            numbers[part, : vectors.shape[1]] = encode(moved, codes)
        rows = _core.Rows(
            numbers,
            "ip",
            bias=bias,
            offset=pad_to(codes.offset, width),
            scale=pad_to(codes.scale, width),
        )
        return cls(rows, vectors, centre, width)

    def queries(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """The vectors of these vertices as queries of walks [n_ids, width]."""
        queries = np.zeros((len(ids), self.width), dtype=np.float32)
        np.subtract(self.vectors[ids], self.centre, out=queries[:, : self.vectors.shape[1]])
        return queries


def pad_to(values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Values [n] with zeros up to a width."""
    return np.pad(values, (0, width - len(values)))


def _parts(n: int) -> Iterator[slice]:
    return (slice(begin, begin + 8 * BATCH) for begin in range(0, n, 8 * BATCH))


def grow_graph(base: BaseVectors, options: GraphOptions, progress: Progress | None = None) -> Graph:
    """Build the project's own graph over base vectors; every vertex is reachable.

    Vertices are inserted in an order drawn by the seed, the entries first. Candidates for the
    neighbours of a vertex are found by walks in codes of a byte per dimension, and pruned by the
    vectors. When all are inserted, every vertex is searched for once more, and gets new
    neighbours as by `refine_graph`. Of equal vectors only the first is inserted.

    Args:
        base: the vectors.
        options: degree, beam width, entries, seed and threads. The graph is the same for any
            number of threads.
        progress: called with vertices done and in total; every vertex is counted twice.
    """
    vectors = base.vectors()
    duplicates = Duplicates.of(vectors)
    distinct = replace(base, rows=_distinct_rows(base, duplicates))
    if isinstance(options.entry, str):
        own = resolve_entry(options.entry, distinct.vectors(), options.seed)
        entries = duplicates.first[own].astype(np.int32)
    else:
        entries = resolve_entry(options.entry, vectors)
        own = np.unique(duplicates.owners[entries])
    lists = _grown_lists(distinct, own, options, progress or ignore)
    if duplicates.n_copies:
        lists = duplicates.spread(lists, max(1, min(options.degree, len(vectors) - 1)))
    return connect_graph(Graph(lists, entries), base, options.threads)


def _distinct_rows(base: BaseVectors, duplicates: Duplicates) -> NDArray[Any]:
    rows = base.rows
    if duplicates.n_copies:
        rows = aligned_rows(rows, duplicates.first)
    scaled = rescaled(rows)
    return rows if scaled is rows else pad_rows(scaled)


def _grown_lists(
    base: BaseVectors, entries: NDArray[np.int32], options: GraphOptions, progress: Progress
) -> NDArray[np.int32]:
    """Neighbour lists of distinct vectors [n, at most degree]."""
    n, is_ip = len(base.rows), base.metric == "ip"
    walked = _Walked.of(base.vectors(), is_ip)
    exact = _core.Rows(base.rows, "ip" if is_ip else "l2")
    inserter = _inserter(walked, exact, n, options)
    n_threads = min(options.threads, MAX_THREADS)
    progress(0, 2 * n)
    for slots, done in _batches(_order(n, entries, options.seed)):
        inserter.place(slots, walked.queries(slots), n_threads=n_threads)
        inserter.publish(slots, n_threads=n_threads)
        inserter.entries = entries[:done].tolist()
        progress(done, 2 * n)
    lists = aligned_zeros((n, max(1, min(options.degree, n - 1))), np.int32)
    for vertices, done in _batches(np.arange(n, dtype=np.int32)):
        lists[vertices] = inserter.renewed(
            vertices,
            walked.queries(vertices),
            ef=max(1, int(SECOND_BEAM * options.beam)),
            n_candidates=N_CANDIDATES,
            degree=lists.shape[1],
            alpha=ALPHA,
            n_threads=n_threads,
        )
        progress(n + done, 2 * n)
    return _core.mutual_lists(rows=exact, lists=lists, alpha=ALPHA, n_threads=n_threads)


def _inserter(walked: _Walked, exact: _core.Rows, n: int, options: GraphOptions) -> _core.Inserter:
    widths = Widths.of(min(options.degree, n))
    lists = aligned_zeros((n, widths.width), np.int32)
    lists[:] = -1
    return _core.Inserter(
        lists=lists,
        parents=np.full(n, -1, dtype=np.int32),
        is_copy=np.zeros(n, dtype=np.uint8),
        walked=walked.rows,
        exact=exact,
        ef=options.beam,
        n_candidates=options.beam,
        degree=widths.chosen,
        trimmed=widths.trimmed,
        alpha=1.0,
    )


def _order(n: int, entries: NDArray[np.int32], seed: int) -> NDArray[np.int32]:
    """All vertices, the entries first, the others in an order drawn by the seed."""
    drawn = np.random.default_rng(faiss_seed(seed)).permutation(n).astype(np.int32)
    return np.concatenate([entries, drawn[~np.isin(drawn, entries)]]).astype(np.int32)


def _batches(ids: NDArray[np.int32]) -> Iterator[tuple[NDArray[np.int32], int]]:
    """Batches of ids, and how many are done after each."""
    for begin in range(0, len(ids), BATCH):
        batch = np.ascontiguousarray(ids[begin : begin + BATCH])
        yield batch, begin + len(batch)
