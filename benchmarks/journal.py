"""What it costs to make one change durable: a commit into the journal beside a save.

Random vectors; each row is the median of many changes of one vector, in turns.

    python benchmarks/journal.py
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from l2route.index import RoutingIndex, load


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--changes", type=int, default=40)
    options = parser.parse_args()
    print("| vectors | change in memory, ms | commit | save | load | load with a journal |")
    print("|---|---|---|---|---|---|")
    for n in options.sizes:
        print(row(n, options.dim, options.changes), flush=True)


def row(n: int, dim: int, n_changes: int) -> str:
    """A row of the table: vectors added one by one, committed and saved in turns."""
    rng = np.random.default_rng(0)
    index = RoutingIndex.build(rng.normal(size=(n, dim)).astype(np.float32))
    seconds: dict[str, list[float]] = {"add": [], "commit": [], "save": []}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "index"
        index.save(path)
        index.add(rng.normal(size=(1, dim)))
        index.save()
        for _ in range(n_changes):
            for name in ("commit", "save"):
                vector = rng.normal(size=(1, dim)).astype(np.float32)
                seconds["add"].append(timed(lambda vector=vector: index.add(vector)))
                seconds[name].append(timed(getattr(index, name)))
        plain = timed(lambda: load(path))
        for _ in range(n_changes):
            index.add(rng.normal(size=(1, dim)))
            index.commit()
        journalled = timed(lambda: load(path))
    each = [f"{1e3 * median(seconds[name]):.2f}" for name in ("add", "commit", "save")]
    loads = [f"{1e3 * each:.0f}" for each in (plain, journalled)]
    return f"| {n:,} × {dim} | {' | '.join([*each, *loads])} |"


def timed(work: object) -> float:
    """Seconds that a call takes."""
    assert callable(work)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
