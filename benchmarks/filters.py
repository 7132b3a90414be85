"""Searches under filters: recall@10 and queries per second beside hnswlib and faiss.

    python benchmarks/filters.py FILE.npz …              # arrays `base`, `learn` and `query`
    python benchmarks/filters.py --cache DIR FILE.npz …  # keeps indexes for the next run
    python benchmarks/filters.py --costs FILE.npz …      # ns per vector scored in scans and walks
    python benchmarks/filters.py --bound FILE.npz …      # time, as a multiple of the exact scan

0.1, 1, 10, 50 and 90% of the vectors pass: at random, or by cluster, where k-means clusters are
added from the nearest to the query (near) or from the farthest (far) until the share is reached.
Filters of clusters are made for each of a few groups of queries. l2route routes by int8 codes with
`recall=0.95`, calibrated on the first training queries; the others use the narrowest beam that
reaches 0.95 on other training queries. The figures are of test queries, one thread, in CPU time,
which other processes disturb less than the clock. All methods take turns, and the fastest round
counts. The ratio is to the fastest peer whose recall is at least 0.94. usearch is left out: its
Python package has no filter.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faiss
import hnswlib
import numpy as np
from numpy.typing import NDArray

from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_at
from l2route.data.truth import exact_neighbors
from l2route.evaluation.compare.methods import served_graph
from l2route.index import RoutingIndex, load
from l2route.search.limits import Limits
from l2route.search.searcher import Way

K, RECALL = 10, 0.95
SHARES = (0.001, 0.01, 0.1, 0.5, 0.9)
BOUND_SHARES = (0.0002, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99)
KINDS = ("random", "near", "far")
BEAMS = (10, 20, 40, 80, 160, 320, 640, 1280, 2560)
N_CLUSTERS, N_GROUPS = 256, 4
N_TUNING, N_SLOW = 25, 5
"""Queries of each group to find a beam on, and to time methods on that take milliseconds."""
SLOW, TOO_SLOW = 0.002, 0.01
"""Seconds per query from which a method is slow, and from which its beam is not made wider."""
SHORTEST = 0.02
"""Searches of a group are repeated for so many seconds, and the fastest counts."""
Vectors = NDArray[np.float32]
Clusters = tuple[Vectors, NDArray[np.int64]]
"""Means of k-means clusters, and the cluster of every base vector."""
Ask = Callable[[Vectors], Any]
"""Finds the K nearest to queries [n, dim]: their ids."""


@dataclass(frozen=True)
class Group:
    """Queries with one filter, and the distances of their true neighbours."""

    queries: Vectors
    passes: NDArray[np.bool_]
    nearest: NDArray[np.float32]
    data: Dataset

    def first(self, n: int) -> "Group":
        """The first n queries."""
        return replace(self, queries=self.queries[:n], nearest=self.nearest[:n])

    def recall(self, ids: NDArray[np.int64]) -> float:
        """Recall@10 of answers."""
        found = self.data.base[np.maximum(ids, 0)] - self.queries[:, None]
        distances = (found.astype(np.float64) ** 2).sum(axis=2)
        return recall_at(np.where(ids < 0, np.inf, distances), self.nearest, K)


def groups_of(
    data: Dataset,
    clusters: Clusters,
    queries: Vectors,
    kind: str,
    share: float,
    n_each: int,
    seed: int,
) -> Iterator[Group]:
    """Groups of queries, each with a filter of its own."""
    rng = np.random.default_rng(seed)
    for _ in range(N_GROUPS):
        if kind == "random":
            passes = rng.random(len(data.base)) < share
            members = rng.choice(len(queries), n_each, replace=False)
        else:
            centre = queries[rng.integers(len(queries))]
            passes = by_cluster(*clusters, centre, share, is_far=kind == "far")
            members = np.argsort(((queries - centre) ** 2).sum(axis=1))[:n_each]
        chosen, rows = np.ascontiguousarray(queries[members]), np.flatnonzero(passes)
        truth = exact_neighbors(data.base[rows], chosen, K, data.metric)
        yield Group(chosen, passes, truth.distances, data)


def clusters_of(data: Dataset) -> Clusters:
    """Find clusters by k-means."""
    kmeans = faiss.Kmeans(data.base.shape[1], N_CLUSTERS, niter=8, seed=0)
    kmeans.train(data.base)
    return kmeans.centroids, kmeans.index.search(data.base, 1)[1][:, 0]


def by_cluster(
    means: Vectors, clusters: NDArray[np.int64], centre: Vectors, share: float, is_far: bool
) -> NDArray[np.bool_]:
    """Vectors of whole clusters, from the nearest or the farthest, until a share passes."""
    order = np.argsort(((means - centre) ** 2).sum(axis=1))
    place = np.argsort(order)[clusters]  # of each vector's cluster
    ranks = np.argsort(np.argsort(-place if is_far else place, kind="stable"))
    return np.asarray(ranks < share * len(clusters))


class Ours:
    """l2route with `recall=0.95`."""

    def __init__(self, data: Dataset, cache: Path) -> None:
        path = cache / f"{data.name}.l2r"
        if not path.exists():
            index = served_graph(data)
            index.renumber()
            index.compress("int8")
            index.validate_with(data.training[:1000])
            index.save(path)
        self.index: RoutingIndex = load(path)

    def ask(self, passes: NDArray[np.bool_], _: int) -> Ask:
        """A plan under a filter."""
        mask = passes if self.index.labels is None else passes[self.index.labels]
        where = self.index.filter(mask)
        plan = self.index.plan(K, recall=RECALL, where=where, n_threads=1)
        return lambda queries: plan(queries).ids


class Hnswlib:
    """hnswlib with a Python callable, the only filter that it has."""

    def __init__(self, data: Dataset, cache: Path) -> None:
        path = cache / f"{data.name}.hnswlib"
        self.index = hnswlib.Index(data.metric, data.base.shape[1])
        if path.exists():
            self.index.load_index(str(path))
        else:
            self.index.init_index(len(data.base), M=16, ef_construction=200, random_seed=0)
            self.index.add_items(data.base)
            self.index.save_index(str(path))
        self.index.set_num_threads(1)

    def ask(self, passes: NDArray[np.bool_], knob: int) -> Ask:
        """A search with a beam width; raises where fewer than K are found."""
        listed = passes.tolist()

        def search(queries: Vectors) -> NDArray[np.int64]:
            self.index.set_ef(knob)
            try:
                found = self.index.knn_query(queries, K, filter=listed.__getitem__)[0]
            except RuntimeError:  # fewer than K found
                return np.full((len(queries), K), -1, dtype=np.int64)
            return np.asarray(found, dtype=np.int64)

        return search


class FaissHnsw:
    """faiss's HNSW with a bitmap."""

    def __init__(self, data: Dataset, cache: Path) -> None:
        path = cache / f"{data.name}.faiss"
        if path.exists():
            self.index = faiss.read_index(str(path))
        else:
            self.index = faiss.IndexHNSWFlat(data.base.shape[1], 16)
            self.index.hnsw.efConstruction = 200
            self.index.add(data.base)
            faiss.write_index(self.index, str(path))

    def ask(self, passes: NDArray[np.bool_], knob: int) -> Ask:
        """A search with a beam width."""
        selector = faiss.IDSelectorBitmap(np.packbits(passes, bitorder="little"))
        params = faiss.SearchParametersHNSW(sel=selector, efSearch=knob)
        return lambda queries: self.index.search(queries, K, params=params)[1]


