"""Laws of damaged directories with patches: an error that names the file, or the intact index."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from damage import Files, cut, edit_json, extend, flip_bytes, remove, swap
from fuzzing import EFFORT
from l2route.files.hashing import hash_arrays
from l2route.files.meta import META, signed
from l2route.files.npy import map_npy, write_npy
from l2route.files.storage import LOCK, read_index, write_index
from saved_content import content, files_in, named_files, patched_content, same, saved_twice

N_TRIALS = 1500 * EFFORT


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of an index with two patches."""
    path = tmp_path_factory.mktemp("intact")
    saved_twice(path)
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != LOCK}


def write(path: Path, files: Files) -> None:
    """Make a directory hold these files."""
    held = {file.name: file.read_bytes() for file in path.iterdir()}
    for name in held:
        if held[name] != files.get(name):
            (path / name).unlink()  # some file systems flush a file that is written over
    for name, data in files.items():
        if held.get(name) != data:
            (path / name).write_bytes(data)


def edit_meta(files: Files, rng: random.Random) -> None:
    """Change values of meta.json."""
    try:
        meta = json.loads(files[META])
    except (ValueError, KeyError):
        return
    edit_json(meta, rng)
    files[META] = json.dumps(meta).encode()


def edit_patches(files: Files, rng: random.Random) -> None:
    """Change values of the list of patches, and give meta.json a valid checksum."""
    try:
        meta = json.loads(files[META])
        edit_json(meta["patches"], rng)
        files[META] = signed(meta)
    except (ValueError, KeyError, TypeError):
        return


MUTATIONS = [flip_bytes, flip_bytes, cut, extend, swap, remove, edit_meta, edit_meta]


def mutated(intact: Files, rng: random.Random, mutations: list[Any]) -> Files:
    """Damaged files, by one or a few mutations."""
    files = dict(intact)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if len(files) > 1 and any(files.values()):
            rng.choice(mutations)(files, rng)
    return files


def read_or_none(path: Path, **options: bool) -> Any:
    """What is read from a directory; None if it is refused by an error that names it."""
    try:
        return read_index(path, **options)
    except (FileNotFoundError, ValueError) as error:
        assert str(path) in str(error)  # noqa: PT017 # an error is allowed, not required
        return None


def test_a_damaged_directory_is_refused_or_intact(intact: Files, tmp_path: Path) -> None:
    """With verify, damaged files are refused or read as they were saved."""
    rng = random.Random(0)
    outcomes: Counter[bool] = Counter()
    for _ in range(N_TRIALS):
        files = mutated(intact, rng, MUTATIONS)
        write(tmp_path, files)
        read = read_or_none(tmp_path, mmap=rng.random() < 0.5)
        assert read is None or same(read, patched_content())
        outcomes[read is None] += 1
    assert outcomes[True] > N_TRIALS // 2


def test_a_forged_directory_is_refused_or_sound(intact: Files, tmp_path: Path) -> None:
    """Patches forged with valid checksums of meta.json, or not verified: no crash.

    What is read has the shapes and dtypes that its record of the save says.
    """
    rng = random.Random(1)
    outcomes: Counter[bool] = Counter()
    for _ in range(N_TRIALS):
        mutations: list[Any] = [edit_patches, edit_patches, flip_bytes]
        write(tmp_path, mutated(intact, rng, mutations))
        read = read_or_none(tmp_path, mmap=rng.random() < 0.5, verify=rng.random() < 0.5)
        outcomes[read is None] += 1
        if read is not None:
            _, arrays, saved = read
            assert arrays.keys() == saved.layouts.keys()
            for name, array in arrays.items():
                assert (array.dtype, array.shape) == (
                    saved.layouts[name].dtype,
                    saved.layouts[name].shape,
                )
                array.tobytes()
    assert min(outcomes.values()) > N_TRIALS // 20


def test_every_byte_of_a_patch_counts(intact: Files, tmp_path: Path) -> None:
    """A patch cut off anywhere, or with any byte of its rows changed, is refused by name."""
    for entry in json.loads(intact[META])["patches"]:
        name, whole = entry["file"], intact[entry["file"]]
        for at in range(0, len(whole), 3):  # for speed
            write(tmp_path, intact | {name: whole[:at]})
            with pytest.raises(ValueError, match=f"{name}: expected"):
                read_index(tmp_path, mmap=at % 2 == 0, verify=False)
            if at >= 128:  # a byte of the header may be a space
                write(tmp_path, intact | {name: with_bit_flipped(whole, at)})
                with pytest.raises(ValueError, match=f"{name}: expected checksum"):
                    read_index(tmp_path, mmap=at % 2 == 0)


def with_bit_flipped(data: bytes, at: int) -> bytes:
    """The data with one bit changed."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_every_byte_of_meta_counts(intact: Files, tmp_path: Path) -> None:
    """With any byte of meta.json changed, the index is refused or the same."""
    whole = intact[META]
    n_refused = 0
    for at in range(len(whole)):
        write(tmp_path, intact | {META: with_bit_flipped(whole, at)})
        read = read_or_none(tmp_path, verify=False)
        assert read is None or same(read, patched_content())
        n_refused += read is None
    assert n_refused > len(whole) // 2


def reseal(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change meta.json and give it a valid checksum."""
    meta = json.loads((path / META).read_text())
    change(meta)
    (path / META).write_bytes(signed(meta))


def part(**values: Any) -> Callable[[dict[str, Any]], Any]:
    """Change the part of vectors in the second patch."""
    return lambda meta: meta["patches"][1]["parts"]["vectors"].update(values)


