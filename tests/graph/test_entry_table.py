"""Laws of tables of entry points: whatever is wrong with one is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from entry_tables import random_table
from l2route.graph.entry_table import EntryTable
from l2route.graph.graph import Graph

TABLE = EntryTable(
    np.array([0, 3], dtype=np.int32),
    np.zeros((2, 2), dtype=np.float32),
    np.zeros((3, 2), dtype=np.float32),
    np.array([[0, 1], [2, -1]], dtype=np.int32),
    np.array([[4, -1], [0, 1], [2, 3]], dtype=np.int32),
)
LISTS = np.array([[1], [2], [3], [4], [0]], dtype=np.int32)
ENTRY = np.zeros(1, dtype=np.int32)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"coordinates": np.array([0, 0], dtype=np.int32)}, "distinct coordinates"),
        ({"coordinates": np.array([-1, 0], dtype=np.int32)}, "at least 0"),
        ({"coordinates": np.array([0, 1, 2], dtype=np.int32)}, "of 3 coordinates"),
        ({"coordinates": np.array([0, 1])}, "coordinates of an entry table int32, got int64"),
        ({"groups": np.zeros((2, 3), dtype=np.float32)}, "of 2 coordinates"),
        ({"members": np.array([[0, 1], [3, -1]], dtype=np.int32)}, "below 3, got -1 to 3"),
        ({"members": np.array([[0, 1], [-1, 2]], dtype=np.int32)}, "members of every group"),
        ({"members": np.array([[0, -1, 1], [2, -1, -1]], dtype=np.int32)}, "padded with -1"),
        ({"members": np.zeros((3, 2), dtype=np.int32)}, r"members \[2, \*\]"),
        ({"vertices": np.zeros((2, 2), dtype=np.int32)}, r"entry vertices \[3, \*\]"),
        ({"vertices": np.zeros((2, 3), dtype=np.int32).T}, "contiguous"),
    ],
)
def test_a_table_that_does_not_fit_together_is_refused(
    changed: dict[str, Any], message: str
) -> None:
    """Shapes, types and numbers are checked, since the core does not."""
    with pytest.raises(ValueError, match=message):
        replace(TABLE, **changed)


@pytest.mark.parametrize("vertex", [-2, 5])
def test_entry_points_are_vertices_of_the_graph(vertex: int) -> None:
    """A graph refuses a table of other vertices."""
    vertices = TABLE.vertices.copy()
    vertices[1, 1] = vertex
    with pytest.raises(ValueError, match=r"expected entry vertices in \[-1, 5\)"):
        Graph(LISTS, ENTRY, table=replace(TABLE, vertices=vertices))
    assert Graph(LISTS, ENTRY, table=TABLE).table is TABLE


def test_vertices_are_mapped_and_forgotten() -> None:
    """Numbers change, vertices that are gone leave −1; a copy is changed in place."""
    numbers = np.array([3, -1, 0, 1, 2], dtype=np.int32)
    assert TABLE.mapped(numbers).vertices.tolist() == [[2, -1], [3, -1], [0, 1]]
    labels = np.array([10, 11, -1, 13, -1])
    own = TABLE.copy()
    own.forget(labels)
    assert own.vertices.tolist() == [[-1, -1], [0, 1], [-1, 3]]
    assert TABLE.vertices.tolist() == [[4, -1], [0, 1], [2, 3]]


def test_random_tables_are_valid() -> None:
    """The tables of other tests pass all checks."""
    for seed in range(20):
        random_table(np.random.default_rng(seed), 9, 3).check_fits(9)