class FaissFlat:
    """faiss's exact search: over a list of ids, or a bitmap where most pass."""

    def __init__(self, data: Dataset, _: Path) -> None:
        self.index = faiss.IndexFlatL2(data.base.shape[1])
        self.index.add(data.base)

    def ask(self, passes: NDArray[np.bool_], _: int) -> Ask:
        """An exact search."""
        if passes.mean() < 0.6:
            selector: Any = faiss.IDSelectorArray(np.flatnonzero(passes))
        else:
            selector = faiss.IDSelectorBitmap(np.packbits(passes, bitorder="little"))
        params = faiss.SearchParameters(sel=selector)
        return lambda queries: self.index.search(queries, K, params=params)[1]


METHODS: dict[str, Any] = {
    "l2route": Ours,
    "hnswlib": Hnswlib,
    "faiss HNSW": FaissHnsw,
    "faiss flat": FaissFlat,
}


def seconds(ask: Ask, queries: Vectors, one_by_one: bool) -> float:
    """CPU seconds per query, the least of several repetitions."""
    best, start = np.inf, time.process_time()
    while (begin := time.process_time()) - start < SHORTEST:
        for part in queries[:, None] if one_by_one else [queries]:
            ask(part)
        best = min(best, time.process_time() - begin)
    return best / len(queries)


