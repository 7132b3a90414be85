"""Laws of inputs: whatever holds numbers gives the array that plain numpy has."""

from __future__ import annotations

import array
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import l2route
from l2route.data.vectors import as_array, check_vectors

FLOATS = ["float16", "float32", "float64"]
DTYPES = [*FLOATS, "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


class OnlyDlpack:
    """An array of a library that numpy does not know, on the CPU or elsewhere."""

    def __init__(self, held: NDArray[Any], device: tuple[int, int] = (1, 0)) -> None:
        self._held, self._device = held, device

    def __dlpack__(self, **options: Any) -> Any:
        return self._held.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class OnlyArrowStream:
    """A column or table of a library that gives itself as a stream of Arrow."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self._held.__arrow_c_stream__(requested_schema)


class OnlyArrowArray:
    """A column of a library that gives itself as an array of Arrow."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._held.__arrow_c_array__(requested_schema)


def fixed_lists(rows: NDArray[Any]) -> pa.Array:
    """A column of lists of a fixed size, on the memory of the array."""
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


def lists(rows: NDArray[Any], kind: Any = pa.ListArray) -> pa.Array:
    """A column of lists, on the memory of the array."""
    offsets = np.arange(len(rows) + 1) * rows.shape[1]
    offsets = offsets.astype(np.int64 if kind is pa.LargeListArray else np.int32)
    return kind.from_arrays(pa.array(offsets), pa.array(rows.reshape(-1)))


def chunked(rows: NDArray[Any]) -> pa.ChunkedArray:
    """Lists in chunks of one kind and several lengths, one of them empty."""
    whole = lists(rows)
    return pa.chunked_array([whole[:0], whole[:1], whole[1:]])


def named(rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """A column for every dimension."""
    return {f"x{at}": column for at, column in enumerate(rows.T.copy())}


KINDS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "array": lambda rows: rows,
    "view": lambda rows: np.asfortranarray(rows)[::-1][::-1],
    "matrix": lambda rows: rows.view(np.matrix),
    "unmasked": np.ma.masked_array,
    "memoryview": memoryview,
    "lists": lambda rows: rows.tolist(),
    "tuples": lambda rows: tuple(map(tuple, rows.tolist())),
    "list of arrays": list,
    "list of buffers": lambda rows: [array.array("d", row) for row in rows.astype(float).tolist()],
    "objects": lambda rows: pd.Series(list(rows), dtype=object).to_numpy(),
    "dlpack": OnlyDlpack,
    "arrow fixed": fixed_lists,
    "arrow fixed slice": lambda rows: fixed_lists(np.concatenate([rows, rows]))[len(rows) :],
    "arrow lists": lists,
    "arrow large lists": lambda rows: lists(rows, pa.LargeListArray),
    "arrow chunked": chunked,
    "arrow tensors": lambda rows: pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.from_numpy_dtype(rows.dtype), rows.shape[1:]), fixed_lists(rows)
    ),
    "arrow table": lambda rows: pa.table({"v": chunked(rows)}),
    "arrow batch": lambda rows: pa.record_batch({"v": fixed_lists(rows)}),
    "arrow wide": lambda rows: pa.table(named(rows)),
    "arrow stream": lambda rows: OnlyArrowStream(chunked(rows)),
    "arrow table stream": lambda rows: OnlyArrowStream(pa.table({"v": chunked(rows)})),
    "arrow array": lambda rows: OnlyArrowArray(fixed_lists(rows)),
    "pandas arrays": lambda rows: pd.Series(list(rows), index=range(5, 5 + len(rows))),
    "pandas lists": lambda rows: pd.Series(rows.tolist()),
    "pandas column": lambda rows: pd.DataFrame({"v": list(rows)}),
    "pandas wide": lambda rows: pd.DataFrame(rows),
    "pandas mixed": lambda rows: pd.DataFrame(named(rows)).astype({"x0": "float64"}),
    "pandas objects": lambda rows: pd.DataFrame(named(rows)).astype(object),
    "pandas nullable": lambda rows: pd.DataFrame(named(rows)).convert_dtypes(),
    "pandas arrow": lambda rows: pd.Series(lists(rows), dtype=pd.ArrowDtype(lists(rows).type)),
    "pandas arrow wide": lambda rows: pd.DataFrame(named(rows)).convert_dtypes(
        dtype_backend="pyarrow"
    ),
    "polars array": lambda rows: pl.Series(rows),
    "polars lists": lambda rows: pl.Series(rows).arr.to_list(),
    "polars column": lambda rows: pl.DataFrame({"v": rows}),
    "polars wide": lambda rows: pl.DataFrame(rows),
    "polars chunks": lambda rows: pl.concat(
        [pl.Series(rows[:1]), pl.Series(rows[1:])], rechunk=False
    ),
    "torch": torch.from_numpy,
    "torch transposed": lambda rows: torch.from_numpy(rows.T.copy()).T,
    "list of tensors": lambda rows: list(torch.from_numpy(rows)),
}
LACKING = {"pandas nullable": {"float16"}, "pandas arrow wide": {"float16"}}
"""Types that a kind of input cannot hold."""


