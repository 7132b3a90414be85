"""Indexes from hnswlib: an index object, or a file that its `save_index` wrote.

The file is a header, a block per element, then the links of the upper layers. A block holds the
bottom layer's links (a count and ids), the vector and the label. Values are little-endian; ids are
internal numbers, in the order of insertion.
"""

import struct
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import METRICS, Metric, check_metric, check_vectors
from l2route.files.require import require
from l2route.graph.entry import Entry
from l2route.graph.graph import Graph, UpperLayer, compact_rows
from l2route.index import RoutingIndex
from l2route.interop.imported import ImportedIndex, labels_or_none
from l2route.interop.links import contradicts
from l2route.rewiring.remove import remove_vertices
from l2route.search.base import BaseVectors

DELETED = 1
"""Third byte of an element that is marked as deleted; otherwise it is 0."""
UNIT = 1e-3
"""Largest deviation from length 1 of vectors that hnswlib has normalised."""
HEADER = struct.Struct("<6QiI3QdQ")
MAX_LEVELS = 64


def from_hnswlib(
    index: Any, metric: str | None = None, *, entry: Entry | None = None
) -> RoutingIndex:
    """Make an index from the graph and the vectors of an hnswlib index.

    Elements marked as deleted are left out, and links to them are replaced by links to their
    neighbours. After many deletions `RoutingIndex.refine` improves the graph further.

    Args:
        index: an `hnswlib.Index` or the path of a saved one.
        metric: l2, ip or cosine; required for a saved index, which does not record it.
        entry: entry points for the bottom layer alone; by default hnswlib's layers and entry.
    """
    return import_hnswlib(index, metric).index(entry)


def import_hnswlib(source: Any, metric: str | None = None) -> ImportedIndex:
    """Copy graph, vectors and labels out of an hnswlib index.

    Args:
        source: an `hnswlib.Index` or the path of a file that its `save_index` wrote.
        metric: l2, ip or cosine; required for a file. For an index object, its own or None.

    Returns:
        Vertices in the order of their labels, without elements marked as deleted.
    """
    if isinstance(source, str | Path):
        if metric is None:
            known = ", ".join(METRICS)
            raise ValueError(f"{source}: expected a metric of {known} (files have none), got none")
        with _naming(f"{source} (hnswlib index)"):
            return _imported(_File.read(Path(source)), check_metric(metric))
    if not hasattr(source, "save_index") or not hasattr(source, "element_count"):
        raise ValueError(f"expected an hnswlib.Index or a path, got {type(source).__name__}")
    if source.max_elements == 0:  # hnswlib would crash
        raise ValueError("expected an hnswlib.Index with vectors, got one without init_index")
    own = check_metric(source.space)
    if metric is not None and check_metric(metric) != own:
        raise ValueError(f"expected metric {own}, that of the hnswlib.Index, got {metric!r}")
    with tempfile.TemporaryDirectory() as directory, _naming("hnswlib.Index"):
        path = Path(directory) / "index"
        source.save_index(str(path))
        return _imported(_File.read(path), own)