def narrowest(method: Any, groups: Sequence[Group]) -> tuple[int | None, float]:
    """The narrowest beam that reaches the recall, None if none does in time; seconds per query."""
    for knob in BEAMS:
        asks = [method.ask(group.passes, knob) for group in groups]
        begin = time.process_time()
        found = [ask(group.queries) for ask, group in zip(asks, groups, strict=True)]
        taken = (time.process_time() - begin) / sum(len(group.queries) for group in groups)
        recalls = [group.recall(ids) for group, ids in zip(groups, found, strict=True)]
        if np.mean(recalls) >= RECALL:
            return knob, taken
        if taken > TOO_SLOW:
            break
    return None, taken


def compare(
    data: Dataset,
    clusters: Clusters,
    methods: dict[str, Any],
    kind: str,
    share: float,
    n_each: int,
    n_rounds: int,
) -> Iterator[list[str]]:
    """A row per method: recall@10, and queries per second in batches and one by one."""
    others = data.training[1000:11000]
    tuning = list(groups_of(data, clusters, others, kind, share, N_TUNING, seed=1))
    every = list(groups_of(data, clusters, data.query, kind, share, n_each, seed=2))
    asks: dict[str, list[Ask]] = {}
    groups: dict[str, list[Group]] = {}
    for name, method in methods.items():
        is_tuned = name in ("l2route", "faiss flat")
        knob, taken = (0, 0.0) if is_tuned else narrowest(method, tuning)
        if knob is None:
            yield [kind, f"{share:.1%}", name, "below 0.95", "–", "–", "–"]
            continue
        asks[name] = [method.ask(group.passes, knob) for group in every]
        groups[name] = [group.first(N_SLOW if taken > SLOW else n_each) for group in every]
    best = {name: [[np.inf] * N_GROUPS for _ in range(2)] for name in asks}
    for _ in range(n_rounds):
        for name, each in asks.items():
            for alone in (False, True):
                for i, group in enumerate(groups[name]):
                    taken = seconds(each[i], group.queries, alone)
                    best[name][alone][i] = min(best[name][alone][i], taken)
    speed = {name: [float(1 / np.mean(times)) for times in both] for name, both in best.items()}
    recalls = {name: recall_of(asks[name], groups[name]) for name in asks}
    rivals = [name for name in asks if name != "l2route" and recalls[name] >= RECALL - 0.01]
    peer = max((speed[name][0] for name in rivals), default=np.nan)
    for name, (batch, single) in speed.items():
        ratio = f"{batch / peer:.1f}" if name == "l2route" else ""
        row = [f"{recalls[name]:.4f}", f"{batch:,.0f}", f"{single:,.0f}", ratio]
        yield [kind, f"{share:.1%}", name, *row]


def recall_of(asks: Sequence[Ask], groups: Sequence[Group]) -> float:
    """Recall@10 over all groups."""
    pairs = zip(asks, groups, strict=True)
    return float(np.mean([group.recall(ask(group.queries)) for ask, group in pairs]))


