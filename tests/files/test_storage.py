"""Laws of index directories."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from l2route.files.storage import FORMAT, LOCK, META, SCHEMA, read_index, write_index

Content = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""What is said of an index, and its arrays."""


def content(seed: int, n: int = 20) -> Content:
    """A small index; "shared" is in every one of them."""
    rng = np.random.default_rng(seed)
    return {"made_by": seed}, {
        "vectors": rng.normal(size=(n, 16)).astype(np.float32),
        "neighbors": rng.integers(0, n, (n, 4), dtype=np.int32),
        "shared": np.arange(5, dtype=np.int64),
    }


def same(a: Content, b: Content) -> bool:
    """Whether one holds the arrays and words of the other."""
    (a_meta, a_arrays), (b_meta, b_arrays) = a, b
    return (
        a_meta["made_by"] == b_meta["made_by"]
        and a_arrays.keys() == b_arrays.keys()
        and all(np.array_equal(a_arrays[name], b_arrays[name]) for name in a_arrays)
    )


def saved(path: Path, seed: int = 1) -> dict[str, Any]:
    """Write a small index and return its meta.json."""
    write_index(path, *content(seed))
    meta: dict[str, Any] = json.loads((path / META).read_text())
    return meta


def named_files(path: Path) -> set[str]:
    """Files that an index has by its meta.json, and the lock of those who save it."""
    meta = json.loads((path / META).read_text())
    return {META, LOCK, *(entry["file"] for entry in meta["arrays"].values())}


