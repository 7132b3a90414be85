"""Tables of entry points as the core reads them."""

import numpy as np

from l2route import _core
from l2route.data.vectors import Metric
from l2route.graph.entry_table import EntryTable
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
