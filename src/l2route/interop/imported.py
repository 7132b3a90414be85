"""ImportedIndex: graph, vectors and labels taken from another library."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import Metric
from l2route.graph.entry import Entry, resolve_entry
from l2route.graph.graph import Graph
from l2route.index import RoutingIndex
from l2route.search.base import BaseVectors
from l2route.state.state import check_labels


@dataclass(frozen=True, slots=True)
class ImportedIndex:
    """A graph with the vectors that it was built on."""

    graph: Graph
    vectors: NDArray[np.float32]
    """Base vectors [n, dim]; row i is vertex i."""
    labels: NDArray[np.int64] | None
    """Id of each vertex in the library [n], distinct and not −1; None for row numbers."""
    metric: Metric

    def __post_init__(self) -> None:
        if self.labels is not None:
            check_labels(self.labels, self.graph.n_vertices)

    def index(self, entry: Entry | None) -> RoutingIndex:
        """Make an index from it.

        Args:
            entry: entry points for the bottom layer alone; None keeps all layers and the
                library's own entry.
        """
        graph = self.graph
        if entry is not None:
            graph = graph.entered_at(resolve_entry(entry, self.vectors))
        return RoutingIndex(BaseVectors.of(self.vectors, self.metric), graph, labels=self.labels)


def labels_or_none(labels: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Labels, or None if they are the row numbers."""
    return None if np.array_equal(labels, np.arange(len(labels))) else labels.astype(np.int64)
