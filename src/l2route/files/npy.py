"""npy files: mapped after a check of their header, and written so that errors keep their errno."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from l2route.files.atomic import open_regular

MAX_PARSES = 20
"""Times that a header is parsed until it is refused with a SystemError: ast.literal_eval, by which
numpy parses it, may fail so in Python 3.11 while other threads parse (python/cpython#106905)."""


def map_npy(path: Path, *, copy_on_write: bool = False) -> NDArray[Any]:
    """Map the array of a npy file, of any shape and of plain values.

    Args:
        path: A npy file that holds one array and nothing after it.
        copy_on_write: Map it writeable; what is written stays in memory.

    Returns:
        The array, mapped; read-only unless it is copied on write.
    """
    mode: Literal["c", "r"] = "c" if copy_on_write else "r"
    with open_regular(path) as file, naming(path, "a npy file"):
        shape, order, dtype = read_npy_header(file)
        offset = file.tell()
        check_size(path, math.prod(shape) * dtype.itemsize, bytes_in(file) - offset)
        return np.memmap(file, dtype, mode=mode, offset=offset, shape=shape, order=order)


def write_npy(stream: IO[bytes], array: NDArray[Any]) -> None:
    """Write an array as a npy file.

    Args:
        stream: A file to write to.
        array: Plain values.
    """
    np.lib.format.write_array(_PlainStream(stream), array, allow_pickle=False)


class _PlainStream:
    """A stream that numpy does not recognise as a file.

    numpy writes to files in C, and reports a full disk as an OSError without an errno.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.write, self.flush = stream.write, stream.flush


def read_npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], Any, np.dtype[Any]]:
    """Shape, order (C or F) and dtype of the plain values that follow."""
    begin = stream.tell()
    for _ in range(MAX_PARSES - 1):
        try:
            return _read_header(stream)
        except SystemError:
            stream.seek(begin)
    return _read_header(stream)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], Any, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"expected npy version 1.0 or 2.0, got {version}")
    if dtype.hasobject or not dtype.itemsize or any(size < 0 for size in shape):
        raise ValueError(f"expected plain values, got dtype {dtype} of shape {list(shape)}")
    return shape, "F" if fortran else "C", dtype


@contextmanager
def naming(path: Path, expected: str) -> Iterator[None]:
    """Turn any error of a parser into a ValueError that names the file.

    Args:
        path: The file.
        expected: The kind of file, for the message, such as "a npy file".
    """
    try:
        yield
    except Exception as error:  # parsers raise many kinds of errors for damaged files
        if isinstance(error, ValueError) and str(error).startswith(str(path)):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{path}: expected {expected}, got a broken one ({reason})") from error


def check_size(path: Path, expected: int, got: int) -> None:
    """Refuse a file whose data are shorter or longer than its header says.

    Args:
        path: The file.
        expected: Bytes of data according to the header.
        got: Bytes of data in the file.
    """
    if got != expected:
        fault = "truncated" if got < expected else "too long"
        raise ValueError(f"{path}: expected {expected} bytes of data, got {got}: {fault}")


def bytes_in(file: IO[bytes]) -> int:
    """Size of an open file in bytes."""
    return os.fstat(file.fileno()).st_size
