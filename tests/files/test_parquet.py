"""Laws of tables: what was written is read, and any fault names the file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fuzzing import EFFORT
from l2route.files import parquet
from l2route.files.formats import list_keys, read_array, write_array
from l2route.files.ids import read_ids
from l2route.files.parquet import ENDINGS, read_texts

DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "uint64", "int64"]


def vectors(n: int, dim: int = 3, dtype: str = "float32") -> NDArray[Any]:
    """Whole numbers, which every type holds exactly."""
    return np.random.default_rng(n + dim).integers(0, 100, size=(n, dim)).astype(dtype)


def write_table(path: Path, table: pa.Table, n_rows: int = 1_000) -> Path:
    """Write a table in row groups or batches of n rows."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=n_rows)
    elif path.suffix == ".feather":
        pf.write_feather(table, str(path), chunksize=n_rows)
    else:
        with pa.ipc.new_stream(str(path), table.schema) as stream:
            stream.write_table(table, max_chunksize=n_rows)
    return path


def a_table() -> pa.Table:
    """A table of ids, vectors, texts, missing vectors and vectors of several lengths."""
    return pa.table(
        {
            "id": np.arange(4) * 10,
            "vector": list(vectors(4)),
            "text": ["a", "b", None, "d"],
            "passes": [True, False, True, True],
            "gap": [[1.0, 2.0], None, [1.0, 2.0], [1.0, 2.0]],
            "hole": [[1.0, 2.0], [1.0, 2.0], [1.0, None], [1.0, 2.0]],
            "ragged": [[1.0, 2.0], [1.0, 2.0], [1.0], [1.0, 2.0]],
            "missing": [1, 2, None, 4],
        }
    )


@settings(deadline=None, max_examples=40)
@given(
    ending=st.sampled_from(ENDINGS),
    dtype=st.sampled_from(DTYPES),
    n=st.integers(1, 50),
    dim=st.integers(1, 5),
    n_batch=st.integers(1, 60),
    is_fixed=st.booleans(),
)
def test_vectors_are_read_as_they_were_written(
    ending: str,
    dtype: str,
    n: int,
    dim: int,
    n_batch: int,
    is_fixed: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Any type, kind of list and number of row groups gives the array that was written."""
    folder, array = tmp_path_factory.mktemp("table"), vectors(n, dim, dtype)
    write_array(folder / f"ours{ending}", array)
    flat = pa.array(array.reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, dim)
    if not is_fixed:
        lists = pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32) * dim, flat)
    table = pa.table({"id": np.arange(n), "vector": lists})
    write_table(folder / f"theirs{ending}", table, n_batch)
    for source in (f"{folder}/ours{ending}", f"{folder}/theirs{ending}:vector"):
        read = read_array(source)
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)
    assert read_ids(f"{folder}/theirs{ending}:id").tolist() == list(range(n))
    assert list_keys(folder / f"theirs{ending}") == ("id", "vector")


def test_many_batches_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are put one after another, also where the file does not tell their number."""
    monkeypatch.setattr(parquet, "_BATCH_BYTES", 4_000)
    array = vectors(5_000, 8)
    for ending in ENDINGS:
        write_array(tmp_path / f"a{ending}", array)
        np.testing.assert_array_equal(read_array(tmp_path / f"a{ending}"), array)


def test_files_of_other_libraries_are_read(tmp_path: Path) -> None:
    """What pandas and polars write is read; columns of numbers are dimensions."""
    array = vectors(6)
    pd.DataFrame({"v": list(array), "id": range(6)}).to_parquet(tmp_path / "pandas.parquet")
    pl.DataFrame({"v": array, "id": range(6)}).write_parquet(tmp_path / "polars.parquet")
    pl.DataFrame({"v": array, "id": range(6)}).write_ipc(tmp_path / "polars.arrow")
    pl.DataFrame(array, schema=["x", "y", "z"]).write_parquet(tmp_path / "wide.parquet")
    for source in ("pandas.parquet:v", "polars.parquet:v", "polars.arrow:v", "wide.parquet"):
        np.testing.assert_array_equal(read_array(f"{tmp_path}/{source}"), array)
    np.testing.assert_array_equal(read_array(f"{tmp_path}/wide.parquet:y"), array[:, 1:2])


@pytest.mark.parametrize("ending", ENDINGS)
def test_ids_masks_and_texts_are_read(ending: str, tmp_path: Path) -> None:
    """Columns of integers are ids, of booleans masks, of texts names."""
    path = write_table(tmp_path / f"a{ending}", a_table(), 3)
    assert read_ids(f"{path}:id").tolist() == [0, 10, 20, 30]
    assert read_ids(f"{path}:passes", may_be_mask=True).tolist() == [True, False, True, True]
    assert read_texts(path, "text") == ["a", "b", None, "d"]
    other = pa.table({"t": pa.array(["x", "y", "x"]).dictionary_encode()})
    assert read_texts(write_table(tmp_path / f"b{ending}", other), None) == ["x", "y", "x"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "expected vectors in one column, got id (int64), vector (list<"),
        ("", f"choose one, as in a.{'{}'}:vector"),
        (":other", "expected a column out of id, vector, text, passes, gap, hole, ragged, missing"),
        (":text", "expected vectors of numbers, got a column of string"),
        (":gap", "expected vectors without nulls, got one in row 1"),
        (":hole", "expected vectors without nulls, got one in row 2"),
        (":ragged", "row 2"),
        (":missing", "expected vectors without nulls, got one in row 2"),
        (":passes", "expected real numbers, got dtype bool"),
    ],
)
def test_columns_that_are_no_vectors_are_refused(
    ending: str, key: str, message: str, tmp_path: Path
) -> None:
    """The error names the file, and the row or the columns that there are."""
    path = write_table(tmp_path / f"a{ending}", a_table(), 3)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: ") as caught:
        read_array(f"{path}{key}")
    assert message.format(ending[1:]) in str(caught.value)


