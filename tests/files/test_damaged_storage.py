"""Laws of damaged index directories: the error names the file and the fault."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.files.meta import FORMAT, META, SCHEMA, signed
from l2route.files.storage import LOCK, read_index
from saved_content import content, files_in, named_files, same, saved


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write an index and change its meta.json."""
    meta = saved(path)
    change(meta)
    (path / META).write_bytes(signed(meta))


BAD_META: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "next schema": (
        lambda m: m.update(schema=SCHEMA + 1),
        rf"meta.json: expected schema 1 to {SCHEMA}, got {SCHEMA + 1}",
    ),
    "no schema": (
        lambda m: m.pop("schema"),
        f"expected schema 1 to {SCHEMA}, got None",
    ),
    "other format": (
        lambda m: m.update(format="pictures"),
        f"expected format {FORMAT}, got 'pictures'",
    ),
    "no epoch": (lambda m: m.pop("epoch"), "expected epoch as .*, got None"),
    "a journal elsewhere": (
        lambda m: m.update(journal="../journal.0123456789abcdef.log"),
        "expected journal as .*, got '../journal",
    ),
    "no arrays": (lambda m: m.pop("arrays"), "expected a table of arrays, got None"),
    "list of arrays": (lambda m: m.update(arrays=[1]), r"expected a table of arrays, got \[1\]"),
    "no description": (lambda m: m["arrays"].update(shared=3), "description of shared, got 3"),
    "no file": (lambda m: m["arrays"]["shared"].pop("file"), "file name for shared, got None"),
    "dtype": (
        lambda m: m["arrays"]["vectors"].update(dtype="float64"),
        r"expected float64 \[20, 16\], got float32 \[20, 16\]",
    ),
    "shape": (
        lambda m: m["arrays"]["vectors"].update(shape=[16, 20]),
        r"expected float32 \[16, 20\], got float32 \[20, 16\]",
    ),
    "checksum": (
        lambda m: m["arrays"]["vectors"].update(checksum="00"),
        "expected checksum 00, got",
    ),
}


@pytest.mark.parametrize("fault", BAD_META)
def test_wrong_words_are_refused(tmp_path: Path, fault: str) -> None:
    """Wrong values in meta.json are refused; the error names what was expected and found."""
    change, message = BAD_META[fault]
    edited(tmp_path, change)
    with pytest.raises(ValueError, match=message) as caught:
        read_index(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        "\xff\xfe",
        "{}" * 2,
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 5000,
    ],
    ids=range(10),
)
def test_damaged_meta_is_refused(tmp_path: Path, text: str) -> None:
    """A meta.json that is not a JSON object is refused."""
    saved(tmp_path)
    (tmp_path / META).write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"meta\.json: expected"):
        read_index(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../secret.npy", "sub/a.npy", "..", ".", "", "a\0b.npy", "./a.npy", "\ud800",
     "a" * 1000, 3, None, ["a.npy"]],
    ids=repr,
)  # fmt: skip
def test_file_names_lead_nowhere_else(tmp_path: Path, name: object) -> None:
    """A file name in meta.json that is a path, or not a name at all, is refused."""
    path = tmp_path / "index"
    np.save(tmp_path / "secret.npy", np.arange(5))
    edited(path, lambda meta: meta["arrays"]["shared"].update(file=name))
    (path / "sub").mkdir()
    np.save(path / "sub" / "a.npy", np.arange(5))
    np.save(path / "a.npy", np.arange(5))
    with pytest.raises((ValueError, FileNotFoundError)):
        read_index(path)


def test_missing_files_are_missing(tmp_path: Path) -> None:
    """A missing directory, meta.json or array is a FileNotFoundError that names it.

    So is a file in place of the directory.
    """
    with pytest.raises(FileNotFoundError, match="absent: expected an index directory"):
        read_index(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"expected an index directory, got no meta\.json"):
        read_index(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match="file: expected an index directory"):
        read_index(tmp_path / "file")
    meta = saved(tmp_path / "index")
    for entry in meta["arrays"].values():
        saved(tmp_path / "index")
        (tmp_path / "index" / entry["file"]).unlink()
        with pytest.raises(FileNotFoundError, match=entry["file"]):
            read_index(tmp_path / "index")


def put_pipe(path: Path) -> None:
    """Make a named pipe; opening it to read would block."""
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    """Make a socket. Its path is relative, because paths of sockets must be short."""
    with socket.socket(socket.AF_UNIX) as end, chdir(path.parent):
        end.bind(path.name)


@pytest.mark.parametrize("put", [put_pipe, put_socket, Path.mkdir], ids=["pipe", "socket", "dir"])
@pytest.mark.parametrize("mmap", [False, True])
def test_only_regular_files_are_read(
    tmp_path: Path, put: Callable[[Path], None], mmap: bool
) -> None:
    """A pipe, socket or directory in place of a file is refused by name, without blocking.

    A save replaces pipes and sockets in place of arrays, and refuses the rest.
    """
    saved(tmp_path)
    for name in sorted(named_files(tmp_path) - {LOCK}):
        (tmp_path / name).unlink()
        put(tmp_path / name)
        with pytest.raises(ValueError, match=rf"{name}: expected a regular file, got a"):
            read_index(tmp_path, mmap=mmap)
        if put is Path.mkdir or name == META:
            with pytest.raises((ValueError, OSError), match="expected"):
                saved(tmp_path)
            (tmp_path / name).rmdir() if put is Path.mkdir else (tmp_path / name).unlink()
            for file in files_in(tmp_path):
                (tmp_path / file).unlink()
        saved(tmp_path)
        assert same(read_index(tmp_path), content(1))
        assert files_in(tmp_path) == named_files(tmp_path)


