"""Laws of datasets of Ray Data, whose blocks come in another order each time."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from l2route.cluster import building
from l2route.cluster.runners import BuildError
from l2route.cluster.sources import source_of
from l2route.cluster.workspace import divide_part
from sharding import IDS, QUERIES, VECTORS, K, build_small, exact

BLOCK = 100


class Stream:
    """A dataset that keeps the order of its rows only when it is told to."""

    __module__ = "ray.data.stub"

    def __init__(self, n_rows: int = len(VECTORS)) -> None:
        self.context = SimpleNamespace(execution_options=SimpleNamespace(preserve_order=False))
        self.n_runs = 0
        self._n_rows = n_rows

    def iter_batches(self, batch_size: int, batch_format: str) -> Iterator[pa.Table]:
        """Batches of all rows, whose blocks are shuffled differently in each run."""
        assert batch_format == "pyarrow"
        self.n_runs += 1
        firsts = np.arange(0, self._n_rows, BLOCK)
        if not self.context.execution_options.preserve_order:
            firsts = np.random.default_rng(self.n_runs).permutation(firsts)
        rows = np.concatenate([np.arange(each, each + BLOCK) for each in firsts] or [[]])
        for first in range(0, self._n_rows, batch_size):
            at = rows[first : first + batch_size]
            yield pa.table({"v": list(VECTORS[at]), "id": IDS[at]})

    def input_files(self) -> list[str]:
        """None that are known."""
        return []


def test_rows_have_their_ids_in_any_order() -> None:
    """Ids of a column stay with their rows, whatever the order in which these come."""
    source = source_of(Stream(), column="v", id_column="id")
    rows_by_id = dict(zip(IDS.tolist(), VECTORS, strict=True))
    orders = []
    for _ in range(2):
        ids, rows = zip(*[part.read() for part in source.parts(400)], strict=True)
        orders.append(np.concatenate(ids).tolist())
        expected = np.stack([rows_by_id[each] for each in orders[-1]])
        np.testing.assert_array_equal(np.concatenate(rows), expected)
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(IDS.tolist())
    assert not source.is_repeatable


def test_row_numbers_are_those_of_the_dataset() -> None:
    """Without a column of ids, they are row numbers in the order of the dataset."""
    stream = Stream()
    source = source_of(stream, column="v")
    parts = [part.read() for part in source.parts(400)]
    np.testing.assert_array_equal(np.concatenate([ids for ids, _ in parts]), np.arange(len(IDS)))
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in parts]), VECTORS)
    assert not stream.context.execution_options.preserve_order  # as its owner has set it


def test_parts_of_a_dataset_are_not_larger_than_they_say() -> None:
    """No part has more rows than its source says, nor takes more bytes along."""
    source = source_of(Stream(), column="v", id_column="id")
    assert source.largest_part(400) == 400
    assert source.sent_bytes(400) == 400 * VECTORS[0].nbytes


def test_wrong_datasets_are_refused() -> None:
    """A dataset without rows, one without the column, and ids beside a dataset are errors."""
    with pytest.raises(ValueError, match="expected a dataset with rows, got one without"):
        source_of(Stream(n_rows=0))
    with pytest.raises(ValueError, match=r"expected a column of vectors out of \['v'\], got w"):
        source_of(Stream(), column="w", id_column="id")
    with pytest.raises(ValueError, match="expected ids beside an array, got them beside a data"):
        source_of(Stream(), column="v", ids=IDS)


@pytest.mark.parametrize("id_column", ["id", None])
def test_a_resumed_build_has_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id_column: str | None
) -> None:
    """A build that was cut off while it divided a dataset takes no part of the first run over."""
    monkeypatch.setattr(building, "rows_per_part", lambda *_: 400)
    given = {"ids": None, "column": "v", "id_column": id_column, "queries": None}

    def cut_off(workspace: Any, partition: Any, number: int, part: Any) -> list[int]:
        if number == 1:
            raise OSError("no disk")
        return divide_part(workspace, partition, number, part)

    stream = Stream()
    with monkeypatch.context() as patched:
        patched.setattr(building, "divide_part", cut_off)
        with pytest.raises(BuildError, match="part 1"):
            build_small(tmp_path / "x", source=stream, tries=1, **given)
    index = build_small(tmp_path / "x", source=stream, **given)
    found = index.search(QUERIES, K, ef=len(VECTORS)).ids
    all_ids = np.concatenate([shard.index.ids for shard in index.shards])
    expected = exact(QUERIES)
    if id_column is None:
        rows = {id_: row for row, id_ in enumerate(IDS.tolist())}
        expected = np.vectorize(rows.get)(expected)
    own = IDS if id_column else np.arange(len(IDS))
    assert sorted(all_ids.tolist()) == sorted(own.tolist())
    np.testing.assert_array_equal(found, expected)
