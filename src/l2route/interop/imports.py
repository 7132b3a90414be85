"""Graphs that other libraries built: faiss (HNSW, NSG) and hnswlib (index object or saved file)."""

import struct
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import METRICS, Metric, check_metric, check_vectors
from l2route.graph.build import graph_of_hnsw, graph_of_nsg
from l2route.graph.entry import Entry, resolve_entry
from l2route.graph.graph import Graph, UpperLayer, compact_rows
from l2route.index import RoutingIndex
from l2route.interop.links import contradicts
from l2route.rewiring.remove import remove_vertices
from l2route.search.base import BaseVectors

DELETED = 1
"""Third byte of an element that was marked as deleted in hnswlib's file; 0 of any other."""
UNIT = 1e-3
"""How far from 1 the lengths of vectors that hnswlib has normalised may be."""


@dataclass(frozen=True, slots=True)
class ImportedIndex:
    """A graph with the vectors it was built on."""

    graph: Graph
    vectors: NDArray[np.float32]
    """Base vectors [n, dim], in the graph's order."""
    labels: NDArray[np.int64] | None
    """What the library called each vertex [n]; None where that is its row number."""
    metric: Metric


def import_faiss(source: Any) -> ImportedIndex:
    """Take graph and vectors out of a faiss index.

    Args:
        source: an IndexHNSW, an IndexNSG or an IndexIDMap of one, or the path of a saved one.
    """
    owner = _read_faiss(source) if isinstance(source, str | Path) else source
    if not isinstance(owner, faiss.Index):
        raise ValueError(f"expected a faiss IndexHNSW or IndexNSG, got {type(owner).__name__}")
    index = faiss.downcast_index(owner)  # a view: it lives as long as its owner
    labels = None
    if isinstance(index, faiss.IndexIDMap):
        labels = _labels_or_none(faiss.vector_to_array(index.id_map))
        index = faiss.downcast_index(index.index)
    if index.ntotal == 0:
        raise ValueError("expected an index with vectors, got an empty one")
    if isinstance(index, faiss.IndexHNSW):
        graph = graph_of_hnsw(index.hnsw)
    elif isinstance(index, faiss.IndexNSG):
        graph = graph_of_nsg(index.nsg)
    else:
        raise ValueError(f"expected a faiss IndexHNSW or IndexNSG, got {type(index).__name__}")
    vectors = index.storage.reconstruct_n(0, index.ntotal)
    return ImportedIndex(graph, vectors, labels, _metric_of(index.metric_type))


def _read_faiss(path: str | Path) -> Any:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: expected a saved faiss index, got no file")
    try:
        return faiss.read_index(str(path))
    except RuntimeError as error:
        raise ValueError(f"{path}: expected a saved faiss index, got {error}") from None


def _metric_of(faiss_metric: int) -> Metric:
    if faiss_metric == faiss.METRIC_L2:
        return "l2"
    if faiss_metric == faiss.METRIC_INNER_PRODUCT:
        return "ip"
    raise ValueError(f"expected a faiss index with metric l2 or ip, got metric {faiss_metric}")


def _labels_or_none(labels: NDArray[np.int64]) -> NDArray[np.int64] | None:
    return None if np.array_equal(labels, np.arange(len(labels))) else labels.astype(np.int64)


