"""Queries that arrive one at a time, from several threads, as in a service.

    python examples/one_by_one.py                           # 20,000 words, two threads
    python examples/one_by_one.py --vectors 100000 --threads 8

`index.plan` does once all work that does not depend on the query. Threads share the plan; each
call runs on the thread that makes it and releases the GIL. The vectors are words of glove.6B.50d
(`pip install ".[demo]"`).
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.public import demo_words
from l2route.search.searcher import Plan


def microseconds(plan: Plan, queries: NDArray[np.float32]) -> list[float]:
    """Time of each query [n_queries]."""
    times = []
    for query in queries:
        start = time.perf_counter()
        plan(query)
        times.append(1e6 * (time.perf_counter() - start))
    return times


def main() -> None:
    """Build, prepare a search, answer queries, print latencies."""
    parser = argparse.ArgumentParser(description="Latency of single queries.")
    parser.add_argument("--vectors", type=int, default=20_000, help="vectors to search")
    parser.add_argument("--threads", type=int, default=2, help="threads that search")
    given = parser.parse_args()
    data = demo_words(n_base=given.vectors, n_learn=2000, n_query=4000).dataset

    index = RoutingIndex.build(data.base)
    index.validate_with(data.learn)  # queries to measure settings on
    index.renumber()
    index.compress("int8", vectors="float16")
    plan = index.plan(k=10, recall=0.95, n_threads=1)

    parts = np.array_split(data.query, given.threads)
    with ThreadPoolExecutor(given.threads) as pool:
        times = np.concatenate(list(pool.map(lambda part: microseconds(plan, part), parts)))
    half, most = np.percentile(times, [50, 99])
    print(
        f"{len(times):,} queries by {given.threads} threads: "
        f"median {half:.0f} µs, 99th percentile {most:.0f} µs"
    )


if __name__ == "__main__":
    main()
