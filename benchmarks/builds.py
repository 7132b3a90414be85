"""Microseconds per query of several builds of the package, each installed for an interpreter.

    python benchmarks/builds.py FILE.npz gcc=.venv/bin/python zig=ENVIRONMENT/bin/python …

Every build runs in a process of its own, over one index, which the first one builds: float32 and
int8 routing vectors. The processes take turns, and the fastest round of every block of 500 queries
counts. One thread, whose CPU time is measured, so that it matters less what else runs; queries in
batches and one by one. Ratios are to the first build.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import l2route
from l2route.state.plan import IndexPlan

BLOCK, K, EF = 500, 10, 48
KINDS = ("float32", "int8")


def save_indexes(base: NDArray[np.float32], directory: Path) -> None:
    """Save an index of each kind."""
    index = l2route.RoutingIndex.build(base)
    index.save(directory / "float32")
    index.compress("int8")
    index.save(directory / "int8")


def spent(plan: IndexPlan, queries: NDArray[np.float32], alone: bool) -> list[float]:
    """Seconds for every block of queries, as batches or one by one."""
    times = []
    for begin in range(0, len(queries), BLOCK):
        block = queries[begin : begin + BLOCK]
        start = time.thread_time()
        for query in block if alone else [block]:
            plan(query)
        times.append(time.thread_time() - start)
    return times


def work(directory: Path, queries: NDArray[np.float32]) -> None:
    """Answer each line on the standard input with the times of a round."""
    plans = {kind: l2route.load(directory / kind).plan(K, ef=EF, n_threads=1) for kind in KINDS}
    for _ in sys.stdin:
        times = {
            f"{kind}, {'one by one' if alone else 'batch'}": spent(plan, queries, alone)
            for kind, plan in plans.items()
            for alone in (False, True)
        }
        print(json.dumps(times), flush=True)


def start(command: list[str]) -> "subprocess.Popen[str]":
    """Start a worker, with pipes to it and from it."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def ask(worker: "subprocess.Popen[str]") -> dict[str, list[float]]:
    """The times of another round."""
    if worker.stdin is None or worker.stdout is None:
        raise ValueError("expected a worker with pipes")
    print("go", file=worker.stdin, flush=True)
    times: dict[str, list[float]] = json.loads(worker.stdout.readline())
    return times


def main() -> None:
    """Print a table of times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="arrays `base` and `query`")
    parser.add_argument("builds", nargs="+", help="NAME=INTERPRETER; a directory in a worker")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--worker", action="store_true")
    given = parser.parse_args()
    arrays = np.load(given.data)
    queries = np.ascontiguousarray(arrays["query"], "f4")
    if given.worker:
        work(Path(given.builds[0]), queries)
        return
    pythons = dict(each.split("=", 1) for each in given.builds)
    with tempfile.TemporaryDirectory() as directory:
        save_indexes(arrays["base"], Path(directory))
        command = [__file__, str(given.data), directory, "--worker"]
        workers = {name: start([python, *command]) for name, python in pythons.items()}
        best = {name: ask(worker) for name, worker in workers.items()}
        for _ in range(given.rounds - 1):
            for name, worker in workers.items():
                for kind, times in ask(worker).items():
                    best[name][kind] = list(map(min, best[name][kind], times))
        for worker in workers.values():
            worker.communicate()
    report(best, len(queries))


def report(best: dict[str, dict[str, list[float]]], n_queries: int) -> None:
    """Print microseconds per query, and ratios to the first build."""
    first, *_ = best
    print(f"| µs per query | {' | '.join(best)} |\n|---|{'---|' * len(best)}")
    for kind in best[first]:
        sums = {name: 1e6 * sum(times[kind]) / n_queries for name, times in best.items()}
        cells = [f"{each:.1f} ({each / sums[first]:.3f})" for each in sums.values()]
        print(f"| {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
