"""Columns of Arrow as arrays of numpy, without a copy where the layout allows it."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from l2route.extras import install


def import_pyarrow(what: str) -> ModuleType:
    """The module pyarrow; if it is not installed, the error says how to.

    Args:
        what: what needs it, for the message.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ImportError(f"{what} need pyarrow: {install('arrow')}") from error
    module: ModuleType = pa
    return module


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    """The type as its library names it."""
    holds: Literal["numbers", "lists", "others"]


def column_of(field: Any) -> Column:
    """A column that a field of Arrow describes."""
    kind = field.type.storage_type if hasattr(field.type, "storage_type") else field.type
    holds: Literal["numbers", "lists", "others"]
    holds = "numbers" if _is_number(kind) else "lists" if _is_list(kind) else "others"
    return Column(field.name, str(field.type), holds)


def choose_columns(name: str, columns: Sequence[Column], example: str) -> list[str]:
    """The columns of a table that hold vectors or numbers: the only one, or all if all are numbers.

    Args:
        name: what is wanted, for the message, such as "queries".
        columns: the columns.
        example: how to choose a column, for the message; `{}` stands for its name.

    Returns:
        Names of columns: one, or one for each dimension.
    """
    if not columns:
        raise ValueError(f"expected {name} in a table, got one without columns")
    if len(columns) == 1 or all(column.holds == "numbers" for column in columns):
        return [column.name for column in columns]
    nested = [column.name for column in columns if column.holds == "lists"]
    chosen = example.format((nested or [columns[0].name])[0])
    got = ", ".join(f"{column.name} ({column.type})" for column in columns)
    raise ValueError(f"expected {name} in one column, got {got}: choose one, as in {chosen}")


def array_of(name: str, column: Any, first_row: int = 0) -> NDArray[Any]:
    """The numbers of a column, or the vectors of a column of lists.

    A column in one chunk of numbers, or of lists of numbers that follow each other, is not copied.

    Args:
        name: what the column holds, for error messages.
        column: an Array or a ChunkedArray of pyarrow.
        first_row: number of the first row, for error messages.

    Returns:
        Numbers or booleans [n], or vectors [n, d].
    """
    chunks = getattr(column, "chunks", [column])
    arrays = []
    for chunk in chunks:
        arrays.append(_array_of_chunk(name, chunk, first_row))
        first_row += len(chunk)
    if not arrays:
        return _array_of_chunk(name, column.combine_chunks(), first_row)
    arrays = [array for array in arrays if len(array)] or arrays[:1]
    dims = [array.shape[1:] for array in arrays]
    if len(set(dims)) > 1:
        first = next(at for at, dim in enumerate(dims) if dim != dims[0])
        row = first_row - sum(map(len, arrays[first:]))
        raise ragged(name, dims[first][0], row, dims[0][0])
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _array_of_chunk(name: str, chunk: Any, first_row: int) -> NDArray[Any]:
    chunk = _stored(chunk)
    if not _is_list(chunk.type):
        if not _is_number(chunk.type) and str(chunk.type) != "bool":
            raise ValueError(f"expected {name} of numbers, got a column of {chunk.type}")
        _check_nulls(name, chunk, first_row)
        array: NDArray[Any] = chunk.to_numpy(zero_copy_only=False)
        return array
    _check_nulls(name, chunk, first_row)
    dim = _dim_of(name, chunk, first_row)
    values = _stored(chunk.flatten())
    if not _is_number(values.type):
        raise ValueError(f"expected {name} of real numbers, got a column of {chunk.type}")
    _check_nulls(name, values, first_row, max(1, dim))
    flat: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return flat.reshape(len(chunk), dim)


def _check_nulls(name: str, chunk: Any, first_row: int, n_per_row: int = 1) -> None:
    if chunk.null_count:
        at = int(np.argmin(chunk.is_valid().to_numpy(zero_copy_only=False)))
        row = first_row + at // n_per_row
        raise ValueError(f"expected {name} without nulls, got one in row {row}")


def _dim_of(name: str, chunk: Any, first_row: int) -> int:
    """The length of all lists of a chunk without nulls."""
    if str(chunk.type).startswith("fixed_size_list"):
        return int(chunk.type.list_size)
    from pyarrow import compute

    lengths = compute.list_value_length(chunk).to_numpy(zero_copy_only=False)
    others = np.flatnonzero(lengths != lengths[:1])
    if len(others):
        raise ragged(name, int(lengths[others[0]]), first_row + int(others[0]), int(lengths[0]))
    return int(lengths[0]) if len(lengths) else 0


def ragged(name: str, dim: int, row: int, expected: int) -> ValueError:
    """The error for a vector of another dimension than those before it."""
    return ValueError(f"expected {name} [*, {expected}] in all rows, got [{dim}] in row {row}")


def _stored(chunk: Any) -> Any:
    """A chunk as it is stored, without the meaning of an extension type or a dictionary."""
    if hasattr(chunk, "storage"):
        return _stored(chunk.storage)
    return _stored(chunk.dictionary_decode()) if hasattr(chunk, "dictionary_decode") else chunk


def _is_list(kind: Any) -> bool:
    return "list" in str(kind).partition("<")[0]


def _is_number(kind: Any) -> bool:
    return str(kind) in _NUMBERS


_NUMBERS = {
    "halffloat",
    "float",
    "double",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
"""Types of Arrow that numpy has too, by their names."""
