"""Options of graphs, and those that faiss builds."""

from dataclasses import dataclass, replace
from operator import index as index_of
from typing import Any, Literal, get_args

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric, check_metric, check_vectors, normalize
from l2route.files.progress import Progress, ignore
from l2route.graph.duplicates import Duplicates
from l2route.graph.entry import Entry, faiss_seed, is_medoid, resolve_entry
from l2route.graph.graph import Graph, UpperLayer, compact_rows, mapped_ids
from l2route.graph.knn import faiss_metric, faiss_threads, knn_lists

GraphKind = Literal["l2route", "nsw", "hnsw", "nsg", "knn", "approximate-knn"]
GRAPH_KINDS: tuple[GraphKind, ...] = get_args(GraphKind)
DEGREE = 32
"""Default maximum number of neighbours of a vertex."""
EF_CONSTRUCTION = 300
"""Default beam width while building nsw and hnsw."""
MIN_NSG = 10
"""Minimum number of vectors for faiss's NSG."""
_N_STEPS = 100  # batches in which vectors are added, for progress reports


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """How to build a graph; the defaults are the paper's NSW. Checked on construction."""

    kind: GraphKind = "nsw"
    """l2route (the project's own, see `l2route.rewiring.grow`), nsw (bottom layer of HNSW), hnsw,
    nsg, knn (exact) or approximate-knn."""
    degree: int = 16
    """Maximum number of neighbours of a vertex (HNSW's 2M)."""
    ef_construction: int | None = None
    """Beam width while building l2route (by default as the data need), nsw and hnsw (300)."""
    entry: Entry = "medoid"
    """Entry points of a search: a vertex id, several, "medoid", "medoids" (of 32 clusters) or
    "longest" (the 32 longest vectors). HNSW and NSG have their own."""
    seed: int = 0
    """Seed of every random choice."""
    n_threads: int | None = None
    """Threads, 0 for all cores. By default all cores for l2route, which is the same for any number,
    and 1 for the others: with more than one, nsw, hnsw and nsg differ from run to run."""

    def __post_init__(self) -> None:
        _check_options(self)

    @property
    def beam(self) -> int:
        """Beam width while building, if it is given or by faiss."""
        if self.ef_construction is not None:
            return index_of(self.ef_construction)
        return EF_CONSTRUCTION

    @property
    def threads(self) -> int:
        """Threads, 0 for all cores."""
        if self.n_threads is not None:
            return index_of(self.n_threads)
        return 0 if self.kind == "l2route" else 1


def build_graph(
    vectors: object,
    metric: str = "l2",
    options: GraphOptions | None = None,
    progress: Progress | None = None,
) -> Graph:
    """Build a similarity graph over base vectors [n, dim] with faiss.

    Of equal vectors only the first is passed to faiss; the others are attached to it. A graph built
    by faiss may have unreachable vertices: see `l2route.rewiring.connect`.

    Args:
        vectors: base vectors, any real dtype.
        metric: l2, ip or cosine.
        options: kind of graph, degree and so on; the paper's NSW by default.
        progress: called with vectors done and in total, at the start and for nsw and hnsw after
            each batch; the other kinds are built in one call.
    """
    options = options or GraphOptions()
    base = check_vectors("vectors", vectors)
    chosen = check_metric(metric)
    if chosen == "cosine":
        base, chosen = normalize(base), "l2"  # the same order on unit vectors
    if options.kind == "l2route":
        raise ValueError("expected a graph that faiss builds, got l2route")
    check_kind(options.kind, chosen)
    _check_size(options, len(base))
    duplicates = Duplicates.of(base)
    distinct = base[duplicates.first] if duplicates.n_copies else base
    if isinstance(options.entry, str):
        of_distinct = resolve_entry(options.entry, distinct, options.seed)
        entries = duplicates.first[of_distinct].astype(np.int32)
    else:
        entries = resolve_entry(options.entry, base)
    report = progress or ignore
    report(0, len(distinct))
    with faiss_threads(options.threads):
        graph = _build(distinct, chosen, options, report)
    if duplicates.n_copies:
        graph = _with_copies(graph, duplicates, min(options.degree, len(base) - 1))
    has_entry = options.kind in ("hnsw", "nsg") and is_medoid(options.entry)
    return graph if has_entry else graph.entered_at(entries)


def _with_copies(graph: Graph, duplicates: Duplicates, width: int) -> Graph:
    """The graph over all vectors, from the graph over the distinct ones."""
    row_of = duplicates.first.astype(np.int32)

    layers = (
        UpperLayer(row_of[layer.vertices], mapped_ids(layer.neighbors, row_of))
        for layer in graph.upper
    )
    width = max(width, graph.neighbors.shape[1])
    neighbors = duplicates.spread(graph.neighbors, width)
    return Graph(neighbors, row_of[graph.entries], tuple(layers))


def served_entry(kind: GraphKind, metric: str) -> Entry:
    """Default entry points of an index: the graph's own, or several, unlike the paper's medoid."""
    if kind in ("hnsw", "nsg"):
        return "medoid"  # stands for the graph's own entry
    return "longest" if metric == "ip" else "medoids"


