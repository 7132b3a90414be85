"""Sources of vectors, read part by part: arrays, files larger than memory, tables, Ray Data.

A part can be sent to another process, which then reads its rows. Ids are row numbers unless the
source has a column of ids. A source whose rows may come in another order next time says so: its
parts of an earlier run are then not taken for those of this one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from l2route.data.vectors import as_array, check_vectors
from l2route.extras import install
from l2route.files.formats import locate, map_array, read_array
from l2route.files.hashing import hash_arrays
from l2route.state.changing import checked_ids

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Rows = tuple[Ids, Floats]
MAPPED = (".npy", ".fvecs", ".bvecs", ".fbin", ".u8bin", ".i8bin")
"""Endings of files that are mapped, so that only the rows that are asked for are read."""


class Part(Protocol):
    """Rows of a source."""

    def read(self) -> Rows:
        """Ids [n] and vectors [n, dim], checked."""


class Source(Protocol):
    """Vectors that are read part by part."""

    dim: int
    is_repeatable: bool
    """Whether parts have the same rows whenever they are read."""

    def parts(self, n_rows: int) -> Iterator[Part]:
        """All vectors in parts of about this many rows."""

    def largest_part(self, n_rows: int) -> int:
        """Rows of the largest of those parts, at the most."""

    def sent_bytes(self, n_rows: int) -> int:
        """Bytes that the largest of those parts takes along to another process, at the most."""

    def sample(self, n: int, seed: int) -> Rows:
        """About n of the vectors, or all if there are fewer, by chance."""

    def fingerprint(self) -> str:
        """A text that differs if the vectors differ, as far as can be told without reading all."""


@dataclass(frozen=True, slots=True)
class _Given:
    """Rows that are in memory."""

    ids: Ids
    rows: NDArray[Any]

    def read(self) -> Rows:
        return self.ids, check_vectors("vectors", self.rows)


@dataclass(frozen=True, slots=True)
class _Mapped:
    """Rows of a file that can be mapped."""

    path: str
    first: int
    last: int

    def read(self) -> Rows:
        rows = np.array(map_array(self.path)[self.first : self.last])
        return np.arange(self.first, self.last, dtype=np.int64), check_vectors(self.path, rows)


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """A row group of a Parquet file."""

    path: str
    group: int
    first: int
    column: str
    id_column: str | None

    def read(self) -> Rows:
        import pyarrow.parquet

        columns = [self.column, *filter(None, [self.id_column])]
        table = pyarrow.parquet.ParquetFile(self.path).read_row_group(self.group, columns=columns)
        return _rows_of(table, self.column, self.id_column, self.first)


class ArraySource:
    """Vectors in memory.

    Args:
        vectors: [n, dim].
        ids: their ids [n]; row numbers by default.
    """

    is_repeatable = True

    def __init__(self, vectors: object, ids: object = None) -> None:
        self._rows = as_array("vectors", vectors)
        if self._rows.ndim != 2 or 0 in self._rows.shape:
            raise ValueError(f"expected vectors [n, dim], got shape {list(self._rows.shape)}")
        n, self.dim = len(self._rows), int(self._rows.shape[1])
        given = np.arange(n, dtype=np.int64) if ids is None else ids
        self._ids = checked_ids(given, n)

    def parts(self, n_rows: int) -> Iterator[Part]:
        """Slices of the array."""
        for first in range(0, len(self._rows), n_rows):
            yield _Given(self._ids[first : first + n_rows], self._rows[first : first + n_rows])

    def largest_part(self, n_rows: int) -> int:
        """Rows of a slice."""
        return min(n_rows, len(self._rows))

    def sent_bytes(self, n_rows: int) -> int:
        """Bytes of a slice."""
        return self.largest_part(n_rows) * self.dim * int(self._rows.dtype.itemsize)

    def sample(self, n: int, seed: int) -> Rows:
        """Rows by chance."""
        chosen = _chosen(len(self._rows), n, seed)
        return self._ids[chosen], check_vectors("vectors", self._rows[chosen])

    def fingerprint(self) -> str:
        """Hash of the vectors and ids."""
        return hash_arrays("array", self._rows, self._ids)


class MappedSource:
    """Vectors of a file that is mapped.

    Args:
        path: a file with an ending of `MAPPED`.
    """

    is_repeatable = True

    def __init__(self, path: Path) -> None:
        self._path = str(path.absolute())
        self._n, self.dim = (int(each) for each in map_array(self._path).shape)

    def parts(self, n_rows: int) -> Iterator[Part]:
        """Ranges of rows."""
        for first in range(0, self._n, n_rows):
            yield _Mapped(self._path, first, min(first + n_rows, self._n))

    def largest_part(self, n_rows: int) -> int:
        """Rows of a range."""
        return min(n_rows, self._n)

    def sent_bytes(self, n_rows: int) -> int:
        """None: a part says where its rows are."""
        return 0

    def sample(self, n: int, seed: int) -> Rows:
        """Rows by chance, read in the order of the file."""
        chosen = _chosen(self._n, n, seed)
        return chosen, check_vectors(self._path, map_array(self._path)[chosen])

    def fingerprint(self) -> str:
        """Path, size and time of the file."""
        return f"file {_stamp(self._path)}"


class ParquetSource:
    """A column of vectors in Parquet files, read by row groups.

    Args:
        paths: the files, in the order of their rows.
        column: the column of vectors; not needed if there is only one beside the ids.
        id_column: a column of ids; row numbers by default.
    """

    is_repeatable = True

    def __init__(
        self, paths: Sequence[Path], column: str | None = None, id_column: str | None = None
    ) -> None:
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise ImportError(f"Parquet files need: {install('arrow')}") from error
        self._groups: list[_RowGroup] = []
        self._counts: list[int] = []
        first = 0
        for path in (each.absolute() for each in paths):  # workers have directories of their own
            file = pyarrow.parquet.ParquetFile(path)
            names = [each for each in file.schema_arrow.names if each != id_column]
            chosen = column or (names[0] if len(names) == 1 else None)
            if chosen is None or chosen not in names:
                raise ValueError(f"{path}: expected a column out of {names}, got {column}")
            for group in range(file.metadata.num_row_groups):
                n_rows = file.metadata.row_group(group).num_rows
                if n_rows:  # writers leave files without rows
                    self._groups.append(_RowGroup(str(path), group, first, chosen, id_column))
                    self._counts.append(n_rows)
                    first += n_rows
        if not first:
            raise ValueError(f"expected Parquet files with rows, got {len(paths)} without")
        self.dim = self._groups[0].read()[1].shape[1]

    def parts(self, n_rows: int) -> Iterator[Part]:
        """The row groups, whatever their size."""
        yield from self._groups

    def largest_part(self, n_rows: int) -> int:
        """Rows of the largest row group."""
        return max(self._counts)

    def sent_bytes(self, n_rows: int) -> int:
        """None: a part says where its rows are."""
        return 0

    def sample(self, n: int, seed: int) -> Rows:
        """Rows of row groups, by chance."""
        rng = np.random.default_rng(seed)
        chosen, found = rng.permutation(len(self._groups)), list[Rows]()
        share = min(1.0, 4 * n / sum(self._counts))
        for group in chosen:
            ids, rows = self._groups[group].read()
            kept = np.sort(rng.permutation(len(ids))[: max(1, round(share * len(ids)))])
            found.append((ids[kept], rows[kept]))
            if sum(len(each) for each, _ in found) >= n:
                break
        ids, rows = (np.concatenate(each) for each in zip(*found, strict=True))
        return ids[:n], rows[:n]

    def fingerprint(self) -> str:
        """Paths, sizes and times of the files, and the columns."""
        read = {g.path: (g.column, g.id_column) for g in self._groups}
        return "parquet " + " ".join(f"{_stamp(path)} {names}" for path, names in read.items())


class DatasetSource:
    """A dataset of Ray Data, which reads it in the background while parts are divided.

    Its blocks come in the order in which they are done, which differs from run to run.

    Args:
        dataset: a `ray.data.Dataset`.
        column: the column of vectors.
        id_column: a column of ids; by default row numbers in the order of the dataset, to which
            its execution is then held.
    """

    is_repeatable = False

    def __init__(self, dataset: Any, column: str | None, id_column: str | None) -> None:
        self._dataset, self._id_column = dataset, id_column
        first = next(self._batches(1), None)
        if first is None:
            raise ValueError("expected a dataset with rows, got one without")
        names = [each for each in first.column_names if each != id_column]
        chosen = column or (names[0] if len(names) == 1 else None)
        if chosen is None or chosen not in names:
            raise ValueError(f"expected a column of vectors out of {names}, got {column}")
        self._column, self._kinds = chosen, [f"{each.name} {each.type}" for each in first.schema]
        self.dim = int(self._read(first, 0)[1].shape[1])

    def _batches(self, n_rows: int, *, in_order: bool = False) -> Iterator[Any]:
        """Tables of so many rows; in the order of the dataset, if that is asked for."""
        options = self._dataset.context.execution_options
        before = options.preserve_order
        options.preserve_order = before or in_order
        try:
            yield from self._dataset.iter_batches(batch_size=n_rows, batch_format="pyarrow")
        finally:
            options.preserve_order = before

    def _read(self, table: Any, first: int) -> Rows:
        return _rows_of(table, self._column, self._id_column, first)

    def parts(self, n_rows: int) -> Iterator[Part]:
        """Batches of the stream."""
        first = 0
        for table in self._batches(n_rows, in_order=self._id_column is None):
            ids, rows = self._read(table, first)
            first += len(ids)
            yield _Given(ids, rows)

    def largest_part(self, n_rows: int) -> int:
        """Rows of a batch."""
        return n_rows

    def sent_bytes(self, n_rows: int) -> int:
        """Bytes of a batch."""
        return 4 * n_rows * self.dim

    def sample(self, n: int, seed: int) -> Rows:
        """A reservoir of rows, by one pass over the stream."""
        rng = np.random.default_rng(seed)
        keys = np.zeros(0)
        ids, rows = np.zeros(0, np.int64), np.zeros((0, self.dim), np.float32)
        first = 0
        for table in self._batches(65_536):
            more_ids, more = self._read(table, first)
            first += len(more_ids)
            keys = np.concatenate([keys, rng.random(len(more_ids))])
            ids, rows = np.concatenate([ids, more_ids]), np.concatenate([rows, more])
            kept = np.sort(np.argsort(keys, kind="stable")[:n])
            keys, ids, rows = keys[kept], ids[kept], rows[kept]
        return ids, rows

    def fingerprint(self) -> str:
        """Columns and files, as far as Ray knows them; different datasets may share them."""
        files = sorted(self._dataset.input_files())
        return f"dataset {self._kinds} {files} {self._column} {self._id_column}"


def source_of(
    given: object, *, ids: object = None, column: str | None = None, id_column: str | None = None
) -> Source:
    """Find out how to read vectors.

    Args:
        given: an array; a path of a file, or of a directory of Parquet files; a `ray.data.Dataset`.
        ids: ids of an array's vectors.
        column: column of vectors, of a Parquet file or dataset.
        id_column: column of ids, of a Parquet file or dataset.
    """
    is_dataset = type(given).__module__.startswith("ray.data")
    is_file = isinstance(given, (str, Path))
    if ids is not None and (is_dataset or is_file):
        got = "a dataset" if is_dataset else "a file"
        raise ValueError(f"expected ids beside an array, got them beside {got}")
    if is_dataset:
        return DatasetSource(given, column, id_column)
    if not isinstance(given, (str, Path)):
        _refuse_columns(column, id_column, "an array")
        return ArraySource(given, ids)
    path, key = locate(given)
    if path.is_dir() or path.suffix.lower() == ".parquet":
        if key and column and key != column:
            raise ValueError(f"{path}: expected one column of vectors, got {key} and {column}")
        paths = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        return ParquetSource(paths, column or key, id_column)
    _refuse_columns(column, id_column, str(given))
    if path.suffix.lower() in MAPPED:
        return MappedSource(path)
    return ArraySource(read_array(given))


def _refuse_columns(column: str | None, id_column: str | None, given: str) -> None:
    """Refuse names of columns where there are none."""
    for name, value in (("column", column), ("id_column", id_column)):
        if value is not None:
            expected = f"expected {name} beside a Parquet file or a dataset"
            raise ValueError(f"{expected}, got {name}={value!r} beside {given}")


def _rows_of(table: Any, column: str, id_column: str | None, first: int) -> Rows:
    """Ids and vectors of an Arrow table whose first row has this number."""
    rows = check_vectors(column, table[column])
    if id_column is None:
        return np.arange(first, first + len(rows), dtype=np.int64), rows
    return checked_ids(as_array(id_column, table[id_column]), len(rows)), rows


def _chosen(n: int, wanted: int, seed: int) -> Ids:
    """Row numbers by chance, in order."""
    if wanted >= n:
        return np.arange(n, dtype=np.int64)
    return np.sort(np.random.default_rng(seed).choice(n, wanted, replace=False)).astype(np.int64)


def _stamp(path: str) -> str:
    status = os.stat(path)
    return f"{path} {status.st_size} {status.st_mtime_ns}"
