"""Laws of files of ids: what was written is read, and any fault names the file."""

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2route.files.ids import read_ids

IDS = [3, -5, 2**63 - 1, 0]


@given(ids=st.lists(st.integers(-(2**63), 2**63 - 1)), end=st.sampled_from(["\n", "\r\n"]))
def test_text_is_read_line_by_line(
    ids: list[int], end: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A text file has an id per line; blank lines and spaces around ids do not count."""
    path = tmp_path_factory.mktemp("ids") / "ids.TXT"
    path.write_bytes(f" {f' {end}{end}'.join(map(str, ids))} {end}".encode())
    read = read_ids(path)
    assert (read.dtype, read.tolist()) == (np.int64, ids)


def test_arrays_are_read_in_their_type(tmp_path: Path) -> None:
    """npy, npz and HDF5 files hold ids of any integer type, or none."""
    np.save(tmp_path / "ids.npy", np.array(IDS))
    np.savez(tmp_path / "ids.npz", vectors=np.ones((4, 2)), ids=np.arange(4, dtype=np.uint8))
    with h5py.File(tmp_path / "ids.hdf5", "w") as file:
        file["ids"] = np.arange(3, dtype=np.int32)
    np.save(tmp_path / "none.npy", np.zeros(0, dtype=np.int64))
    assert read_ids(tmp_path / "ids.npy").tolist() == IDS
    assert read_ids(f"{tmp_path}/ids.npz:ids").tolist() == [0, 1, 2, 3]
    assert read_ids(f"{tmp_path}/ids.hdf5:ids").tolist() == [0, 1, 2]
    assert read_ids(tmp_path / "none.npy").tolist() == []


def test_a_mask_is_read_where_it_is_expected(tmp_path: Path) -> None:
    """Booleans are no ids."""
    np.save(tmp_path / "mask.npy", np.array([True, False]))
    assert read_ids(tmp_path / "mask.npy", may_be_mask=True).tolist() == [True, False]
    with pytest.raises(ValueError, match=r"mask\.npy: expected ids, got booleans"):
        read_ids(tmp_path / "mask.npy")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n\n2.0\n", "expected a whole number per line, got '2.0' in line 3"),
        ("1 2\n", "expected a whole number per line, got '1 2' in line 1"),
        ("1\n\x00\n", r"expected a whole number per line, got '\x00' in line 2"),
        (f"{2**63}\n", f"expected ids that fit in int64, got {2**63} in line 1"),
    ],
)
def test_text_that_is_no_list_of_ids_is_refused(text: str, message: str, tmp_path: Path) -> None:
    """The error names the file and the line."""
    path = tmp_path / "ids.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
        read_ids(path)


def test_arrays_that_are_no_ids_are_refused(tmp_path: Path) -> None:
    """Floats, several columns, other endings and files that are not there are named."""
    np.save(tmp_path / "floats.npy", np.ones(3))
    np.save(tmp_path / "table.npy", np.ones((3, 1), dtype=np.int64))
    np.savez(tmp_path / "two.npz", a=np.arange(2), b=np.arange(2))
    (tmp_path / "ids.csv").write_text("1\n")
    for name, message in {
        "floats.npy": "expected integers or booleans, got dtype float64",
        "table.npy": "expected an array [n], got shape [3, 1]",
        "two.npz": "expected a key out of a, b, got none",
        "ids.csv": "expected one of .txt .npy .npz .hdf5 .h5 .parquet .arrow .feather, got '.csv'",
    }.items():
        with pytest.raises(ValueError, match=re.escape(f"{name}: {message}")):
            read_ids(tmp_path / name)
    for name in ("none.npy", "none.txt"):
        with pytest.raises(FileNotFoundError, match=f"no such file: .*{name}"):
            read_ids(tmp_path / name)
