"""Columns, tables and tensors of other libraries as arrays of numpy, without a copy if possible.

None of the libraries is imported here: their objects bring what is needed. Only Arrow's capsules of
objects that are neither of pandas nor of polars need pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.files.arrow import (
    Column,
    array_of,
    choose_columns,
    column_of,
    import_pyarrow,
    ragged,
)

Reader = Callable[[str, Any], NDArray[Any]]
"""Turns an object into an array; the text is its name in error messages."""
_MAIN_MEMORY = (1, 3)  # DLPack's devices CPU, and memory that a GPU can read too
_KINDS = "biufc"  # kinds of numbers in numpy, and booleans


def reader_of(given: object) -> Reader | None:
    """The function that reads an object of another library or a list; None if numpy reads it."""
    kind = type(given)
    library = kind.__module__.partition(".")[0]
    if library in _READERS:
        return _READERS[library](kind.__name__)
    if hasattr(given, "toarray") and hasattr(given, "nnz"):
        return _refuse_sparse
    if hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__"):
        return _of_arrow
    if isinstance(given, np.ma.MaskedArray):
        return _of_masked
    if isinstance(given, np.ndarray):
        return _of_objects if given.dtype.kind == "O" and given.ndim == 1 else None
    if isinstance(given, (list, tuple)):
        return _of_rows
    has_array = any(hasattr(kind, name) for name in ("__array__", "__array_interface__"))
    return _of_dlpack if hasattr(kind, "__dlpack__") and not has_array else None


def _of_pandas(kind: str) -> Reader | None:
    return {"DataFrame": _of_pandas_frame, "Series": _of_pandas_series}.get(kind)


def _of_polars(kind: str) -> Reader | None:
    known: dict[str, Reader] = {
        "DataFrame": _of_polars_frame,
        "Series": _of_polars_series,
        "LazyFrame": _refuse_lazy,
    }
    return known.get(kind)


def _of_pandas_frame(name: str, frame: Any) -> NDArray[Any]:
    """The only column of a frame, or columns of numbers as dimensions."""
    frame = frame.infer_objects()
    typed = [_pandas_column(*pair) for pair in frame.dtypes.items()]
    chosen = choose_columns(name, typed, 'frame["{}"]')
    columns = [_of_pandas_series(name, frame.iloc[:, at]) for at in range(len(chosen))]
    if len(columns) == 1 and columns[0].ndim == 2:
        return columns[0]
    if all(isinstance(dtype, np.dtype) for dtype in frame.dtypes):
        array: NDArray[Any] = frame.to_numpy()  # of one block it is not copied
        return array
    return np.stack(columns, axis=1)


def _of_pandas_series(name: str, series: Any) -> NDArray[Any]:
    """Numbers of a column, or its rows of lists and arrays."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        values: NDArray[Any] = series.to_numpy()
        return _of_objects(name, values) if dtype.kind == "O" else values
    missing = np.flatnonzero(series.isna().to_numpy())
    if len(missing):
        raise ValueError(f"expected {name} without nulls, got one in row {missing[0]}")
    if hasattr(dtype, "pyarrow_dtype"):
        return _of_arrow(name, series)
    plain = getattr(dtype, "numpy_dtype", None)  # of nullable numbers and booleans
    if isinstance(plain, np.dtype):
        array: NDArray[Any] = series.to_numpy(dtype=plain)
        return array
    raise ValueError(f"expected {name} of numbers, got a column of {dtype}")


def _of_polars_frame(name: str, frame: Any) -> NDArray[Any]:
    """The only column of a frame, or columns of numbers as dimensions."""
    typed = [_polars_column(*pair) for pair in frame.schema.items()]
    chosen = choose_columns(name, typed, 'frame["{}"]')
    columns = [_of_polars_series(name, frame[column]) for column in chosen]
    if len(columns) == 1 and columns[0].ndim == 2:
        return columns[0]
    return np.stack(columns, axis=1)


def _of_polars_series(name: str, series: Any) -> NDArray[Any]:
    """Numbers of a column, or its rows of lists."""
    kind = type(series.dtype).__name__
    if series.null_count():
        row = int(np.argmax(series.is_null().to_numpy()))
        raise ValueError(f"expected {name} without nulls, got one in row {row}")
    if kind == "Object":
        return _of_rows(name, series.to_list())
    if kind == "List":
        lengths = series.list.len().to_numpy()
        others = np.flatnonzero(lengths != lengths[:1])
        if len(others):
            raise ragged(name, int(lengths[others[0]]), int(others[0]), int(lengths[0]))
        dim = int(lengths[0]) if len(lengths) else 0
        flat = _of_polars_values(name, series.explode() if dim else series.explode()[:0], dim)
        return flat.reshape(len(series), dim)
    if kind == "Array" and len(series.dtype.shape) == 1:
        dim = series.dtype.shape[0]
        return _of_polars_values(name, series.explode(), dim).reshape(len(series), dim)
    if series.dtype.is_numeric() or kind == "Boolean":
        array: NDArray[Any] = series.to_numpy()
        return array
    raise ValueError(f"expected {name} of numbers, got a column of {series.dtype}")


