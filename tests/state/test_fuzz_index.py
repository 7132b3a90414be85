"""Laws of damaged indexes: they are refused, or answer."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from damage import (
    WILD_FLOATS,
    Files,
    cut,
    edit_json,
    extend,
    flip_bytes,
    outcome_of,
    remove,
    swap,
    wild_integers,
)
from fuzzing import EFFORT
from l2route.files.hashing import hash_arrays
from l2route.files.meta import signed
from l2route.files.patches import Patch
from l2route.files.storage import LOCK, META, append_patch, read_index
from l2route.graph.build import GraphOptions, build_graph
from l2route.index import RoutingIndex
from l2route.search.base import BaseVectors
from l2route.search.space import RoutingSpace, pca_space

N_SEEDS, N_EACH = 8, 250 * EFFORT
N, DIM = 70, 6


def small_index(labels: bool) -> RoutingIndex:
    """A small index with upper layers, a PCA space and a space with a bias."""
    vectors = np.random.default_rng(0).normal(size=(N, DIM)).astype(np.float32)
    base = BaseVectors.of(vectors, "l2")
    graph = build_graph(vectors, "l2", GraphOptions("hnsw", 4, 20))
    bias = np.linspace(-1, 1, N, dtype=np.float32)
    spaces = [pca_space(base, 3), RoutingSpace(base.rows, DIM, "ip", bias=bias, name="biased")]
    return RoutingIndex(base, graph, spaces, np.arange(N) * 3 if labels else None)


def compressed_index() -> RoutingIndex:
    """A small index with codes, float16 vectors and a setting."""
    index = small_index(labels=False)
    index.validate_with(np.random.default_rng(1).normal(size=(10, DIM)))
    index.compress("int4", space="original")
    index.compress("float16", space="pca3")
    index.compress("int8", vectors="float16", space="biased")
    index.setting(0.9, k=3)
    return index


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> list[Files]:
    """The files of five indexes: a small, a labelled, a compressed, a patched and a lived one."""
    found = []
    labelled = small_index(labels=True)
    for index in (small_index(labels=False), labelled, compressed_index(), labelled, None):
        path = tmp_path_factory.mktemp("intact")
        if index is None:
            lived_index(path)
        else:
            index.save(path)
        if len(found) == 3:
            patch_some_rows(path)
        found.append({file.name: file.read_bytes() for file in path.iterdir() if file.name != LOCK})
    assert len(json.loads(found[4][META])["patches"]) == 2
    return found


def patch_some_rows(path: Path) -> None:
    """Save some rows of an index again, as a patch."""
    meta, arrays, saved = read_index(path)
    some = np.array([0, 5, 69])
    names = ("vectors", "neighbors", "labels", "space0_rows")
    append_patch(saved, meta, Patch({name: (some, arrays[name][some]) for name in names}))


def lived_index(path: Path) -> RoutingIndex:
    """An index that lived in a directory: saved whole, then twice what changed."""
    index = small_index(labels=True)
    index = RoutingIndex(index.base, index.graph, index.spaces[1:2], index.labels)
    index.compress("int8", space="original")
    index.save(path)
    index.add(np.ones((3, DIM)))
    index.delete(index.ids[:20])
    index.save()
    index.add(np.eye(DIM))
    index.update(index.ids[:4], np.eye(DIM)[:4] + 1)
    index.save()
    return index


def array_names(files: Files) -> list[str]:
    """Names of array files in a fixed order."""
    return sorted(name for name in files if name != META)


def shift(files: Files, rng: random.Random) -> None:
    """Move an array within its file, so that it is misaligned."""
    name = rng.choice(array_names(files))
    content = files[name]
    length = int.from_bytes(content[8:10], "little")
    header = content[10 : 10 + length].rstrip() + b" " * rng.randrange(4) + b"\n"
    data = content[10 + length :]
    files[name] = content[:8] + len(header).to_bytes(2, "little") + header + data


def set_values(files: Files, rng: random.Random) -> None:
    """Put extreme or wrong values into an array."""
    name = rng.choice(array_names(files))
    array = read_array(files[name])
    if array is None or not array.size or array.dtype.kind not in "fi":
        return
    wild: Sequence[Any] = WILD_FLOATS if array.dtype.kind == "f" else wild_integers(N)
    wild = rng.choice([wild, range(N)])
    with np.errstate(over="ignore"):  # 3e38 overflows float16
        for _ in range(rng.choice([1, 1, 3, 10])):
            value = np.array(rng.choice(wild)).astype(array.dtype)
            array.flat[rng.randrange(array.size)] = value
    files[name] = array_file(array)


def set_words(files: Files, rng: random.Random) -> None:
    """Put numbers of four or eight bytes into a patch: row numbers, labels, ids or floats."""
    patches = [name for name in array_names(files) if name.startswith("patch")]
    if not patches:
        return
    name = rng.choice(patches)
    array = read_array(files[name])
    if array is None or array.dtype != np.uint8 or array.size < 8 or array.ndim != 1:
        return
    dtype = rng.choice(["<i4", "<i8"])
    words = array[: len(array) // 8 * 8].view(dtype)
    for _ in range(rng.choice([1, 1, 3, 10])):
        words[rng.randrange(len(words))] = rng.choice([*wild_integers(N), *range(N + 10)])
    files[name] = array_file(array)


def set_shape(files: Files, rng: random.Random) -> None:
    """Give an array another shape, length or dtype."""
    name = rng.choice(array_names(files))
    array = read_array(files[name])
    if array is None or not array.ndim or array.dtype.kind not in "fiu":
        return
    changes: list[Callable[[], NDArray[Any]]] = [
        lambda: array[:-1],
        lambda: array[:1],
        lambda: array[:0],
        lambda: np.concatenate([array, array]),
        lambda: array[..., None],
        lambda: array.reshape(-1),
        lambda: array.reshape(1, -1),
        lambda: array.T,
        lambda: array[::-1],
        lambda: array[..., :-1],
        lambda: array[..., :0],
        lambda: array.astype(
            rng.choice([np.int64, np.int32, np.float32, np.float64, ">i4", ">f4"])
        ),
        lambda: np.ascontiguousarray(array).view(np.uint8),
        lambda: np.zeros(array.shape, dtype=rng.choice(["U3", "S2", "M8[s]", "i4,f4", "?", "c8"])),
    ]
    with np.errstate(invalid="ignore"):  # not every float has an integer
        files[name] = array_file(np.asarray(rng.choice(changes)()))


def edit_meta(files: Files, rng: random.Random) -> None:
    """Change, remove, swap or copy values of meta.json."""
    meta = json.loads(files[META])
    for _ in range(rng.choice([1, 1, 2, 4])):
        edit_json(meta, rng)
    files[META] = rng.choice([signed(meta), json.dumps(meta).encode()])


MUTATIONS: list[Callable[[Files, random.Random], None]] = [
    *(flip_bytes, cut, extend, swap, remove, shift, shift, set_shape, set_shape),
    *(set_values, set_values, set_values, set_values, edit_meta, edit_meta, edit_meta),
    *(set_words, set_words),
]


def read_array(content: bytes) -> NDArray[Any] | None:
    """The array in a file; None if it cannot be read."""
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception:  # numpy raises many kinds on damaged files
        return None
    return array if isinstance(array, np.ndarray) else None


def array_file(array: NDArray[Any]) -> bytes:
    """The bytes that np.save writes."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def agree(files: Files) -> None:
    """Make meta.json describe the arrays as they are, so that only contents are wrong."""
    try:
        meta = json.loads(files[META])
        patches = meta.get("patches", ())
        for entry in (*meta["arrays"].values(), *patches):
            array = read_array(files[entry["file"]])
            if array is not None:
                entry.update(dtype=array.dtype.name, shape=list(array.shape))
                entry.update(checksum=hash_arrays("", array))
        files[META] = signed(meta)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return


