"""Time to build, learn and search, and memory, for growing numbers of vectors.

    python benchmarks/scale.py                                     # 10K and 100K vectors
    python benchmarks/scale.py --vertices 10000 100000 1000000
    python benchmarks/scale.py --words --vertices 10000 100000 380000   # glove.6B.50d

Synthetic vectors near a curved surface of 16 dimensions, or words. Ours: NSW of degree 32, refined,
int8 codes, original vectors as float16; hnswlib: M=16, efConstruction=200. Built on --threads
threads, searched on one, in turns, each at the setting that reaches recall@10 of 0.95 on validation
queries; the recall shown is that of test queries. The target of learning is a recall@10 of 0.9;
--minutes 0 omits it. Every size is measured in a process of its own; the peak is that of its memory
before hnswlib is built.
"""

import argparse
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from growth import synthetic
from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.data.metrics import N_ANSWERS
from l2route.data.public import demo_words
from l2route.evaluation.compare.methods import SERVED_RECALL, served_graph
from l2route.evaluation.compare.peers import Hnswlib
from l2route.evaluation.judge import Judge
from l2route.search.validation import N_KEPT
from measuring import peak_mb, print_table, timed

TARGET = 0.95
MAX_EF = 2000
N_QUERIES = 5_000
"""Test queries."""
N_LEARN = 10_000
"""Training queries; base vectors are used as training queries too."""
HEADINGS = (
    "vectors",
    "index",
    "build s",
    "learn s",
    "recall@10",
    "scored",
    "q/s",
    "to hnswlib",
    "bytes per vector",
    "peak MB",
)


@dataclass(slots=True)
class Entrant:
    """An index that is searched at the target recall, on one thread."""

    name: str
    build_seconds: float
    learn_seconds: float
    n_bytes: int
    search: Callable[[NDArray[np.float32]], NDArray[np.int64]]
    n_scored: float | None
    seconds: list[float] = field(default_factory=list)


def dataset(n: int, arguments: argparse.Namespace) -> Dataset:
    """Base, training and test vectors."""
    if arguments.words:
        return demo_words(n, N_LEARN, N_QUERIES).dataset
    base, learn, query = (
        synthetic(rows, arguments.dim, seed)
        for seed, rows in enumerate((n, N_LEARN, N_QUERIES), start=1)
    )
    return Dataset("synthetic", base, query, learn)


def ours(data: Dataset, arguments: argparse.Namespace) -> Iterator[Entrant]:
    """Our index with codes of the original vectors, then with codes of learned vectors."""
    build_seconds, built = timed(lambda: served_graph(data, n_threads=arguments.threads))
    plain = RoutingIndex(built.base, built.graph)
    plain.validate_with(data.training[-N_KEPT:])
    yield served("int8", plain, build_seconds, 0.0)
    if arguments.minutes == 0:
        return
    learn_seconds, report = timed(
        lambda: built.learn(
            data.training,
            minutes=arguments.minutes,
            k=N_ANSWERS,
            recall=SERVED_RECALL,
            n_threads=arguments.threads,
        )
    )
    name = "learned int8" if report.is_better else "learned int8, nothing kept"
    yield served(name, built, build_seconds, learn_seconds)


def served(name: str, index: RoutingIndex, build_seconds: float, learn_seconds: float) -> Entrant:
    """A calibrated index with codes."""
    index.renumber()
    index.compress("int8", vectors="float16")
    index.setting(TARGET, N_ANSWERS)

    def search(queries: NDArray[np.float32]) -> NDArray[np.int64]:
        return index.search(queries, N_ANSWERS, recall=TARGET, n_threads=1).ids

    assert index.validation is not None
    found = index.search(index.validation.queries, N_ANSWERS, recall=TARGET)
    n_scored = float(found.n_routing.mean())
    return Entrant(name, build_seconds, learn_seconds, index.n_bytes, search, n_scored)


def theirs(data: Dataset, arguments: argparse.Namespace) -> Entrant:
    """Hnswlib at the smallest ef that reaches the recall on validation queries."""
    peer = Hnswlib(32, 200, n_threads=arguments.threads)
    seconds, _ = timed(lambda: peer.build(data))

    def search(queries: NDArray[np.float32]) -> NDArray[np.int64]:
        return peer.search(queries, N_ANSWERS)

    kept = replace(data, query=data.training[-N_KEPT:])
    judge = Judge(kept, N_ANSWERS)

    def recall_with(ef: int) -> float:
        peer.set(ef)
        return judge.recall(search(kept.query))

    peer.set(bisect_left(range(MAX_EF), TARGET, lo=N_ANSWERS, key=recall_with))
    n_bytes = peer.n_bytes()
    assert n_bytes is not None
    return Entrant("hnswlib", seconds, 0.0, n_bytes, search, None)


def rows(n: int, arguments: argparse.Namespace) -> list[list[str]]:
    """Measure one size."""
    data = dataset(n, arguments)
    entrants = [*ours(data, arguments)]
    peak = peak_mb()
    entrants.append(theirs(data, arguments))
    judge = Judge(data, N_ANSWERS)
    for _ in range(arguments.rounds):
        for one in entrants:
            one.seconds.append(timed(partial(one.search, data.query))[0])
    result = []
    for one in entrants:
        pairs = zip(entrants[-1].seconds, one.seconds, strict=True)
        ratio = statistics.median(other / own for other, own in pairs)
        result.append(
            [
                f"{n:,}",
                one.name,
                f"{one.build_seconds:.0f}",
                f"{one.learn_seconds:.0f}",
                f"{judge.recall(one.search(data.query)):.4f}",
                "–" if one.n_scored is None else f"{one.n_scored:,.0f}",
                f"{N_QUERIES / min(one.seconds):,.0f}",
                f"{ratio:.2f}",
                f"{one.n_bytes / n:.0f}",
                f"{peak:,.0f}",
            ]
        )
    return result


def main() -> None:
    """Print a Markdown table, size by size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vertices", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    print_table(HEADINGS, rows, ((n, arguments) for n in arguments.vertices))


if __name__ == "__main__":
    main()
