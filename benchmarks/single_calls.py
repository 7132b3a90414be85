"""Microseconds per query, one by one and in batches: l2route, hnswlib, faiss and usearch.

    python benchmarks/single_calls.py sift.npz …     # arrays `base`, `learn` and `query`

l2route routes by int8 codes and is calibrated on the first 2,000 training queries; the others use
the narrowest beam that reaches the same recall@10 on the test queries. Queries are searched in
blocks of 500, as one batch or one by one. All methods take turns, and the fastest round of every
block counts, which reduces the effect of other processes. With one thread, and with all cores.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from l2route.data.dataset import Dataset
from l2route.data.metrics import N_ANSWERS
from l2route.data.vectors import normalize
from l2route.evaluation.compare.methods import served_graph
from l2route.evaluation.compare.peers import FaissHnsw, Hnswlib, Usearch
from l2route.evaluation.compare.protocol import Method
from l2route.evaluation.judge import Judge
from l2route.index import RoutingIndex
from l2route.search.validation import N_KEPT

BLOCK = 500
Ask = Callable[[NDArray[np.float32]], object]
"""Searches for a batch [n, d] or one query [d]."""


def serve(data: Dataset) -> RoutingIndex:
    """Our index: refined, renumbered, with codes."""
    index = served_graph(data)
    index.validate_with(data.training[:N_KEPT])
    index.renumber()
    index.compress("int8", vectors="float16")
    return index


def ask_ours(index: RoutingIndex, recall: float, n_threads: int) -> dict[str, Ask]:
    """Ours by a plan, and by `search` with all arguments every time."""
    plan = index.plan(N_ANSWERS, recall=recall, n_threads=n_threads)
    return {
        "l2route, plan": plan,
        "l2route, search": lambda queries: index.search(
            queries, N_ANSWERS, recall=recall, n_threads=n_threads
        ),
    }


def ask_peers(peers: dict[str, Any], n_threads: int) -> dict[str, Ask]:
    """The other libraries, called directly."""
    hnsw, flat, usearch = (peers[name].index for name in ("hnswlib", "faiss", "usearch"))
    hnsw_threads = n_threads or -1
    faiss.omp_set_num_threads(n_threads or faiss.omp_get_max_threads())
    return {
        "hnswlib": lambda queries: hnsw.knn_query(queries, N_ANSWERS, num_threads=hnsw_threads),
        "faiss": lambda queries: flat.search(np.atleast_2d(queries), N_ANSWERS),
        "usearch": lambda queries: usearch.search(queries, N_ANSWERS, threads=n_threads),
    }


def narrowest(peer: Method, judge: Judge, recall: float) -> float:
    """Set the narrowest beam that reaches a recall, and return the recall reached."""
    reached = 0.0
    for knob in peer.knobs:
        peer.set(knob)
        reached = judge.recall(peer.search(judge.data.query, N_ANSWERS))
        if reached >= recall:
            break
    return reached


def blocks(queries: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Queries in blocks."""
    for begin in range(0, len(queries), BLOCK):
        yield queries[begin : begin + BLOCK]


def spent(ask: Ask, block: NDArray[np.float32], one_by_one: bool) -> float:
    """Seconds for a block."""
    begin = time.perf_counter()
    for queries in block if one_by_one else [block]:
        ask(queries)
    return time.perf_counter() - begin


def measure(
    asks: dict[str, Ask], queries: NDArray[np.float32], n_rounds: int
) -> dict[str, dict[bool, float]]:
    """Microseconds per query by method, one by one (True) and in batches (False)."""
    every = list(blocks(queries))
    best = {name: {alone: [np.inf] * len(every) for alone in (False, True)} for name in asks}
    for _ in range(n_rounds):
        for name, ask in asks.items():
            for alone, times in best[name].items():
                for i, block in enumerate(every):  # all blocks, so that none is still cached
                    times[i] = min(times[i], spent(ask, block, alone))
    return {
        name: {alone: 1e6 * sum(times) / len(queries) for alone, times in kinds.items()}
        for name, kinds in best.items()
    }


def main() -> None:
    """Print a table for every file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--recall", type=float, default=0.95)
    options = parser.parse_args()
    for path in options.files:
        data = Dataset.read(path)
        judge = Judge(data, N_ANSWERS)
        index = serve(data)
        found = index.search(data.query, N_ANSWERS, recall=options.recall).ids
        recalls = dict.fromkeys(("l2route, plan", "l2route, search"), judge.recall(found))
        peers: dict[str, Any] = {
            "hnswlib": Hnswlib(),
            "faiss": FaissHnsw(),
            "usearch": Usearch(),
        }
        for name, peer in peers.items():
            peer.build(data)
            recalls[name] = narrowest(peer, judge, recalls["l2route, plan"])
        queries = normalize(data.query) if data.metric == "cosine" else data.query
        print(f"\n{data.name}, µs per query")
        print("| | threads | recall@10 | batch | one by one | more |\n|---|---|---|---|---|---|")
        for n_threads in (1, 0):
            asks = ask_ours(index, options.recall, n_threads) | ask_peers(peers, n_threads)
            for name, times in measure(asks, queries, options.rounds).items():
                more = f"{times[True] - times[False]:.1f}"
                figures = (
                    f"{recalls[name]:.4f}",
                    f"{times[False]:.1f}",
                    f"{times[True]:.1f}",
                    more,
                )
                print(f"| {name} | {n_threads or 'all'} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