def _of_polars_values(name: str, values: Any, dim: int) -> NDArray[Any]:
    """The numbers in lists of a column."""
    if not values.dtype.is_numeric():
        raise ValueError(f"expected {name} of real numbers, got lists of {values.dtype}")
    if values.null_count():
        row = int(np.argmax(values.is_null().to_numpy())) // max(1, dim)
        raise ValueError(f"expected {name} without nulls, got one in row {row}")
    array: NDArray[Any] = values.to_numpy()
    return array


def _of_arrow(name: str, given: Any) -> NDArray[Any]:
    """A column or table that gives itself as a capsule of Arrow."""
    pa = import_pyarrow("columns of Arrow")
    is_stream = hasattr(given, "__arrow_c_stream__")
    column = pa.chunked_array(given) if is_stream else pa.array(given)
    if not str(column.type).startswith("struct"):
        return array_of(name, column)
    n_chosen = len(choose_columns(name, [column_of(each) for each in column.type], 'table["{}"]'))
    columns = [array_of(name, part) for part in column.flatten()[:n_chosen]]
    if n_chosen == 1 and columns[0].ndim == 2:
        return columns[0]
    return np.stack(columns, axis=1)


def _of_tensor(kind: str) -> Reader:
    del kind  # tensors, parameters and other subclasses alike
    return _of_torch


def _of_torch(_: str, tensor: Any) -> NDArray[Any]:
    """A tensor in main memory, without its gradient; floats that numpy lacks become float32."""
    if not hasattr(tensor, "detach"):
        return np.asarray(tensor)
    values = tensor.detach()
    if values.is_floating_point() and str(values.dtype) not in _TORCH_FLOATS:
        values = values.float()
    return np.asarray(values)


def _of_dlpack(name: str, given: Any) -> NDArray[Any]:
    device = int(given.__dlpack_device__()[0])
    if device not in _MAIN_MEMORY:
        raise ValueError(f"expected {name} in main memory, got them on DLPack device {device}")
    return np.from_dlpack(given)


def _of_masked(name: str, array: np.ma.MaskedArray[Any, Any]) -> NDArray[Any]:
    masked = np.ma.getmaskarray(array)
    if masked.any():
        row = int(np.argwhere(masked)[0, 0])
        raise ValueError(f"expected {name} without masked values, got one in row {row}")
    return np.asarray(array.data)


def _of_objects(name: str, rows: NDArray[Any]) -> NDArray[Any]:
    """Rows in an array of objects."""
    return _of_rows(name, rows.tolist()) if len(rows) else rows


def _of_rows(name: str, rows: Sequence[Any]) -> NDArray[Any]:
    """Rows in a list: numbers, lists, arrays or tensors."""
    if not rows or isinstance(rows[0], (int, float, np.generic, list, tuple)):
        with suppress(TypeError, ValueError, RuntimeError):  # what is wrong is found out below
            array = np.asarray(rows)
            if array.dtype.kind in _KINDS:
                return array
    return _stacked(name, rows)


def _stacked(name: str, rows: Sequence[Any]) -> NDArray[Any]:
    """Rows of equal lengths, read one by one; the error names the first that does not fit."""
    parts: list[NDArray[Any]] = []
    for row, values in enumerate(rows):
        reader = reader_of(values)
        part = _plain(values) if reader in (None, _of_rows) else reader(name, values)
        if part.dtype.kind not in _KINDS:
            raise ValueError(f"expected {name} of numbers, got {values!r:.40} in row {row}")
        if parts and part.shape != parts[0].shape:
            expected, got = list(parts[0].shape), list(part.shape)
            raise ValueError(f"expected {name} {expected} in all rows, got {got} in row {row}")
        parts.append(part)
    return np.stack(parts)


def _plain(values: object) -> NDArray[Any]:
    """What numpy makes of a row; an array of objects if it is not of numbers."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.zeros(0, dtype=object)


def _refuse_sparse(name: str, given: Any) -> NDArray[Any]:
    got = f"a sparse {type(given).__name__}: toarray() makes it dense"
    raise ValueError(f"expected dense {name}, got {got}")


def _refuse_lazy(name: str, given: Any) -> NDArray[Any]:
    raise ValueError(f"expected {name} in memory, got a {type(given).__name__}: call collect()")


def _pandas_column(name: object, dtype: Any) -> Column:
    plain = getattr(dtype, "numpy_dtype", dtype)
    if isinstance(plain, np.dtype) and plain.kind in "iuf":
        return Column(str(name), str(dtype), "numbers")
    is_nested = str(dtype) == "object" or "list" in str(dtype)
    return Column(str(name), str(dtype), "lists" if is_nested else "others")


def _polars_column(name: str, dtype: Any) -> Column:
    if dtype.is_numeric():
        return Column(name, str(dtype), "numbers")
    return Column(name, str(dtype), "lists" if dtype.is_nested() else "others")


_TORCH_FLOATS = ("torch.float16", "torch.float32", "torch.float64")
_READERS: dict[str, Callable[[str], Reader | None]] = {
    "pandas": _of_pandas,
    "polars": _of_polars,
    "torch": _of_tensor,
}
"""By the library that an object is of, the reader for the name of its class."""