@settings(deadline=None, max_examples=25)
@given(
    dtype=st.sampled_from(DTYPES),
    n=st.integers(1, 6),
    dim=st.integers(1, 5),
    seed=st.integers(0, 9),
)
@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_are_read_like_plain_arrays(
    kind: str, dtype: str, n: int, dim: int, seed: int
) -> None:
    """Every kind of input of every type gives the vectors that the plain array gives."""
    if dtype in LACKING.get(kind, ()):
        dtype = "float32"
    rows = np.random.default_rng(seed).integers(0, 100, size=(n, dim)).astype(dtype)
    checked = check_vectors("queries", KINDS[kind](rows), dim)
    assert (type(checked), checked.dtype) == (np.ndarray, np.float32)
    np.testing.assert_array_equal(checked, rows.astype(np.float32))


@pytest.mark.parametrize(
    "made",
    [
        lambda rows: (rows.view(np.matrix), rows.ctypes.data),
        lambda rows: (np.ma.masked_array(rows), rows.ctypes.data),
        lambda rows: (memoryview(rows), rows.ctypes.data),
        lambda rows: (OnlyDlpack(rows), rows.ctypes.data),
        lambda rows: (fixed_lists(rows), rows.ctypes.data),
        lambda rows: (fixed_lists(rows)[2:], rows[2:].ctypes.data),
        lambda rows: (lists(rows)[1:3], rows[1:].ctypes.data),
        lambda rows: (pa.table({"v": fixed_lists(rows)}), rows.ctypes.data),
        lambda rows: (OnlyArrowStream(pa.table({"v": fixed_lists(rows)})), rows.ctypes.data),
        lambda rows: (OnlyArrowArray(fixed_lists(rows)), rows.ctypes.data),
        lambda rows: (pd.DataFrame(rows, copy=False), rows.ctypes.data),
        lambda rows: (torch.from_numpy(rows), rows.ctypes.data),
        lambda rows: (torch.from_numpy(rows).requires_grad_(), rows.ctypes.data),
        lambda rows: (torch.nn.Parameter(torch.from_numpy(rows)), rows.ctypes.data),
    ],
)
def test_sound_inputs_are_not_copied(made: Any) -> None:
    """Float32 rows that follow each other in memory are used where they are."""
    rows = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    given_, address = made(rows)
    assert check_vectors("queries", given_, 4).ctypes.data == address


def test_polars_is_not_copied() -> None:
    """A column of arrays of polars is used where it is."""
    series = pl.Series(np.ones((5, 4), np.float32))
    address = series.to_numpy(allow_copy=False).ctypes.data
    assert check_vectors("queries", series, 4).ctypes.data == address


