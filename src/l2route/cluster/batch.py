"""Searches in Ray Data: batches of Arrow in, the same batches with answers out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from l2route.cluster.cluster import Cluster
from l2route.cluster.rays import Address
from l2route.cluster.sharded import ShardedIndex
from l2route.data.vectors import check_vectors


class BatchSearcher:
    """Answers batches of a `ray.data.Dataset`.

    For `ds.map_batches(BatchSearcher, fn_constructor_kwargs={"path": …}, concurrency=2,
    batch_format="pyarrow")`. The columns `ids` and `distances` are added: k answers per row, with
    id −1 and distance inf where fewer were found.

    Args:
        path: directory or URL of a sharded index. Workers open it, and have directories of their
            own: give an absolute path.
        k: answers per query.
        recall: recall@k to reach; by default that of the build.
        column: column of the queries.
        name: name of a `Cluster` whose actors are asked; by default every worker opens all shards
            itself.
        address: of the Ray cluster, with a name.
    """

    def __init__(
        self,
        path: str,
        k: int = 10,
        recall: float | None = None,
        column: str = "vector",
        name: str | None = None,
        address: Address = None,
    ) -> None:
        self._k, self._column = k, column
        self._index: ShardedIndex | Cluster
        try:
            if name is None:
                self._index = ShardedIndex(path)
            else:
                self._index = Cluster(path, name=name, address=address)
        except FileNotFoundError as error:
            if "://" in str(path) or Path(path).is_absolute():
                raise
            expected = (
                "expected an absolute path or a URL, as workers have directories of their own"
            )
            raise FileNotFoundError(f"{error}: {expected}, got {path}") from None
        kept = [each.target for each in self._index.manifest.points if each.k == k]
        self._recall = kept[0] if recall is None and kept else recall

    def __call__(self, batch: Any) -> Any:
        """Answer the queries of a `pyarrow.Table`, and return it with the answers."""
        import pyarrow as pa

        if self._column not in batch.column_names:
            got = ", ".join(batch.column_names)
            raise ValueError(f"expected a column {self._column}, got {got}")
        queries = check_vectors(self._column, batch[self._column], self._index.dim)
        found = self._index.search(queries, self._k, recall=self._recall)
        columns = {"ids": pa.int64(), "distances": pa.float32()}
        for name, kind in columns.items():
            values = pa.array(np.ascontiguousarray(getattr(found, name)).reshape(-1), kind)
            lists = pa.FixedSizeListArray.from_arrays(values, self._k)
            batch = batch.append_column(name, lists)
        return batch
