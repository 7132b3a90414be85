"""Laws of the cache of hops on disk: reading, damage, incomplete writes."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hops_twin import hops_of, naive_hops, random_graph
from l2route.graph.graph import Graph
from l2route.training.oracle import (
    HopOracle,
)


@pytest.mark.parametrize("margin", [None, 1])
def test_a_full_cache_computes_nothing(
    graph: Graph, tmp_path: Path, count_computed: list[int], margin: int | None
) -> None:
    """After compute_all another oracle reads every block, equal to the ones computed."""
    calls: list[tuple[int, int]] = []
    first = HopOracle(graph, np.arange(1200), margin=margin, cache=tmp_path, max_blocks=1)
    first.compute_all(lambda done, total: calls.append((done, total)))
    assert calls == [(1, 3), (2, 3), (3, 3)]
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


def test_other_inputs_miss_the_cache(
    graph: Graph, tmp_path: Path, count_computed: list[int]
) -> None:
    """Another graph, target or margin, and with a margin another entry, is computed anew."""
    other = random_graph(2, 1200, 3)
    moved = graph.entered_at([5])
    inputs: list[tuple[Graph, int, int | None]] = [
        *((graph, 9, None), (other, 9, None), (graph, 8, None), (graph, 9, 1)),
        *((graph, 9, 2), (moved, 9, 1)),
    ]
    for n_computed, (graph_used, n_targets, margin) in enumerate(inputs, start=1):
        HopOracle(graph_used, np.arange(n_targets), margin=margin, cache=tmp_path).block(0)
        assert len(count_computed) == n_computed
    HopOracle(moved, np.arange(9), cache=tmp_path).block(0)  # full hops do not depend on the entry
    assert len(count_computed) == len(inputs)


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
    """A block whose file was changed in any way is computed again and replaced."""
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


def test_only_regular_files_are_read(graph: Graph, tmp_path: Path) -> None:
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
    """A process that dies in any step of a write leaves a cache that gives correct hops."""
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


def test_recent_partial_files_are_kept(graph: Graph, tmp_path: Path) -> None:
    """A recent partial file may have an active writer, so it is not removed."""
    young = tmp_path / "0123.partial"
    young.write_bytes(b"half")
    HopOracle(graph, np.arange(9), cache=tmp_path)
    assert young.exists()


def test_a_failed_write_leaves_nothing(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk raises an error, and no partial file remains."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        HopOracle(graph, np.arange(9), cache=tmp_path).block(0)
    assert list(tmp_path.iterdir()) == []
