"""Vertices scored at equal recall: by beam width, by slack and by a learned rule.

    python benchmarks/stopping.py glove100.npz …            # arrays `base` and `learn`
    python benchmarks/stopping.py --learned glove100.npz …  # and `query`

Without --learned: the cheapest beam width and the cheapest slack that reach each recall@10, each
with its rerank, on 2,000 training queries. Nothing is learned, and test queries are not used. NSW
of degree 32, efConstruction 300, entered at 32 medoids, built by one thread: the counts are the
same on every run.

With --learned: settings by beam width, by slack and by a learned rule, all chosen on the last 2,000
training queries, the rule learned from 8,000 of the others (seed 0), and all measured on the test
queries: what they score, and how recall is spread over queries. Default graph, codes of a byte,
reranked by half floats. Times are CPU times of one thread, best of three in turns: compare them
only with each other.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route import RoutingIndex
from l2route.data.dataset import Dataset
from l2route.data.metrics import RecallSpread, recall_per_query
from l2route.data.truth import exact_neighbors
from l2route.search.base import BaseVectors
from l2route.search.calibrate import calibrate, cheapest_beam, cheapest_slack
from l2route.search.codes import COMPRESSIONS
from l2route.search.guarantee import Goal
from l2route.search.result import SearchResult
from l2route.search.ruled import cheapest_rule
from l2route.search.searcher import Plan, Searcher
from l2route.search.setting import Setting
from l2route.search.stopping import StoppingRule, learn_rule
from l2route.search.validation import N_KEPT, Validation

TARGETS = (0.90, 0.95, 0.99)
P95_TARGETS = (0.8, 0.9)
K = 10
N_TIMED, N_SINGLE, N_ROUNDS = 2000, 500, 3


def read_files(paths: list[Path]) -> Iterator[tuple[Dataset, BaseVectors, Validation]]:
    """Dataset, base vectors and validation queries of each file."""
    for path in paths:
        data = Dataset.read(path)
        if data.learn is None:
            raise ValueError(f"{path}: expected training queries (learn), got none")
        base = BaseVectors.of(data.base, data.metric)
        yield data, base, Validation.of(base, data.learn[-N_KEPT:])


def search_with(searcher: Searcher, validation: Validation, setting: Setting) -> SearchResult:
    """Search the validation queries with a setting."""
    return searcher.search(validation.queries, setting.k, limits=setting.limits)


def cost_of(searcher: Searcher, validation: Validation, setting: Setting | None) -> str:
    """Vertices scored and reranked per query with a setting, as text."""
    if setting is None:
        return "out of reach"
    found = search_with(searcher, validation, setting)
    return f"{found.n_routing.mean():,.0f} + {setting.rerank}"


def compare_limits(data: Dataset, base: BaseVectors, validation: Validation) -> None:
    """Print what beam widths and slacks take, by element type."""
    built = RoutingIndex.build(data.base, data.metric, graph="nsw", refine=False)
    print(f"\n{data.name}: scored + reranked per query")
    print("| routing vectors | recall@10 | by beam | by slack |\n|---|---|---|---|")
    for compression in (None, *COMPRESSIONS[::-1]):
        index = RoutingIndex(base, built.graph)
        if compression is not None:
            index.compress(compression)
        searcher = index.searcher()
        for target in TARGETS:
            beam, slack = (
                cost_of(searcher, validation, choose(searcher, validation, K, target))
                for choose in (cheapest_beam, cheapest_slack)
            )
            name = compression or str(np.dtype(np.float32))
            print(f"| {name} | {target:.2f} | {beam} | {slack} |", flush=True)


def settings_of(
    searcher: Searcher, validation: Validation, rule: StoppingRule
) -> Iterator[tuple[str, str, Setting]]:
    """What to measure: the goal, what ends walks, and the setting."""
    for target in TARGETS:
        goal = Goal(target, "mean", target)
        slack = cheapest_slack(searcher, validation, K, target)
        ways = {"beam": cheapest_beam(searcher, validation, K, target), "slack": slack}
        if slack is not None:
            ruled = cheapest_rule(searcher, validation, slack, rule, goal)
            ways["rule"] = None if ruled is None else ruled[0]
        yield from ((f"mean {target:.2f}", way, each) for way, each in ways.items() if each)
    for target in P95_TARGETS:
        goal = Goal.of(target, "p95", len(validation.queries))
        plain, _ = calibrate(searcher, validation, K, target, guarantee="p95")
        yield f"p95 {target:.2f}", "slack" if plain.ef is None else "beam", plain
        ruled = cheapest_rule(searcher, validation, plain, rule, goal)
        if ruled is not None:
            yield f"p95 {target:.2f}", "rule", ruled[0]


def plan_of(searcher: Searcher, setting: Setting, rule: StoppingRule) -> Plan:
    """A search by a setting, by one thread."""
    core = rule.core_of(setting.threshold, setting.power, setting.first_level)
    return searcher.plan(K, limits=setting.limits, n_threads=1, rule=core)


def timed(plans: list[Plan], call: Callable[[Plan], object], n_queries: int) -> list[float]:
    """Microseconds of CPU time per query of each plan, best of several rounds in turns."""
    best = [np.inf] * len(plans)
    for _ in range(N_ROUNDS):
        for i, plan in enumerate(plans):
            begin = time.process_time()
            call(plan)
            best[i] = min(best[i], (time.process_time() - begin) / n_queries * 1e6)
    return best


def compare_rule(data: Dataset, validation: Validation) -> None:
    """Print what a learned rule takes, and how recall is spread over test queries."""
    assert data.learn is not None
    index = RoutingIndex.build(data.base, data.metric)
    truth = exact_neighbors(index.base.vectors(), data.query, K, data.metric)  # before rounding
    nearest, vectors = truth.distances, index.base
    index.compress("int8", vectors="float16")
    searcher = index.searcher()
    begin = time.perf_counter()
    rule = learn_rule(searcher, data.learn[:-N_KEPT], K)
    print(f"\n{data.name}: rule learned in {time.perf_counter() - begin:.0f} s", flush=True)
    chosen = list(settings_of(searcher, validation, rule))
    plans = [plan_of(searcher, setting, rule) for _, _, setting in chosen]
    queries: NDArray[np.float32] = np.ascontiguousarray(data.query, dtype=np.float32)
    batch = timed(plans, lambda plan: plan(queries[:N_TIMED]), N_TIMED)
    single = timed(plans, lambda plan: [plan(query) for query in queries[:N_SINGLE]], N_SINGLE)
    heads = "goal | by | scored | recall@10 | worst 5% | below 0.8 | reach | µs batch | µs single"
    print(f"| {heads} |\n|{'---|' * 9}")
    for (goal, way, setting), plan, *times in zip(chosen, plans, batch, single, strict=True):
        found = plan(queries)
        recalls = recall_per_query(vectors.exact_distances(queries, found.ids), nearest, K)
        spread, reach = RecallSpread.of(recalls), (recalls >= setting.target - 1e-9).mean()
        print(
            f"| {goal} | {way} | {found.n_routing.mean():,.0f} | {spread.mean:.4f} | "
            f"{spread.worst:.3f} | {spread.share_low:.2%} | {reach:.2%} | {times[0]:.1f} | "
            f"{times[1]:.1f} |",
            flush=True,
        )


def main() -> None:
    """Print a table for every file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--learned", action="store_true", help="measure a learned rule")
    options = parser.parse_args()
    for data, base, validation in read_files(options.files):
        if options.learned:
            compare_rule(data, validation)
        else:
            compare_limits(data, base, validation)


if __name__ == "__main__":
    main()