def files_in(path: Path) -> set[str]:
    """Files that are there."""
    return {file.name for file in path.iterdir()}


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
    """Arrays come back bit by bit, with their shapes and types, and so does what is said."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "index"
        write_index(path, {"metric": "l2", "n": 3}, arrays)
        meta, read = read_index(path, mmap=mmap, verify=verify)
        assert (meta["metric"], meta["n"]) == ("l2", 3)
        assert read.keys() == arrays.keys()
        for name, array in arrays.items():
            assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
            assert read[name].tobytes() == array.tobytes()


def test_arrays_are_mapped_or_aligned(tmp_path: Path) -> None:
    """With mmap arrays are views of their files; without, they start on a cache line."""
    saved(tmp_path / "index")
    for mapped in read_index(tmp_path / "index", mmap=True)[1].values():
        assert isinstance(mapped, np.memmap)
        assert not mapped.flags.writeable
    for copied in read_index(tmp_path / "index")[1].values():
        assert not isinstance(copied, np.memmap)
        assert copied.ctypes.data % 64 == 0


def test_a_directory_is_made_with_those_above_it(tmp_path: Path) -> None:
    """An index may be saved where no directory is yet."""
    saved(tmp_path / "a" / "b" / "index")
    assert same(read_index(tmp_path / "a" / "b" / "index"), content(1))


def test_a_new_index_replaces_the_old(tmp_path: Path) -> None:
    """After a save only the new index is there: its files, and none of the old."""
    saved(tmp_path, 1)
    first = files_in(tmp_path)
    saved(tmp_path, 2)
    assert same(read_index(tmp_path), content(2))
    assert files_in(tmp_path) == named_files(tmp_path)
    assert files_in(tmp_path) != first


def test_files_of_others_stay(tmp_path: Path) -> None:
    """A save removes files of its own kind only."""
    saved(tmp_path)
    (tmp_path / "README.md").write_text("my index")
    (tmp_path / "notes").mkdir()
    saved(tmp_path, 2)
    assert (tmp_path / "README.md").read_text() == "my index"
    assert (tmp_path / "notes").is_dir()


def test_equal_bytes_in_another_shape_are_another_array(tmp_path: Path) -> None:
    """An array whose bytes are those of the old one, but not its shape or type, is saved."""
    zeros = np.zeros((4, 6), dtype=np.float32)
    for array in (zeros, zeros.reshape(6, 4), zeros.view(np.int32), zeros.ravel()):
        write_index(tmp_path, {}, {"a": array})
        read = read_index(tmp_path)[1]["a"]
        assert (read.shape, read.dtype) == (array.shape, array.dtype)


@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_saving_again_mends_a_damaged_index(tmp_path: Path, damage: str) -> None:
    """After a save the index is whole, whatever state the files were in before it."""
    meta = saved(tmp_path)
    file = tmp_path / meta["arrays"]["vectors"]["file"]
    whole = file.read_bytes()
    file.write_bytes(whole[:-100] if damage == "truncated" else whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match="expected"):
        read_index(tmp_path)
    saved(tmp_path)
    assert same(read_index(tmp_path), content(1))


def test_other_things_are_not_overwritten(tmp_path: Path) -> None:
    """A file, a directory that is no index and an index of something else are refused."""
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


class PowerCut(BaseException):
    """The machine stops here; no handler of errors runs."""


@contextmanager
def power_cut(monkeypatch: pytest.MonkeyPatch, n_steps: int) -> Iterator[list[str]]:
    """Let so many steps of a save happen and none after them.

    Steps are the calls that change the disk. A write that is cut off leaves half of its bytes.
    """
    done: list[str] = []

    def cut_off(name: str, step: Callable[..., Any], half: Callable[..., Any]) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            if len(done) >= n_steps:
                if len(done) == n_steps:
                    done.append(f"half of {name}")
                    half(*args, **kwargs)
                raise PowerCut
            done.append(name)
            return step(*args, **kwargs)

        return called

    def nothing(*args: Any, **kwargs: Any) -> None:
        pass

    write_array = np.lib.format.write_array

    def half_array(stream: Any, array: NDArray[Any], **options: Any) -> None:
        whole = io.BytesIO()
        write_array(whole, array, **options)
        stream.write(whole.getvalue()[: len(whole.getvalue()) // 2])
        stream.flush()

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", cut_off("replace", os.replace, nothing))
        patch.setattr(os, "fsync", cut_off("fsync", os.fsync, nothing))
        patch.setattr(Path, "unlink", cut_off("unlink", Path.unlink, nothing))
        patch.setattr(Path, "mkdir", cut_off("mkdir", Path.mkdir, nothing))
        patch.setattr(Path, "open", cut_off("open", Path.open, nothing))
        cut = cut_off("write", write_array, half_array)
        patch.setattr(np.lib.format, "write_array", cut)
        yield done


def cut_saves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: Path | None, new: Content
) -> Iterator[Path]:
    """Directories after a save over `before` that was cut off at its every step."""
    for n_steps in range(1000):
        path = tmp_path / f"cut{n_steps}"
        if before is not None:
            shutil.copytree(before, path)
        with power_cut(monkeypatch, n_steps) as done:
            try:
                write_index(path, *new)
            except PowerCut:
                whole = False
            else:
                whole = True
        yield path
        if whole:
            assert set(done) >= {"replace", "fsync", "open", "write"}
            return
    pytest.fail("the save never ends")


def test_a_save_cut_off_leaves_the_old_or_the_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A save cut off at any step leaves the old index or the new one; the next save tidies up."""
    old, new = content(1), content(2)
    write_index(tmp_path / "old", *old)
    became_new = []
    for path in cut_saves(monkeypatch, tmp_path, tmp_path / "old", new):
        read = read_index(path)
        assert same(read, old) or same(read, new)
        became_new.append(same(read, new))
        write_index(path, *content(3))
        assert same(read_index(path), content(3))
        assert files_in(path) == named_files(path)
    assert became_new == sorted(became_new)
    assert not became_new[0]
    assert became_new[-1]


def test_a_first_save_cut_off_leaves_nothing_or_the_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where no index was, none is found after a cut or the new one, and saving again works."""
    new = content(2)
    for path in cut_saves(monkeypatch, tmp_path, None, new):
        with suppress(FileNotFoundError):
            assert same(read_index(path), new)
        write_index(path, *new)
        assert same(read_index(path), new)
        assert files_in(path) == named_files(path)


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write an index whose meta.json is changed."""
    meta = saved(path)
    change(meta)
    (path / META).write_text(json.dumps(meta))


