"""Similarity graphs: what they are, how faiss builds them, what to know of one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import index as index_of
from typing import Any, Literal, get_args

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric, Progress, check_metric, check_vectors, ignore, normalize
from l2route.files.memory import aligned, aligned_zeros
from l2route.graph.duplicates import Duplicates
from l2route.graph.entry import faiss_seed, longest, medoid, medoids
from l2route.graph.knn import faiss_metric, knn_lists

GraphKind = Literal["nsw", "hnsw", "nsg", "knn", "approximate-knn"]
GRAPH_KINDS: tuple[GraphKind, ...] = get_args(GraphKind)
Entry = int | Sequence[int] | Literal["medoid", "medoids", "longest"]
DEGREE = 32
"""Largest number of neighbours in a graph that is to be served."""
EF_CONSTRUCTION = 300
"""Beam width that it is built with."""
N_NSG = 10
"""Vectors that faiss needs for an NSG."""
_N_STEPS = 100  # parts that vectors are added in, so that progress can be told


@dataclass(frozen=True, slots=True)
class UpperLayer:
    """A layer of HNSW above the bottom one."""

    vertices: NDArray[np.int32]
    """Vertices of the layer, ascending [n_layer]."""
    neighbors: NDArray[np.int32]
    """Their neighbours' ids, padded with −1 [n_layer, width]."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A directed graph whose vertices are rows of the base vectors.

    Every id is checked when a graph is made; the core trusts it from then on. Neighbours are copied
    if their first list does not stand at the start of a cache line.
    """

    neighbors: NDArray[np.int32]
    """Neighbours of each vertex, padded with −1 at the end of a row [n, width]."""
    entries: NDArray[np.int32]
    """Vertices that a search visits first [n_entries]."""
    upper: tuple[UpperLayer, ...] = ()
    """Upper layers of HNSW, from the top down; empty for a flat graph."""

    def __post_init__(self) -> None:
        _check_neighbors("neighbors", self.neighbors, self.n_vertices)
        object.__setattr__(self, "neighbors", aligned(self.neighbors))
        _check_entries(self.entries, self.n_vertices)
        _check_layers(self)

    @property
    def n_vertices(self) -> int:
        """Number of vertices."""
        return len(self.neighbors)

    def renumbered(self, order: NDArray[np.integer[Any]]) -> "Graph":
        """The same graph with vertex order[i] as number i."""
        number = numbers_in(order)

        def renamed(ids: NDArray[np.int32]) -> NDArray[np.int32]:
            return np.where(ids >= 0, number[ids], np.int32(-1))

        layers = []
        for layer in self.upper:
            vertices = number[layer.vertices]
            ascending = np.argsort(vertices)
            layers.append(UpperLayer(vertices[ascending], renamed(layer.neighbors[ascending])))
        return Graph(renamed(self.neighbors[order]), number[self.entries], tuple(layers))

    def entered_at(self, entries: Sequence[int] | NDArray[np.int32]) -> "Graph":
        """The bottom layer alone, entered at these vertices."""
        return Graph(self.neighbors, np.array(entries, dtype=np.int32))


def numbers_in(order: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """The place that each vertex has in an order of all [n]."""
    numbers = np.empty(len(order), dtype=np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    return numbers


def _check_neighbors(name: str, neighbors: NDArray[np.int32], n_vertices: int) -> None:
    if neighbors.dtype != np.int32 or neighbors.ndim != 2 or not neighbors.flags.c_contiguous:
        raise ValueError(
            f"expected {name} contiguous int32 [n, width], got {neighbors.dtype} {neighbors.shape}"
        )
    if neighbors.size == 0:
        raise ValueError(f"expected {name} with vertices and neighbours, got {neighbors.shape}")
    low, high = int(neighbors.min()), int(neighbors.max())
    if low < -1 or high >= n_vertices:
        raise ValueError(f"expected {name} in [-1, {n_vertices}), got {low} to {high}")
    missing = neighbors < 0
    if (missing[:, :-1] & ~missing[:, 1:]).any():
        raise ValueError(f"expected {name} padded with -1 at the end of rows only")


def _check_entries(entries: NDArray[np.int32], n_vertices: int) -> None:
    if entries.dtype != np.int32 or entries.ndim != 1 or len(entries) == 0:
        raise ValueError(f"expected entries int32 [n_entries], got {entries.dtype} {entries.shape}")
    if entries.min() < 0 or entries.max() >= n_vertices:
        raise ValueError(f"expected entries in [0, {n_vertices}), got {entries.tolist()}")
    if len(np.unique(entries)) != len(entries):
        raise ValueError(f"expected distinct entries, got {entries.tolist()}")


def _check_layers(graph: Graph) -> None:
    above = graph.entries
    for layer in graph.upper:
        _check_neighbors("layer's neighbors", layer.neighbors, graph.n_vertices)
        vertices = layer.vertices
        if vertices.dtype != np.int32 or vertices.shape != (len(layer.neighbors),):
            raise ValueError(
                f"expected layer's vertices int32 [{len(layer.neighbors)}], "
                f"got {vertices.dtype} {vertices.shape}"
            )
        ascending = bool((vertices[1:] > vertices[:-1]).all())
        if not ascending or vertices[0] < 0 or vertices[-1] >= graph.n_vertices:
            raise ValueError(f"expected layer's vertices ascending in [0, {graph.n_vertices})")
        used = np.union1d(above, layer.neighbors[layer.neighbors >= 0])
        if not np.isin(used, vertices).all():
            raise ValueError("expected a layer to hold its neighbours and the layer above it")
        above = vertices


@dataclass(frozen=True, slots=True)
class GraphReport:
    """What to know of a graph before searching it."""

    n_vertices: int
    n_edges: int
    min_degree: int
    mean_degree: float
    max_degree: int
    n_layers: int
    """Upper layers of HNSW; 0 for a flat graph."""
    entries: tuple[int, ...]
    n_unreachable: int
    """Vertices that no walk from the entry finds."""
    max_hops: int
    """Hops from the entry to the farthest vertex that can be reached."""


def report(graph: Graph) -> GraphReport:
    """Count degrees and walk the bottom layer from the entry."""
    degrees = (graph.neighbors >= 0).sum(axis=1)
    hops = hops_from(graph, graph.entries)
    return GraphReport(
        n_vertices=graph.n_vertices,
        n_edges=int(degrees.sum()),
        min_degree=int(degrees.min()),
        mean_degree=float(degrees.mean()),
        max_degree=int(degrees.max()),
        n_layers=len(graph.upper),
        entries=tuple(graph.entries.tolist()),
        n_unreachable=int((hops < 0).sum()),
        max_hops=int(hops.max()),
    )


def hops_from(graph: Graph, sources: NDArray[np.int32]) -> NDArray[np.int32]:
    """Breadth-first hops over the bottom layer from the nearest source [n]; −1: unreachable."""
    hops = np.full(graph.n_vertices, -1, dtype=np.int32)
    hops[sources] = 0
    frontier, depth = sources, 0
    while len(frontier):
        depth += 1
        reached = np.unique(graph.neighbors[frontier])
        frontier = reached[(reached >= 0) & (hops[reached] < 0)]
        hops[frontier] = depth
    return hops


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """How to build a graph; by default the paper's NSW. Checked when they are made."""

    kind: GraphKind = "nsw"
    """nsw (bottom layer of HNSW), hnsw, nsg, knn (exact) or approximate-knn."""
    degree: int = 16
    """Largest number of neighbours of a vertex (in HNSW's terms, 2M)."""
    ef_construction: int = 300
    """Beam width while building nsw and hnsw."""
    entry: Entry = "medoid"
    """Where a search starts: a vertex id, several, the medoid, medoids of 32 clusters, or the 32
    longest vectors. HNSW and NSG bring their own."""
    seed: int = 0
    """Seed of every random choice."""
    n_threads: int = 1
    """Threads that build. With more than one, nsw, hnsw and nsg differ from run to run."""

    def __post_init__(self) -> None:
        _check_options(self)


