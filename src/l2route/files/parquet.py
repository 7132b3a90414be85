"""Columns of Parquet and Arrow files, read in batches so that memory is about one copy.

``.parquet`` is Parquet. ``.arrow`` and ``.feather`` are Arrow's IPC format, as a file or as a
stream. Files are not trusted: what is read from Arrow files is validated, and any fault is a
``ValueError`` that names the file. Parquet is as safe as the Arrow library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.files.arrow import array_of, choose_columns, column_of, import_pyarrow
from l2route.files.atomic import open_regular, replacing
from l2route.files.memory import check_room
from l2route.files.npy import naming

ENDINGS = (".parquet", ".arrow", ".feather")
"""File name endings of tables."""
_BATCH_BYTES = 1 << 24  # of values in memory beside the array
_SIZES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}  # bytes of values, 8 for other types
_MAGIC = b"ARROW1"  # of Arrow files that are not streams

Batches = tuple[int, Iterator[Any]]
"""The number of rows that a file claims, −1 if it does not say, and its record batches."""


def read_column(path: Path, key: str | None, n_axes: int) -> NDArray[Any]:
    """Read a column of numbers, or of lists of numbers.

    Args:
        path: a file of a table.
        key: the column; None if there is only one, or if all are numbers and vectors are wanted.
        n_axes: 2 for vectors, 1 for single numbers.

    Returns:
        Array [n, d] or [n].
    """
    name = "vectors" if n_axes == 2 else "ids"
    with _opened(path, key, name) as (columns, (n_rows, batches)):
        is_wide = n_axes == 2 and column_of(columns[0]).holds != "lists"
        numbered = _numbered(batches)
        parts = (_array_of_batch(path, name, batch, is_wide, at) for at, batch in numbered)
        return _filled(path, parts, n_rows)


def read_texts(path: Path, key: str | None) -> list[str | None]:
    """Read a column of texts.

    Args:
        path: a file of a table.
        key: the column; None if there is only one.

    Returns:
        The texts, None for nulls.
    """
    pa = import_pyarrow("Parquet and Arrow files")
    texts: list[str | None] = []
    with _opened(path, key, "names") as (columns, (_, batches)):
        if len(columns) > 1:
            names = ", ".join(column.name for column in columns)
            example = f"{path.name}:{columns[0].name}"
            raise ValueError(f"{path}: expected a column, as in {example}, got {names}")
        n_bytes = 0
        for batch in batches:
            column = batch.column(0)
            n_bytes += batch.nbytes
            check_room(path, n_bytes)
            if hasattr(column, "dictionary_decode"):
                column = column.dictionary_decode()
            if column.type not in (pa.string(), pa.large_string(), pa.string_view()):
                raise ValueError(f"{path}: expected a column of texts, got {column.type}")
            texts += column.to_pylist()
    return texts


def read_column_names(path: Path) -> tuple[str, ...]:
    """Names of the columns, in the order of the file."""
    import_pyarrow("Parquet and Arrow files")
    with naming(path, _kind(path)), _reading(path) as (schema, _):
        return tuple(schema.names)


def write_column(path: Path, key: str, values: NDArray[Any]) -> None:
    """Write vectors as a column of lists of a fixed size, replacing the file as a whole.

    Args:
        path: a file of a table.
        key: name of the column.
        values: numbers [n, d].
    """
    pa = import_pyarrow("Parquet and Arrow files")
    n_rows = _rows_in_a_batch(values)
    dim = values.shape[1]
    kind = pa.list_(pa.from_numpy_dtype(values.dtype), dim)
    schema = pa.schema([pa.field(key, kind, nullable=False)])
    with replacing(path) as temporary, _writer(path, temporary, schema) as write:
        for begin in range(0, len(values), n_rows):
            rows = np.ascontiguousarray(values[begin : begin + n_rows]).reshape(-1)
            flat = pa.array(rows.astype(rows.dtype.newbyteorder("="), copy=False))
            lists = pa.FixedSizeListArray.from_arrays(flat, dim)
            write(pa.record_batch([lists.cast(kind)], schema=schema))


@contextmanager
def _opened(path: Path, key: str | None, name: str) -> Iterator[tuple[list[Any], Batches]]:
    """The chosen columns of a file, as fields, and batches of them."""
    import_pyarrow("Parquet and Arrow files")
    with naming(path, _kind(path)), _reading(path) as (schema, read):
        known = schema.names
        if key is not None and key not in known:
            listed = ", ".join(known) or "none"
            raise ValueError(f"{path}: expected a column out of {listed}, got {key!r}")
        if key is not None and known.count(key) > 1:
            raise ValueError(f"{path}: expected one column {key}, got {known.count(key)}")
        if key is None:
            try:
                columns = [column_of(field) for field in schema]
                chosen = choose_columns(name, columns, f"{path.name}:{{}}")
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
        else:
            chosen = [key]
        numbers = [known.index(column) for column in chosen]
        yield [schema.field(number) for number in numbers], read(numbers)


@contextmanager
def _reading(path: Path) -> Iterator[tuple[Any, Callable[[Sequence[int]], Batches]]]:
    """The schema of a file, and a function that reads the columns with these numbers."""
    pa = import_pyarrow("Parquet and Arrow files")
    with open_regular(path) as file:
        if path.suffix.lower() == ".parquet":
            from pyarrow.parquet import ParquetFile

            with ParquetFile(file, pre_buffer=False) as parquet:

                def read_parquet(numbers: Sequence[int]) -> Batches:
                    check_room(path, _n_bytes(parquet, numbers))
                    return _parquet_batches(parquet, numbers)

                yield parquet.schema_arrow, read_parquet
            return
        is_file = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        begin = pa.ipc.open_file if is_file else pa.ipc.open_stream
        schema = begin(file).schema

        def read(numbers: Sequence[int]) -> Batches:
            file.seek(0)
            options = pa.ipc.IpcReadOptions(included_fields=list(numbers), use_threads=False)
            return -1, _validated(begin(file, options=options))

        yield schema, read


def _parquet_batches(parquet: Any, numbers: Sequence[int]) -> Batches:
    """Batches of columns of a Parquet file."""
    schema, n_rows = parquet.schema_arrow, parquet.metadata.num_rows
    names = [schema.names[number] for number in numbers]
    row_bytes = max(1, sum(_list_size(schema.field(number).type) for number in numbers) * 8)
    n_batch = max(1, min(_BATCH_BYTES // row_bytes, 1 << 16))
    batches = parquet.iter_batches(n_batch, columns=names, use_threads=False)
    return n_rows, (batch.select(names) for batch in batches)


def _n_bytes(parquet: Any, numbers: Sequence[int]) -> int:
    """Bytes of the values of columns when they are decoded; of texts, of their sizes only."""
    metadata, names = parquet.metadata, parquet.schema_arrow.names
    roots = {names[number] for number in numbers}
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    columns = (group.column(j) for group in groups for j in range(group.num_columns))
    chosen = (each for each in columns if each.path_in_schema.partition(".")[0] in roots)
    return sum(each.num_values * _SIZES.get(each.physical_type, 8) for each in chosen)


def _list_size(kind: Any) -> int:
    return int(getattr(kind, "list_size", 256))


def _validated(reader: Any) -> Iterator[Any]:
    """The batches of an Arrow file or stream, whose values are checked to be within them."""
    n = getattr(reader, "num_record_batches", None)
    for batch in reader if n is None else map(reader.get_batch, range(n)):
        batch.validate(full=True)
        yield batch


def _numbered(batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """Batches with the numbers of their first rows."""
    at = 0
    for batch in batches:
        yield at, batch
        at += batch.num_rows


def _array_of_batch(path: Path, name: str, batch: Any, is_wide: bool, at: int) -> NDArray[Any]:
    """The rows of a batch; if it is wide, its columns are the dimensions."""
    try:
        arrays = [array_of(name, column, at) for column in batch.columns]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return np.stack(arrays, axis=1) if is_wide else arrays[0]


def _filled(path: Path, parts: Iterator[NDArray[Any]], n_rows: int) -> NDArray[Any]:
    """All parts in one array, which is filled as they come, so that memory is about one copy."""
    first, second = next(parts, None), next(parts, None)
    if first is None:
        raise ValueError(f"{path}: expected rows, got none")
    filled, at = first, len(first)
    if second is not None:
        check_room(path, max(n_rows, len(first)) * (first[:1].nbytes or 1))
        filled = np.empty((max(n_rows, len(first)), *first.shape[1:]), dtype=first.dtype)
        filled[: len(first)] = first
        for part in chain([second], parts):
            if part.shape[1:] != filled.shape[1:]:
                expected, got = list(filled.shape[1:]), list(part.shape[1:])
                raise ValueError(f"{path}: expected vectors {expected}, got {got} in row {at}")
            if at + len(part) > len(filled):
                n_more = max(len(part), len(filled) // 8)
                check_room(path, filled.nbytes + n_more * part[:1].nbytes)
                filled.resize((len(filled) + n_more, *filled.shape[1:]), refcheck=False)
            filled[at : at + len(part)] = part
            at += len(part)
        filled.resize((at, *filled.shape[1:]), refcheck=False)
    if n_rows not in (at, -1):
        raise ValueError(f"{path}: expected {n_rows} rows, got {at}")
    return filled


def _rows_in_a_batch(values: NDArray[Any]) -> int:
    return max(1, _BATCH_BYTES // max(1, values[:1].nbytes))


@contextmanager
def _writer(path: Path, temporary: Path, schema: Any) -> Iterator[Callable[[Any], None]]:
    """A function that writes a record batch to a file."""
    pa = import_pyarrow("Parquet and Arrow files")
    if path.suffix.lower() == ".parquet":
        from pyarrow.parquet import ParquetWriter

        with ParquetWriter(temporary, schema, use_dictionary=False) as writer:
            yield writer.write_batch
    else:
        with temporary.open("wb") as file, pa.ipc.new_file(file, schema) as out:
            yield out.write_batch


def _kind(path: Path) -> str:
    return "a Parquet file" if path.suffix.lower() == ".parquet" else "an Arrow file"
