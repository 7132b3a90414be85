import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from l2route import _core
from l2route.graph.graph import Graph, compact_rows
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


def naive_hops(graph: Graph, target: int) -> NDArray[np.uint8]:
    """Hops to one target by a plain breadth-first search over reversed edges."""
    sources: list[list[int]] = [[] for _ in range(graph.n_vertices)]
    for vertex, row in enumerate(graph.neighbors.tolist()):
        for neighbor in row:
            if neighbor >= 0:
                sources[neighbor].append(vertex)
    hops = {target: 0}
    queue = deque([target])
    while queue:
        reached = queue.popleft()
        for vertex in sources[reached]:
            if vertex not in hops:
                hops[vertex] = hops[reached] + 1
                queue.append(vertex)
    found = [min(hops[v], MAX_HOPS) if v in hops else UNREACHABLE for v in range(graph.n_vertices)]
    return np.array(found, dtype=np.uint8)


def random_graph(seed: int, n: int, width: int, share: float = 0.7) -> Graph:
    """A graph with self loops, doubled edges and short or empty rows."""
    rng = np.random.default_rng(seed)
    lists = np.where(rng.random((n, width)) < share, rng.integers(n, size=(n, width)), -1)
    return Graph(compact_rows(lists), np.array([0], dtype=np.int32))


def chain(n: int) -> Graph:
    """Vertex v leads to v + 1 only."""
    neighbors = np.append(np.arange(1, n), -1).astype(np.int32)[:, None]
    return Graph(neighbors, np.array([0], dtype=np.int32))


graphs = st.one_of(
    st.builds(
        random_graph,
        seed=st.integers(0, 2**32),
        n=st.integers(1, 80),
        width=st.integers(1, 5),
        share=st.floats(0.1, 1.0),
    ),
    st.builds(chain, st.integers(1, 40)),
)


def targets_in(graph: Graph, data: st.DataObject) -> NDArray[np.int64]:
    """Some queries' targets, several queries with the same one among them."""
    vertices = st.integers(0, graph.n_vertices - 1)
    return np.array(data.draw(st.lists(vertices, min_size=1, max_size=30)), dtype=np.int64)


def hops_of(oracle: HopOracle, query: int) -> NDArray[np.uint8]:
    """Hops to a query's target."""
    block, column = oracle.places.block_of[query], oracle.places.column_of[query]
    return decode_hops(oracle.block(int(block)), int(column))


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A graph of more than two blocks of vertices."""
    return random_graph(1, 1200, 3)


@pytest.fixture
def count_computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """First targets of the blocks computed since the test began."""
    computed: list[int] = []
    plain = _core.hops_to_targets

    def counted(neighbors: NDArray[np.int32], targets: NDArray[np.int32]) -> NDArray[np.uint64]:
        computed.append(int(targets[0]))
        return plain(neighbors, targets)

    monkeypatch.setattr(_core, "hops_to_targets", counted)
    return computed


@given(graph=graphs, data=st.data())
def test_hops_are_those_of_a_plain_search(graph: Graph, data: st.DataObject) -> None:
    """Every query's hops are those of a breadth-first search for its target alone."""
    targets = targets_in(graph, data)
    oracle = HopOracle(graph, targets)
    for query, target in enumerate(targets.tolist()):
        np.testing.assert_array_equal(hops_of(oracle, query), naive_hops(graph, target))


def test_targets_fill_several_blocks(graph: Graph) -> None:
    """Distinct targets stand sorted in blocks of 512; queries find theirs, repeated ones too."""
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
    """On a chain, hops are exact up to 13, MAX_HOPS beyond, and there is no way back."""
    hops = hops_of(HopOracle(chain(40), np.array([30])), 0)
    expected = [min(30 - v, MAX_HOPS) if v <= 30 else UNREACHABLE for v in range(40)]
    np.testing.assert_array_equal(hops, expected)


def test_columns_without_a_target_are_unreachable(graph: Graph) -> None:
    """In a block that is not full no vertex reaches the columns that have no target."""
    block = HopOracle(graph, np.arange(100)).block(0)
    assert (decode_hops(block, 100) == UNREACHABLE).all()
    assert (decode_hops(block, 511) == UNREACHABLE).all()


def test_no_queries_need_no_blocks(graph: Graph) -> None:
    """An oracle for no queries has no blocks."""
    oracle = HopOracle(graph, np.empty(0, dtype=np.int64))
    oracle.compute_all()
    assert oracle.n_blocks == 0


