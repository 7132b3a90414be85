"""Laws of graphs, and of malformed ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from graphs import built, graph_of
from l2route.graph.build import GRAPH_KINDS
from l2route.graph.graph import Graph, UpperLayer, compact_rows
from l2route.graph.report import report
from l2route.rewiring.renumber import renumber_graph


def test_entered_at_is_the_bottom_layer_alone(vectors: NDArray[np.float32]) -> None:
    """`entered_at` keeps the bottom layer only."""
    hnsw = built(vectors, kind="hnsw")
    flat = hnsw.entered_at([3, 1])
    assert flat.upper == ()
    assert flat.entries.tolist() == [3, 1]
    assert flat.neighbors is hnsw.neighbors


def test_neighbor_lists_start_on_a_cache_line(vectors: NDArray[np.float32]) -> None:
    """Built graphs have aligned neighbour lists, because the core prefetches whole lists."""
    for kind in GRAPH_KINDS:
        assert built(vectors, kind=kind).neighbors.ctypes.data % 64 == 0


def test_neighbours_begin_on_a_cache_line() -> None:
    """Lists that do not start on a cache line are copied; others are not."""
    buffer = np.zeros(16 * 8 + 64, dtype=np.int32)
    for shift in range(0, 64, 4):
        start = (-buffer.ctypes.data % 64 + shift) // 4
        neighbors = buffer[start : start + 16 * 8].reshape(16, 8)
        graph = Graph(neighbors, np.zeros(1, dtype=np.int32))
        assert graph.neighbors.ctypes.data % 64 == 0
        assert (graph.neighbors is neighbors) == (shift == 0)
        np.testing.assert_array_equal(graph.neighbors, neighbors)
        renumbered = renumber_graph(graph, np.arange(16)[::-1])
        assert renumbered.neighbors.ctypes.data % 64 == 0


@given(
    lists=hnp.arrays(
        np.int64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
        elements=st.integers(-1, 5),
    )
)
def test_compact_rows_moves_gaps_to_the_end(lists: NDArray[np.int64]) -> None:
    """Neighbours keep their order, and −1 moves to the end."""
    expected = [[x for x in row if x >= 0] + [x for x in row if x < 0] for row in lists.tolist()]
    rows = compact_rows(lists)
    assert rows.dtype == np.int32
    assert rows.tolist() == expected


def layered() -> Graph:
    """A graph of six vertices with two upper layers, {1, 3, 5} and {3}."""
    bottom = graph_of([[1], [2, 0], [3], [4, 2], [5], [0]], [3])
    return replace(bottom, upper=(layer([3], [[-1]]), layer([1, 3, 5], [[3], [5], [1]])))


def layer(vertices: list[int], neighbors: list[list[int]], dtype: Any = np.int32) -> UpperLayer:
    """An upper layer, valid or not."""
    return UpperLayer(np.array(vertices, dtype=dtype), np.array(neighbors, dtype=np.int32))


def test_layered_graph_is_valid() -> None:
    """The graph that the tests below damage is valid."""
    assert report(layered()).n_layers == 2


INT32 = np.int32
LOW = [1, 3, 5]


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "id too large": ({"neighbors": np.full((6, 2), 6, INT32)}, r"in \[-1, 6\), got 6 to 6"),
    "id below -1": ({"neighbors": np.full((6, 2), -2, INT32)}, r"in \[-1, 6\), got -2 to -2"),
    "gap in a row": ({"neighbors": np.array([[-1, 0]] * 6, INT32)}, "at the end of rows"),
    "int64": ({"neighbors": np.zeros((6, 2), np.int64)}, "contiguous int32 .* got int64"),
    "big-endian": ({"neighbors": np.zeros((6, 2), ">i4")}, "contiguous int32"),
    "floats": ({"neighbors": np.zeros((6, 2), np.float32)}, "contiguous int32 .* got float32"),
    "one axis": ({"neighbors": np.zeros(6, INT32)}, r"\[n, width\], got"),
    "three axes": ({"neighbors": np.zeros((6, 2, 2), INT32)}, r"\[n, width\], got"),
    "column order": ({"neighbors": np.zeros((6, 2), INT32, order="F")}, "contiguous"),
    "every other row": ({"neighbors": np.zeros((12, 2), INT32)[::2]}, "contiguous"),
    "no width": ({"neighbors": np.zeros((6, 0), INT32)}, r"got \(6, 0\)"),
    "no vertices": ({"neighbors": np.zeros((0, 4), INT32)}, r"got \(0, 4\)"),
    "no entry": ({"entries": np.zeros(0, INT32)}, r"entries int32 \[n_entries\], got"),
    "entry int64": ({"entries": np.array([3])}, "entries int32 .* got int64"),
    "entry matrix": ({"entries": np.array([[3]], INT32)}, r"entries int32 .* got int32 \(1, 1\)"),
    "entry scalar": ({"entries": np.array(3, INT32)}, r"entries int32 .* got int32 \(\)"),
    "entry too large": ({"entries": np.array([6], INT32)}, r"in \[0, 6\), got \[6\]"),
    "entry negative": ({"entries": np.array([-1], INT32)}, r"in \[0, 6\), got \[-1\]"),
    "entry twice": ({"entries": np.array([3, 3], INT32)}, r"distinct entries, got \[3, 3\]"),
    "entry not in the top layer": ({"entries": np.array([2], INT32)}, "the layer above"),
    "layer without the one above": ({"upper": (layer([3], [[-1]]), layer([1], [[1]]))}, "above"),
    "layer without its neighbor": ({"upper": (layer(LOW, [[3], [4], [1]]),)}, "neighbours"),
    "layer's id too large": ({"upper": (layer(LOW, [[3], [9], [1]]),)}, r"\[-1, 6\), got 1 to 9"),
    "layer's gap": ({"upper": (layer(LOW, [[3, -1], [-1, 1], [1, 3]]),)}, "at the end of rows"),
    "layer too long": ({"upper": (layer(LOW, [[3], [5]]),)}, r"vertices int32 \[2\], got"),
    "layer int64": ({"upper": (layer(LOW, [[3], [5], [1]], np.int64),)}, "int32 .* got int64"),
    "layer empty": ({"upper": (UpperLayer(np.zeros(0, INT32), np.zeros((0, 4), INT32)),)}, "got"),
    "layer descending": ({"upper": (layer([5, 3, 1], [[3], [5], [1]]),)}, "ascending"),
    "layer with a repeat": ({"upper": (layer([3, 3, 5], [[3], [5], [3]]),)}, "ascending"),
    "layer beyond n": ({"upper": (layer([1, 3, 6], [[3], [1], [1]]),)}, r"in \[0, 6\)"),
    "layer below 0": ({"upper": (layer([-1, 3, 5], [[3], [5], [3]]),)}, r"in \[0, 6\)"),
    # Each step from one vertex to the next overflows int32, to a positive number.
    "layer that wraps": (
        {"upper": (layer([3, 1 - 2**31, 0], [[0], [3], [3]]),)},
        "ascending",
    ),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_malformed_graph_is_refused(fault: str) -> None:
    """A malformed graph cannot be made, because the core does not check graphs."""
    changes, message = MALFORMED[fault]
    if "neighbors" in changes:
        changes = {"upper": (), **changes}
    with pytest.raises(ValueError, match=f"expected .*{message}"):
        replace(layered(), **changes)