BAD_META: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "next schema": (
        lambda m: m.update(schema=SCHEMA + 1),
        rf"meta.json: expected schema {SCHEMA}, got {SCHEMA + 1}",
    ),
    "no schema": (lambda m: m.pop("schema"), f"expected schema {SCHEMA}, got None"),
    "other format": (
        lambda m: m.update(format="pictures"),
        f"expected format {FORMAT}, got 'pictures'",
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
    """What meta.json says is checked; the error names the file, what is expected and what came."""
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
    """A meta.json that is no JSON object is refused, however it is damaged."""
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
    """A file name in meta.json with a path in it, or that is no name, is refused."""
    path = tmp_path / "index"
    np.save(tmp_path / "secret.npy", np.arange(5))
    edited(path, lambda meta: meta["arrays"]["shared"].update(file=name))
    (path / "sub").mkdir()
    np.save(path / "sub" / "a.npy", np.arange(5))
    np.save(path / "a.npy", np.arange(5))
    with pytest.raises((ValueError, FileNotFoundError)):
        read_index(path)


def test_missing_files_are_missing(tmp_path: Path) -> None:
    """A directory, a meta.json or an array that is not there is a FileNotFoundError with its name.

    So is a file where the directory should be.
    """
    with pytest.raises(FileNotFoundError, match="absent: expected an index directory"):
        read_index(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"expected an index directory with meta\.json"):
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
    """Make a named pipe, which blocks who opens it to read."""
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    """Make a socket, by a name that is short enough for one."""
    with socket.socket(socket.AF_UNIX) as end, chdir(path.parent):
        end.bind(path.name)


@pytest.mark.parametrize("put", [put_pipe, put_socket, Path.mkdir], ids=["pipe", "socket", "dir"])
@pytest.mark.parametrize("mmap", [False, True])
def test_only_regular_files_are_read(
    tmp_path: Path, put: Callable[[Path], None], mmap: bool
) -> None:
    """A pipe, a socket or a directory instead of a file is refused by name, and nothing waits.

    Saving replaces it, unless it is a directory.
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
    """An array cut off anywhere is refused, with its file's name, also without checksums."""
    file = tmp_path / saved(tmp_path)["arrays"]["neighbors"]["file"]
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=f"{file.name}: expected"):
            read_index(tmp_path, mmap=mmap, verify=verify)


@pytest.mark.parametrize("mmap", [False, True])
def test_changed_arrays_are_refused(tmp_path: Path, mmap: bool) -> None:
    """Any flipped bit of an array is seen by its checksum."""
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
    """An array of a type that no index has is refused or read, even if meta.json agrees to it."""
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
    """The core reads whole numbers: an array at an odd place in its file is moved or refused."""
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
    """The core reads rows, so a file in column order is refused."""
    edited(tmp_path, lambda m: m["arrays"]["vectors"].update(file="columns.npy"))
    np.save(tmp_path / "columns.npy", np.asfortranarray(content(1)[1]["vectors"]))
    with pytest.raises(ValueError, match=r"columns\.npy: expected"):
        read_index(tmp_path)


@pytest.mark.parametrize("mmap", [False, True])
def test_pickles_are_not_run(tmp_path: Path, mmap: bool) -> None:
    """An array of Python objects is refused before anything in it runs."""

    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "boom",)

    objects = np.array([Bomb()] * 5, dtype=object)
    edited(tmp_path, lambda m: m["arrays"]["shared"].update(file="bomb.npy", dtype="object"))
    np.save(tmp_path / "bomb.npy", objects, allow_pickle=True)
    with pytest.raises(ValueError, match=r"bomb\.npy: expected"):
        read_index(tmp_path, mmap=mmap, verify=False)
    assert not (tmp_path / "boom").exists()
