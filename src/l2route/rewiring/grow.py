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

BATCH = 512
"""Vertices that are inserted at a time, and searched for on the graph without them."""
N_CODED = 20_000
"""Maximum number of vectors from which the scales of codes are computed."""
SECOND_BEAM = (28, 0.46)
"""Beam width of the second search for a vertex, which starts near it: a number, and a share of the
first."""
N_REGIONS = 256
"""Regions of vectors: those of one region are searched for one after another."""
N_COARSE = 16
"""Groups of regions."""
N_SAMPLED, N_COMPARED = 300, 20_000
"""Numbers of vectors between which distances are computed to see how hard the data are."""
NEAR = 0.0005
"""Share of vectors that are the nearest ones of such a vector."""
CONTRASTS = (0.40, 0.53)
"""Squared distance of the nearest, as a share of the median one, in easy and in hard data."""
BEAMS = (96, 200)
"""Beam widths while building for easy and for hard data."""
MUTUAL_ALPHAS = (ALPHA, 1.1)
"""Alphas for easy and for hard data by which lists are pruned that reversed edges made too long: a
smaller one leaves room for edges further away."""


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

    def queries(self, ids: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
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
    hardness = hardness_of(walked.vectors, options.seed)
    has_beam = options.ef_construction is not None
    beam = options.beam if has_beam else int(np.interp(hardness, (0, 1), BEAMS))
    inserter = _inserter(walked, exact, min(options.degree, n), beam)
    regions = _regions(walked, options.seed)
    n_threads = min(options.threads, MAX_THREADS)
    progress(0, 2 * n)
    for slots, done in _batches(_order(n, entries, options.seed), regions):
        inserter.place(slots, walked.queries(slots), n_threads=n_threads)
        inserter.publish(slots, n_threads=n_threads)
        inserter.entries = entries[:done].tolist()
        progress(done, 2 * n)
    lists = aligned_zeros((n, max(1, min(options.degree, n - 1))), np.int32)
    for vertices, done in _batches(_by_region(np.arange(n, dtype=np.int32), regions), regions):
        lists[vertices] = inserter.renewed(
            vertices,
            walked.queries(vertices),
            ef=min(beam, int(SECOND_BEAM[0] + SECOND_BEAM[1] * beam)),
            n_candidates=N_CANDIDATES,
            degree=lists.shape[1],
            alpha=ALPHA,
            n_threads=n_threads,
        )
        progress(n + done, 2 * n)
    alpha = float(np.interp(hardness, (0, 1), MUTUAL_ALPHAS))
    return _core.mutual_lists(rows=exact, lists=lists, alpha=alpha, n_threads=n_threads)


def _inserter(walked: _Walked, exact: _core.Rows, degree: int, beam: int) -> _core.Inserter:
    n, widths = len(walked.vectors), Widths.of(degree)
    lists = aligned_zeros((n, widths.width), np.int32)
    lists[:] = -1
    return _core.Inserter(
        lists=lists,
        parents=np.full(n, -1, dtype=np.int32),
        is_copy=np.zeros(n, dtype=np.uint8),
        walked=walked.rows,
        exact=exact,
        options=_core.InsertOptions(
            ef=beam,
            n_candidates=beam,
            degree=widths.chosen,
            trimmed=widths.trimmed,
            alpha=1.0,
            trim_alpha=1.0,
        ),
    )


def hardness_of(vectors: NDArray[np.float32], seed: int) -> float:
    """How hard distinct vectors [n, dim] are to search, from 0 to 1.

    The nearer the nearest vectors are compared with the others, the easier they are to find, and
    the fewer candidates do.
    """
    drawn = np.random.default_rng(faiss_seed(seed)).permutation(len(vectors))
    if len(drawn) <= N_SAMPLED:
        return 0.0
    others = vectors[drawn[N_SAMPLED:][:N_COMPARED]]
    centre = others.mean(axis=0, dtype=np.float64).astype(np.float32)
    sample, others = vectors[drawn[:N_SAMPLED]] - centre, others - centre
    distances = np.maximum(_squares(sample)[:, None] - 2 * _closeness(sample, others), 0)
    near, median = np.quantile(distances, (NEAR, 0.5), axis=1, method="lower")
    contrast = float(np.median(near / np.maximum(median, np.finfo(np.float32).tiny)))
    return float(np.interp(contrast, CONTRASTS, (0, 1)))


def _order(n: int, entries: NDArray[np.int32], seed: int) -> NDArray[np.int32]:
    """All vertices, the entries first, the others in an order drawn by the seed."""
    drawn = np.random.default_rng(faiss_seed(seed)).permutation(n).astype(np.int32)
    return np.concatenate([entries, drawn[~np.isin(drawn, entries)]]).astype(np.int32)


def _regions(walked: _Walked, seed: int) -> NDArray[np.int32]:
    """The region of every vector [n]: those nearest to one of some vectors drawn at random.

    Walks for near vectors read the same rows, and find them in the cache.
    """
    ids = np.arange(len(walked.vectors))
    drawn = np.random.default_rng(faiss_seed(seed)).permutation(ids)[:N_REGIONS]
    centres = walked.queries(drawn)
    groups = _closeness(centres, centres[:N_COARSE]).argmax(axis=1)
    numbers = np.argsort(np.argsort(groups, kind="stable"))  # regions of a group follow each other
    nearest = [
        _closeness(walked.queries(ids[part]), centres).argmax(axis=1) for part in _parts(len(ids))
    ]
    return np.take(numbers, np.concatenate(nearest)).astype(np.int32)


def _squares(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    squares: NDArray[np.float32] = np.einsum("nd,nd->n", vectors, vectors)
    return squares


def _closeness(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Larger where vectors of `a` and of `b` are nearer [n_a, n_b]."""
    closeness: NDArray[np.float32] = a @ b.T - np.float32(0.5) * _squares(b)
    return closeness


def _by_region(ids: NDArray[np.int32], regions: NDArray[np.int32]) -> NDArray[np.int32]:
    return ids[np.argsort(regions[ids], kind="stable")]


def _batches(
    ids: NDArray[np.int32], regions: NDArray[np.int32]
) -> Iterator[tuple[NDArray[np.int32], int]]:
    """Batches of ids, near vectors side by side, and how many are done after each."""
    for begin in range(0, len(ids), BATCH):
        batch = ids[begin : begin + BATCH]
        if begin > 0:  # the first vertex becomes the root
            batch = _by_region(batch, regions)
        yield np.ascontiguousarray(batch), begin + len(batch)