def test_brain_floats_are_widened() -> None:
    """Floats that numpy lacks become float32, exactly; gradients are left behind."""
    tensor = torch.randn(3, 4).to(torch.bfloat16).requires_grad_()
    checked = check_vectors("queries", tensor, 4)
    np.testing.assert_array_equal(checked, tensor.detach().float().numpy())
    np.testing.assert_array_equal(check_vectors("queries", list(tensor), 4), checked)


ROWS = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (scipy.sparse.csr_matrix(ROWS), "expected dense queries, got a sparse csr_matrix: toarray"),
        (scipy.sparse.coo_array(ROWS), "expected dense queries, got a sparse coo_array"),
        (
            np.ma.masked_equal([[1, 2], [3, 4]], 3),
            "queries without masked values, got one in row 1",
        ),
        ([[1, 2], [1, None]], "expected queries of numbers, got [1, None] in row 1"),
        ([[1, 2], None], "expected queries of numbers, got None in row 1"),
        ([np.ones(2), np.ones(3)], "expected queries [2] in all rows, got [3] in row 1"),
        ([[1, 2], "ab"], "expected queries of numbers, got 'ab' in row 1"),
        (["ab"], "expected queries of numbers, got 'ab' in row 0"),
        ([[[1.0]], [[1.0, 2.0]]], "expected queries [1, 1] in all rows, got [1, 2] in row 1"),
        (pa.array([[1.0, 2.0], None]), "expected queries without nulls, got one in row 1"),
        (pa.array([[1.0, 2.0], [1.0, None]]), "expected queries without nulls, got one in row 1"),
        (pa.array([[1.0], [1.0, 2.0]]), "expected queries [*, 1] in all rows, got [2] in row 1"),
        (pa.array([["a"]]), "expected queries of real numbers, got a column of list<"),
        (pa.array(["a"]), "expected queries of numbers, got a column of string"),
        (pa.chunked_array([[[1.0]], [[1.0, 2.0]]]), "got [2] in row 1"),
        (pa.table({"id": [1], "v": [[1.0]]}), "got id (int64), v (list<item: double>): choose one"),
        (pa.table({"id": [1], "v": [[1.0]]}), 'as in table["v"]'),
        (pa.table({}), "expected queries in a table, got one without columns"),
        (pd.DataFrame({"id": ["a"], "v": [[1.0]]}), 'choose one, as in frame["v"]'),
        (pd.DataFrame({"a": ["a"], "b": ["b"]}), "expected queries in one column, got a (str), b"),
        (pd.Series([[1.0], None]), "expected queries of numbers, got None in row 1"),
        (pd.Series([1, None], dtype="Int64"), "expected queries without nulls, got one in row 1"),
        (pd.Series(["a"]), "expected queries of numbers, got a column of str"),
        (pd.Series(pd.Categorical(["a"])), "expected queries of numbers, got a column of category"),
        (pl.DataFrame({"id": [1], "v": [[1.0]]}), "got id (Int64), v (List(Float64)): choose one"),
        (pl.Series([[1.0], None]), "expected queries without nulls, got one in row 1"),
        (pl.Series([[1.0], [None]]), "expected queries without nulls, got one in row 1"),
        (pl.Series([[1.0], [1.0, 2.0]]), "expected queries [*, 1] in all rows, got [2] in row 1"),
        (pl.Series([["a"]]), "expected queries of real numbers, got lists of String"),
        (pl.Series(["a"]), "expected queries of numbers, got a column of String"),
        (pl.LazyFrame({"a": [1.0]}), "expected queries in memory, got a LazyFrame: call collect()"),
        (OnlyDlpack(ROWS, (2, 0)), "expected queries in main memory, got them on DLPack device 2"),
        (torch.ones(2, 2, device="meta"), "expected queries that numpy can read, got a torch"),
        (torch.ones(2, 2, dtype=torch.complex64), "expected queries of real numbers, got dtype c"),
        (b"ab", "expected queries of real numbers, got dtype |S2"),
        ({1: 2}, "expected queries of real numbers, got dtype object"),
        (None, "expected queries of real numbers, got dtype object"),
    ],
)
def test_inputs_that_are_no_vectors_are_refused(given_: Any, message: str) -> None:
    """The error says what was expected and what came, with the row or the columns."""
    with pytest.raises(ValueError, match=re.escape(message)):
        check_vectors("queries", given_)


