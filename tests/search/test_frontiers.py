"""Laws of the frontiers of the core, checked against a naive buffer."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
from ctypes import c_bool, c_char_p, c_float, c_int32, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2route import _core

ROOT = Path(__file__).parent.parent.parent
FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")
# GCC 12 warns of its own AVX-512 header, which makes undefined vectors on purpose.
HEADERS_OF_GCC = ("-Wno-error=uninitialized", "-Wno-error=maybe-uninitialized")
LEVELS = _core.simd_levels()
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "new": (c_void_p, [c_bool]),
    "delete": (None, [c_void_p]),
    "reset": (None, [c_void_p, c_size_t]),
    "push": (None, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "push_near": (None, [c_void_p, c_char_p, c_void_p, c_void_p, c_size_t]),
    "pop": (c_int32, [c_void_p]),
    "peek": (c_int32, [c_void_p]),
    "size": (c_size_t, [c_void_p]),
    "best": (c_size_t, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "pop_within": (c_int32, [c_void_p, c_float]),
    "forget_beyond": (None, [c_void_p, c_float, c_size_t]),
    "at": (c_int32, [c_void_p, c_size_t]),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The frontiers, compiled with bounds checks by the compiler of the core."""
    target = tmp_path_factory.mktemp("frontiers") / "frontiers.so"
    compiler = os.environ.get("CXX", "c++")
    source = ROOT / "tests" / "frontiers.cpp"
    flags = (*FLAGS, *HEADERS_OF_GCC, "-D_GLIBCXX_ASSERTIONS", f"-I{ROOT / 'cpp'}")
    words = [compiler, *flags, source, "-o", target]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(words, check=True, env=environment)
    loaded = ctypes.CDLL(str(target))
    for name, (returned, arguments) in SIGNATURES.items():
        function = getattr(loaded, f"frontier_{name}")
        function.restype, function.argtypes = returned, arguments
    pointers = [c_char_p, c_void_p, c_void_p, c_size_t, c_float, c_size_t, c_void_p]
    loaded.select_near.restype, loaded.select_near.argtypes = c_size_t, pointers
    return loaded


class Frontier:
    """A frontier of the core."""

    def __init__(self, library: ctypes.CDLL, is_heap: bool) -> None:
        self.library = library
        self.handle = library.frontier_new(is_heap)

    def __del__(self) -> None:
        self.library.frontier_delete(self.handle)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.library, f"frontier_{name}")
        return lambda *arguments: function(self.handle, *arguments)

    def push_all(self, scores: list[float], vertices: list[int], level: str | None = None) -> None:
        """Push vertices with their scores; if a SIMD level is given, selected by its kernel."""
        keys = np.array(scores, np.float32), np.array(vertices, np.int32)
        arguments = (keys[0].ctypes.data, keys[1].ctypes.data, len(scores))
        if level is None:
            self.push(*arguments)
        else:
            self.push_near(level.encode(), *arguments)

    def best_of_all(self, count: int) -> list[tuple[float, int]]:
        """The best entries with their scores."""
        scores, vertices = np.empty(count, np.float32), np.empty(count, np.int32)
        n = self.best(count, scores.ctypes.data, vertices.ctypes.data)
        return list(zip(scores[:n].tolist(), vertices[:n].tolist(), strict=True))


