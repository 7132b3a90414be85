"""Laws of the oracle: hops, blocks in memory, pruning."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hops_twin import chain, graphs, hops_of, naive_hops, targets_in
from l2route import _core
from l2route.graph.graph import Graph
from l2route.graph.report import hops_from
from l2route.training.oracle import (
    BLOCK_TARGETS,
    MAX_HOPS,
    UNREACHABLE,
    HopOracle,
    decode_hops,
    pack_words,
    unpack_words,
)


@given(graph=graphs, data=st.data())
def test_hops_equal_a_breadth_first_search(graph: Graph, data: st.DataObject) -> None:
    """Every query's hops are those of a breadth-first search for its target alone."""
    targets = targets_in(graph, data)
    oracle = HopOracle(graph, targets)
    for query, target in enumerate(targets.tolist()):
        np.testing.assert_array_equal(hops_of(oracle, query), naive_hops(graph, target))


def test_targets_fill_several_blocks(graph: Graph) -> None:
    """Distinct targets are sorted into blocks of 512; equal targets share a column."""
    targets = np.random.default_rng(2).integers(1200, size=3000)
    oracle = HopOracle(graph, targets)
    assert oracle.n_blocks == -(-len(np.unique(targets)) // BLOCK_TARGETS) == 3
    blocks = [oracle.targets_of(i) for i in range(oracle.n_blocks)]
    np.testing.assert_array_equal(np.concatenate(blocks), np.unique(targets))
    places = oracle.places
    found = [blocks[b][c] for b, c in zip(places.block_of, places.column_of, strict=True)]
    np.testing.assert_array_equal(found, targets)
    for query in range(0, 3000, 100):
        expected = naive_hops(graph, int(targets[query]))
        np.testing.assert_array_equal(hops_of(oracle, query), expected)


def test_long_paths_count_as_the_most_hops() -> None:
    """On a directed chain, hops are exact up to 13, MAX_HOPS beyond, unreachable backwards."""
    hops = hops_of(HopOracle(chain(40), np.array([30])), 0)
    expected = [min(30 - v, MAX_HOPS) if v <= 30 else UNREACHABLE for v in range(40)]
    np.testing.assert_array_equal(hops, expected)


def test_columns_without_a_target_are_unreachable(graph: Graph) -> None:
    """In a block that is not full, columns without a target read as unreachable."""
    block = HopOracle(graph, np.arange(100)).block(0)
    assert (decode_hops(block, 100) == UNREACHABLE).all()
    assert (decode_hops(block, 511) == UNREACHABLE).all()


def test_no_queries_need_no_blocks(graph: Graph) -> None:
    """An oracle for no queries has no blocks."""
    oracle = HopOracle(graph, np.empty(0, dtype=np.int64))
    oracle.compute_all()
    assert oracle.n_blocks == 0


def test_memory_holds_the_blocks_used_last(graph: Graph, count_computed: list[int]) -> None:
    """The max_blocks blocks used last are held; only others are computed again."""
    oracle = HopOracle(graph, np.arange(1200), max_blocks=2)
    for block, n_computed in [(0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4), (0, 4), (2, 5)]:
        oracle.block(block)
        assert len(count_computed) == n_computed
        assert oracle.n_held <= 2


def test_blocks_are_read_only(graph: Graph, tmp_path: Path) -> None:
    """Blocks are shared, so they are read-only, computed or mapped."""
    for _ in range(2):
        assert not HopOracle(graph, np.arange(9), cache=tmp_path).block(0).flags.writeable


def test_two_threads_compute_a_block_once(graph: Graph, count_computed: list[int]) -> None:
    """Threads that request a block at the same time get the same array, computed once."""
    oracle = HopOracle(graph, np.arange(1200))
    barrier = Barrier(8)

    def ask(_: int) -> list[NDArray[np.uint64]]:
        barrier.wait()
        return [oracle.block(i) for i in range(3)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert len(count_computed) == 3
    assert all(a is b for answer in answers for a, b in zip(answer, answers[0], strict=True))


def test_a_failed_block_can_be_computed_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A computation that fails raises, and the next one may succeed."""
    oracle = HopOracle(graph, np.arange(9))
    with monkeypatch.context() as patch:
        patch.setattr(_core, "hops_to_targets", _raise_memory_error)
        with pytest.raises(MemoryError):
            oracle.block(0)
    np.testing.assert_array_equal(hops_of(oracle, 3), naive_hops(graph, 3))


def _raise_memory_error(*_: object) -> None:
    raise MemoryError


def test_prefetched_blocks_are_held(graph: Graph, count_computed: list[int]) -> None:
    """Prefetched blocks are not computed again; more than max_blocks are refused."""
    oracle = HopOracle(graph, np.arange(1200), max_blocks=2, n_threads=2)
    oracle.prefetch([2, 0, 2])
    assert sorted(count_computed) == [0, 1024]
    oracle.block(0)
    oracle.block(2)
    assert len(count_computed) == 2
    with pytest.raises(ValueError, match="expected at most 2 blocks, got 3"):
        oracle.prefetch(range(3))


@given(graph=graphs, margin=st.integers(0, 20), data=st.data())
def test_pruning_follows_its_rule(graph: Graph, margin: int, data: st.DataObject) -> None:
    """Pruned hops are the full ones on paths within the margin, and unreachable elsewhere."""
    targets = targets_in(graph, data)
    full, pruned = HopOracle(graph, targets), HopOracle(graph, targets, margin=margin)
    depth = hops_from(graph, graph.entries)
    for query, target in enumerate(targets.tolist()):
        hops = hops_of(full, query)
        is_kept = (depth >= 0) & (depth + hops <= depth[target] + margin) & (hops < UNREACHABLE)
        expected = np.where(is_kept, hops, UNREACHABLE)
        np.testing.assert_array_equal(hops_of(pruned, query), expected)


@given(graph=graphs, data=st.data())
def test_pruning_keeps_the_best_paths(graph: Graph, data: st.DataObject) -> None:
    """With margin 0, every reachable target keeps a shortest path from the entry."""
    targets = targets_in(graph, data)
    oracle = HopOracle(graph, targets, margin=0)
    depth = hops_from(graph, graph.entries)
    for query, target in enumerate(targets.tolist()):
        if depth[target] < 0:
            continue
        hops, vertex = hops_of(oracle, query).astype(int), int(graph.entries[0])
        for left in range(int(depth[target]), 0, -1):
            assert hops[vertex] == min(left, MAX_HOPS)
            next_best = [v for v in graph.neighbors[vertex] if v >= 0 and hops[v] < UNREACHABLE]
            vertex = int(next(v for v in next_best if hops[v] == min(left - 1, MAX_HOPS)))
        assert hops[target] == 0


@settings(max_examples=30)
@given(n=st.integers(1, 40), share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_packing_loses_nothing(n: int, share: float, seed: int) -> None:
    """A packed block unpacks to itself, and stores no words of 64 unreachable targets."""
    rng = np.random.default_rng(seed)
    block = rng.integers(2**63, size=(n, 8, 4)).astype(np.uint64)
    is_gone = rng.random((n, 8)) < share
    block[is_gone] = 2**64 - 1
    packed = pack_words(block)
    assert len(packed) == -(-n // 8) + 4 * (~is_gone).sum()
    np.testing.assert_array_equal(unpack_words(packed, n), block)


def test_bad_arguments_are_refused(graph: Graph, tmp_path: Path) -> None:
    """Targets, blocks, columns and sizes out of range are refused; the error states the range."""
    targets = np.arange(9)
    with pytest.raises(ValueError, match=r"expected targets in \[0, 1200\), got 3 to 1200"):
        HopOracle(graph, np.array([3, 1200]))
    with pytest.raises(ValueError, match=r"expected targets int64 \[n_queries\], got float64"):
        HopOracle(graph, np.zeros(3))  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(ValueError, match="expected margin of at least 0, got -1"):
        HopOracle(graph, targets, margin=-1)
    with pytest.raises(ValueError, match="expected max_blocks of at least 1, got 0"):
        HopOracle(graph, targets, max_blocks=0)
    with pytest.raises(ValueError, match=r"expected a block in \[0, 1\), got 1"):
        HopOracle(graph, targets).block(1)
    with pytest.raises(ValueError, match=r"expected a column in \[0, 512\), got 512"):
        decode_hops(HopOracle(graph, targets).block(0), 512)
    with pytest.raises(ValueError, match="expected a cache or max_blocks of at least 3"):
        HopOracle(graph, np.arange(1200), max_blocks=2).compute_all()
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="expected a directory or nothing, got a file"):
        HopOracle(graph, targets, cache=tmp_path / "file")
