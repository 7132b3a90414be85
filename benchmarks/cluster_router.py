"""Shards asked and vectors scored at a recall: learned router, centroids, and all shards.

    python benchmarks/cluster_router.py glove --shards 8 --out out/glove8
    python benchmarks/cluster_router.py synthetic --shards 4 --out out/synthetic4

The index is kept in --out, so that a second run only measures. Every choice is made on validation
queries cut from the log; the rows of the table are of test queries. Printed first: whether all
shards, searched exhaustively, answer what one index over all vectors answers. Printed last: recall
by shards asked, for one number of shards by centroids, and for thresholds of both routers.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.cluster.manifest import Point
from l2route.cluster.operating import Trial, find_point, inner_recalls, recall_of
from l2route.cluster.router import Router, chosen_by
from l2route.cluster.sharded import ShardedIndex
from l2route.data.public import demo_words
from l2route.data.truth import exact_neighbors

Floats = NDArray[np.float32]
K = 10
SYNTHETIC = (1_000_000, 50_000, 2_000, 64)
"""Vectors, queries of the log, test queries, dimensions."""


def read_data(name: str, n_words: int = 380_000) -> tuple[Floats, Floats, Floats]:
    """Vectors, query log and test queries; of words as many as asked for."""
    if name == "glove":
        data = demo_words(n_words, 15_000, 2_000).dataset
        return data.base, data.learn, data.query
    n_base, n_log, n_query, dim = SYNTHETIC
    rng = np.random.default_rng(0)
    inner, outer = rng.normal(size=(12, 48)) / 3, rng.normal(size=(48, dim))
    parts = []
    for size in (n_base, n_log, n_query):
        hidden = np.tanh(rng.normal(size=(size, 12)) @ inner)
        parts.append((hidden @ outer + 0.3 * rng.normal(size=(size, dim))).astype(np.float32))
    return parts[0], parts[1], parts[2]


class Judge:
    """What choices of shards find for test queries, at one recall within shards."""

    def __init__(self, index: ShardedIndex, queries: Floats, truth: NDArray[np.int64]) -> None:
        self.index, self.queries, self.truth = index, queries, truth
        self._trials: dict[float, Trial] = {}

    def trial(self, inner: float) -> Trial:
        """The test queries answered by all shards."""
        if inner not in self._trials:
            self._trials[inner] = Trial.of(inner, self.index._ask_all(self.queries, K, inner))
        return self._trials[inner]

    def row(
        self, name: str, chosen: NDArray[np.bool_], inner: float, cost: float
    ) -> dict[str, object]:
        """Recall, shards asked and distance computations of a choice."""
        trial = self.trial(inner)
        return {
            "method": name,
            "inner": inner,
            "recall": round(recall_of(trial.found(chosen), self.truth), 4),
            "shards": round(float(chosen.sum(axis=1).mean()), 3),
            "scored": round(trial.cost(chosen) + cost),
        }


def fixed_number(index: ShardedIndex, kind: str, recall: float) -> Point:
    """The fewest shards, the same number for every query, that reach a recall on validation."""
    assert index.validation is not None
    queries, truth = index.validation
    best: Point | None = None
    for inner in inner_recalls(recall):
        trial = Trial.of(inner, index._ask_all(queries, K, inner))
        for n in range(1, index.n_shards + 1):
            chosen = index.router.nearest(queries, n, kind)  # type: ignore[arg-type]
            found = recall_of(trial.found(chosen), truth[:, :K])
            cost = trial.cost(chosen)
            if found >= recall:
                if best is None or cost < best.n_computed:
                    best = Point(K, recall, "centroids", 0.0, inner, found, float(n), cost)
                break
    assert best is not None
    return best


def same_as_one_index(index: ShardedIndex, base: Floats, queries: Floats) -> dict[str, object]:
    """Answers of all shards beside those of one index of like codes, both without a limit."""
    one = RoutingIndex.build(base, degree=16, ef_construction=60)
    one.compress("int8", vectors="float16")
    whole = one.search(queries, K, ef=len(base), rerank=len(base))
    parts = index.search(queries, K, ef=len(base), rerank=len(base))
    return {
        "queries": len(queries),
        "coverage": parts.coverage,
        "equal": bool((whole.ids == parts.ids).all()),
        "equal ids": float((whole.ids == parts.ids).mean()),
    }


def curves(judge: Judge, routers: dict[str, Router], inner: float) -> Iterator[dict[str, object]]:
    """Recall and cost by the number of shards asked: one number, then thresholds."""
    queries, n_shards = judge.queries, judge.index.n_shards
    for n in range(1, n_shards + 1):
        yield judge.row("centroids, one number", routers["centroids"].nearest(queries, n), inner, 0)
    for name, router in routers.items():
        scores = router.scores(queries)
        for share in np.linspace(1.25, n_shards, 4 * n_shards - 4) / n_shards:
            chosen = chosen_by(scores, float(np.quantile(scores, 1 - share)))
            yield judge.row(f"{name}, threshold", chosen, inner, 0)


def main() -> None:
    """Build or open the index, and print a row for each method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=["glove", "synthetic"])
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--words", type=int, default=380_000)
    parser.add_argument("--recall", type=float, default=0.95)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    base, log, queries = read_data(given.data, given.words)
    began = time.perf_counter()
    index = ShardedIndex.build(
        base, given.out, n_shards=given.shards, queries=log, minutes=given.minutes, cpus=2
    )
    print(
        f"{given.data}: {base.shape}, {given.shards} shards, {len(log):,} logged queries; "
        f"opened after {time.perf_counter() - began:.0f} s"
    )
    print(json.dumps(index.info()["build"]))
    truth = exact_neighbors(base, queries, K, cache=given.out.parent).ids
    print(json.dumps(same_as_one_index(index, base, queries[:100])), flush=True)
    judge = Judge(index, queries, truth)
    everything = np.ones((len(queries), index.n_shards), dtype=bool)
    rows = [judge.row("all shards", everything, inner, 0.0) for inner in (given.recall, 0.99)]
    plain = Router(index.router.partition)
    cells = plain.cost("centroids")
    fixed = fixed_number(index, "centroids", given.recall)
    chosen = plain.nearest(queries, int(fixed.n_asked))
    rows.append(judge.row(f"centroids, {fixed.n_asked:g} shards", chosen, fixed.inner, cells))
    assert index.validation is not None
    for router in (plain, index.router):
        point = find_point(router, *index.validation, index._ask_all, K, given.recall)
        chosen = chosen_by(router.scores(queries), point.threshold)
        name = f"{router.kind}, as the query needs"
        rows.append(judge.row(name, chosen, point.inner, router.cost(router.kind)))
    for row in rows:
        print(json.dumps(row))
    routers = {"centroids": plain, index.router.kind: index.router}
    for row in curves(judge, routers, 0.99):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
