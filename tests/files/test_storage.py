"""Laws of index directories: written, read, replaced, and cut off while saving."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from l2route.files.storage import META, read_index, write_index
from saved_content import content, files_in, named_files, same, saved

ARRAYS = hnp.arrays(
    st.sampled_from([np.float32, np.int32, np.int64, np.uint8, np.float64]),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=5),
)


@settings(max_examples=50)
@given(
    arrays=st.dictionaries(st.sampled_from(["a", "b", "layer0_x"]), ARRAYS),
    mmap=st.booleans(),
    verify=st.booleans(),
)
def test_what_is_written_is_read(arrays: dict[str, NDArray[Any]], mmap: bool, verify: bool) -> None:
    """Arrays and metadata are read as they were written, bit for bit."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "index"
        write_index(path, {"metric": "l2", "n": 3}, arrays, overwrite=True)
        meta, read, _ = read_index(path, mmap=mmap, verify=verify)
        assert (meta["metric"], meta["n"]) == ("l2", 3)
        assert read.keys() == arrays.keys()
        for name, array in arrays.items():
            assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
            assert read[name].tobytes() == array.tobytes()


def test_arrays_are_mapped_or_aligned(tmp_path: Path) -> None:
    """With mmap arrays are read-only views of files; otherwise they start on a cache line."""
    saved(tmp_path / "index")
    for mapped in read_index(tmp_path / "index", mmap=True)[1].values():
        assert isinstance(mapped, np.memmap)
        assert not mapped.flags.writeable
    for copied in read_index(tmp_path / "index")[1].values():
        assert not isinstance(copied, np.memmap)
        assert copied.ctypes.data % 64 == 0


def test_a_directory_is_made_with_those_above_it(tmp_path: Path) -> None:
    """A save creates its directory and missing parents."""
    saved(tmp_path / "a" / "b" / "index")
    assert same(read_index(tmp_path / "a" / "b" / "index"), content(1))


def test_a_new_index_replaces_the_old(tmp_path: Path) -> None:
    """After a save the directory holds the files of the new index and no old ones."""
    saved(tmp_path, 1)
    first = files_in(tmp_path)
    saved(tmp_path, 2)
    assert same(read_index(tmp_path), content(2))
    assert files_in(tmp_path) == named_files(tmp_path)
    assert files_in(tmp_path) != first


def test_files_of_others_stay(tmp_path: Path) -> None:
    """A save keeps files that no save could have written."""
    saved(tmp_path)
    (tmp_path / "README.md").write_text("my index")
    (tmp_path / "notes").mkdir()
    saved(tmp_path, 2)
    assert (tmp_path / "README.md").read_text() == "my index"
    assert (tmp_path / "notes").is_dir()


def test_equal_bytes_in_another_shape_are_another_array(tmp_path: Path) -> None:
    """An array with the same bytes but another shape or dtype than the saved one is written."""
    zeros = np.zeros((4, 6), dtype=np.float32)
    for array in (zeros, zeros.reshape(6, 4), zeros.view(np.int32), zeros.ravel()):
        write_index(tmp_path, {}, {"a": array}, overwrite=True)
        read = read_index(tmp_path)[1]["a"]
        assert (read.shape, read.dtype) == (array.shape, array.dtype)


@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_saving_again_mends_a_damaged_index(tmp_path: Path, damage: str) -> None:
    """A save replaces damaged array files."""
    meta = saved(tmp_path)
    file = tmp_path / meta["arrays"]["vectors"]["file"]
    whole = file.read_bytes()
    file.write_bytes(whole[:-100] if damage == "truncated" else whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match="expected"):
        read_index(tmp_path)
    saved(tmp_path)
    assert same(read_index(tmp_path), content(1))


def test_other_things_are_not_overwritten(tmp_path: Path) -> None:
    """A file, a directory with other files, and another program's directory are refused."""
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(ValueError, match=r"file: expected a directory or nothing, got a file"):
        saved(file)
    assert file.read_text() == "precious"

    other = tmp_path / "other"
    other.mkdir()
    np.save(other / "precious.npy", np.ones(3))
    with pytest.raises(ValueError, match="expected an index or an empty directory"):
        saved(other)
    (other / META).write_text('{"format": "another program\'s"}')
    with pytest.raises(ValueError, match="expected an index or an empty directory"):
        saved(other)
    assert files_in(other) == {"precious.npy", META}

    empty = tmp_path / "empty"
    empty.mkdir()
    saved(empty)
