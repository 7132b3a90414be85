"""The oracle: core-seconds per 48,000 targets, memory, and the savings of the paper's pruning.

    python benchmarks/oracle.py                             # random graphs, 10K and 100K vertices
    python benchmarks/oracle.py --vertices 1000000          # 256 MB a block
    python benchmarks/oracle.py --index glove100.l2r        # the graph of a saved index

Time is processor time summed over threads, which other processes distort little. Extra memory is
the memory of a search beyond the block that it returns: counted (two sets of 512 bits per vertex)
and measured (the kernel's peak, for one block on one thread).
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route.graph.graph import Graph
from l2route.graph.report import hops_from
from l2route.index import load
from l2route.training.oracle import BLOCK_TARGETS, HopOracle, pack_words, prune
from measuring import timed

N_TARGETS = 48_000
SEARCH_BYTES = 2 * BLOCK_TARGETS // 8
"""Per vertex: the targets reached before and after a level, a bit each."""
MARGINS = (0, 1, 2, 3, 4, 5, 6)


def random_graph(n: int, degree: int, seed: int) -> Graph:
    """A graph with random neighbours, the worst case for caches."""
    rng = np.random.default_rng(seed)
    neighbors = rng.integers(n, size=(n, degree), dtype=np.int32)
    return Graph(neighbors, np.array([0], dtype=np.int32))


def status_bytes(field: str) -> int:
    """Memory of this process as the kernel counts it: VmRSS now, or its peak VmHWM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"expected {field} in /proc/self/status, got none")


def peak_bytes(call: Callable[[], object]) -> int:
    """Peak memory during a call, minus the memory before it."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status_bytes("VmRSS")
    call()
    return status_bytes("VmHWM") - before


def draw_targets(graph: Graph, n_targets: int, seed: int) -> NDArray[np.int64]:
    """Distinct targets, at most one per vertex."""
    order = np.random.default_rng(seed).permutation(graph.n_vertices)
    return order[:n_targets].astype(np.int64)


def print_speed(graph: Graph, targets: NDArray[np.int64], n_threads: int) -> None:
    """Compute every block once and print a row."""
    one = HopOracle(graph, targets[:BLOCK_TARGETS])
    measured = peak_bytes(lambda: one.block(0))
    n_block_bytes = one.block(0).nbytes
    oracle = HopOracle(graph, targets, max_blocks=n_threads, n_threads=n_threads)

    def compute() -> None:
        for begin in range(0, oracle.n_blocks, n_threads):
            oracle.prefetch(range(begin, min(begin + n_threads, oracle.n_blocks)))

    seconds, _ = timed(compute, time.process_time)
    n_targets = len(oracle.targets)
    print(
        f"{graph.n_vertices:10,} {n_targets:8,} {seconds:13.2f} {n_targets / seconds:15,.0f}"
        f" {seconds / n_targets * N_TARGETS:15.2f} {n_block_bytes / 1e6:9.1f}"
        f" {graph.n_vertices * SEARCH_BYTES / 1e6:12.1f} {(measured - n_block_bytes) / 1e6:9.1f}"
    )


def print_pruning(graph: Graph, targets: NDArray[np.int64]) -> None:
    """Prune one block by every margin and print how much of it is left."""
    oracle = HopOracle(graph, targets[:BLOCK_TARGETS])
    full = oracle.block(0)
    from_entry = hops_from(graph, graph.entries)
    n_pairs = graph.n_vertices * len(oracle.targets)
    print(f"\n{graph.n_vertices:,} vertices, one block: {full.nbytes / 1e6:.1f} MB unpruned")
    print("margin   pairs kept   vertices kept      MB    of full   core-s")
    for margin in MARGINS:
        pruned = full.copy()
        seconds, _ = timed(
            partial(prune, pruned, oracle.targets, from_entry, margin), time.process_time
        )
        kept = ~np.bitwise_and.reduce(pruned, axis=2)  # [n, 8], a bit per pair
        n_kept = int(np.unpackbits(kept.view(np.uint8)).sum())
        n_bytes = pack_words(pruned).nbytes
        print(
            f"{margin:6} {n_kept / n_pairs:12.2%} {kept.any(axis=1).mean():15.1%}"
            f" {n_bytes / 1e6:7.1f} {n_bytes / full.nbytes:10.1%} {seconds:8.2f}"
        )


def main() -> None:
    """Print speed and memory, then the pruning table of the last graph."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vertices", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--degree", type=int, default=16)
    parser.add_argument("--index", type=Path, help="a saved index, instead of random graphs")
    parser.add_argument("--targets", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(
        "  vertices  targets  core-seconds  targets/core-s  core-s per 48K  MB/block"
        "  extra: counted  measured"
    )
    for n in [0] if options.index else options.vertices:
        graph = (
            load(options.index).graph
            if options.index
            else random_graph(n, options.degree, options.seed)
        )
        targets = draw_targets(graph, options.targets, options.seed)
        print_speed(graph, targets, options.threads)
    print_pruning(graph, targets)


if __name__ == "__main__":
    main()