def import_hnswlib(source: Any, metric: str | None = None) -> ImportedIndex:
    """Take graph and vectors out of an hnswlib index.

    Args:
        source: an `hnswlib.Index` or the path of a file that its `save_index` wrote.
        metric: l2, ip or cosine: needed for a file, which does not say. An index object knows its
            own, which is then the only one that is taken.

    Returns:
        Vertices in the order of their labels, without elements that are marked as deleted.
    """
    if isinstance(source, str | Path):
        if metric is None:
            known = ", ".join(METRICS)
            raise ValueError(f"{source}: expected a metric of {known}, which the file does not say")
        return _HnswlibFile(Path(source)).imported(check_metric(metric))
    if not hasattr(source, "save_index") or not hasattr(source, "element_count"):
        raise ValueError(f"expected an hnswlib.Index or a path, got {type(source).__name__}")
    if source.max_elements == 0:  # hnswlib would crash
        raise ValueError("expected an hnswlib.Index with vectors, got one without init_index")
    own = check_metric(source.space)
    if metric is not None and check_metric(metric) != own:
        raise ValueError(f"expected metric {own}, which the hnswlib.Index has, got {metric!r}")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "index"
        source.save_index(str(path))
        return _HnswlibFile(path).imported(own)


class _HnswlibFile:
    """Reads hnswlib's file: header, a block per element, then the upper layers' links.

    A block is the bottom layer's links (a count and ids), the vector and the label. Multi-byte
    values are little-endian; ids are internal numbers, in the order of insertion.
    """

    HEADER = struct.Struct("<6QiI3QdQ")

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise FileNotFoundError(f"{path}: expected a saved hnswlib index, got no file")
        self.bytes = np.fromfile(path, dtype=np.uint8)
        self._require(len(self.bytes) >= self.HEADER.size, f"{self.HEADER.size} bytes of header")
        (
            links_at,
            _,
            self.n,
            self.block_size,
            self.label_at,
            self.data_at,
            self.max_level,
            self.entry_point,
            self.max_links_upper,
            self.max_links_bottom,
            *_,
        ) = self.HEADER.unpack_from(self.bytes.tobytes()[: self.HEADER.size])
        self.dim = (self.label_at - self.data_at) // 4
        consistent = (
            links_at == 0
            and self.n > 0
            and self.dim > 0
            and self.data_at == 4 + 4 * self.max_links_bottom
            and self.label_at == self.data_at + 4 * self.dim
            and self.block_size == self.label_at + 8
            and 0 <= self.max_level < 64
            and self.entry_point < self.n
        )
        self._require(consistent, "a header of an hnswlib index with vectors of float32")
        self.upper_at = self.HEADER.size + self.n * self.block_size
        self._require(len(self.bytes) >= self.upper_at, f"{self.n} elements")

    def imported(self, metric: Metric) -> ImportedIndex:
        blocks = self.bytes[self.HEADER.size : self.upper_at].reshape(self.n, self.block_size)
        labels = blocks[:, self.label_at :].copy().view(np.int64)[:, 0]
        order = np.argsort(labels, kind="stable")
        self._require(bool((blocks[:, 2] <= DELETED).all()), "elements deleted or not")
        deleted = blocks[order, 2] == DELETED
        labels = labels[order]
        self._require(not deleted.all(), "elements that are not deleted")
        self._require(bool((np.diff(labels[~deleted]) > 0).all()), "distinct labels")
        vertex_of = np.empty(self.n, dtype=np.int64)
        vertex_of[order] = np.arange(self.n)

        links = blocks[:, : self.data_at].copy().view(np.int32)
        neighbors = compact_rows(self._translated(links, vertex_of)[order])
        graph = Graph(
            neighbors,
            np.array([vertex_of[self.entry_point]], dtype=np.int32),
            self._upper_layers(vertex_of),
        )
        stored = blocks[:, self.data_at : self.label_at].copy().view(np.float32)[order]
        vectors = check_vectors(f"{self.path}: vectors", stored)
        self._check_metric(graph, vectors, metric)
        if deleted.any():
            graph = remove_vertices(graph, BaseVectors.of(vectors, metric), deleted)
            vectors, labels = vectors[~deleted], labels[~deleted]
        return ImportedIndex(graph, vectors, _labels_or_none(labels), metric)

    def _check_metric(self, graph: Graph, vectors: NDArray[np.float32], metric: Metric) -> None:
        """Refuse a metric that the file cannot have, and warn of one that it hardly has."""
        if metric == "cosine":
            lengths = np.linalg.norm(vectors, axis=1)  # zero vectors stay zero
            is_unit = bool(((lengths == 0) | (np.abs(lengths - 1) < UNIT)).all())
            self._require(is_unit, "vectors of unit length for metric cosine")
        elif contradicts(graph, vectors, metric):
            other = "ip" if metric == "l2" else "l2"
            message = f"expected links of metric {metric}, got some that are like {other}'s"
            warnings.warn(f"{self.path}: {message}", stacklevel=5)

    def _translated(
        self, links: NDArray[np.int32], vertex_of: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Rows of (count, internal ids…) as rows of vertices, padded with −1."""
        counts, ids = links[:, :1] & 0xFFFF, links[:, 1:]
        used = np.arange(ids.shape[1]) < counts
        self._require(bool((counts <= ids.shape[1]).all()), f"at most {ids.shape[1]} links")
        inside = (ids >= 0) & (ids < self.n)
        self._require(bool(inside[used].all()), f"links below {self.n}")
        return np.where(used, vertex_of[np.where(used, ids, 0)], -1)

    def _upper_layers(self, vertex_of: NDArray[np.int64]) -> tuple[UpperLayer, ...]:
        row_size = 4 + 4 * self.max_links_upper
        members: list[list[int]] = [[] for _ in range(self.max_level)]
        rows: list[list[NDArray[np.uint8]]] = [[] for _ in range(self.max_level)]
        at = self.upper_at
        for element in range(self.n):
            self._require(at + 4 <= len(self.bytes), f"upper links of {self.n} elements")
            size = int(self.bytes[at : at + 4].view(np.uint32)[0])
            at += 4
            self._require(at + size <= len(self.bytes), f"upper links of {self.n} elements")
            self._require(size % row_size == 0 and size // row_size <= self.max_level, "layers")
            for layer in range(size // row_size):
                begin = at + layer * row_size
                members[layer].append(element)
                rows[layer].append(self.bytes[begin : begin + row_size])
            at += size
        return tuple(
            self._upper_layer(np.array(members[layer]), np.stack(rows[layer]), vertex_of)
            for layer in reversed(range(self.max_level))
            if members[layer]
        )

    def _upper_layer(
        self, elements: NDArray[np.int64], rows: NDArray[np.uint8], vertex_of: NDArray[np.int64]
    ) -> UpperLayer:
        order = np.argsort(vertex_of[elements])
        neighbors = compact_rows(self._translated(rows.view(np.int32), vertex_of)[order])
        return UpperLayer(vertex_of[elements][order].astype(np.int32), neighbors)

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"{self.path}: expected {what}; not an intact hnswlib index")


def from_faiss(index: Any, entry: Entry | None = None) -> RoutingIndex:
    """Search a faiss HNSW or NSG index here.

    Args:
        index: IndexHNSW, IndexNSG or an IndexIDMap of one, or the path of a saved one.
        entry: take the bottom layer only and start there; by default start as faiss does.
    """
    return _from_import(import_faiss(index), entry)


def from_hnswlib(index: Any, metric: str | None = None, entry: Entry | None = None) -> RoutingIndex:
    """Search an hnswlib index here.

    Args:
        index: an `hnswlib.Index` or the path of a saved one.
        metric: l2, ip or cosine, of a saved index, which does not say.
        entry: take the bottom layer only and start there; by default start as hnswlib does.

    Elements that are marked as deleted are left out: what they linked is linked past them. After
    many deletions `RoutingIndex.refine` gives better links still.
    """
    return _from_import(import_hnswlib(index, metric), entry)


def _from_import(imported: ImportedIndex, entry: Entry | None) -> RoutingIndex:
    graph = imported.graph
    if entry is not None:
        graph = graph.entered_at(resolve_entry(entry, imported.vectors))
    base = BaseVectors.of(imported.vectors, imported.metric)
    return RoutingIndex(base, graph, labels=imported.labels)