def build_graph(
    vectors: object,
    metric: str = "l2",
    options: GraphOptions | None = None,
    progress: Progress | None = None,
) -> Graph:
    """Build a similarity graph over base vectors [n, dim] with faiss.

    Of vectors that are equal, faiss gets the first; the others stand behind it. A graph of faiss
    may leave vertices that no walk finds: see `l2route.rewiring.connect`.

    Args:
        vectors: base vectors, any real dtype.
        metric: l2, ip or cosine.
        options: what to build; the paper's NSW by default.
        progress: told when building begins, and of nsw and hnsw as they grow; the other kinds
            are built in one piece.
    """
    options = options or GraphOptions()
    base = check_vectors("vectors", vectors)
    chosen = check_metric(metric)
    if chosen == "cosine":
        base, chosen = normalize(base), "l2"  # the same order on unit vectors
    check_kind(options.kind, chosen)
    _check_size(options, len(base))
    duplicates = Duplicates.of(base)
    distinct = base[duplicates.first] if duplicates.n_copies else base
    if isinstance(options.entry, str):
        found = resolve_entry(options.entry, distinct, options.seed)
        entries = duplicates.first[found].astype(np.int32)
    else:
        entries = resolve_entry(options.entry, base)
    told = progress or ignore
    told(0, len(distinct))
    with faiss_threads(options.n_threads):
        graph = _build(distinct, chosen, options, told)
    if duplicates.n_copies:
        graph = _with_copies(graph, duplicates, min(options.degree, len(base) - 1))
    has_entry = options.kind in ("hnsw", "nsg") and _is_medoid(options.entry)
    return graph if has_entry else graph.entered_at(entries)