COLUMNS: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "array": np.array,
    "arrow": pa.array,
    "chunks": lambda values: pa.chunked_array([values[:1], values[1:]]),
    "pandas": pd.Series,
    "pandas nullable": lambda values: pd.Series(values).convert_dtypes(),
    "pandas arrow": lambda values: pd.Series(values).convert_dtypes(dtype_backend="pyarrow"),
    "pandas index": pd.Index,
    "polars": pl.Series,
    "torch": torch.tensor,
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_ids_and_filters_are_columns_too(kind: str) -> None:
    """Ids, masks and names come from columns of any library, and queries with one of them each."""
    of, n = COLUMNS[kind], 30
    rows = np.random.default_rng(0).standard_normal((n, 4)).astype(np.float32)
    index = l2route.RoutingIndex.build(rows, ids=of(list(range(100, 100 + n))))
    assert index.ids.tolist() == list(range(100, 100 + n))
    assert index.add(rows[:2], of([7, 8])).tolist() == [7, 8]
    index.update(of([7, 8]), rows[2:4])
    index.delete(of([8]))
    np.testing.assert_array_equal(index.vectors(of([7, 101])), rows[[2, 1]])
    some = index.search(rows[:3], k=2, ef=40, where=of([101, 102]))
    assert set(some.ids.reshape(-1).tolist()) == {101, 102}
    mask = np.isin(index.ids, [103, 104])
    some = index.search(rows[:3], k=2, ef=40, where=of(mask.tolist()))
    assert set(some.ids.reshape(-1).tolist()) == {103, 104}
    each = index.search(rows[:2], k=1, ef=40, where=[of([105, 106]), of([107, 108])])
    assert each.ids[0, 0] in (105, 106)
    assert each.ids[1, 0] in (107, 108)
    assert index.rows_of(of([101])).tolist() == [1]


def test_names_are_columns_too() -> None:
    """Names come from columns of any library, in which a missing one is no name."""
    names = ["a", None, "c"]
    for column in (pa.array(names), pd.Series(names), pl.Series(names), np.array(names, object)):
        assert list(l2route.Labels.of(column)) == [(0, "a"), (2, "c")]
    nullable = pd.Series(names).convert_dtypes()
    assert list(l2route.Labels.of(nullable)) == [(0, "a"), (2, "c")]
    assert list(l2route.Labels.of(np.array(["a", "b"]))) == [(0, "a"), (1, "b")]


def test_nothing_is_a_list_of_no_ids() -> None:
    """Empty lists and columns are read."""
    assert as_array("ids", []).shape == (0,)
    for column in (
        pa.array([], pa.int64()),
        pl.Series([], dtype=pl.Int64),
        pd.Series([], dtype=int),
    ):
        assert as_array("ids", column).shape == (0,)
    empty = pa.array([], pa.list_(pa.float32(), 4))
    assert check_vectors("vectors", empty, 4, may_be_empty=True).shape == (0, 4)


def test_polars_and_pandas_do_not_need_pyarrow() -> None:
    """Columns of polars and pandas are read without pyarrow; for others the error names it."""
    program = """
import sys
sys.modules["pyarrow"] = None
import numpy as np, pandas as pd, polars as pl
from l2route.data.vectors import check_vectors

rows = np.ones((3, 2), np.float32)
for given in (pl.Series(rows), pl.Series(rows).arr.to_list(), pl.DataFrame({"v": rows}),
              pl.DataFrame(rows), pd.Series(list(rows)), pd.DataFrame(rows)):
    assert (check_vectors("queries", given) == rows).all()

class Column:
    def __arrow_c_stream__(self, requested_schema=None):
        raise AssertionError

try:
    check_vectors("queries", Column())
except ImportError as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "columns of Arrow need pyarrow: pip" in done.stdout
