"""Laws of small files with much in them: refused before the memory is taken, with what is free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from l2route.files import memory
from l2route.files.formats import read_array
from l2route.files.names import read_names

N = 1_000_000


def as_npz(path: Path) -> str:
    """Zeros in a compressed npz file."""
    np.savez_compressed(path / "a.npz", base=np.zeros((N, 4), np.float32))
    return f"{path}/a.npz"


def as_hdf5(path: Path) -> str:
    """Zeros in a compressed HDF5 file."""
    with h5py.File(path / "a.hdf5", "w") as file:
        file.create_dataset("base", data=np.zeros((N, 4), np.float32), compression="gzip")
    return f"{path}/a.hdf5:base"


def as_parquet(path: Path) -> str:
    """A list repeated in a Parquet file, which keeps it once."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(4 * N, np.float32)), 4)
    pq.write_table(pa.table({"vector": rows}), path / "a.parquet")
    return f"{path}/a.parquet"


def as_long_rows(path: Path) -> str:
    """Very long rows of a Parquet file."""
    pq.write_table(pa.table({"vector": [np.zeros(N, np.float32)] * 4}), path / "a.parquet")
    return f"{path}/a.parquet"


def as_arrow(path: Path) -> str:
    """Compressed batches of an Arrow file."""
    flat = pa.array(np.zeros(4 * N // 16, np.float32))
    batch = pa.record_batch({"vector": pa.FixedSizeListArray.from_arrays(flat, 4)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path / "a.arrow", batch.schema, options=options) as writer:
        for _ in range(16):
            writer.write_batch(batch)
    return f"{path}/a.arrow"


@pytest.mark.parametrize("write", [as_npz, as_hdf5, as_parquet, as_long_rows, as_arrow])
def test_more_than_is_free_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], str]
) -> None:
    """A small file with more content than there is free memory is refused, and read with room."""
    source = write(tmp_path)
    assert max(each.stat().st_size for each in tmp_path.iterdir()) < 16 * N / 50
    monkeypatch.setattr(memory, "available_bytes", lambda: 10_000_000)
    with pytest.raises(ValueError, match=r"expected at most 8,000,000 bytes of data, 80% of free"):
        read_array(source)
    monkeypatch.setattr(memory, "available_bytes", lambda: 40_000_000)
    assert read_array(source).size == 4 * N


def test_long_texts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long name that a Parquet file keeps once counts for each row that has it."""
    names = pa.array(["x" * 10_000] * 2000)
    pq.write_table(pa.table({"name": names}), tmp_path / "a.parquet")
    monkeypatch.setattr(memory, "available_bytes", lambda: 10_000_000)
    with pytest.raises(ValueError, match="of free memory"):
        read_names(tmp_path / "a.parquet")
