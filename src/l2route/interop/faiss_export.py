"""Indexes for faiss: a linear transform, HNSW over routing vectors, and a refine step.

`faiss.read_index` reads an export, and faiss searches it without l2route. faiss refines by the
metric that it searches with. If answers are ranked by l2 but the routing space is scored by inner
product, the inner products are converted to l2 distances: s with s² = C − |f|² − 2b is appended to
each routing vector f with bias b, and 0 to the query. Then
|[g(q), 0] − [f, s]|² = |g(q)|² + C − 2(⟨f, g(q)⟩ + b), which gives the same ranking. Large means of
f or g(q) would leave float32 no digits for the scores. So they are subtracted first, with
⟨f, mean of g⟩ added to the bias, and f and g(q) are scaled to the same mean length. Codes are
decoded. faiss has one entry point: several become an upper layer in which each is a neighbour of
all others.

An export is compared with `RoutingIndex.search` before it is returned.
"""

from dataclasses import dataclass, replace
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.metrics import N_ANSWERS, recall_at
from l2route.data.truth import exact_neighbors
from l2route.graph.graph import Graph, UpperLayer
from l2route.graph.knn import faiss_metric
from l2route.index import RoutingIndex
from l2route.search.base import BaseVectors
from l2route.search.codes import decode_rows
from l2route.search.space import RoutingSpace

EF_SEARCH = 64
"""Default beam width of an exported index."""
MAX_LOSS = 0.03
"""Largest loss of recall@10 of an export against the index.

Answers differ slightly: l2route rounds queries to codes and faiss does not, and the two descend
from several entries or upper layers in different ways (decision 18).
"""
N_COMPARED = 500
"""Maximum number of queries to compare on."""
N_SAMPLED = 10_000
"""Maximum number of vectors from which the mean of mapped queries is estimated."""


def to_faiss(
    index: RoutingIndex,
    *,
    space: str | None = None,
    ef: int = EF_SEARCH,
    rerank: int | None = None,
) -> Any:
    """Make a faiss index with the answers of `index.search(queries, k=10, ef=ef)`.

    faiss reranks `k_factor` times as many vertices as there are answers, with a beam at least that
    wide. Both can be changed with `faiss.ParameterSpace().set_index_parameters(export,
    "efSearch=120,k_factor_rf=12")`. An index that routes by the original vectors has only
    `efSearch`.

    Args:
        index: the index to export.
        space: name of the space to route in; by default the last of `index.spaces`.
        ef: beam width, faiss's `efSearch`.
        rerank: vertices to rerank for ten answers; by default the whole beam.

    Returns:
        A faiss index that owns all its parts; `faiss.write_index` saves it.

    Raises:
        ValueError: if its recall@10 is lower by more than 0.03 than that of `index`, on up to 500
            validation queries, or on points between linked vertices if there are none.
    """
    rerank = ef if rerank is None else rerank
    if not 1 <= rerank <= ef:
        raise ValueError(f"expected rerank from 1 to ef = {ef}, got {rerank}")
    if not len(index):
        raise ValueError("expected an index with vectors, got an empty one")
    # without the unused rows of an index that has changed, and searched as faiss does: by a walk
    constant = RoutingIndex(
        index.base, index.graph, index.spaces[1:], index.labels, index.validation
    )
    export = _assembled(constant, space, ef, rerank)
    _check_answers(export, constant, space, ef, rerank)
    return export


def _assembled(index: RoutingIndex, space: str | None, ef: int, rerank: int) -> Any:
    """HNSW over the routing vectors, with transforms, refine step and labels where needed."""
    searcher = index.searcher(space)
    graph = _with_one_entry(index.graph)
    if searcher.space.is_exact:
        export, parts = (
            _hnsw(graph, index.base.vectors(), faiss_metric(index.base.metric), ef),
            [],
        )
    else:
        routing = _routing_of(searcher.space, index.base)
        inner = _hnsw(graph, routing.rows, routing.metric, ef)
        transform = _transform(routing.matrix, routing.offset)
        steered = faiss.IndexPreTransform(transform, inner)
        exact = faiss.IndexFlat(index.dim, routing.metric)
        exact.add(np.ascontiguousarray(index.base.vectors()))
        export, parts = faiss.IndexRefine(steered, exact), [inner, transform, steered, exact]
        export.k_factor = max(1.0, rerank / N_ANSWERS)  # faiss takes a factor of k
    if index.base.metric == "cosine":
        normal = faiss.NormalizationTransform(index.dim)
        parts += [export, normal]
        export = faiss.IndexPreTransform(normal, export)
    if index.labels is not None:
        parts.append(export)
        export = _labelled(export, index.labels)
    # Reading back gives an index that owns its parts; until then `parts` keeps them alive.
    owned = faiss.deserialize_index(faiss.serialize_index(export))
    del parts
    return owned