class NaiveFrontier:
    """The slow twin: one list of all entries, sorted after every change."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.entries: list[tuple[float, int]] = []
        self.expanded: set[int] = set()

    def push_all(self, scores: list[float], vertices: list[int]) -> None:
        """Keep the best; −0 counts as 0 and NaN as infinity, and ties go to smaller ids."""
        ordered = [math.inf if math.isnan(score) else score + 0.0 for score in scores]
        self.entries = sorted([*self.entries, *zip(ordered, vertices, strict=True)])
        del self.entries[self.capacity :]

    def peek(self) -> int:
        """The best entry that is not expanded, −1 for none."""
        return next((vertex for _, vertex in self.entries if vertex not in self.expanded), -1)

    def pop_within(self, limit: float = math.inf) -> int:
        """Expand the best entry that is not expanded, unless it is beyond the limit."""
        vertex = self.peek()
        if vertex < 0 or {v: score for score, v in self.entries}[vertex] > limit:
            return -1
        self.expanded.add(vertex)
        return vertex

    def forget_beyond(self, limit: float, kept: int) -> None:
        """Drop entries beyond the limit, but not the `kept` best."""
        within = [entry for entry in self.entries[kept:] if entry[0] <= limit]
        self.entries = self.entries[:kept] + within


SCORES = st.one_of(
    st.sampled_from([-1.0, -0.0, 0.0, 1.0, 2.0]),  # many ties
    st.floats(width=32),  # infinities and NaN too
)
PUSHES = st.tuples(st.lists(SCORES, max_size=60), st.integers(0, 4))
"""Scores pushed at once, and how many entries are expanded after it."""


def vertices_of(pushes: list[tuple[list[float], int]], seed: int) -> list[list[int]]:
    """Distinct vertices for all pushed scores, since a walk visits a vertex once."""
    sizes = [len(scores) for scores, _ in pushes]
    every = np.random.default_rng(seed).permutation(10 + sum(sizes))
    return [part.tolist() for part in np.split(every[: sum(sizes)], np.cumsum(sizes)[:-1])]


@pytest.mark.parametrize("level", [None, *LEVELS])
@pytest.mark.parametrize("is_heap", [False, True])
@given(
    searches=st.lists(
        st.tuples(st.integers(1, 90), st.lists(PUSHES, min_size=1, max_size=8)), max_size=3
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_frontiers_are_the_naive_buffer(
    library: ctypes.CDLL,
    is_heap: bool,
    level: str | None,
    searches: list[tuple[int, list[tuple[list[float], int]]]],
    seed: int,
) -> None:
    """After every push and pop a frontier has the entries and the next vertex of the twin.

    The buffers are reused for searches of other widths.
    """
    frontier = Frontier(library, is_heap)
    for capacity, pushes in searches:
        frontier.reset(capacity)
        naive = NaiveFrontier(capacity)
        for (scores, n_pops), vertices in zip(pushes, vertices_of(pushes, seed), strict=True):
            frontier.push_all(scores, vertices, level)
            naive.push_all(scores, vertices)
            for count in (1, capacity // 2 + 1, capacity + 3):
                assert frontier.best_of_all(count) == naive.entries[:count]
            for _ in range(n_pops):
                assert frontier.size() == len(naive.entries)
                assert frontier.peek() == naive.peek()
                assert frontier.pop() == naive.pop_within()


@given(
    capacity=st.integers(1, 90),
    pushes=st.lists(PUSHES, min_size=1, max_size=8),
    limits=st.lists(st.sampled_from([-1.0, 0.0, 1.0, 5.0, math.inf]), min_size=8, max_size=8),
    kept=st.integers(0, 20),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_sorted_frontier_with_limits_is_the_naive_buffer(
    library: ctypes.CDLL,
    capacity: int,
    pushes: list[tuple[list[float], int]],
    limits: list[float],
    kept: int,
    seed: int,
) -> None:
    """With limits, a frontier expands and drops the same entries as the twin."""
    frontier, naive = Frontier(library, is_heap=False), NaiveFrontier(capacity)
    frontier.reset(capacity)
    every = zip(pushes, vertices_of(pushes, seed), limits, strict=False)
    for (scores, n_pops), vertices, limit in every:
        frontier.push_all(scores, vertices)
        naive.push_all(scores, vertices)
        for _ in range(n_pops):
            assert frontier.pop_within(limit) == naive.pop_within(limit)
        frontier.forget_beyond(limit, kept)
        naive.forget_beyond(limit, kept)
        at = [frontier.at(rank) for rank in range(frontier.size())]
        assert at == [vertex for _, vertex in naive.entries]
        assert frontier.peek() == naive.peek()


def slow_selection(
    scores: list[float], vertices: list[int], farthest: float, n_any: int
) -> list[int]:
    """The slow twin: vertices not beyond a limit, and the first ones until there are some."""
    kept: list[tuple[float, int]] = []
    for score, vertex in zip(scores, vertices, strict=True):
        if not score > farthest or len(kept) < n_any:
            kept.append((math.inf if math.isnan(score) else score + 0.0, vertex))
    return [vertex for _, vertex in sorted(kept)]


@pytest.mark.parametrize("level", LEVELS)
@given(
    scores=st.lists(SCORES, max_size=150),
    farthest=SCORES.filter(lambda score: not math.isnan(score)),
    n_any=st.integers(0, 160),
    seed=st.integers(0, 2**32 - 1),
)
def test_selected_keys_are_those_of_the_twin(
    library: ctypes.CDLL, level: str, scores: list[float], farthest: float, n_any: int, seed: int
) -> None:
    """Every kernel selects the same vertices in the same order, whatever their number."""
    vertices = vertices_of([(scores, 0)], seed)[0]
    arrays = np.array(scores, np.float32), np.array(vertices, np.int32)
    near = np.empty(len(scores), np.int32)
    pointers = [array.ctypes.data for array in arrays]
    n = library.select_near(
        level.encode(), *pointers, len(scores), farthest, n_any, near.ctypes.data
    )
    assert near[:n].tolist() == slow_selection(scores, vertices, farthest, n_any)