def _check_options(options: GraphOptions) -> None:
    if options.kind not in GRAPH_KINDS:
        raise ValueError(f"expected a graph out of {', '.join(GRAPH_KINDS)}, got {options.kind!r}")
    if options.kind in ("nsw", "hnsw") and (options.degree < 4 or options.degree % 2):
        raise ValueError(f"expected an even degree of at least 4, got {options.degree}")
    lowest = 8 if options.kind == "nsg" else 2  # with one neighbour each, the graph is a chain
    if options.degree < lowest:
        raise ValueError(f"expected a degree of at least {lowest}, got {options.degree}")
    if options.beam < 1:
        raise ValueError(f"expected ef_construction of at least 1, got {options.ef_construction}")
    if options.threads < 0:
        raise ValueError(f"expected n_threads of at least 0, got {options.n_threads}")
    if options.kind == "hnsw" and not is_medoid(options.entry):
        raise ValueError(f"expected no entry for hnsw, which has its own, got {options.entry!r}")


def check_kind(kind: GraphKind, metric: str) -> None:
    """Refuse a kind of graph that cannot be built for a metric."""
    if kind == "nsg" and check_metric(metric) == "ip":
        raise ValueError("expected metric l2 or cosine for nsg, got ip")


def _check_size(options: GraphOptions, n: int) -> None:
    least = {"nsg": MIN_NSG, "knn": 2, "approximate-knn": 2}.get(options.kind, 1)
    if n < least:
        raise ValueError(f"expected at least {least} vectors for {options.kind}, got {n}")


def _build(
    base: NDArray[np.float32], metric: Metric, options: GraphOptions, progress: Progress
) -> Graph:
    if options.kind in ("nsw", "hnsw"):
        graph = _build_hnsw(base, metric, options, progress)
        return graph if options.kind == "hnsw" else replace(graph, upper=())
    if len(base) == 1:  # all vectors are equal
        return Graph(np.full((1, 1), -1, dtype=np.int32), np.zeros(1, dtype=np.int32))
    if options.kind == "nsg" and len(base) >= MIN_NSG:
        return _build_nsg(base, metric, options)
    exact = options.kind != "approximate-knn"
    lists = knn_lists(base, metric, options.degree, exact=exact, seed=options.seed)
    return Graph(compact_rows(lists), np.zeros(1, dtype=np.int32))


def _build_hnsw(
    base: NDArray[np.float32], metric: Metric, options: GraphOptions, progress: Progress
) -> Graph:
    links = index_of(options.degree) // 2
    index = faiss.IndexHNSWFlat(base.shape[1], links, faiss_metric(metric))
    index.hnsw.efConstruction = options.beam
    index.hnsw.rng = faiss.RandomGenerator(faiss_seed(options.seed))
    for part in np.array_split(base, min(_N_STEPS, len(base))):
        index.add(part)
        progress(index.ntotal, len(base))
    return graph_of_hnsw(index.hnsw)


def _build_nsg(base: NDArray[np.float32], metric: Metric, options: GraphOptions) -> Graph:
    noisy = _with_noise(base, options.seed)
    candidates = knn_lists(noisy, metric, max(64, 2 * options.degree), exact=True)
    index = faiss.IndexNSGFlat(base.shape[1], index_of(options.degree), faiss_metric(metric))
    index.nsg.rng = faiss.RandomGenerator(faiss_seed(options.seed))
    index.nsg.L = min(index.nsg.L, len(base))
    index.nsg.search_L = min(index.nsg.search_L, len(base))
    index.build(noisy, candidates)
    return graph_of_nsg(index.nsg)


def _with_noise(base: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Vectors with a little noise: faiss's NSG may never terminate if distances are equal."""
    rng = np.random.default_rng(faiss_seed(seed))
    noise = rng.standard_normal(base.shape, dtype=np.float32)
    scale = float(base.std()) or float(np.abs(base).max()) or 1.0
    noise *= 1e-3 * scale
    return np.add(base, noise, dtype=np.float32)


def graph_of_hnsw(hnsw: Any) -> Graph:
    """The layers of a faiss HNSW structure."""
    levels = faiss.vector_to_array(hnsw.levels)  # level 1: bottom layer only
    offsets = faiss.vector_to_array(hnsw.offsets).astype(np.int64)
    widths = faiss.vector_to_array(hnsw.cum_nneighbor_per_level)
    links = faiss.vector_to_array(hnsw.neighbors)

    def rows_of(vertices: NDArray[np.int64], level: int) -> NDArray[np.int32]:
        begin = offsets[vertices] + widths[level]
        columns = np.arange(widths[level + 1] - widths[level])
        return compact_rows(links[begin[:, None] + columns])

    upper = tuple(
        UpperLayer(vertices.astype(np.int32), rows_of(vertices, level))
        for level in range(int(hnsw.max_level), 0, -1)
        if len(vertices := np.flatnonzero(levels > level))
    )
    entries = np.array([hnsw.entry_point], dtype=np.int32)
    return Graph(rows_of(np.arange(len(levels)), 0), entries, upper)


def graph_of_nsg(nsg: Any) -> Graph:
    """The graph of a faiss NSG structure."""
    final = nsg.get_final_graph()
    links = faiss.rev_swig_ptr(final.data, final.N * final.K).reshape(final.N, final.K)
    return Graph(compact_rows(links), np.array([nsg.enterpoint], dtype=np.int32))
