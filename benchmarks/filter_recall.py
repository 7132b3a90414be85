"""Recall@10 under filters near the query and far from it, with `recall=0.95`.

    python benchmarks/filter_recall.py FILE.npz …              # arrays `base` and `learn`
    python benchmarks/filter_recall.py --cache DIR FILE.npz …  # keeps indexes for the next run

Filters are those of filters.py. Queries are training queries that no setting was measured on, a few
for each of many filters. Printed are the recall of searches in batches and one by one, the lowest
of a group one by one, and recall and work (in vectors scored) of walks through what does not pass,
with the setting of searches without a filter.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import filters
from l2route.data.dataset import Dataset

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)


def recalls(data: Dataset, ours: filters.Ours, n_groups: int, n_each: int) -> Iterator[list[str]]:
    """A row for every kind and share."""
    index, searcher = ours.index, ours.index.searcher()
    clusters, queries = filters.clusters_of(data), data.training[1000:11000]
    plain = index.setting(filters.RECALL, filters.K)
    for kind in filters.KINDS:
        for share in SHARES:
            found, work = [], []
            for seed in range(n_groups):
                drawn = filters.groups_of(data, clusters, queries, kind, share, n_each, seed)
                group = next(drawn)
                mask = group.passes if index.labels is None else group.passes[index.labels]
                sieve = searcher.plan(
                    filters.K,
                    limits=plain.limits,
                    n_threads=1,
                    labels=index.labels,
                    filters=[index.filter(mask).core(index._current.state)],
                    way="sieve",
                )
                ask, through = ours.ask(group.passes, 0), sieve(group.queries)
                alone = np.concatenate([ask(query) for query in group.queries])
                answers = (ask(group.queries), alone, through.ids)
                found.append([group.recall(ids) for ids in answers])
                work.append(through.n_work.mean())
            batch, single, sieved = np.mean(found, axis=0)
            lowest = min(each[1] for each in found)
            figures = [f"{each:.3f}" for each in (batch, single, lowest, sieved)]
            yield [kind, f"{share:.0%}", *figures, f"{np.mean(work):,.0f}"]


def main() -> None:
    """Print a table for every file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--groups", type=int, default=24, help="filters of each kind and share")
    parser.add_argument("--queries", type=int, default=20, help="queries of each filter")
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        for path in options.files:
            data = Dataset.read(path)
            ours = filters.Ours(data, options.cache or Path(temporary))
            print(f"\n{data.name}")
            filters.print_row(
                ["passing", "share", "batch", "one by one", "lowest", "through", "work"]
            )
            print("|---|---|---|---|---|---|---|")
            for row in recalls(data, ours, options.groups, options.queries):
                filters.print_row(row)


if __name__ == "__main__":
    main()
