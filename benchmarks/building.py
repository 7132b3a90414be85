"""Time and memory to build the default graph beside hnswlib, and how well it is searched.

    python benchmarks/building.py glove100.npz …           # arrays `base` and `learn`
    python benchmarks/building.py --vectors 1000000 --dim 64  # random clusters, time and memory

hnswlib with M = 16 and ef_construction 200, and l2route's own graph of degree 32, are built in
turns, each in a process of its own, with one thread and with two; the best of all turns counts.
Seconds on the wall, and of the processor: on a busy machine the latter are steadier. Graphs built
by one thread and by two are compared.

Vertices scored are those of `refining.py`, beside the graph that was the default before: NSW of
faiss, degree 32, efConstruction 300, refined. Only training queries are used, or test queries with
`--final`.
"""

import argparse
import hashlib
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.graph.report import report
from l2route.search.base import BaseVectors
from l2route.search.validation import N_KEPT, Validation
from measuring import peak_mb
from refining import cells
from stopping import TARGETS

BUILDERS = ("hnswlib", "l2route")
Build = tuple[float, float, float, str]
"""Seconds on the wall, seconds of the processor, growth of peak memory in MB, and a hash."""


def build(name: str, file: Path, metric: str, n_threads: int) -> Build:
    """Build a graph over the vectors of a file, and say what it took."""
    base = np.load(file)
    before = peak_mb()
    wall, processor = time.perf_counter(), time.process_time()
    if name == "hnswlib":
        import hnswlib

        peer = hnswlib.Index(metric, base.shape[1])
        peer.init_index(len(base), M=16, ef_construction=200)
        peer.add_items(base, num_threads=n_threads)
        content = b""
    else:
        content = RoutingIndex.build(base, metric, n_threads=n_threads).graph.neighbors.tobytes()
    spent = time.perf_counter() - wall, time.process_time() - processor
    return *spent, peak_mb() - before, hashlib.sha256(content).hexdigest()


def clusters(n: int, dim: int) -> NDArray[np.float32]:
    """Vectors around 1,000 random centres [n, dim]."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(1000, dim)).astype(np.float32)
    noise = rng.standard_normal((n, dim), dtype=np.float32)
    return centres[rng.integers(0, len(centres), n)] + np.float32(0.7) * noise


def in_turns(
    base: NDArray[np.float32], metric: str, n_threads: int, n_turns: int
) -> dict[str, list[Build]]:
    """Builds by each builder, in fresh processes."""
    context = multiprocessing.get_context("spawn")
    builds: dict[str, list[Build]] = {name: [] for name in BUILDERS}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "base.npy"
        np.save(file, base)
        for name in n_turns * BUILDERS:
            with context.Pool(1) as pool:
                builds[name].append(pool.apply(build, (name, file, metric, n_threads)))
    return builds


def print_times(
    base: NDArray[np.float32], metric: str, n_turns: int, threads: tuple[int, ...]
) -> None:
    """Print a table of builds, and whether the number of threads changed the graph."""
    print("| threads | builder | seconds | of the processor | MB | times hnswlib's speed |")
    print("|---|---|---|---|---|---|", flush=True)
    hashes = set()
    for n_threads in threads:
        builds = in_turns(base, metric, n_threads, n_turns)
        best = {
            name: [min(values) for values in zip(*of, strict=True)] for name, of in builds.items()
        }
        for name, (wall, processor, memory, _) in best.items():
            ratios = [best["hnswlib"][at] / best[name][at] for at in (0, 1)]
            faster = " / ".join(f"{ratio:.2f}" for ratio in ratios)
            facts = (f"{wall:.1f}", f"{processor:.1f}", f"{memory:,.0f}", faster)
            print(f"| {n_threads} | {name} | {' | '.join(facts)} |", flush=True)
        hashes |= {content for *_, content in builds["l2route"]}
    print(f"all graphs of l2route are {'equal' if len(hashes) == 1 else 'DIFFERENT'}")


def print_counts(data: Dataset, queries: NDArray[np.float32]) -> None:
    """Print vertices scored at every recall with the new and the earlier default graph."""
    base = BaseVectors.of(data.base, data.metric)
    validation = Validation.of(base, queries)
    print(f"| graph | mean degree | {' | '.join(f'{target:.2f}' for target in TARGETS)} |")
    print(f"|---|---{'|---' * len(TARGETS)}|", flush=True)
    for kind in ("l2route", "nsw"):
        graph = RoutingIndex.build(data.base, data.metric, graph=kind).graph  # type: ignore[arg-type]
        scored = " | ".join(cells(graph, base, validation))
        print(f"| {kind} | {report(graph).mean_degree:.1f} | {scored} |", flush=True)


def datasets(paths: list[Path], n: int, dim: int) -> Iterator[Dataset | NDArray[np.float32]]:
    """The files, or random vectors if there are none."""
    if not paths:
        yield clusters(n, dim)
    for path in paths:
        yield Dataset.read(path)


def main() -> None:
    """Print tables for every file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--final", action="store_true", help="count on test queries")
    parser.add_argument("--only", choices=("times", "counts"))
    options = parser.parse_args()
    for data in datasets(options.files, options.vectors, options.dim):
        if not isinstance(data, Dataset):
            print_times(data, "l2", options.turns, tuple(options.threads))
            continue
        print(f"\n{data.name}")
        if options.only != "counts":
            base = np.asarray(data.base, np.float32)
            print_times(base, data.metric, options.turns, tuple(options.threads))
        if options.only != "times" and data.learn is not None:
            print_counts(data, data.query if options.final else data.learn[-N_KEPT:])


if __name__ == "__main__":
    main()
