"""From vectors and a query log to an index that is served at a recall.

    python examples/serve.py                                # 20,000 words, a minute of learning
    python examples/serve.py --vectors 100000 --minutes 3

The vectors are words of glove.6B.50d (`pip install ".[demo,train]"`). Test queries are words that
the index has neither stored nor learned from.
"""

import argparse
import tempfile
import time
from pathlib import Path

import l2route
from l2route.data.metrics import recall_at
from l2route.data.public import demo_words
from l2route.data.truth import exact_distances, exact_neighbors

K = 10
RECALL = 0.95


def main() -> None:
    """Build, save, load, search, measure."""
    parser = argparse.ArgumentParser(description="Build an index and serve it at a recall.")
    parser.add_argument("--vectors", type=int, default=20_000, help="vectors to search")
    parser.add_argument("--minutes", type=float, default=1.0, help="time limit of learning")
    given = parser.parse_args()
    data = demo_words(n_base=given.vectors, n_learn=given.vectors, n_query=2000).dataset

    index, report = l2route.build(data.base, data.learn, k=K, recall=RECALL, minutes=given.minutes)
    print(report)

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "words.l2r"
        index.save(path)
        served = l2route.load(path, mmap=True)  # as another process would, without torch
        served.search(data.query[:100], k=K, recall=RECALL, n_threads=1)  # warms the caches
        start = time.perf_counter()
        result = served.search(data.query, k=K, recall=RECALL, n_threads=1)
        seconds = time.perf_counter() - start
        truth = exact_neighbors(data.base, data.query, K, data.metric)
        # Its own distances are those of vectors rounded to half floats.
        distances = exact_distances(data.base, data.query, result.ids, data.metric)
        recall = recall_at(distances, truth.distances, K)
    print(
        f"{len(data.query):,} test queries: recall@{K} {recall:.3f}, "
        f"{len(data.query) / seconds:,.0f} queries per second on one thread, "
        f"{served.n_bytes / len(served):,.0f} bytes per vector"
    )


if __name__ == "__main__":
    main()
