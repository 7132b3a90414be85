"""Vectors replaced round after round: recall at equal cost, and changes a second, beside hnswlib.

    python benchmarks/churn.py glove100.npz gloss384.npz     # arrays `base`, `learn` and `query`

An index starts with a random half of the base vectors. In each of 100 rounds 1% of its vectors, by
chance, are deleted and as many of the other half are added, so that all are replaced once. At the
end its recall@10 is compared with that of an index built afresh over the same vectors, at the same
number of vertices scored for l2route, at the same beam width for hnswlib (M=16, ef_construction
200, replace_deleted). Test queries; nothing is tuned on them. Adds include the repair of the graph
around what was deleted. Both libraries take turns, round by round. The first change copies an index
of l2route into buffers with room; it is timed apart.

hnswlib takes tens of milliseconds for each vector that it replaces. So it takes part in the first
`--peer-rounds` rounds only, and is compared with an index built afresh after those; with
`--vectors 5000 --peer-rounds 100` it goes all the way in some ten minutes.
"""

import argparse
import time
from pathlib import Path

import hnswlib
import numpy as np
from numpy.typing import NDArray

from l2route.data.dataset import Dataset
from l2route.data.metrics import N_ANSWERS, recall_at
from l2route.data.truth import exact_distances, exact_neighbors
from l2route.index import RoutingIndex

BEAMS = (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
TARGETS = (0.90, 0.95, 0.99)
M, EF_CONSTRUCTION = 16, 200
Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]


class Ours:
    """l2route: int8 codes, reranked by the original vectors."""

    name = "l2route"

    def __init__(self, vectors: Vectors, ids: Ids, metric: str, n_threads: int) -> None:
        self.n_threads = n_threads
        self.index = RoutingIndex.build(vectors, metric, ids=ids, n_threads=n_threads)
        self.index.compress("int8")

    def add(self, vectors: Vectors, ids: Ids) -> None:
        """Add vectors."""
        self.index.add(vectors, ids, n_threads=self.n_threads)

    def delete(self, ids: Ids) -> None:
        """Delete vectors."""
        self.index.delete(ids)

    def search(self, queries: Vectors, beam: int) -> tuple[Ids, float]:
        """Ids found, and the mean number of vertices scored."""
        found = self.index.search(queries, N_ANSWERS, ef=beam)
        return found.ids, float(found.n_routing.mean())


class Hnswlib:
    """hnswlib with replace_deleted; its cost is the beam width."""

    name = "hnswlib"

    def __init__(self, vectors: Vectors, ids: Ids, metric: str, n_threads: int) -> None:
        self.n_threads = n_threads
        self.index = hnswlib.Index(metric, vectors.shape[1])
        self.index.init_index(
            len(vectors), EF_CONSTRUCTION, M, random_seed=0, allow_replace_deleted=True
        )
        self.index.add_items(vectors, ids, num_threads=n_threads or -1)

    def add(self, vectors: Vectors, ids: Ids) -> None:
        """Add vectors in the places of deleted ones."""
        self.index.add_items(vectors, ids, self.n_threads or -1, replace_deleted=True)

    def delete(self, ids: Ids) -> None:
        """Mark vectors as deleted."""
        for id_ in ids.tolist():
            self.index.mark_deleted(id_)

    def search(self, queries: Vectors, beam: int) -> tuple[Ids, float]:
        """Ids found, and the beam width."""
        self.index.set_ef(beam)
        return self.index.knn_query(queries, N_ANSWERS)[0].astype(np.int64), float(beam)


