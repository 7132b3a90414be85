"""Small indexes of every kind, and queries for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import hnswlib
import numpy as np
from numpy.typing import NDArray

from entry_tables import with_table
from l2route.graph.build import GRAPH_KINDS, GraphOptions, build_graph
from l2route.graph.graph import Graph
from l2route.index import RoutingIndex
from l2route.interop.hnswlib_import import from_hnswlib
from l2route.search.base import BaseVectors
from l2route.search.codes import Compression
from l2route.search.result import SearchResult
from l2route.search.space import RoutingSpace, pca_space

N, DIM = 400, 12
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(N, DIM)).astype(np.float32)
QUERIES = RNG.normal(size=(40, DIM)).astype(np.float32)
VALIDATION = RNG.normal(size=(50, DIM)).astype(np.float32)


@dataclass(frozen=True)
class SmallWorld:
    """A graph with its vectors and space, and queries distributed like the vectors."""

    base: BaseVectors
    graph: Graph
    space: RoutingSpace
    queries: NDArray[np.float32]


def built(**options: Any) -> RoutingIndex:
    """A small index, built fast with a narrow beam and a low degree."""
    return RoutingIndex.build(VECTORS, **{"ef_construction": 40, "degree": 8} | options)


def labelled(metric: str = "l2") -> RoutingIndex:
    """An index with labels and upper layers, imported from hnswlib."""
    index = hnswlib.Index(metric, DIM)
    index.init_index(N, M=8, ef_construction=40, random_seed=1)
    index.add_items(VECTORS, np.random.default_rng(1).permutation(N) * 10 + 3, num_threads=1)
    return from_hnswlib(index)


def with_everything() -> RoutingIndex:
    """An index with upper layers, labels, PCA, biased and coded spaces, and a setting."""
    base = BaseVectors.of(VECTORS, "l2")
    graph = build_graph(VECTORS, "l2", GraphOptions("hnsw", 8, 40))
    bias = np.linspace(-0.1, 0.1, N, dtype=np.float32)
    spaces = [pca_space(base, 6), RoutingSpace(base.rows, DIM, "ip", bias=bias, name="biased")]
    index = with_table(RoutingIndex(base, graph, spaces, np.arange(N) * 7))
    index.validate_with(VALIDATION)
    index.compress("int8", space="original")
    index.setting(0.9, k=5)
    return index


def compressed(routing: Compression | None, vectors: Literal["float16"] | None) -> RoutingIndex:
    """A compressed index with a PCA space."""
    index = built(pca_dim=5)
    index.compress(routing, vectors=vectors)
    return index


INDEXES: dict[str, Callable[[], RoutingIndex]] = {
    **{kind: lambda kind=kind: built(graph=kind) for kind in GRAPH_KINDS},  # type: ignore[misc]
    "ip": lambda: built(metric="ip"),
    "cosine": lambda: built(metric="cosine", graph="hnsw"),
    "pca": lambda: built(pca_dim=5),
    "pca of ip": lambda: built(pca_dim=5, metric="ip"),
    "pca of cosine": lambda: built(pca_dim=5, metric="cosine", graph="nsg"),
    "labelled": labelled,
    "entries": lambda: built(entry=[3, 99, 200]),
    "everything": with_everything,
    **{
        f"{routing} and {vectors}": lambda routing=routing, vectors=vectors: compressed(  # type: ignore[misc]
            routing, vectors
        )
        for routing in (None, "int8", "float16")
        for vectors in (None, "float16")
        if routing or vectors
    },
}


def same_results(a: SearchResult, b: SearchResult) -> bool:
    """Whether answers and costs are equal bit by bit."""
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("ids", "distances", "n_computed", "n_routing", "n_rerank", "n_hops")
    )


def same_answers(a: RoutingIndex, b: RoutingIndex) -> bool:
    """Whether two indexes have the same info, and the same answers in every space."""
    return a.info() == b.info() and all(
        same_results(
            a.search(QUERIES, k=5, space=space.name, **limit),
            b.search(QUERIES, k=5, space=space.name, **limit),
        )
        for space in a.spaces
        for limit in ({"budget": 100}, {"ef": 20})
    )
