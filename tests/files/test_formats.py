"""Laws of vector files."""

from __future__ import annotations

import os
import random
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from fuzzing import EFFORT
from l2route.files.finite import first_nonfinite_row
from l2route.files.formats import (
    SUFFIXES,
    list_keys,
    read_array,
    read_attributes,
    read_npz,
    write_array,
    write_hdf5,
    write_npz,
)

DTYPES = {
    ".fvecs": np.float32,
    ".bvecs": np.uint8,
    ".ivecs": np.int32,
    ".fbin": np.float32,
    ".u8bin": np.uint8,
    ".i8bin": np.int8,
}
SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)


def numbers(dtype: Any) -> st.SearchStrategy[NDArray[Any]]:
    """Small 2-D arrays of finite numbers."""
    elements = hnp.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False)
    return hnp.arrays(dtype, SHAPES, elements=elements)


def keyed(suffix: str) -> str:
    """The source of a file of this kind, with a key if the format needs one."""
    return f"a{suffix}:train" if suffix in (".npz", ".hdf5", ".h5") else f"a{suffix}"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("mmap", [False, True])
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_what_is_written_is_read(suffix: str, mmap: bool, data: st.DataObject) -> None:
    """An array read back has the values, the shape and the dtype of the array written."""
    dtypes = [np.float16, np.float32, np.float64, np.int64, np.uint8]
    dtype = DTYPES.get(suffix) or data.draw(st.sampled_from(dtypes))
    array = data.draw(numbers(dtype))
    with tempfile.TemporaryDirectory() as directory:
        source = f"{directory}/{keyed(suffix)}"
        write_array(source, array)
        read = read_array(source, mmap=mmap)
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)
        assert [path.name for path in Path(directory).iterdir()] == [f"a{suffix}"]


