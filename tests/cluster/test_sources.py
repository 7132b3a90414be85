"""Laws of sources: the same vectors whatever they come from, and parts that add up."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from l2route.cluster.sources import Source, source_of
from l2route.files.formats import write_array
from sharding import IDS, VECTORS


def rows_of(source: Source, n_rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """All ids and vectors of a source, part by part."""
    parts = [part.read() for part in source.parts(n_rows)]
    assert len(parts) > 1
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([rows for _, rows in parts])


def table(first: int = 0, last: int = len(VECTORS)) -> pa.Table:
    """Some vectors and ids as a table."""
    return pa.table({"v": list(VECTORS[first:last]), "id": IDS[first:last]})


@pytest.mark.parametrize("ending", [".npy", ".fvecs", ".fbin", ".npz", ".parquet"])
def test_files_give_their_rows(tmp_path: Path, ending: str) -> None:
    """Every file gives the vectors that were written, with row numbers as ids."""
    path = tmp_path / f"x{ending}"
    write_array(path, VECTORS)
    if ending == ".parquet":
        pq.write_table(pa.table({"v": list(VECTORS)}), path, row_group_size=500)
    source = source_of(path)
    ids, rows = rows_of(source)
    np.testing.assert_array_equal(ids, np.arange(len(VECTORS)))
    np.testing.assert_array_equal(rows, VECTORS)
    assert source.dim == VECTORS.shape[1]


def test_tables_may_have_ids(tmp_path: Path) -> None:
    """A directory of Parquet files gives the ids of a column, in the order of the names."""
    pq.write_table(table(0, 700), tmp_path / "a.parquet", row_group_size=300)
    pq.write_table(table(700), tmp_path / "b.parquet")
    source = source_of(tmp_path, id_column="id")
    ids, rows = rows_of(source)
    np.testing.assert_array_equal(ids, IDS)
    np.testing.assert_array_equal(rows, VECTORS)
    chosen, sample = source.sample(200, seed=0)
    assert len(chosen) == 200
    at = {id_: row for row, id_ in enumerate(IDS.tolist())}
    np.testing.assert_array_equal(sample, VECTORS[[at[each] for each in chosen.tolist()]])


@pytest.mark.parametrize("kind", ["array", "mapped"])
def test_samples_are_rows_by_chance(tmp_path: Path, kind: str) -> None:
    """A sample has as many distinct rows as asked for, all if there are few, by its seed."""
    np.save(tmp_path / "x.npy", VECTORS)
    source = source_of(VECTORS if kind == "array" else tmp_path / "x.npy")
    ids, rows = source.sample(100, seed=1)
    assert len(set(ids.tolist())) == 100
    np.testing.assert_array_equal(rows, VECTORS[ids])
    np.testing.assert_array_equal(source.sample(100, seed=1)[0], ids)
    assert source.sample(100, seed=2)[0].tolist() != ids.tolist()
    assert len(source.sample(10**6, seed=1)[0]) == len(VECTORS)


def test_other_vectors_have_another_fingerprint(tmp_path: Path) -> None:
    """A changed array or file is noticed."""
    assert source_of(VECTORS).fingerprint() != source_of(VECTORS + 1).fingerprint()
    assert source_of(VECTORS).fingerprint() != source_of(VECTORS, ids=IDS).fingerprint()
    np.save(tmp_path / "x.npy", VECTORS)
    before = source_of(tmp_path / "x.npy").fingerprint()
    np.save(tmp_path / "x.npy", VECTORS[:-1])
    assert source_of(tmp_path / "x.npy").fingerprint() != before


def test_other_columns_have_another_fingerprint(tmp_path: Path) -> None:
    """Another column of vectors or of ids of the same file is noticed."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": list(VECTORS), "b": list(-VECTORS), "id": IDS}), path)
    choices = [("a", None), ("b", None), ("a", "id"), ("b", "id")]
    found = [source_of(path, column=a, id_column=b).fingerprint() for a, b in choices]
    assert len(set(found)) == len(choices)
    assert found[0] == source_of(path, column="a").fingerprint()