def _with_copies(graph: Graph, duplicates: Duplicates, width: int) -> Graph:
    """The graph over all vectors, from that over the distinct ones."""
    called = duplicates.first.astype(np.int32)

    def renamed(ids: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.where(ids >= 0, called[ids], np.int32(-1))

    layers = (UpperLayer(called[each.vertices], renamed(each.neighbors)) for each in graph.upper)
    width = max(width, graph.neighbors.shape[1])
    neighbors = duplicates.spread(graph.neighbors, width)
    return Graph(neighbors, called[graph.entries], tuple(layers))


def resolve_entry(entry: Entry, vectors: NDArray[np.float32], seed: int = 0) -> NDArray[np.int32]:
    """Vertices that an entry stands for, among these vectors [n, dim]."""
    if _is_medoid(entry):
        return np.array([medoid(vectors)], dtype=np.int32)
    if isinstance(entry, str) and entry == "medoids":
        return medoids(vectors, seed)
    if isinstance(entry, str) and entry == "longest":
        return longest(vectors)
    ids = np.atleast_1d(np.array(entry))
    if ids.ndim != 1 or not len(ids) or ids.dtype.kind not in "iu":
        raise ValueError(
            f"expected entries: a vertex id, several, medoid, medoids or longest, got {entry!r}"
        )
    if ids.min() < 0 or ids.max() >= len(vectors):
        raise ValueError(f"expected entries in [0, {len(vectors)}), got {ids.tolist()}")
    entries = ids.astype(np.int32)
    _check_entries(entries, len(vectors))
    return entries


def served_entry(kind: GraphKind, metric: str) -> Entry:
    """Where searches start in a graph that is to be served."""
    if kind in ("hnsw", "nsg"):
        return "medoid"  # stands for the graph's own
    return "longest" if metric == "ip" else "medoids"


def _is_medoid(entry: Entry) -> bool:
    return isinstance(entry, str) and entry == "medoid"


def _check_options(options: GraphOptions) -> None:
    if options.kind not in GRAPH_KINDS:
        raise ValueError(f"expected graph one of {', '.join(GRAPH_KINDS)}, got {options.kind!r}")
    if options.kind in ("nsw", "hnsw") and (options.degree < 4 or options.degree % 2):
        raise ValueError(f"expected an even degree of at least 4, got {options.degree}")
    lowest = 8 if options.kind == "nsg" else 2  # with one neighbour each, a graph is a chain
    if options.degree < lowest:
        raise ValueError(f"expected a degree of at least {lowest}, got {options.degree}")
    if options.ef_construction < 1:
        raise ValueError(f"expected ef_construction of at least 1, got {options.ef_construction}")
    if options.n_threads < 0:
        raise ValueError(f"expected n_threads of at least 0, got {options.n_threads}")
    if options.kind == "hnsw" and not _is_medoid(options.entry):
        raise ValueError(f"expected no entry for hnsw, which has its own, got {options.entry!r}")


def check_kind(kind: GraphKind, metric: str) -> None:
    """Refuse a kind of graph that cannot be had for a metric."""
    if kind == "nsg" and check_metric(metric) == "ip":
        raise ValueError("expected metric l2 or cosine for nsg, got ip")


def _check_size(options: GraphOptions, n: int) -> None:
    least = {"nsg": N_NSG, "knn": 2, "approximate-knn": 2}.get(options.kind, 1)
    if n < least:
        raise ValueError(f"expected at least {least} vectors for {options.kind}, got {n}")


@contextmanager
def faiss_threads(n_threads: int) -> Iterator[None]:
    """Threads of faiss for the length of a block; 0 leaves them."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(index_of(n_threads) or before)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _build(
    base: NDArray[np.float32], metric: Metric, options: GraphOptions, progress: Progress
) -> Graph:
    if options.kind in ("nsw", "hnsw"):
        graph = _build_hnsw(base, metric, options, progress)
        return graph if options.kind == "hnsw" else replace(graph, upper=())
    if len(base) == 1:  # all vectors are equal
        return Graph(np.full((1, 1), -1, dtype=np.int32), np.zeros(1, dtype=np.int32))
    if options.kind == "nsg" and len(base) >= N_NSG:
        return _build_nsg(base, metric, options)
    exact = options.kind != "approximate-knn"
    lists = knn_lists(base, metric, options.degree, exact=exact, seed=options.seed)
    return Graph(compact_rows(lists), np.zeros(1, dtype=np.int32))


def _build_hnsw(
    base: NDArray[np.float32], metric: Metric, options: GraphOptions, progress: Progress
) -> Graph:
    links = index_of(options.degree) // 2
    index = faiss.IndexHNSWFlat(base.shape[1], links, faiss_metric(metric))
    index.hnsw.efConstruction = index_of(options.ef_construction)
    index.hnsw.rng = faiss.RandomGenerator(faiss_seed(options.seed))
    for part in np.array_split(base, min(_N_STEPS, len(base))):
        index.add(part)
        progress(index.ntotal, len(base))
    return graph_of_hnsw(index.hnsw)


def _build_nsg(base: NDArray[np.float32], metric: Metric, options: GraphOptions) -> Graph:
    spread = _spread_out(base, options.seed)
    candidates = knn_lists(spread, metric, max(64, 2 * options.degree), exact=True)
    index = faiss.IndexNSGFlat(base.shape[1], index_of(options.degree), faiss_metric(metric))
    index.nsg.rng = faiss.RandomGenerator(faiss_seed(options.seed))
    index.nsg.L = min(index.nsg.L, len(base))
    index.nsg.search_L = min(index.nsg.search_L, len(base))
    index.build(spread, candidates)
    return graph_of_nsg(index.nsg)


def _spread_out(base: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Vectors with equal distances told apart; among ties faiss seeks a connected NSG for ever."""
    rng = np.random.default_rng(faiss_seed(seed))
    noise = rng.standard_normal(base.shape, dtype=np.float32)
    scale = float(base.std()) or float(np.abs(base).max()) or 1.0
    noise *= 1e-3 * scale
    return np.add(base, noise, dtype=np.float32)


def compact_rows(lists: NDArray[Any]) -> NDArray[np.int32]:
    """Neighbour lists with −1 anywhere as aligned rows with −1 at the end only."""
    order = np.argsort(lists < 0, axis=1, kind="stable")
    rows = aligned_zeros(lists.shape, np.int32)
    rows[:] = np.take_along_axis(lists, order, axis=1)
    return rows


def graph_of_hnsw(hnsw: Any) -> Graph:
    """The graph of a faiss HNSW structure, layer by layer."""
    levels = faiss.vector_to_array(hnsw.levels)  # a vertex of the bottom layer only has level 1
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