def curve(
    library: Ours | Hnswlib, data: Dataset, live: Ids, queries: Vectors
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Costs and recalls@10 over all beams, by the true neighbours among live vectors."""
    base = data.base[live]
    truth = exact_neighbors(base, queries, N_ANSWERS, data.metric)
    rows = {int(id_): row for row, id_ in enumerate(live)}
    costs, recalls = [], []
    for beam in BEAMS:
        found, cost = library.search(queries, beam)
        places = np.vectorize(rows.__getitem__, otypes=[np.int64])(found)
        distances = exact_distances(base, queries, places, data.metric)
        costs.append(cost)
        recalls.append(recall_at(distances, truth.distances, N_ANSWERS))
    return np.array(costs), np.array(recalls)


def churn(path: Path, options: argparse.Namespace) -> None:
    """Print the results on one dataset."""
    n_rounds, n_threads, seed = options.rounds, options.threads, options.seed
    data = Dataset.read(path)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.base)).astype(np.int64)
    half = min(len(order) // 2, options.vectors)
    live, waiting = order[:half].copy(), order[half : 2 * half].copy()
    kinds: tuple[type[Ours], type[Hnswlib]] = (Ours, Hnswlib)
    libraries = [kind(data.base[live], live, data.metric, n_threads) for kind in kinds]
    n = round(options.share * half)
    first = first_change(libraries[0], data.base[waiting[:1]], waiting[:1])
    seconds = {(each.name, what): 0.0 for each in libraries for what in ("add", "delete")}
    done = dict.fromkeys(("l2route", "hnswlib"), 0)
    lived = {}
    for step in range(n_rounds):
        leaving = rng.permutation(half)[:n]
        gone, new = live[leaving], waiting[:n]
        taking_part = libraries if step < options.peer_rounds else libraries[:1]
        for each in taking_part if step % 2 else taking_part[::-1]:
            begin = time.perf_counter()
            each.delete(gone)
            middle = time.perf_counter()
            each.add(data.base[new], new)
            seconds[each.name, "delete"] += middle - begin
            seconds[each.name, "add"] += time.perf_counter() - middle
            done[each.name] += n
        live[leaving], waiting = new, np.concatenate([waiting[n:], gone])
        for each, last in zip(
            libraries, (n_rounds, min(n_rounds, options.peer_rounds)), strict=True
        ):
            if step + 1 == last:
                lived[each.name] = after_churn(each, data, live.copy(), n_threads)
    threads = "all cores" if n_threads == 0 else f"{n_threads} thread(s)"
    print(f"\n## {path.stem}: {half:,} vectors, rounds of {n}, {threads}, seed {seed}")
    rates = {key: done[key[0]] / value for key, value in seconds.items() if value}
    for what in ("add", "delete"):
        ours, theirs = rates["l2route", what], rates.get(("hnswlib", what), float("nan"))
        print(f"{what}s a second: l2route {ours:,.0f}, hnswlib {theirs:,.0f}: {ours / theirs:.1f}×")
    print(f"first change of l2route: {first:.3f} s")
    for name, lines in lived.items():
        print(f"{name}, {done[name]:,} vectors replaced, recall@10:", *lines, sep="\n")


def first_change(library: Ours | Hnswlib, vectors: Vectors, ids: Ids) -> float:
    """Seconds to add a vector and delete it again."""
    begin = time.perf_counter()
    library.add(vectors, ids)
    library.delete(ids)
    return time.perf_counter() - begin


def after_churn(library: Ours | Hnswlib, data: Dataset, live: Ids, n_threads: int) -> list[str]:
    """Recall@10 of an index that has lived beside one built afresh, at the cost of the latter."""
    fresh = type(library)(data.base[live], live, data.metric, n_threads)
    costs, recalls = curve(fresh, data, live, data.query)
    lived_costs, lived = curve(library, data, live, data.query)
    lines = []
    for target in TARGETS:
        if recalls.max() >= target:
            cost = float(np.interp(target, recalls, costs))
            after = float(np.interp(cost, lived_costs, lived))
            lines.append(f"  {target:.2f} afresh at cost {cost:.0f}: {after:.4f} after the changes")
    return lines


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--peer-rounds", type=int, default=2)
    parser.add_argument("--vectors", type=int, default=50_000)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for path in options.data:
        churn(path, options)


if __name__ == "__main__":
    main()