def test_files_without_rows_are_passed_over(tmp_path: Path) -> None:
    """Files of a directory that have no rows, as writers leave them, change nothing."""
    pq.write_table(table(0, 700), tmp_path / "b.parquet", row_group_size=300)
    pq.write_table(table(700), tmp_path / "d.parquet")
    for name in "ac":
        pq.write_table(table(0, 0), tmp_path / f"{name}.parquet")
    with pq.ParquetWriter(tmp_path / "e.parquet", table().schema):
        pass
    source = source_of(tmp_path, id_column="id")
    ids, rows = rows_of(source)
    np.testing.assert_array_equal(ids, IDS)
    np.testing.assert_array_equal(rows, VECTORS)
    assert len(source.sample(10**6, seed=0)[0]) == len(VECTORS)
    for name in "bd":
        (tmp_path / f"{name}.parquet").unlink()
    with pytest.raises(ValueError, match="expected Parquet files with rows, got 3 without"):
        source_of(tmp_path, id_column="id")


@pytest.mark.parametrize("name", ["x.parquet", "x.npy"])
def test_relative_paths_are_read_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Parts of a file that was named by a relative path are read in any directory."""
    pq.write_table(pa.table({"v": list(VECTORS)}), tmp_path / "x.parquet", row_group_size=500)
    np.save(tmp_path / "x.npy", VECTORS)
    monkeypatch.chdir(tmp_path)
    source = source_of(name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    np.testing.assert_array_equal(rows_of(source)[1], VECTORS)


def test_parts_are_not_larger_than_they_say(tmp_path: Path) -> None:
    """No part has more rows than its source says, nor takes more bytes along."""
    np.save(tmp_path / "x.npy", VECTORS)
    pq.write_table(table(), tmp_path / "x.parquet", row_group_size=500)
    for given in (VECTORS, tmp_path / "x.npy", tmp_path / "x.parquet"):
        source = source_of(given, column="v" if str(given).endswith("parquet") else None)
        parts = list(source.parts(400))
        assert max(len(part.read()[0]) for part in parts) == source.largest_part(400)
        assert max(len(pickle.dumps(part)) for part in parts) <= source.sent_bytes(400) + 8_000
        assert source.is_repeatable


@pytest.mark.parametrize("options", [{"column": "v"}, {"id_column": "id"}], ids=str)
def test_columns_are_those_of_tables(tmp_path: Path, options: dict[str, Any]) -> None:
    """Columns beside vectors that have none, and two columns of vectors, are errors."""
    (name,) = options
    np.save(tmp_path / "x.npy", VECTORS)
    write_array(tmp_path / "x.fvecs", VECTORS)
    write_array(tmp_path / "x.npz", VECTORS)
    for given in (VECTORS, tmp_path / "x.npy", tmp_path / "x.fvecs", tmp_path / "x.npz"):
        with pytest.raises(ValueError, match=f"expected {name} beside .*, got {name}="):
            source_of(given, **options)
    pq.write_table(table(), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="expected one column of vectors, got v and w"):
        source_of(f"{tmp_path}/x.parquet:v", column="w")


def test_wrong_sources_are_refused(tmp_path: Path) -> None:
    """Rows that are not finite, columns that there are not and ids beside a file are errors."""
    broken = VECTORS.copy()
    broken[1000, 3] = np.nan
    np.save(tmp_path / "x.npy", broken)
    with pytest.raises(ValueError, match="NaN"):
        rows_of(source_of(tmp_path / "x.npy"))
    pq.write_table(table(), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="column"):
        source_of(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="beside"):
        source_of(tmp_path / "x.npy", ids=IDS)
    with pytest.raises(ValueError, match="shape"):
        source_of(VECTORS[0])