def test_other_faults_are_named(tmp_path: Path) -> None:
    """No rows, no texts, two columns of a name, and a pointer of Git LFS."""
    empty = pa.table({"v": pa.array([], pa.list_(pa.float32(), 3))})
    path = write_table(tmp_path / "a.parquet", a_table())
    twice = pa.table([[1], [2]], names=["a", "a"])
    pointer = tmp_path / "pointer.parquet"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    faults: dict[Any, str] = {
        lambda: read_array(write_table(tmp_path / "none.parquet", empty)): "none.parquet: expected",
        lambda: read_texts(path, "id"): "expected a column of texts, got int64",
        lambda: read_texts(path, None): "expected names in one column, got id (int64)",
        lambda: read_array(f"{write_table(tmp_path / 'b.arrow', twice)}:a"): "one column a, got 2",
        lambda: read_array(pointer): "pointer.parquet: expected vectors, got a pointer of Git LFS",
        lambda: read_ids(f"{path}:vector"): "expected an array [n], got shape [4, 3]",
    }
    for call, message in faults.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            call()


@pytest.mark.parametrize("ending", ENDINGS)
def test_damaged_files_are_refused_or_read(ending: str, tmp_path: Path) -> None:
    """A file that was cut or changed gives an array of its shape, or an error that names it."""
    path = tmp_path / f"a{ending}"
    array = vectors(30, 4)
    write_table(path, pa.table({"v": list(array), "w": np.arange(30)}), 10)
    intact, rng = path.read_bytes(), np.random.default_rng(0)
    n_refused = 0
    for trial in range(150 * EFFORT):
        content = bytearray(intact)
        if trial % 3:
            for at in rng.integers(0, len(content), size=int(rng.integers(1, 6))).tolist():
                content[at] = int(rng.integers(256))
        else:
            del content[int(rng.integers(len(content))) :]
        path.write_bytes(content)
        fault = f"{path}: "
        try:
            assert read_array(f"{path}:v").ndim == 2
        except ValueError as error:
            fault = str(error)
            n_refused += 1
        assert fault.startswith(f"{path}: ")
    assert n_refused > 20


def test_tables_need_pyarrow(tmp_path: Path) -> None:
    """Without pyarrow the error names the extra, and other files are read as before."""
    write_array(tmp_path / "a.parquet", vectors(3))
    write_array(tmp_path / "a.npy", vectors(3))
    program = f"""
import sys
sys.modules["pyarrow"] = None
from l2route.files.formats import read_array
assert read_array({str(tmp_path / "a.npy")!r}).shape == (3, 3)
try:
    read_array({str(tmp_path / "a.parquet")!r})
except ImportError as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Parquet and Arrow files need pyarrow: pip" in done.stdout
    assert "[arrow]" in done.stdout