def test_files_beside_an_index_do_not_matter(tmp_path: Path) -> None:
    """Files that meta.json does not name are not read."""
    saved(tmp_path)
    (tmp_path / "more.npy").write_bytes(b"garbage")
    (tmp_path / "meta.partial").write_bytes(b"garbage")
    assert same(read_index(tmp_path), content(1))


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("verify", [False, True])
def test_truncated_arrays_are_refused(tmp_path: Path, mmap: bool, verify: bool) -> None:
    """An array file truncated at any byte is refused by name, also without checksums."""
    file = tmp_path / saved(tmp_path)["arrays"]["neighbors"]["file"]
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=f"{file.name}: expected"):
            read_index(tmp_path, mmap=mmap, verify=verify)


@pytest.mark.parametrize("mmap", [False, True])
def test_changed_arrays_are_refused(tmp_path: Path, mmap: bool) -> None:
    """A flipped bit of an array is detected by its checksum."""
    file = tmp_path / saved(tmp_path)["arrays"]["shared"]["file"]
    whole = file.read_bytes()
    for at in range(128, len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=f"{file.name}: expected checksum"):
            read_index(tmp_path, mmap=mmap)
    file.write_bytes(whole)
    assert same(read_index(tmp_path, mmap=mmap), content(1))


def array_file(path: Path, header: str, data: bytes) -> None:
    """Write an .npy file by hand."""
    text = header.encode("latin-1") + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data)


ODD_ARRAYS = {
    "structured": ("[('a', '<i4'), ('b', '<f4')]", "void64", 8),
    "text": ("'<U4'", "str128", 16),
    "bytes": ("'|S4'", "bytes32", 4),
    "dates": ("'<M8[s]'", "datetime64[s]", 8),
    "spans": ("'<m8[s]'", "timedelta64[s]", 8),
    "raw": ("'|V4'", "void32", 4),
    "empty text": ("'<U0'", "str", 0),
    "big-endian": ("'>i8'", "int64", 8),
    "half": ("'<f2'", "float16", 2),
    "complex": ("'<c16'", "complex128", 16),
    "bool": ("'|b1'", "bool", 1),
}


@pytest.mark.parametrize("kind", ODD_ARRAYS)
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("verify", [False, True])
def test_arrays_of_odd_types_are_no_danger(
    tmp_path: Path, kind: str, mmap: bool, verify: bool
) -> None:
    """An array of an unusual dtype is refused or read, even if meta.json declares that dtype."""
    descr, name, size = ODD_ARRAYS[kind]
    edited(tmp_path, lambda m: m["arrays"]["shared"].update(dtype=name, file="odd.npy"))
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (5,)}}"
    array_file(tmp_path / "odd.npy", header, bytes(5 * size))
    try:
        array = read_index(tmp_path, mmap=mmap, verify=verify)[1]["shared"]
    except ValueError as error:
        assert "odd.npy: expected" in str(error)  # noqa: PT017 # no error is right too
    else:
        assert array.shape == (5,)


@pytest.mark.parametrize("mmap", [False, True])
def test_arrays_are_aligned_wherever_they_stand(tmp_path: Path, mmap: bool) -> None:
    """An array at a misaligned offset of its file is copied to an aligned one or refused."""
    edited(tmp_path, lambda m: m["arrays"]["shared"].update(file="odd.npy"))
    array = content(1)[1]["shared"]
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {array.shape}}}"
    for n_spaces in range(8):
        array_file(tmp_path / "odd.npy", header + " " * n_spaces, array.tobytes())
        try:
            read = read_index(tmp_path, mmap=mmap)[1]["shared"]
        except ValueError as error:
            assert "odd.npy: expected" in str(error)  # noqa: PT017 # no error is right too
        else:
            assert read.flags.aligned
            np.testing.assert_array_equal(read, array)


def test_arrays_in_column_order_are_refused(tmp_path: Path) -> None:
    """An array in column order is refused, because the core reads rows."""
    edited(tmp_path, lambda m: m["arrays"]["vectors"].update(file="columns.npy"))
    np.save(tmp_path / "columns.npy", np.asfortranarray(content(1)[1]["vectors"]))
    with pytest.raises(ValueError, match=r"columns\.npy: expected"):
        read_index(tmp_path)


@pytest.mark.parametrize("mmap", [False, True])
def test_pickles_are_not_run(tmp_path: Path, mmap: bool) -> None:
    """An array of Python objects is refused without unpickling."""

    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "boom",)

    objects = np.array([Bomb()] * 5, dtype=object)
    edited(tmp_path, lambda m: m["arrays"]["shared"].update(file="bomb.npy", dtype="object"))
    np.save(tmp_path / "bomb.npy", objects, allow_pickle=True)
    with pytest.raises(ValueError, match=r"bomb\.npy: expected"):
        read_index(tmp_path, mmap=mmap, verify=False)
    assert not (tmp_path / "boom").exists()
