"""Tables of entry points for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from l2route.graph.entry_table import EntryTable
from l2route.graph.graph import Graph
from l2route.index import RoutingIndex
from l2route.rewiring.log_entries import entries_of_log


def random_table(rng: np.random.Generator, n_vertices: int, dim: int) -> EntryTable:
    """A table whose clusters are far apart, so that rounding to codes never matters."""
    n_groups, per_group, d = int(rng.integers(1, 4)), int(rng.integers(1, 4)), min(dim, 2)
    n_clusters = n_groups * per_group
    groups = np.zeros((n_groups, d), dtype=np.float32)
    groups[:, 0] = 100.0 * np.arange(n_groups)
    centroids = np.repeat(groups, per_group, axis=0)
    centroids[:, -1] += 20.0 * np.tile(np.arange(per_group), n_groups)
    members = np.arange(n_clusters, dtype=np.int32).reshape(n_groups, per_group)
    vertices = rng.integers(-1, n_vertices, size=(n_clusters, 3)).astype(np.int32)
    coordinates = np.sort(rng.permutation(dim)[:d]).astype(np.int32)
    return EntryTable(coordinates, groups, centroids, members, vertices)


def entries_by_hand(table: EntryTable, graph: Graph, query: NDArray[np.float32]) -> list[int]:
    """The entry points of a query [dim] by the nearest group and its nearest cluster."""
    part = query[table.coordinates]
    group = int(((table.groups - part) ** 2).sum(axis=1).argmin())
    own = table.members[group][table.members[group] >= 0]
    cluster = own[((table.centroids[own] - part) ** 2).sum(axis=1).argmin()]
    found = [v for v in table.vertices[cluster].tolist() if v >= 0]
    return list(dict.fromkeys([*found, int(graph.entries[0])]))


def rows_scored(table: EntryTable, query: NDArray[np.float32]) -> int:
    """The rows of a table that are scored to find the cluster of a query [dim]."""
    part = query[table.coordinates]
    group = int(((table.groups - part) ** 2).sum(axis=1).argmin())
    return len(table.groups) + int((table.members[group] >= 0).sum())


def with_table(index: RoutingIndex, seed: int = 0) -> RoutingIndex:
    """A copy of an index with entry points of random queries, as if they were logged."""
    rng = np.random.default_rng(seed)
    queries = rng.normal(size=(40, index.dim)).astype(np.float32)
    nearest = rng.integers(0, len(index), size=(40, 5)).astype(np.int32)
    table = entries_of_log(queries, nearest, index.base.metric)
    graph = replace(index.graph, table=table)
    return RoutingIndex(index.base, graph, index.spaces[1:], index.labels, index.validation)


def without_table(index: RoutingIndex) -> RoutingIndex:
    """A copy of an index that enters its graph at the same vertices for all queries."""
    graph = replace(index.graph, table=None)
    return RoutingIndex(index.base, graph, index.spaces[1:], index.labels, index.validation)