def parts(table: Any) -> Callable[[dict[str, Any]], Any]:
    """Replace the table of parts of the second patch."""
    return lambda meta: meta["patches"][1].update(parts=table)


BAD_PATCHES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no parts": (parts(None), r"meta.json: expected a list of patches with parts, got"),
    "no patch": (lambda m: m["patches"].append(3), r"meta.json: expected a list of patches with"),
    "unknown array": (parts({"x": {}}), r"npy: expected parts of arrays with rows, got one of 'x'"),
    "no part": (parts({"vectors": 3}), r"npy: expected numbers of rows of vectors, got 3"),
    "no rows": (part(rows=0), r"npy: expected numbers of rows of vectors, got \{"),
    "true": (part(rows=True), r"npy: expected numbers of rows of vectors, got \{"),
    "fraction": (part(length=2.0), r"npy: expected numbers of rows of vectors, got \{"),
    "more rows": (part(rows=10**18), r"npy: expected packed rows uint8 \[\d+\], got uint8 \["),
    "shorter": (part(length=19), r"npy: expected vectors to keep its 20 rows, got 19"),
    "short": (part(length=23), r"npy: expected row numbers of vectors in \[0, 23\), got"),
    "long": (part(length=2**40), r"npy: expected every new row of vectors from 20 on, got 4 of"),
    "order": (lambda m: m["patches"].reverse(), r"npy: expected vectors to keep its 24 rows, got"),
    "path": (lambda m: m["patches"][0].update(file="../x.npy"), "plain file name for a patch"),
    "dtype": (lambda m: m["patches"][0].update(dtype="int8"), r"npy: expected int8 \[\d+\], got"),
}


@pytest.mark.parametrize("fault", BAD_PATCHES)
@pytest.mark.parametrize("verify", [False, True])
def test_wrong_tables_are_refused(tmp_path: Path, fault: str, verify: bool) -> None:
    """Wrong entries of patches are refused with what was expected and found."""
    change, message = BAD_PATCHES[fault]
    saved_twice(tmp_path)
    reseal(tmp_path, change)
    with pytest.raises(ValueError, match=message) as caught:
        read_index(tmp_path, verify=verify)
    assert str(tmp_path) in str(caught.value)


BAD_NUMBERS: dict[str, tuple[Callable[[NDArray[np.int64]], Any], str]] = {
    "negative": (lambda n: n.__setitem__(0, -1), r"row numbers of neighbors in \[0, 20\), got -1"),
    "wild": (lambda n: n.__setitem__(0, 2**62), r"row numbers of neighbors in \[0, 20\), got"),
    "twice": (lambda n: n.__setitem__(1, n[0]), "ascending row numbers of neighbors, got"),
    "descending": (lambda n: n.__setitem__(slice(None), n[::-1].copy()), "ascending row numbers"),
}


@pytest.mark.parametrize("fault", BAD_NUMBERS)
def test_wrong_row_numbers_are_refused(tmp_path: Path, fault: str) -> None:
    """Row numbers out of range or not ascending are refused, even with valid checksums."""
    change, message = BAD_NUMBERS[fault]
    saved_twice(tmp_path)
    entry = json.loads((tmp_path / META).read_text())["patches"][0]
    packed = np.array(map_npy(tmp_path / entry["file"]))
    n_rows = entry["parts"]["neighbors"]["rows"]
    change(packed[: 8 * n_rows].view(np.int64))
    with (tmp_path / entry["file"]).open("wb") as stream:
        write_npy(stream, packed)
    reseal(tmp_path, lambda m: m["patches"][0].update(checksum=hash_arrays("", packed)))
    for verify in (False, True):
        with pytest.raises(ValueError, match=rf"{entry['file']}: expected {message}"):
            read_index(tmp_path, verify=verify)


def test_patches_and_journals_belong_to_their_schemas(tmp_path: Path) -> None:
    """Patches or a journal in schema 1, and a wrong or no checksum of meta.json, are refused."""
    saved_twice(tmp_path)
    meta = json.loads((tmp_path / META).read_text())
    for change, message in (
        ({"schema": 1}, "expected no journal in schema 1"),
        ({"schema": 2}, "expected no journal in schema 2"),
        ({"checksum": "00"}, "expected checksum .*, got '00' in it"),
        ({"checksum": None}, "expected checksum .*, got None in it"),
        ({"made_by": 4}, "expected checksum"),
        ({"patches": meta["patches"][:1]}, "expected checksum"),
    ):
        (tmp_path / META).write_text(json.dumps(meta | change))
        with pytest.raises(ValueError, match=rf"meta\.json: {message}"):
            read_index(tmp_path, verify=False)


def test_a_whole_save_mends_a_damaged_directory(intact: Files, tmp_path: Path) -> None:
    """A whole save over damaged files leaves the new index and nothing else."""
    rng = random.Random(2)
    for trial in range(50 * EFFORT):
        files = mutated(intact, rng, [flip_bytes, cut, extend])
        files[META] = rng.choice([files[META], intact[META]])
        path = tmp_path / str(trial)
        path.mkdir()
        write(path, files)
        try:
            write_index(path, *content(7), overwrite=True)
        except ValueError as error:  # meta.json is not one of an index any more
            assert "expected an index or an empty directory" in str(error)  # noqa: PT017 # or none
            continue
        assert same(read_index(path), content(7))
        assert files_in(path) == named_files(path)
