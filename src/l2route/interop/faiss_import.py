"""Indexes from faiss: HNSW and NSG, in memory or saved."""

from pathlib import Path
from typing import Any

import faiss

from l2route.data.vectors import Metric
from l2route.graph.build import graph_of_hnsw, graph_of_nsg
from l2route.graph.entry import Entry
from l2route.index import RoutingIndex
from l2route.interop.imported import ImportedIndex, labels_or_none

METRICS: dict[int, Metric] = {faiss.METRIC_L2: "l2", faiss.METRIC_INNER_PRODUCT: "ip"}
"""Metrics by faiss's constants."""


def from_faiss(index: Any, *, entry: Entry | None = None) -> RoutingIndex:
    """Make an index from the graph and the vectors of a faiss HNSW or NSG index.

    Args:
        index: IndexHNSW, IndexNSG or an IndexIDMap of one, or the path of a saved one.
        entry: entry points for the bottom layer alone; by default faiss's layers and entry.
    """
    return import_faiss(index).index(entry)


def import_faiss(source: Any) -> ImportedIndex:
    """Copy graph, vectors and labels out of a faiss index.

    Args:
        source: an IndexHNSW, an IndexNSG or an IndexIDMap of one, or the path of a saved one.
    """
    owner = _read_faiss(Path(source)) if isinstance(source, str | Path) else source
    if not isinstance(owner, faiss.Index):
        raise ValueError(f"expected a faiss IndexHNSW or IndexNSG, got {type(owner).__name__}")
    index = faiss.downcast_index(owner)  # a view into `owner`, which must stay alive
    labels = None
    if isinstance(index, faiss.IndexIDMap):
        labels = labels_or_none(faiss.vector_to_array(index.id_map))
        index = faiss.downcast_index(index.index)
    if index.ntotal == 0:
        raise ValueError("expected an index with vectors, got an empty one")
    if index.metric_type not in METRICS:
        got = f"metric {index.metric_type}"
        raise ValueError(f"expected a faiss index with metric l2 or ip, got {got}")
    if isinstance(index, faiss.IndexHNSW):
        graph = graph_of_hnsw(index.hnsw)
    elif isinstance(index, faiss.IndexNSG):
        graph = graph_of_nsg(index.nsg)
    else:
        raise ValueError(f"expected a faiss IndexHNSW or IndexNSG, got {type(index).__name__}")
    vectors = index.storage.reconstruct_n(0, index.ntotal)
    return ImportedIndex(graph, vectors, labels, METRICS[index.metric_type])


def _read_faiss(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a saved faiss index, got no file")
    try:
        return faiss.read_index(str(path))
    except RuntimeError as error:
        raise ValueError(f"{path}: expected a saved faiss index, got {error}") from None
