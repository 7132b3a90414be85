"""An index that is searched by some threads while another adds, deletes and replaces vectors.

    python examples/living.py                               # 20,000 words, two threads that search
    python examples/living.py --vectors 100000 --threads 8

A tenth of the vectors is not in the index at first. A writer adds them in batches, deletes as many
others, and saves after each batch: a save writes only what has changed. The vectors are words of
glove.6B.50d (`pip install ".[demo]"`).
"""

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
from numpy.typing import NDArray

import l2route
from l2route.data.public import demo_words

N_BATCHES = 10


def change(index: l2route.RoutingIndex, new: NDArray[np.float32], done: Event) -> None:
    """Add vectors in batches, delete as many others, replace a few; save after each batch."""
    try:
        for batch in np.array_split(new, N_BATCHES):
            added = index.add(batch)
            index.delete(np.sort(index.ids)[: len(batch)])  # the oldest: new ids follow the largest
            index.update(added[:5], batch[:5] + 0.01)
            index.save()
    finally:
        done.set()


def count_answered(index: l2route.RoutingIndex, queries: NDArray[np.float32], done: Event) -> int:
    """Answer queries until the writer is done, and return how many."""
    plan, n = index.plan(k=10, ef=64, n_threads=1), 0
    while n == 0 or not done.is_set():
        plan(queries)
        n += len(queries)
    return n


def main() -> None:
    """Build, search and change at once, load what was saved."""
    parser = argparse.ArgumentParser(description="Search an index while it changes.")
    parser.add_argument("--vectors", type=int, default=20_000, help="vectors to search")
    parser.add_argument("--threads", type=int, default=2, help="threads that search")
    given = parser.parse_args()
    data = demo_words(n_base=given.vectors, n_learn=100, n_query=100).dataset
    n_first = given.vectors - given.vectors // 10
    index = l2route.RoutingIndex.build(data.base[:n_first], data.metric)

    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(given.threads) as pool:
        path, done = Path(directory) / "words.l2r", Event()
        index.save(path)
        searches = [
            pool.submit(count_answered, index, data.query, done) for _ in range(given.threads)
        ]
        change(index, data.base[n_first:], done)
        n_answered = sum(each.result() for each in searches)
        saved = l2route.load(path)
    same = sorted(saved) == sorted(index)
    print(
        f"{given.vectors - n_first:,} of {len(index):,} vectors are new and as many were deleted,"
    )
    print(f"while {given.threads} threads answered {n_answered:,} queries;")
    print(f"what was saved {'has' if same else 'does not have'} the same ids.")


if __name__ == "__main__":
    main()
