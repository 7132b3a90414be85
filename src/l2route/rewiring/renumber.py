"""Renumbering: the same graph and vectors with the vertices in another order."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route import _core
from l2route.graph.graph import Graph, UpperLayer, mapped_ids
from l2route.search.base import BaseVectors
from l2route.search.layout import aligned_rows
from l2route.search.space import RoutingSpace

Order = NDArray[np.integer[Any]]
"""A permutation: order[i] is the old number of vertex i [n]."""


def breadth_first_order(graph: Graph) -> NDArray[np.int32]:
    """The order of a breadth-first search from the entries, then from vertices not yet reached."""
    return _core.breadth_first_order(graph.core)


def numbers_in(order: Order) -> NDArray[np.int32]:
    """The new number of each vertex [n]: the inverse permutation."""
    numbers = np.empty(len(order), dtype=np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    return numbers


def renumber_graph(graph: Graph, order: Order) -> Graph:
    """The same graph with vertex order[i] as vertex i."""
    number = numbers_in(order)

    layers = []
    for layer in graph.upper:
        vertices = number[layer.vertices]
        ascending = np.argsort(vertices)
        layers.append(
            UpperLayer(vertices[ascending], mapped_ids(layer.neighbors[ascending], number))
        )
    table = None if graph.table is None else graph.table.mapped(number)
    neighbors = mapped_ids(graph.neighbors[order], number)
    return Graph(neighbors, number[graph.entries], tuple(layers), table)


def renumber_base(base: BaseVectors, order: Order) -> BaseVectors:
    """The same vectors with row order[i] as row i."""
    return replace(base, rows=aligned_rows(base.rows, order))


def renumber_space(
    space: RoutingSpace, order: Order, before: BaseVectors, after: BaseVectors
) -> RoutingSpace:
    """The same space with row order[i] as row i.

    Args:
        space: the space.
        order: the permutation.
        before: original vectors; if the space shares their rows, it will share those of `after`.
        after: the original vectors, renumbered.
    """
    shares_rows = space.rows is before.rows
    return replace(
        space,
        rows=after.rows if shares_rows else aligned_rows(space.rows, order),
        bias=None if space.bias is None else space.bias[order],
    )
