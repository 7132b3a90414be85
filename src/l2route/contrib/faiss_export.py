"""An index as stock faiss has it: linear transform, HNSW over routing vectors, refine.

What is exported is loaded by `faiss.read_index` and searched without l2route. faiss refines only by
the metric that it searched with, so where answers are by l2 the inner product that steers a walk
becomes an l2 distance: with s² = C − |f|² − 2b beside each routing vector f of bias b, and 0 beside
the query, |[g(q), 0] − [f, s]|² = |g(q)|² + C − 2(⟨f, g(q)⟩ + b), which ranks alike. Codes become
the vectors that they stand for, and of several entries, which faiss does not know, each is a
neighbour of all others in a layer on top.
"""

from dataclasses import replace
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.compression import decode_rows
from l2route.graph import Graph, UpperLayer, faiss_metric
from l2route.index import RoutingIndex
from l2route.spaces import BaseVectors, RoutingSpace

EF_SEARCH = 64
"""Beam width of an exported index, unless another is asked for."""
N_ANSWERS = 10
"""Answers per query that `rerank` is for: faiss knows a factor only."""


def to_faiss(
    index: RoutingIndex, space: str | None = None, ef: int = EF_SEARCH, rerank: int | None = None
) -> Any:
    """Make a faiss index that finds what `index.search(queries, k=10, ef=ef)` finds.

    faiss reranks `k_factor` times as many vertices as there are answers, and its beam is at least
    so wide. Both can be changed later by faiss's own means: with `faiss.ParameterSpace()`'s
    `set_index_parameters(made, "efSearch=120,k_factor_rf=12")` ten answers come of a beam of 120,
    all of it reranked. An index of original vectors has `efSearch` alone.

    Args:
        index: what to export.
        space: name of the space to route in; the index's own choice by default.
        ef: beam width, faiss's `efSearch`.
        rerank: vertices to rerank for ten answers; by default the whole beam, as a search does.

    Returns:
        A faiss index that owns all its parts; `faiss.write_index` keeps it.
    """
    rerank = ef if rerank is None else rerank
    if not 1 <= rerank <= ef:
        raise ValueError(f"expected rerank from 1 to ef = {ef}, got {rerank}")
    searcher = index.searcher(space)
    routed, graph = searcher.space, _with_one_entry(index.graph)
    if not searcher.reranks:
        made, parts = _hnsw(graph, index.base.vectors(), faiss_metric(index.base.metric), ef), []
    else:
        rows, matrix, offset, metric = _as_one_metric(routed, index.base)
        inner = _hnsw(graph, rows, metric, ef)
        transform = _transform(matrix, offset)
        steered = faiss.IndexPreTransform(transform, inner)
        exact = faiss.IndexFlat(index.dim, metric)
        exact.add(np.ascontiguousarray(index.base.vectors()))
        made, parts = faiss.IndexRefine(steered, exact), [inner, transform, steered, exact]
        made.k_factor = max(1.0, rerank / N_ANSWERS)
    if index.base.metric == "cosine":
        normal = faiss.NormalizationTransform(index.dim)
        parts += [made, normal]
        made = faiss.IndexPreTransform(normal, made)
    if index.labels is not None:
        parts.append(made)
        made = _labelled(made, index.labels)
    # Reading back gives an index that owns its parts; until then `parts` keeps them alive.
    owned = faiss.deserialize_index(faiss.serialize_index(made))
    del parts
    return owned


def _as_one_metric(
    space: RoutingSpace, base: BaseVectors
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32] | None, int]:
    """Routing vectors, the queries' matrix and offset, and the metric of both walk and refine."""
    rows = decode_rows(space)
    eye = np.eye(base.dim, dtype=np.float32)
    matrix = eye if space.query_matrix is None else space.query_matrix
    if space.scorer == "l2":
        if base.metric == "ip" or space.bias is not None:
            raise ValueError("expected a space that routes by inner product, as answers are ranked")
        return rows, matrix, None, faiss.METRIC_L2
    bias = np.zeros(len(rows), dtype=np.float32) if space.bias is None else space.bias
    wider = np.vstack([matrix, np.zeros((1, base.dim), dtype=np.float32)])
    if base.metric == "ip":
        one = np.zeros(space.dim + 1, dtype=np.float32)
        one[-1] = 1
        return np.column_stack([rows, bias]), wider, one, faiss.METRIC_INNER_PRODUCT
    short = np.einsum("nd,nd->n", rows, rows, dtype=np.float64) + 2.0 * bias
    lift = np.sqrt(short.max() - short).astype(np.float32)
    return np.column_stack([rows, lift]), wider, None, faiss.METRIC_L2


def _transform(matrix: NDArray[np.float32], offset: NDArray[np.float32] | None) -> Any:
    rows, columns = matrix.shape
    transform = faiss.LinearTransform(columns, rows, offset is not None)
    faiss.copy_array_to_vector(np.ascontiguousarray(matrix).ravel(), transform.A)
    if offset is not None:
        faiss.copy_array_to_vector(offset, transform.b)
    transform.is_trained = True
    return transform


def _with_one_entry(graph: Graph) -> Graph:
    """The graph, or one with all its entries in a layer on top, where each leads to any other."""
    entries = np.unique(graph.entries)
    if len(entries) == 1:
        return graph
    others = np.array([np.delete(entries, at) for at in range(len(entries))])
    top = UpperLayer(entries, others)
    return replace(graph, entries=entries[:1], upper=(top, *graph.upper))


def _hnsw(graph: Graph, rows: NDArray[np.float32], metric: int, ef: int) -> Any:
    """Faiss's HNSW over these vectors with the links of a graph."""
    layers = (graph.neighbors, *(layer.neighbors for layer in reversed(graph.upper)))
    links = max(1, -(-layers[0].shape[1] // 2))  # faiss has twice as many at the bottom
    index = faiss.IndexHNSWFlat(rows.shape[1], links, metric)
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
    for begin, ids, rows_ in zip(widths, vertices, layers, strict=False):
        places = offsets[ids] + begin
        neighbors[places[:, None] + np.arange(rows_.shape[1])] = rows_
    faiss.copy_array_to_vector(levels, index.hnsw.levels)
    faiss.copy_array_to_vector(offsets.astype(np.uint64), index.hnsw.offsets)
    faiss.copy_array_to_vector(neighbors, index.hnsw.neighbors)
    index.hnsw.entry_point = int(graph.entries[0])
    index.hnsw.max_level = len(graph.upper)
    index.hnsw.efSearch = ef
    return index


def _labelled(index: Any, labels: NDArray[np.int64]) -> Any:
    """An index whose answers have these names; faiss takes it empty only, so it is put in later."""
    named = faiss.IndexIDMap(faiss.IndexFlat(index.d, index.metric_type))
    faiss.copy_array_to_vector(labels, named.id_map)
    named.index, named.ntotal = index, index.ntotal
    return named
