"""Arrow bodies and answers: streams of record batches.

Columns of bodies: `vector`, lists of numbers of one length; `id`, integers; `label`, texts. Columns
of answers: `ids`, `distances` and `labels`, lists of k items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import HTTPException
from numpy.typing import NDArray

from l2route.extras import install

COLUMNS = ("vector", "id", "label")


def read_arrow(body: bytes) -> dict[str, Any]:
    """The columns of a body: arrays of vectors [n, d] and of ids [n], and a list of labels."""
    arrow = _import_pyarrow()
    try:
        _check_messages(arrow, body)
        with arrow.ipc.open_stream(arrow.py_buffer(body)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (arrow.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise HTTPException(400, f"expected an Arrow stream, got a broken one ({reason})") from None
    names = table.column_names
    if not set(names) <= set(COLUMNS) or len(set(names)) < len(names) or not names:
        got = ", ".join(names[:10]) or "none"
        raise HTTPException(422, f"expected columns out of {', '.join(COLUMNS)}, got {got}")
    for name in names:
        if table[name].null_count:
            raise HTTPException(422, f"expected no nulls, got some in column {name}")
    readers = {"vector": _read_vectors, "id": _read_ids, "label": _read_labels}
    return {name: readers[name](arrow, table[name]) for name in names}


def write_arrow(
    ids: NDArray[np.int64],
    distances: NDArray[np.float32],
    labels: list[list[str | None]] | None,
) -> bytes:
    """Answers [n_queries, k] as a stream; id −1 where fewer than k were found."""
    arrow = _import_pyarrow()
    columns = {"ids": _listed(arrow, ids), "distances": _listed(arrow, distances)}
    if labels is not None:
        columns["labels"] = arrow.array(labels, arrow.list_(arrow.string()))
    table = arrow.table(columns)
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _import_pyarrow() -> Any:
    try:
        import pyarrow as pa
        from pyarrow import ipc  # noqa: F401 # not imported by pyarrow itself
    except ImportError as error:
        raise ImportError(f"Arrow needs pyarrow: {install('serve')}") from error
    return pa


def _check_messages(arrow: Any, body: bytes) -> None:
    """Refuse compressed buffers and dictionaries: their size is not that of the body."""
    reader = arrow.ipc.MessageReader.open_stream(arrow.py_buffer(body))
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        if message.type == "dictionary":
            raise ValueError("expected plain columns, got a dictionary")
        if message.type == "record batch" and _is_compressed(message.metadata.to_pybytes()):
            raise ValueError("expected buffers that are not compressed")


def _is_compressed(metadata: bytes) -> bool:
    """Whether a record batch says that its buffers are compressed.

    The metadata are a flatbuffer: the field 2 of the table Message is the table RecordBatch, whose
    field 3 is the compression.
    """
    message = _u32(metadata, 0)
    header = _field(metadata, message, 2)
    if header is None:
        return False
    return _field(metadata, header + _u32(metadata, header), 3) is not None


def _field(metadata: bytes, table: int, number: int) -> int | None:
    """Place of a field of a table; None if the table does not have it."""
    vtable = table - int.from_bytes(metadata[table : table + 4], "little", signed=True)
    at = vtable + 4 + 2 * number
    if at + 2 > vtable + int.from_bytes(metadata[vtable : vtable + 2], "little"):
        return None
    offset = int.from_bytes(metadata[at : at + 2], "little")
    return table + offset if offset else None


def _u32(metadata: bytes, at: int) -> int:
    return int.from_bytes(metadata[at : at + 4], "little")


def _read_vectors(arrow: Any, column: Any) -> NDArray[Any]:
    types = arrow.types
    kind = column.type
    is_list = types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)
    if not is_list or not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
        raise HTTPException(422, f"expected column vector of lists of numbers, got {kind}")
    lists = column.combine_chunks()
    values = lists.flatten()
    if values.null_count:
        raise HTTPException(422, "expected no nulls, got some in column vector")
    n = len(lists)
    if n and not types.is_fixed_size_list(kind):
        lengths = np.unique(lists.value_lengths().to_numpy(zero_copy_only=False))
        if len(lengths) > 1:
            got = f"{lengths[0]} and {lengths[-1]}"
            raise HTTPException(422, f"expected vectors of one length, got {got}")
    dim = kind.list_size if types.is_fixed_size_list(kind) else len(values) // max(1, n)
    rows: NDArray[Any] = values.to_numpy(zero_copy_only=False).reshape(n, dim)
    return rows


def _read_ids(arrow: Any, column: Any) -> NDArray[Any]:
    if not arrow.types.is_integer(column.type):
        raise HTTPException(422, f"expected column id of integers, got {column.type}")
    ids: NDArray[Any] = column.to_numpy()
    return ids


def _read_labels(arrow: Any, column: Any) -> list[str]:
    if not (arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type)):
        raise HTTPException(422, f"expected column label of texts, got {column.type}")
    labels: list[str] = column.to_pylist()
    return labels


def _listed(arrow: Any, array: NDArray[Any]) -> Any:
    """A column of lists of one length."""
    flat = arrow.array(np.ascontiguousarray(array).reshape(-1))
    return arrow.FixedSizeListArray.from_arrays(flat, array.shape[1])
