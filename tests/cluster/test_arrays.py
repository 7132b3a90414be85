"""Laws of arrays beside a manifest: read as they were written, and bounded by their entries."""

from pathlib import Path

import numpy as np
import pytest

from l2route.cluster.arrays import read_array, write_array
from l2route.cluster.folder import MAX_TEXT_BYTES, Folder


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_arrays_may_be_larger_than_texts(tmp_path: Path, scheme: str) -> None:
    """An array of any size is read as it was written: the truth of 50,000 queries has 65 MB."""
    folder = Folder(f"{scheme}{tmp_path}")
    array = np.zeros((2, MAX_TEXT_BYTES // 2 + 1), dtype=np.int8)
    array[1, -1] = 5
    entry = write_array(folder, "truth", array)
    np.testing.assert_array_equal(read_array(folder, entry), array)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_files_longer_than_their_entry_are_refused(tmp_path: Path, scheme: str) -> None:
    """A file that was made longer or shorter than the entry says is refused."""
    folder = Folder(f"{scheme}{tmp_path}")
    entry = write_array(folder, "x", np.arange(10))
    path = tmp_path / entry["file"]
    content = path.read_bytes()
    for wrong in (content + bytes(100_000), content + b"0", content[:-1], b""):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"x\.\w+\.npy: expected"):
            read_array(folder, entry)


@pytest.mark.parametrize(
    "wrong", [{"shape": None}, {"shape": [-1]}, {"shape": ["a"]}, {"shape": 3}, {"dtype": "no"}]
)
def test_forged_entries_are_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    """An entry whose dtype or shape is no dtype or shape is an error that names the file."""
    folder = Folder(tmp_path)
    entry = write_array(folder, "x", np.arange(10)) | wrong
    with pytest.raises(ValueError, match=r"x\.\w+\.npy: expected"):
        read_array(folder, entry)


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    """A missing file is no broken one."""
    entry = write_array(Folder(tmp_path), "x", np.arange(10))
    (tmp_path / entry["file"]).unlink()
    with pytest.raises(FileNotFoundError):
        read_array(Folder(tmp_path), entry)