def costs(data: Dataset, ours: Ours, n_rounds: int) -> Iterator[list[str]]:
    """Nanoseconds per vector scored, by way and share: what `cpp/search/ways.hpp` has."""
    index, rng = ours.index, np.random.default_rng(3)
    queries, searcher = data.training[1000:1200], index.searcher()
    ways: tuple[tuple[Way, int], ...] = (("scan", 0), ("scan", 20), ("look", 0), ("sieve", 0))
    for share in (0.01, 0.05, 0.2, 0.5, 0.9):
        passes = index.filter(rng.random(len(index)) < share)
        for way, scan_rerank in ways:
            plan = searcher.plan(
                K,
                limits=Limits(ef=40, rerank=20),
                n_threads=1,
                filters=[passes.core(index._current.state)],
                way=way,
                scan_rerank=scan_rerank,
            )
            found = plan(queries)
            taken = min(seconds(plan, queries, False) for _ in range(n_rounds))
            is_exact = way == "scan" and not scan_rerank
            scored = (found.n_rerank if is_exact else found.n_routing).mean()
            row = index.base.rows[0] if is_exact else searcher.space.rows[0]
            ns = f"{1e9 * taken / scored:.1f}"
            yield [f"{share:.0%}", way, f"{row.nbytes}", f"{scored:,.0f}", ns]


def bound(data: Dataset, ours: Ours, n_each: int, n_rounds: int) -> Iterator[list[str]]:
    """Times of searches with `recall=0.95`, as multiples of the exact scan of what passes.

    Queries are training queries that no setting was measured on. The worst group counts.
    """
    index, searcher = ours.index, ours.index.searcher()
    clusters, queries = clusters_of(data), data.training[1000:11000]
    for kind in KINDS:
        for share in BOUND_SHARES:
            worst, recalls = [0.0, 0.0], []
            for group in groups_of(data, clusters, queries, kind, share, n_each, seed=4):
                ask = ours.ask(group.passes, 0)
                mask = group.passes if index.labels is None else group.passes[index.labels]
                passes = index.filter(mask).core(index._current.state)
                scan = searcher.plan(
                    K, limits=Limits(ef=K), n_threads=1, filters=[passes], way="scan"
                )
                both: tuple[Ask, Ask] = (ask, scan)
                for alone in (False, True):
                    least = [np.inf, np.inf]
                    for _ in range(n_rounds):
                        for i, each in enumerate(both):
                            least[i] = min(least[i], seconds(each, group.queries, alone))
                    worst[alone] = max(worst[alone], least[0] / least[1])
                recalls.append(group.recall(ask(group.queries)))
            row = [f"{np.mean(recalls):.4f}", *(f"{ratio:.2f}" for ratio in worst)]
            yield [kind, f"{share:.2%}", *row]


def print_row(cells: Sequence[str]) -> None:
    """Print a row of a Markdown table."""
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print a table for every file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=100, help="queries of each filter")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--costs", action="store_true")
    parser.add_argument("--bound", action="store_true")
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    with TemporaryDirectory() as temporary:
        for path in options.files:
            data = Dataset.read(path)
            cache = options.cache or Path(temporary)
            print(f"\n{data.name}")
            if options.costs:
                print_row(["share", "way", "bytes", "scored", "ns each"])
                print("|---|---|---|---|---|")
                for row in costs(data, Ours(data, cache), options.rounds):
                    print_row(row)
                continue
            if options.bound:
                print_row(["passing", "share", "recall@10", "batch", "one by one"])
                print("|---|---|---|---|---|")
                for row in bound(data, Ours(data, cache), options.queries, options.rounds):
                    print_row(row)
                continue
            clusters = clusters_of(data)
            methods = {name: METHODS[name](data, cache) for name in options.methods}
            print_row(
                ["passing", "share", "method", "recall@10", "batch q/s", "single q/s", "ratio"]
            )
            print("|---|---|---|---|---|---|---|")
            for kind in options.kinds:
                for share in options.shares:
                    case = (kind, share, options.queries, options.rounds)
                    for row in compare(data, clusters, methods, *case):
                        print_row(row)


if __name__ == "__main__":
    main()