@contextmanager
def _naming(source: str) -> Iterator[None]:
    """Put the name of the index before errors about its content."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


@dataclass(frozen=True, slots=True)
class _File:
    """A file of hnswlib whose header has been checked."""

    blocks: NDArray[np.uint8]
    """The elements [n, block_size]."""
    upper: NDArray[np.uint8]
    """The bytes after the elements: the links of upper layers."""
    label_at: int
    """Offset of the label in a block."""
    data_at: int
    """Offset of the vector in a block."""
    max_level: int
    entry_point: int
    max_links_upper: int
    """Length of a neighbour list in upper layers."""

    @property
    def n(self) -> int:
        return len(self.blocks)

    @classmethod
    def read(cls, path: Path) -> "_File":
        if not path.is_file():
            raise FileNotFoundError(f"{path}: expected a saved hnswlib index, got no file")
        content = np.fromfile(path, dtype=np.uint8)
        require(len(content) >= HEADER.size, f"{HEADER.size} bytes of header", len(content))
        header = HEADER.unpack(content[: HEADER.size].tobytes())
        links_at, _, n, block_size, label_at, data_at, max_level, entry, *widths = header[:10]
        require(links_at == 0, "links at byte 0 of an element", links_at)
        require(n > 0, "at least 1 element", n)
        vector_at = 4 + 4 * widths[1]
        require(data_at == vector_at, f"vectors at byte {vector_at} of an element", data_at)
        n_bytes = label_at - data_at
        require(n_bytes > 0 and n_bytes % 4 == 0, "vectors of float32", f"{n_bytes} bytes")
        size = label_at + 8
        require(block_size == size, f"elements of {size} bytes", block_size)
        require(0 <= max_level < MAX_LEVELS, f"a level in [0, {MAX_LEVELS})", max_level)
        require(entry < n, f"an entry point below {n}", entry)
        end = HEADER.size + n * block_size
        require(len(content) >= end, f"{end} bytes for {n} elements", len(content))
        blocks = content[HEADER.size : end].reshape(n, block_size)
        return cls(blocks, content[end:], label_at, data_at, max_level, entry, widths[0])


def _imported(file: _File, metric: Metric) -> ImportedIndex:
    labels = file.blocks[:, file.label_at :].copy().view(np.int64)[:, 0]
    order = np.argsort(labels, kind="stable")
    labels = labels[order]
    marks = file.blocks[order, 2]
    require(bool((marks <= DELETED).all()), "elements marked 0 or 1 (deleted)", marks.max())
    deleted = marks == DELETED
    require(not deleted.all(), "elements that are not deleted", f"{file.n} deleted")
    vertex_of = np.empty(file.n, dtype=np.int64)
    vertex_of[order] = np.arange(file.n)
    links = file.blocks[:, : file.data_at].copy().view(np.int32)
    graph = Graph(
        compact_rows(_vertices_of(links, vertex_of)[order]),
        np.array([vertex_of[file.entry_point]], dtype=np.int32),
        _upper_layers(file, vertex_of),
    )
    stored = file.blocks[:, file.data_at : file.label_at].copy().view(np.float32)[order]
    vectors = check_vectors("vectors", stored)
    _check_metric(graph, vectors, metric)
    if deleted.any():
        graph = remove_vertices(graph, BaseVectors.of(vectors, metric), deleted)
        vectors, labels = vectors[~deleted], labels[~deleted]
    return ImportedIndex(graph, vectors, labels_or_none(labels), metric)


def _check_metric(graph: Graph, vectors: NDArray[np.float32], metric: Metric) -> None:
    """Refuse cosine for vectors that are not normalised; warn if links contradict l2 or ip."""
    if metric == "cosine":
        lengths = np.linalg.norm(vectors, axis=1)  # zero vectors stay zero
        others = lengths[(lengths != 0) & ~(np.abs(lengths - 1) < UNIT)]
        if len(others):
            got = f"a length of {others[0]:g}"
            raise ValueError(f"expected vectors of unit length for metric cosine, got {got}")
    elif contradicts(graph, vectors, metric):
        other = "ip" if metric == "l2" else "l2"
        message = f"expected links of metric {metric}, got links that fit {other} better"
        warnings.warn(message, stacklevel=5)


def _vertices_of(links: NDArray[np.int32], vertex_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert rows of a count and internal ids [m, 1 + width] to vertices, padded with −1."""
    n = len(vertex_of)
    counts, ids = links[:, :1] & 0xFFFF, links[:, 1:]
    width = ids.shape[1]
    require(bool((counts <= width).all()), f"at most {width} links of an element", counts.max())
    used = np.arange(width) < counts
    outside = ids[used & ((ids < 0) | (ids >= n))]
    require(not len(outside), f"links in [0, {n})", outside[:1].tolist())
    return np.where(used, vertex_of[np.where(used, ids, 0)], -1)


def _upper_layers(file: _File, vertex_of: NDArray[np.int64]) -> tuple[UpperLayer, ...]:
    """Layers from the top down. For each element the file has the size of its rows, then these."""
    row_size = 4 + 4 * file.max_links_upper
    members: list[list[int]] = [[] for _ in range(file.max_level)]
    rows: list[list[NDArray[np.uint8]]] = [[] for _ in range(file.max_level)]
    at = 0
    for element in range(file.n):
        require(at + 4 <= len(file.upper), f"upper links of {file.n} elements", element)
        size = int(file.upper[at : at + 4].view(np.uint32)[0])
        at += 4
        require(at + size <= len(file.upper), f"upper links of {file.n} elements", element)
        n_layers, rest = divmod(size, row_size)
        require(rest == 0, f"upper links in rows of {row_size} bytes", size)
        require(n_layers <= file.max_level, f"at most {file.max_level} layers", n_layers)
        for layer in range(n_layers):
            begin = at + layer * row_size
            members[layer].append(element)
            rows[layer].append(file.upper[begin : begin + row_size])
        at += size
    return tuple(
        _upper_layer(np.array(members[layer]), np.stack(rows[layer]), vertex_of)
        for layer in reversed(range(file.max_level))
        if members[layer]
    )


def _upper_layer(
    elements: NDArray[np.int64], rows: NDArray[np.uint8], vertex_of: NDArray[np.int64]
) -> UpperLayer:
    order = np.argsort(vertex_of[elements])
    neighbors = compact_rows(_vertices_of(rows.view(np.int32), vertex_of)[order])
    return UpperLayer(vertex_of[elements][order].astype(np.int32), neighbors)
