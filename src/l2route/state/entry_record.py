"""A table of entry points in an index directory: its arrays."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from numpy.typing import NDArray

from l2route.graph.entry_table import EntryTable
from l2route.state.arrays import required_array

PREFIX = "entry_"
"""Of the names of the arrays of a table."""
VERTICES = PREFIX + "vertices"
"""The array that deletions change."""


def arrays_of_table(table: EntryTable | None) -> dict[str, NDArray[Any]]:
    """The arrays of a table, by the names under which they are saved."""
    if table is None:
        return {}
    return {PREFIX + field.name: getattr(table, field.name) for field in fields(table)}


def table_of(arrays: Mapping[str, NDArray[Any]]) -> EntryTable | None:
    """The inverse of `arrays_of_table`."""
    if VERTICES not in arrays:
        return None
    return EntryTable(
        required_array(arrays, PREFIX + "coordinates", ("int32",), 1),
        required_array(arrays, PREFIX + "groups", ("float32",), 2),
        required_array(arrays, PREFIX + "centroids", ("float32",), 2),
        required_array(arrays, PREFIX + "members", ("int32",), 2),
        required_array(arrays, VERTICES, ("int32",), 2),
    )