def _check_answers(
    export: Any, index: RoutingIndex, space: str | None, ef: int, rerank: int
) -> None:
    """Refuse an export whose recall@10 is too far below that of the index."""
    kind, queries = _queries_for(index)
    k = min(N_ANSWERS, len(index))
    found = (
        export.search(np.ascontiguousarray(queries), k)[1],
        index.search(queries, k, ef=ef, rerank=rerank, space=space).ids,
    )
    base = index.base
    nearest = exact_neighbors(base.vectors(), queries, k, base.metric).distances
    theirs, ours = (
        recall_at(base.exact_distances(queries, index.rows_of(ids)), nearest, k) for ids in found
    )
    if theirs < ours - MAX_LOSS:
        raise ValueError(
            f"expected an export that answers like the index, with a recall@{k} of at least "
            f"{ours:.3f} - {MAX_LOSS} on {len(queries)} {kind} at ef = {ef}, got {theirs:.3f}"
        )


def _queries_for(index: RoutingIndex) -> tuple[str, NDArray[np.float32]]:
    """Queries to compare answers on: validation queries, or points between linked vertices."""
    if index.validation is not None:
        return "validation queries", index.validation.queries[:N_COMPARED]
    vertices = np.arange(0, len(index), -(-len(index) // N_COMPARED))
    linked = index.graph.neighbors[vertices, 0]
    vectors = index.base.vectors()
    between = 0.5 * (vectors[vertices] + vectors[np.where(linked < 0, vertices, linked)])
    return "points between linked vertices", between


@dataclass(frozen=True, slots=True)
class _Routing:
    """Routing vectors for faiss, and the affine map of a query to them."""

    rows: NDArray[np.floating[Any]]
    """Routing vectors [n, d]."""
    matrix: NDArray[np.floating[Any]]
    """Maps a query into the space [d, dim]."""
    offset: NDArray[np.floating[Any]] | None
    """Added to a query after `matrix` [d]."""
    metric: int
    """Faiss's constant of the metric of both search and refine."""


def _routing_of(space: RoutingSpace, base: BaseVectors) -> _Routing:
    """The routing vectors of a space, in the metric by which answers are ranked."""
    rows = decode_rows(space)
    matrix = np.ascontiguousarray(space.map_queries(np.eye(base.dim, dtype=np.float32)).T)
    if space.scorer == "l2":
        if base.metric == "ip" or space.bias is not None:
            got = "l2 for metric ip" if base.metric == "ip" else "l2 with a bias"
            raise ValueError(f"expected a space that routes by inner product, got {got}")
        return _Routing(rows, matrix, None, faiss.METRIC_L2)
    bias = np.zeros(len(rows)) if space.bias is None else space.bias.astype(np.float64)
    if space.centre is not None:
        bias -= rows @ space.centre.astype(np.float64)
    centred = rows - rows.mean(axis=0, dtype=np.float64)
    if base.metric != "ip":
        return _lifted(centred, matrix.astype(np.float64), bias, base)
    one = np.append(np.zeros(space.dim), 1.0)
    centred = np.column_stack([centred, bias - bias.mean()])
    return _Routing(centred, _with_zeros(matrix), one, faiss.METRIC_INNER_PRODUCT)


def _lifted(
    rows: NDArray[np.float64],
    matrix: NDArray[np.float64],
    bias: NDArray[np.float64],
    base: BaseVectors,
) -> _Routing:
    """Convert inner products to l2 distances, centred and scaled to keep float32 precision."""
    sample = base.vectors()[:: -(-len(base.rows) // N_SAMPLED)] @ matrix.T  # [n_sample, d]
    mean = sample.mean(axis=0)
    bias = bias + rows @ mean
    lengths = [np.sqrt(np.square(each).sum(axis=1).mean()) for each in (rows, sample - mean)]
    ratio = np.sqrt(lengths[0] / lengths[1]) if min(lengths) > 0 else 1.0
    rows, matrix, mean = rows / ratio, matrix * ratio, mean * ratio
    used = np.einsum("nd,nd->n", rows, rows) + 2.0 * bias  # |f|² + 2b
    lifted = np.column_stack([rows, np.sqrt(used.max() - used)])
    return _Routing(lifted, _with_zeros(matrix), np.append(-mean, 0.0), faiss.METRIC_L2)


def _with_zeros(matrix: NDArray[Any]) -> NDArray[Any]:
    return np.vstack([matrix, np.zeros((1, matrix.shape[1]), dtype=matrix.dtype)])


def _transform(matrix: NDArray[np.floating[Any]], offset: NDArray[np.floating[Any]] | None) -> Any:
    rows, columns = matrix.shape
    transform = faiss.LinearTransform(columns, rows, offset is not None)
    faiss.copy_array_to_vector(matrix.astype(np.float32).ravel(), transform.A)
    if offset is not None:
        faiss.copy_array_to_vector(offset.astype(np.float32), transform.b)
    transform.is_trained = True
    return transform


def _with_one_entry(graph: Graph) -> Graph:
    """The graph with one entry; several become an upper layer in which each leads to all others."""
    entries = np.unique(graph.entries)
    if len(entries) == 1:
        return graph
    others = np.array([np.delete(entries, at) for at in range(len(entries))])
    top = UpperLayer(entries, others)
    return replace(graph, entries=entries[:1], upper=(top, *graph.upper))


def _hnsw(graph: Graph, rows: NDArray[np.floating[Any]], metric: int, ef: int) -> Any:
    """A faiss HNSW over vectors [n, d] with the neighbour lists of a graph."""
    layers = (graph.neighbors, *(layer.neighbors for layer in reversed(graph.upper)))
    n_links = max(2, -(-layers[0].shape[1] // 2))  # M; the bottom layer has 2M
    index = faiss.IndexHNSWFlat(rows.shape[1], n_links, metric)
    for level, lists in enumerate(layers[1:], start=1):
        index.hnsw.set_nb_neighbors(level, lists.shape[1])
    index.storage.add(np.ascontiguousarray(rows, dtype=np.float32))
    index.ntotal = graph.n_vertices
    widths = faiss.vector_to_array(index.hnsw.cum_nneighbor_per_level)
    levels = np.ones(graph.n_vertices, dtype=np.int32)  # 1 is the bottom layer alone
    for layer in graph.upper:
        levels[layer.vertices] += 1
    offsets = np.concatenate([[0], np.cumsum(widths[levels])])
    neighbors = np.full(int(offsets[-1]), -1, dtype=np.int32)
    vertices: list[NDArray[Any]] = [np.arange(graph.n_vertices)]
    vertices += [layer.vertices for layer in reversed(graph.upper)]
    for begin, ids, lists in zip(widths, vertices, layers, strict=False):
        places = offsets[ids] + begin
        neighbors[places[:, None] + np.arange(lists.shape[1])] = lists
    faiss.copy_array_to_vector(levels, index.hnsw.levels)
    faiss.copy_array_to_vector(offsets.astype(np.uint64), index.hnsw.offsets)
    faiss.copy_array_to_vector(neighbors, index.hnsw.neighbors)
    index.hnsw.entry_point = int(graph.entries[0])
    index.hnsw.max_level = len(graph.upper)
    index.hnsw.efSearch = ef
    return index


def _labelled(index: Any, labels: NDArray[np.int64]) -> Any:
    """An IndexIDMap of an index. faiss requires an empty index, so it is replaced afterwards."""
    named = faiss.IndexIDMap(faiss.IndexFlat(index.d, index.metric_type))
    faiss.copy_array_to_vector(labels, named.id_map)
    named.index, named.ntotal = index, index.ntotal
    return named
