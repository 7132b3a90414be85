"""Tables of entry points as the core reads them, and where walks start by them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.data.vectors import Metric
from l2route.graph.entry_table import EntryTable
from l2route.graph.graph import Graph
from l2route.search.codes import compress_space
from l2route.search.layout import pad_rows
from l2route.search.rows import core_rows
from l2route.search.space import RoutingSpace


def core_entry_table(table: EntryTable, metric: Metric, simd: str = "auto") -> _core.EntryTable:
    """A table as the core reads it: the centroids of a group's clusters side by side, in codes.

    Args:
        table: the table.
        metric: under ip the cluster with the largest inner product is taken, otherwise the nearest.
        simd: kernel to use.
    """
    is_member = table.members >= 0
    clusters = table.members[is_member]  # group by group
    n_groups = len(table.groups)
    first = np.cumsum([n_groups, *is_member.sum(axis=1)], dtype=np.int32)
    rows = pad_rows(np.concatenate([table.groups, table.centroids[clusters]]))
    dim = len(table.coordinates)
    floats = (
        RoutingSpace(rows, dim, "ip", origin=None)
        if metric == "ip"
        else RoutingSpace(rows, dim, "l2", origin=0.0)
    )
    space = compress_space(floats, "int8")
    return _core.EntryTable(
        core_rows(space.rows, space.bias, space, simd, None),
        first=first,
        clusters=clusters,
        vertices=table.vertices,
        coordinates=table.coordinates,
        centre=space.centre,
    )


@dataclass(frozen=True, slots=True)
class Starts:
    """Where walks of some queries start, as searches do."""

    vertices: NDArray[np.int32]
    """Padded with −1 at the end of rows [n_queries, n_starts]."""
    costs: NDArray[np.int32]
    """What finding them costs, in scores of routing vectors [n_queries]."""
    max_cost: int
    """The most that it may cost; a walk with no larger budget starts at the graph's entries."""


def starts_of(
    graph: Graph, metric: Metric, queries: NDArray[np.float32], routing_dim: int
) -> Starts | None:
    """Where searches for queries [n_queries, dim] start; None if that does not depend on them.

    Args:
        graph: the graph, with a table or without.
        metric: of the vectors.
        queries: of length 1 under cosine.
        routing_dim: dimension of the routing vectors, which costs are multiples of.
    """
    if graph.table is None:
        return None
    table = core_entry_table(graph.table, metric)
    found, costs = table.find(np.ascontiguousarray(queries), routing_dim)
    vertices = np.full((len(found), found.shape[1] + 1), -1, dtype=np.int32)
    vertices[:, :-1] = found
    vertices[np.arange(len(found)), (found >= 0).sum(axis=1)] = graph.entries[0]
    return Starts(vertices, costs, table.max_cost(routing_dim))