@pytest.mark.parametrize(("suffix", "code"), [(".fvecs", "f"), (".bvecs", "B"), (".ivecs", "i")])
def test_vecs_rows_start_with_their_dimension(tmp_path: Path, suffix: str, code: str) -> None:
    """A TEXMEX file has, per row, a little-endian int32 dimension and the values."""
    path = tmp_path / f"a{suffix}"
    path.write_bytes(struct.pack(f"<i3{code}", 3, 1, 2, 3) + struct.pack(f"<i3{code}", 3, 4, 5, 6))
    np.testing.assert_array_equal(read_array(path), [[1, 2, 3], [4, 5, 6]])
    write_array(tmp_path / f"b{suffix}", read_array(path))
    assert (tmp_path / f"b{suffix}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("suffix", "code"), [(".fbin", "f"), (".u8bin", "B"), (".i8bin", "b")])
def test_bin_starts_with_its_shape(tmp_path: Path, suffix: str, code: str) -> None:
    """A big-ann file has n and d as little-endian uint32, then the values."""
    path = tmp_path / f"a{suffix}"
    path.write_bytes(struct.pack(f"<II6{code}", 2, 3, 1, 2, 3, 4, 5, 6))
    np.testing.assert_array_equal(read_array(path), [[1, 2, 3], [4, 5, 6]])
    write_array(tmp_path / f"b{suffix}", read_array(path))
    assert (tmp_path / f"b{suffix}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("suffix", [".fvecs", ".bvecs", ".ivecs", ".fbin", ".u8bin", ".npy"])
def test_mapped_file_is_not_copied(tmp_path: Path, suffix: str) -> None:
    """With mmap the array is a view of the file; without it, a contiguous copy."""
    array = np.arange(12, dtype=DTYPES.get(suffix, np.float32)).reshape(4, 3)
    write_array(tmp_path / f"a{suffix}", array)
    assert isinstance(read_array(tmp_path / f"a{suffix}", mmap=True), np.memmap)
    read = read_array(tmp_path / f"a{suffix}")
    assert type(read) is np.ndarray
    assert read.flags.c_contiguous
    assert read.flags.writeable


def test_fortran_order_and_numpy_files_are_read(tmp_path: Path) -> None:
    """Files of np.save and np.savez are read, in either memory order."""
    array = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", x=array, y=np.array("l2"))
    np.testing.assert_array_equal(read_array(tmp_path / "a.npy"), array)
    np.testing.assert_array_equal(read_array(f"{tmp_path}/a.npz:x"), array)
    assert str(read_npz(tmp_path / "a.npz")["y"]) == "l2"


def test_single_array_of_npz_needs_no_key(tmp_path: Path) -> None:
    """The key may be omitted if an npz file holds one array."""
    write_npz(tmp_path / "a.npz", {"only": np.ones((2, 2))})
    np.testing.assert_array_equal(read_array(tmp_path / "a.npz"), np.ones((2, 2)))


def test_path_with_a_colon_is_a_path_if_it_exists(tmp_path: Path) -> None:
    """A source that exists as a path is that file, even if it contains a colon."""
    for name in ("a:b.npy", "a.npz:b.npy"):
        write_array(tmp_path / name, np.ones((1, 2)))
        np.testing.assert_array_equal(read_array(tmp_path / name), np.ones((1, 2)))


def test_hdf5_groups_attributes_and_keys(tmp_path: Path) -> None:
    """A dataset in a group is found by its path; keys and attributes are listed."""
    path = tmp_path / "a.h5"
    write_hdf5(path, {"g/x": np.ones((2, 3)), "y": np.zeros((1, 1))}, {"distance": "dot", "d": 3})
    np.testing.assert_array_equal(read_array(f"{path}:g/x"), np.ones((2, 3)))
    assert list_keys(path) == ("g", "y")
    assert read_attributes(path) == {"distance": "dot", "d": "3"}
    with pytest.raises(ValueError, match="expected g to be a dataset"):
        read_array(f"{path}:g")


def bad_files(directory: Path) -> dict[str, str]:
    """Write one file per fault; return the text that each message must contain."""
    return bad_headers(directory) | bad_arrays(directory)


def bad_headers(directory: Path) -> dict[str, str]:
    """Files with wrong bytes for their format."""

    def put(name: str, content: bytes) -> str:
        (directory / name).write_bytes(content)
        return name

    row = struct.pack("<iff", 2, 1.0, 2.0)
    return {
        put("a.txt", b"1 2"): "expected one of .fvecs",
        put("empty.fvecs", b""): "empty file",
        put("empty.npz", b""): "empty file",
        put("short.fvecs", row[:-1]): "truncated",
        put("tiny.fvecs", b"\1"): "expected a dimension",
        put("mixed.fvecs", row + struct.pack("<iff", 3, 1.0, 2.0)): "expected dimension 2 in every",
        put("negative.fvecs", struct.pack("<if", -1, 1.0)): "expected a dimension from 1",
        put("absurd.bvecs", struct.pack("<ib", 2**31 - 1, 1)): "expected a dimension from 1",
        put("short.fbin", struct.pack("<IIf", 2, 1, 1.0)): "truncated",
        put("long.fbin", struct.pack("<IIff", 1, 1, 1.0, 1.0)): "too long",
        put("head.u8bin", b"\1\0\0"): "header of 8 bytes",
        put("zero.u8bin", struct.pack("<II", 0, 3)): "at least one row",
        put("absurd.u8bin", struct.pack("<II", 2**32 - 1, 2**32 - 1)): "1 to 1000000 dimensions",
        put("huge.u8bin", struct.pack("<II", 2**32 - 1, 1000)): "truncated",
        put("nan.fvecs", row + struct.pack("<iff", 2, 1.0, float("nan"))): "NaN or inf in row 1",
        put("inf.fbin", struct.pack("<IIff", 2, 1, 1.0, float("inf"))): "NaN or inf in row 1",
        put("noise.npy", b"\x93NUMPY\1\0\x06\0{'a':}"): "expected a npy file",
        put("noise.npz", b"PK no zip"): "expected an npz file",
        put("noise.hdf5", b"\x89HDF no"): "expected an HDF5 file",
    }


def bad_arrays(directory: Path) -> dict[str, str]:
    """Files that hold something other than one array [n, d] of real numbers."""
    write_npz(directory / "two.npz", {"base": np.ones((1, 1)), "query": np.ones((1, 1))})
    write_hdf5(directory / "one.hdf5", {"train": np.ones((1, 1)), "flat": np.ones(3)}, {})
    np.save(directory / "flat.npy", np.ones(3))
    np.save(directory / "cube.npy", np.ones((2, 2, 2)))
    np.save(directory / "none.npy", np.ones((0, 2)))
    np.save(directory / "text.npy", np.array([["a"]]))
    np.save(directory / "complex.npy", np.array([[1j]]))
    np.save(directory / "pickle.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    np.savez(directory / "pickle.npz", x=np.array([[{}]], dtype=object))
    with h5py.File(directory / "outside.h5", "w") as file:
        file.create_dataset("x", (1, 1), "f4", external=[("elsewhere.bin", 0, 4)])
    return {
        "flat.npy": r"expected an array \[n, d\], got shape \[3\]",
        "cube.npy": r"got shape \[2, 2, 2\]",
        "none.npy": "at least one row",
        "text.npy": "expected real numbers",
        "complex.npy": "expected real numbers",
        "pickle.npy": "expected plain values, got dtype object",
        "pickle.npz": "expected plain values, got dtype object",
        "two.npz": "expected a key out of base, query, got none",
        "two.npz:learn": "expected a key out of base, query, got 'learn'",
        "one.hdf5": "expected a key out of flat, train, got none",
        "one.hdf5:test": "expected a key out of flat, train, got 'test'",
        "one.hdf5:flat": r"got shape \[3\]",
        "outside.h5:x": "expected x to be a dataset within the file",
    }


def test_every_fault_has_its_message(tmp_path: Path) -> None:
    """A bad file is a ValueError of one line with the file and what was expected."""
    for name, message in bad_files(tmp_path).items():
        for mmap in (False, True):
            with pytest.raises(ValueError, match=message) as caught:
                read_array(tmp_path / name, mmap=mmap)
            assert str(caught.value).startswith(str(tmp_path / name.partition(":")[0]))
            assert "\n" not in str(caught.value)


def test_missing_file_is_file_not_found(tmp_path: Path) -> None:
    """A missing file is a FileNotFoundError of one line, with or without a key."""
    for name in ("a.fvecs", "a.npz:x", "a.hdf5:x", "a.txt", "a.npy:x"):
        with pytest.raises(FileNotFoundError, match=r"^no such file: \S+$"):
            read_array(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"^no such directory: \S+$"):
        write_array(tmp_path / "no" / "a.npy", np.ones((1, 1)))
    (tmp_path / "d.npy").mkdir()
    with pytest.raises(ValueError, match="expected a regular file"):
        read_array(tmp_path / "d.npy")


def link_out(file: Any, other: Path) -> dict[str, str]:
    """Add every kind of link to another file to an HDF5 file; return the messages expected."""
    file["external"] = h5py.ExternalLink(str(other), "/x")
    file["outside"] = h5py.ExternalLink(str(other), "/")
    file["soft"] = h5py.SoftLink("/external")
    file["inner"] = h5py.SoftLink("/here")
    file.create_group("g")["external"] = h5py.ExternalLink(str(other), "/x")
    layout = h5py.VirtualLayout((2, 3), "f4")
    layout[:] = h5py.VirtualSource(str(other), "x", (2, 3))
    file.create_virtual_dataset("virtual", layout)
    file.create_dataset("stored", (2, 3), "f4", external=[(str(other), 0, 24)])
    return {
        "external": "expected external to be within the file, got a link",
        "outside/x": "expected outside/x to be within the file, got a link",
        "soft": "expected soft to be within the file, got a link",
        "inner": "expected inner to be within the file, got a link",
        "g/external": "expected g/external to be within the file, got a link",
        "virtual": "expected virtual to be a dataset within the file",
        "stored": "expected stored to be a dataset within the file",
    }


@pytest.mark.parametrize("is_pipe", [False, True])
def test_hdf5_leads_to_no_other_file(tmp_path: Path, is_pipe: bool) -> None:
    """Links and datasets in other files are refused, and those files are not opened."""
    path, other = tmp_path / "a.h5", tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        file["here"] = np.ones((2, 3), "f4")
        messages = link_out(file, other)
    os.mkfifo(other) if is_pipe else write_hdf5(other, {"x": np.ones((2, 3), "f4")}, {})
    np.testing.assert_array_equal(read_array(f"{path}:here"), np.ones((2, 3)))
    assert set(list_keys(path)) >= {"here", "external", "soft"}
    for key, message in messages.items():
        with pytest.raises(ValueError, match=message):
            read_array(f"{path}:{key}")
    with pytest.raises(ValueError, match=r"expected a key out of .*here.*, got 'absent/x'"):
        read_array(f"{path}:absent/x")
    with pytest.raises(ValueError, match=r"expected a key out of .*here.*, got 'here/x'"):
        read_array(f"{path}:here/x")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_named_pipe_is_refused(tmp_path: Path, suffix: str) -> None:
    """A named pipe is refused without blocking."""
    os.mkfifo(tmp_path / f"a{suffix}")
    with pytest.raises(ValueError, match="expected a regular file, got a named pipe"):
        read_array(tmp_path / keyed(suffix))


def mutate(raw: bytes, rng: random.Random) -> bytes:
    """Cut a file short, or change, insert or remove some of its bytes."""
    changed = bytearray(raw)
    if rng.random() < 0.25:
        return bytes(changed[: rng.randrange(len(raw))])
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        at = rng.randrange(len(changed))
        if rng.random() < 0.1:
            changed[at:at] = rng.randbytes(rng.randrange(1, 5))
        elif rng.random() < 0.1:
            del changed[at : at + rng.randrange(1, 5)]
        else:
            changed[at] = rng.choice([0, 0xFF, 0x7F, rng.randrange(256)])
    return bytes(changed)


def rewrite(path: Path, content: bytes) -> None:
    """Replace a file; truncating it in place makes some file systems wait for the disk."""
    path.unlink()
    path.write_bytes(content)


def refusal(read: Callable[..., object], source: Path, **options: bool) -> str | None:
    """The message of the ValueError that reading raises; None if it succeeds."""
    try:
        read(source, **options)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_any_bytes_give_an_array_or_a_value_error(tmp_path: Path, suffix: str) -> None:
    """Reading a damaged file returns a valid array or raises a ValueError."""
    rng = random.Random(suffix)
    array = np.arange(15, dtype=DTYPES.get(suffix, np.float32)).reshape(5, 3)
    write_array(tmp_path / keyed(suffix), array)
    raw = (tmp_path / f"a{suffix}").read_bytes()
    messages = []
    for _ in range(300 * EFFORT):
        rewrite(tmp_path / f"a{suffix}", mutate(raw, rng))
        mmap = rng.random() < 0.5
        message = refusal(read_array, tmp_path / keyed(suffix), mmap=mmap)
        if message is None:
            read = read_array(tmp_path / keyed(suffix), mmap=mmap)
            assert read.ndim == 2
            assert read.size > 0
            assert np.isfinite(read).all()
        else:
            messages.append(message)
    assert len(messages) > 30
    assert all(message.startswith(str(tmp_path)) for message in messages)


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_any_bytes_in_listings_too(tmp_path: Path, suffix: str) -> None:
    """Damaged keys, attributes and whole npz files are read or refused with a ValueError."""
    rng = random.Random(suffix)
    path = tmp_path / f"a{suffix}"
    write_array(f"{path}:x", np.ones((3, 2), np.float32))
    raw = path.read_bytes()
    for _ in range(200 * EFFORT):
        rewrite(path, mutate(raw, rng))
        for read in (list_keys, read_npz if suffix == ".npz" else read_attributes):
            message = refusal(read, path)
            assert message is None or message.startswith(str(tmp_path))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """A failed write leaves the old file and no temporary file."""
    path = tmp_path / "a.bvecs"
    write_array(path, np.ones((2, 2)))
    before = path.read_bytes()
    faults = {
        "expected values that fit uint8": np.full((2, 2), 256),
        "expected values that fit": np.full((2, 2), 0.5),
        "expected finite numbers": np.full((2, 2), np.nan),
        "expected an array": np.ones(3),
        "expected real numbers": np.array([["a"]]),
    }
    for message, array in faults.items():
        with pytest.raises(ValueError, match=message):
            write_array(path, array)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_writing_rounds_floats_but_nothing_else(tmp_path: Path) -> None:
    """float64 is rounded to float32; an overflow, or an integer that does not fit, is an error."""
    write_array(tmp_path / "a.fvecs", [[0.1, 0.2]])
    np.testing.assert_array_equal(
        read_array(tmp_path / "a.fvecs"), np.array([[0.1, 0.2]], np.float32)
    )
    for array in ([[1e300]], [[2**24 + 1]]):
        with pytest.raises(ValueError, match="expected values that fit float32"):
            write_array(tmp_path / "a.fvecs", array)
    with pytest.raises(ValueError, match="expected values that fit int32"):
        write_array(tmp_path / "a.ivecs", [[2**31]])
    with pytest.raises(ValueError, match="expected one of"):
        write_array(tmp_path / "a.csv", [[1]])
    with pytest.raises(ValueError, match="expected a key"):
        write_array(tmp_path / "a.h5", [[1]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3, 1_500_000])
def test_first_bad_row_is_found(dtype: Any, width: int) -> None:
    """The first row with a NaN or infinity is found; large finite values are accepted."""
    array = np.full((4, width), np.finfo(dtype).max, dtype)
    assert first_nonfinite_row(array) is None
    array[3, 0] = np.nan
    array[2, width - 1] = -np.inf
    assert first_nonfinite_row(array) == 2
    assert first_nonfinite_row(array[:, ::-1]) == 2
    assert first_nonfinite_row(np.ones((2, 2), int)) is None


def test_hdf5_without_h5py_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without h5py the error for an HDF5 file names the extra to install."""
    write_array(f"{tmp_path}/a.h5:x", np.ones((1, 1)))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r'pip install "l2route\[hdf5\]"'):
        read_array(f"{tmp_path}/a.h5:x")