def test_memory_holds_the_blocks_used_last(graph: Graph, count_computed: list[int]) -> None:
    """At most max_blocks are held, those asked for last, and only others are computed again."""
    oracle = HopOracle(graph, np.arange(1200), max_blocks=2)
    for block, n_computed in [(0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4), (0, 4), (2, 5)]:
        oracle.block(block)
        assert len(count_computed) == n_computed
        assert oracle.n_held <= 2


def test_blocks_are_read_only(graph: Graph, tmp_path: Path) -> None:
    """A block is shared, so nobody may write into it, computed or mapped."""
    for _ in range(2):
        assert not HopOracle(graph, np.arange(9), cache=tmp_path).block(0).flags.writeable


def test_two_threads_compute_a_block_once(graph: Graph, count_computed: list[int]) -> None:
    """Threads that ask for a block at the same time get the same one, computed once."""
    oracle = HopOracle(graph, np.arange(1200))
    barrier = Barrier(8)

    def ask(_: int) -> list[NDArray[np.uint64]]:
        barrier.wait()
        return [oracle.block(i) for i in range(3)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert len(count_computed) == 3
    assert all(a is b for answer in answers for a, b in zip(answer, answers[0], strict=True))


def test_an_error_reaches_all_and_is_forgotten(
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


def test_prefetch_holds_what_is_asked_next(graph: Graph, count_computed: list[int]) -> None:
    """Prefetched blocks are there; more than can be held are refused."""
    oracle = HopOracle(graph, np.arange(1200), max_blocks=2, n_threads=2)
    oracle.prefetch([2, 0, 2])
    assert sorted(count_computed) == [0, 1024]
    oracle.block(0)
    oracle.block(2)
    assert len(count_computed) == 2
    with pytest.raises(ValueError, match="expected at most 2 blocks, got 3"):
        oracle.prefetch(range(3))


@pytest.mark.parametrize("margin", [None, 1])
def test_a_full_cache_computes_nothing(
    graph: Graph, tmp_path: Path, count_computed: list[int], margin: int | None
) -> None:
    """After compute_all another oracle reads every block, equal to the ones computed."""
    told: list[tuple[int, int]] = []
    first = HopOracle(graph, np.arange(1200), margin=margin, cache=tmp_path, max_blocks=1)
    first.compute_all(lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert first.n_held == 1
    count_computed.clear()
    second = HopOracle(graph, np.arange(1200)[::-1], margin=margin, cache=tmp_path)
    second.compute_all()
    assert count_computed == []
    plain = HopOracle(graph, np.arange(1200), margin=margin)
    for i in range(3):
        np.testing.assert_array_equal(second.block(i), plain.block(i))


def test_blocks_of_a_cache_are_mapped(graph: Graph, tmp_path: Path) -> None:
    """A block that was read is a view of its file, not a copy of it."""
    HopOracle(graph, np.arange(9), cache=tmp_path).compute_all()
    block: object = HopOracle(graph, np.arange(9), cache=tmp_path).block(0)
    assert isinstance(block, np.ndarray)
    assert isinstance(block.base, np.memmap)


def test_only_the_same_question_finds_an_answer(
    graph: Graph, tmp_path: Path, count_computed: list[int]
) -> None:
    """Another graph, other targets, another margin and, with one, another entry: all are asked."""
    other = random_graph(2, 1200, 3)
    moved = graph.entered_at([5])
    asked: list[tuple[Graph, int, int | None]] = [
        *((graph, 9, None), (other, 9, None), (graph, 8, None), (graph, 9, 1)),
        *((graph, 9, 2), (moved, 9, 1)),
    ]
    for n_computed, (asked_of, n_targets, margin) in enumerate(asked, start=1):
        HopOracle(asked_of, np.arange(n_targets), margin=margin, cache=tmp_path).block(0)
        assert len(count_computed) == n_computed
    HopOracle(moved, np.arange(9), cache=tmp_path).block(0)  # full hops do not depend on the entry
    assert len(count_computed) == len(asked)


def _flip(position: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        at = position % len(content)
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

    return flip


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "header cut": lambda content: content[:50],
    "cut": lambda content: content[: len(content) // 2],
    "last byte lost": lambda content: content[:-1],
    "magic flipped": _flip(0),
    "header flipped": _flip(40),
    "first bit flipped": _flip(128),
    "last bit flipped": _flip(-1),
    "zeros": lambda content: bytes(len(content)),
    "another shape": lambda content: content.replace(b"(1200, 8, 4)", b"(1200, 4, 8)"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_replaced(
    graph: Graph, tmp_path: Path, count_computed: list[int], damage: Callable[[bytes], bytes]
) -> None:
    """A file that is not what was written is computed again and replaced, whatever it holds."""
    sound = HopOracle(graph, np.arange(9), cache=tmp_path).block(0)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    file.unlink()  # the mapping of the old file stays as it was
    file.write_bytes(damage(content))
    assert file.read_bytes() != content
    again = HopOracle(graph, np.arange(9), cache=tmp_path).block(0)
    np.testing.assert_array_equal(again, sound)
    assert len(count_computed) == 2
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [content]


def test_what_is_no_file_is_not_read(graph: Graph, tmp_path: Path) -> None:
    """A named pipe in the place of a block is replaced; a directory is refused, not removed."""
    sound = HopOracle(graph, np.arange(9), cache=tmp_path).block(0)
    (file,) = tmp_path.iterdir()
    file.unlink()
    os.mkfifo(file)
    np.testing.assert_array_equal(HopOracle(graph, np.arange(9), cache=tmp_path).block(0), sound)
    assert file.is_file()
    file.unlink()
    file.mkdir()
    abandoned = tmp_path / "0123.partial"
    abandoned.mkdir()
    os.utime(abandoned, (0, 0))
    with pytest.raises(ValueError, match=r"\.npy: expected a file, got a directory"):
        HopOracle(graph, np.arange(9), cache=tmp_path).block(0)


def _exit(*_: object, **__: object) -> None:
    os._exit(7)


def _exit_after_half(stream: object, array: NDArray[np.uint64], **_: object) -> None:
    stream.write(array.tobytes()[: array.nbytes // 2])  # type: ignore[attr-defined] # a file
    stream.flush()  # type: ignore[attr-defined] # a file
    os._exit(7)


def _exit_after_replace(old: str, new: str) -> None:
    os.rename(old, new)
    os._exit(7)


CRASHES: dict[str, tuple[object, str, Callable[..., None]]] = {
    "before writing": (np.lib.format, "write_array", _exit),
    "half written": (np.lib.format, "write_array", _exit_after_half),
    "before fsync": (os, "fsync", _exit),
    "before rename": (os, "replace", _exit),
    "after rename": (os, "replace", _exit_after_replace),
}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child starts no thread
@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_leaves_a_block_or_none(graph: Graph, tmp_path: Path, crash: str) -> None:
    """A process that dies in any step of a write leaves a cache that answers right."""
    child = os.fork()
    if child == 0:
        owner, name, replacement = CRASHES[crash]
        setattr(owner, name, replacement)
        try:
            HopOracle(graph, np.arange(9), cache=tmp_path).block(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    finished = list(tmp_path.glob("*.npy"))
    assert len(finished) == (crash == "after rename")
    for left in tmp_path.glob("*.partial"):
        os.utime(left, (time.time() - 7200, time.time() - 7200))
    oracle = HopOracle(graph, np.arange(9), cache=tmp_path)
    np.testing.assert_array_equal(hops_of(oracle, 3), naive_hops(graph, 3))
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]


def test_a_writer_at_work_is_left_alone(graph: Graph, tmp_path: Path) -> None:
    """A young half-written file may have a living writer, so it stays."""
    young = tmp_path / "0123.partial"
    young.write_bytes(b"half")
    HopOracle(graph, np.arange(9), cache=tmp_path)
    assert young.exists()


def test_a_failed_write_leaves_nothing(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk raises, and no half-written file stays behind."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        HopOracle(graph, np.arange(9), cache=tmp_path).block(0)
    assert list(tmp_path.iterdir()) == []


@given(graph=graphs, margin=st.integers(0, 20), data=st.data())
def test_pruning_keeps_what_its_rule_keeps(graph: Graph, margin: int, data: st.DataObject) -> None:
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
    """With no margin at all, a shortest path leads hop by hop from the entry to each target."""
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
    """A packed block unpacks to itself, and is smaller by the words that nothing reaches."""
    rng = np.random.default_rng(seed)
    block = rng.integers(2**63, size=(n, 8, 4)).astype(np.uint64)
    is_gone = rng.random((n, 8)) < share
    block[is_gone] = 2**64 - 1
    packed = pack_words(block)
    assert len(packed) == -(-n // 8) + 4 * (~is_gone).sum()
    np.testing.assert_array_equal(unpack_words(packed, n), block)


def test_wrong_questions_are_refused(graph: Graph, tmp_path: Path) -> None:
    """What cannot be answered is refused, stating what was expected."""
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