def write(path: Path, files: Files, before: Files) -> None:
    """Make a directory hold these files, given the files it held before."""
    for name in before.keys() - files.keys():
        (path / name).unlink()
    for name, content in files.items():
        if before.get(name) != content:
            (path / name).write_bytes(content)


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_a_damaged_index_is_refused_or_answers(
    intact: list[Files], tmp_path: Path, seed: int
) -> None:
    """Loading a damaged index raises an error that names it, or gives an index that answers.

    The error is a ValueError or FileNotFoundError with the path; answers are ids of the index. A
    quarter of the indexes is loaded without verification, and half have a meta.json that matches
    the damage, so that only checks of the content protect the core.
    """
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    before: Files = {}
    for trial in range(N_EACH):
        files = dict(rng.choice(intact))
        for _ in range(rng.choice([1, 1, 2, 3])):
            if META in files and len(files) > 1:
                rng.choice(MUTATIONS)(files, rng) if is_json(files) else flip_bytes(files, rng)
        if META in files and rng.random() < 0.5:
            agree(files)
        write(tmp_path, files, before)
        before = files
        mmap, verify = rng.random() < 0.5, rng.random() < 0.75
        try:
            outcomes[outcome_of(tmp_path, mmap=mmap, verify=verify)] += 1
        except Exception as error:
            where = f"seed {seed}, trial {trial}, mmap={mmap}, verify={verify}"
            raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
    assert outcomes["index"] > N_EACH // 20  # the search is exercised too
    assert outcomes["refused"] > N_EACH // 2


def is_json(files: Files) -> bool:
    """Whether meta.json can still be edited."""
    try:
        return isinstance(json.loads(files[META]), dict)
    except (ValueError, RecursionError):
        return False


def test_an_intact_index_answers(intact: list[Files], tmp_path: Path) -> None:
    """Intact indexes pass the check of the test above."""
    for number, files in enumerate(intact):
        path = tmp_path / str(number)
        path.mkdir()
        write(path, files, {})
        assert outcome_of(path, mmap=True, verify=True) == "index"
        agree(files)
        write(path, files, {})
        assert outcome_of(path, mmap=False, verify=True) == "index"
