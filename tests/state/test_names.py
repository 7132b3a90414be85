"""Laws of the names of an index's ids: they stay with their vectors, in memory and in files."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.typing import NDArray

import l2route
from l2route.data.labels import Labels
from l2route.files import storage

N, DIM = 40, 4
GOLDEN = Path(__file__).parents[1] / "golden" / "names"
NAMES = st.none() | st.text("ab\nß", max_size=3)


def vectors(n: int, seed: int = 0) -> NDArray[np.float32]:
    """Draw some vectors."""
    return np.random.default_rng(seed).standard_normal((n, DIM)).astype(np.float32)


def named_index() -> l2route.RoutingIndex:
    """An index whose ids 0 to 39 are called "name 0" to "name 39"."""
    index = l2route.RoutingIndex.build(vectors(N))
    index.name(Labels.of([f"name {i}" for i in range(N)]))
    return index


def patches_in(path: Path) -> list[Any]:
    """The patches that a directory's meta.json lists."""
    meta = json.loads((path / "meta.json").read_text())
    return list(meta.get("patches", ()))


class NamesMachine(RuleBasedStateMachine):
    """Names follow their vectors through changes, saves and loads."""

    @initialize(names=st.lists(NAMES, min_size=N, max_size=N), data=st.data())
    def begin(self, names: list[str | None], data: Any) -> None:
        """An index of some vectors, some of which have names."""
        self.path = data.draw(st.builds(_directory))
        self.index = l2route.RoutingIndex.build(vectors(N))
        self.index.name(Labels.of(names))
        self.twin = {i: name or None for i, name in enumerate(names)}
        self.saved: dict[int, str | None] | None = None
        self.seed = 0

    def _new(self, n: int) -> NDArray[np.float32]:
        self.seed += 1
        return vectors(n, self.seed)

    @rule(names=st.lists(NAMES, min_size=1, max_size=3))
    def add(self, names: list[str | None]) -> None:
        """New vectors have the names they are given."""
        ids = self.index.add(self._new(len(names)), names=names)
        self.twin |= dict(zip(ids.tolist(), [name or None for name in names], strict=True))

    @rule(pick=st.randoms(use_true_random=False))
    def replace(self, pick: Any) -> None:
        """An id that is deleted and added again has no name."""
        if self.twin:
            id_ = pick.choice(sorted(self.twin))
            self.index.delete([id_])
            self.index.add(self._new(1), [id_])
            self.twin[id_] = None

    @precondition(lambda self: len(self.twin) > 5)
    @rule(pick=st.randoms(use_true_random=False))
    def delete(self, pick: Any) -> None:
        """Names of deleted vectors are gone."""
        ids = pick.sample(sorted(self.twin), 3)
        self.index.delete(ids)
        for id_ in ids:
            del self.twin[id_]

    @rule(pick=st.randoms(use_true_random=False), name=NAMES)
    def rename(self, pick: Any, name: str | None) -> None:
        """A vector that is replaced keeps its name; another name takes its place."""
        id_ = pick.choice(sorted(self.twin))
        self.index.update([id_], self._new(1))
        if name:
            self.index.name(Labels.of([name], [id_]))
            self.twin[id_] = name

    @rule(id_=st.integers(0, 60), name=NAMES)
    def name_behind_its_back(self, id_: int, name: str | None) -> None:
        """A name of an id that the index does not have is not saved."""
        self.index.names.add([name], [id_])
        if id_ in self.twin:
            self.twin[id_] = name or None

    @rule(way=st.sampled_from(["compact", "renumber", "relabel"]))
    def rearrange(self, way: str) -> None:
        """Names follow when rows and ids change."""
        if way == "relabel":
            before = self.index.ids
            self.index.relabel(before + 1_000)
            self.twin = {id_ + 1_000: name for id_, name in self.twin.items()}
        elif way == "renumber":
            self.index.renumber()
        else:
            self.index.compact()

    @rule()
    def save(self) -> None:
        """A save keeps the names."""
        self.index.save(self.path, overwrite=True)
        self.saved = dict(self.twin)

    @precondition(lambda self: self.saved is not None)
    @rule(mmap=st.booleans(), verify=st.booleans())
    def load(self, mmap: bool, verify: bool) -> None:
        """What was saved last is loaded, whatever happened since."""
        assert self.saved is not None
        self.index = l2route.load(self.path, mmap=mmap, verify=verify)
        self.twin = dict(self.saved)
        assert dict(self.index.names) == {i: name for i, name in self.saved.items() if name}

    @rule()
    def copy(self) -> None:
        """Copies have the names too."""
        self.index = copy.deepcopy(self.index)

    @invariant()
    def names_are_those_given(self) -> None:
        """Every vector has its name or none."""
        ids = self.index.ids.tolist()
        assert sorted(ids) == sorted(self.twin)
        assert self.index.names.names(ids) == [self.twin[id_] for id_ in ids]

    def teardown(self) -> None:
        """Remove the directory."""
        if hasattr(self, "path"):
            shutil.rmtree(self.path.parent, ignore_errors=True)


def _directory() -> Path:
    return Path(tempfile.mkdtemp()) / "index"


TestNamesMachine = NamesMachine.TestCase
TestNamesMachine.settings = settings(deadline=None, max_examples=25, stateful_step_count=20)


def test_a_change_of_names_is_saved_as_a_patch(tmp_path: Path) -> None:
    """After a save, a save of a few names writes a few rows, and no name twice."""
    index = named_index()
    index.save(tmp_path / "index")
    new = index.add(vectors(2, 1), names=["new", "newer"])
    index.delete([3])
    index.save()
    (patch,) = patches_in(tmp_path / "index")
    assert patch["parts"]["names_ids"] == {"rows": 3, "length": N + 3}
    index.names.add(["newest"], [int(new[1])])
    index.save()
    (_, patch) = patches_in(tmp_path / "index")
    assert patch["parts"]["names_text"]["rows"] == len("newest")
    loaded = l2route.load(tmp_path / "index")
    assert dict(loaded.names) == dict(index.names)
    assert loaded.names.names([3, *new]) == [None, "new", "newest"]
    loaded.add(vectors(1, 2))
    loaded.save()
    assert "names_ids" not in patches_in(tmp_path / "index")[-1]["parts"]


def test_an_index_without_names_is_saved_as_before(tmp_path: Path) -> None:
    """Arrays of names are written only if there are names, and are gone when all names are."""
    index = l2route.RoutingIndex.build(vectors(N))
    index.save(tmp_path / "index")
    files = {path.name for path in (tmp_path / "index").iterdir()}
    assert not any("names" in name for name in files)
    index.name(Labels.of(["one"], [5]))
    index.save()
    assert any("names" in path.name for path in (tmp_path / "index").iterdir())
    index.names.remove([5])
    index.save()
    assert {path.name for path in (tmp_path / "index").iterdir()} == files


def test_the_first_name_of_a_changed_index_is_saved(tmp_path: Path) -> None:
    """Where no names were saved yet, the index is saved whole, with them."""
    index = l2route.RoutingIndex.build(vectors(N))
    index.save(tmp_path / "index")
    index.add(vectors(1, 1))
    index.save()
    assert len(patches_in(tmp_path / "index")) == 1
    index.name(Labels.of(["one"], [5]))
    index.save()
    assert dict(l2route.load(tmp_path / "index").names) == {5: "one"}


def test_a_failed_save_forgets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that could not be saved are saved by the next save."""
    index = named_index()
    index.save(tmp_path / "index")
    index.add(vectors(1, 1), names=["new"])
    with monkeypatch.context() as patched:
        patched.setattr(storage, "_write_files", _full_disk)
        with pytest.raises(OSError, match="no space"):
            index.save()
    assert "new" not in l2route.load(tmp_path / "index").names
    index.save()
    assert "new" in l2route.load(tmp_path / "index").names


def _full_disk(*_: object) -> None:
    raise OSError("no space left")


def test_unknown_ids_are_not_named() -> None:
    """Names are for ids of the index, one per new vector; otherwise nothing changes."""
    index = named_index()
    with pytest.raises(ValueError, match="expected ids of the index, got 77"):
        index.name(Labels.of(["one", "two"], [1, 77]))
    with pytest.raises(ValueError, match="expected 2 names, one per vector, got 1"):
        index.add(vectors(2), names=["one"])
    with pytest.raises(ValueError, match="expected ids that the index does not have, got 1"):
        index.add(vectors(2), [99, 1], names=["one", "two"])
    with pytest.raises(ValueError, match="expected ids of the index, got 77"):
        index.delete([1, 77])
    assert (len(index), index.names.names([1, 77, 99])) == (N, ["name 1", None, None])


def test_an_interrupted_add_leaves_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """If vectors cannot be inserted, their names are not there either."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    index = named_index()
    with pytest.raises(KeyboardInterrupt):
        index.add(vectors(3_000, 1), names=["x"] * 3_000, progress=stop)
    assert len(index) == len(index.names) == N


def test_forged_names_are_refused(tmp_path: Path) -> None:
    """Sizes and texts that do not fit, bad UTF-8 and a NUL are errors that name the index."""
    index = named_index()
    faults = {
        "names_sizes": (lambda array: array + 1, "bytes of names"),
        "names_text": (lambda array: array | 0x80, "utf-8"),
        "names_ids": (lambda array: array[:-1].copy(), "sizes of names"),
    }
    for name, (damage, message) in faults.items():
        path = tmp_path / name
        index.save(path)
        meta, arrays, _ = storage.read_index(path)
        damaged = {**arrays, name: damage(arrays[name])}
        storage.write_index(path, meta, damaged, overwrite=True)
        expected = f"{path}: expected an intact index, got .*{message}"
        with pytest.raises(ValueError, match=expected):
            l2route.load(path, verify=False)
    meta, arrays, _ = storage.read_index(tmp_path / "names_ids")
    arrays = {k: v for k, v in arrays.items() if k != "names_sizes"} | {
        "names_ids": np.arange(N, dtype=np.int64)
    }
    storage.write_index(tmp_path / "none", meta, arrays)
    with pytest.raises(ValueError, match="expected an array names_sizes"):
        l2route.load(tmp_path / "none")


def test_names_go_into_forked_processes() -> None:
    """A forked process has the names, finds them, and changes its own."""
    index = named_index()
    assert index.names.search("NAME 39") == [(39, "name 39")]

    def child(answers: Any) -> None:
        index.add(vectors(1, 1), names=["child"])
        answers.put((index.names.ids(["child", "name 7"]).tolist(), index.names.search("chi")))

    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(target=child, args=(answers,))
    process.start()
    assert answers.get(timeout=20) == ([N, 7], [(N, "child")])
    process.join()
    assert "child" not in index.names
    assert dict(pickle.loads(pickle.dumps(index)).names) == dict(index.names)


def write_golden() -> None:
    """Write an index with names, some of them in a patch; see the test below."""
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    index = l2route.RoutingIndex.build(rows, ids=[5, 6, 7, 8, 9, -3], degree=4)
    index.name(Labels.of(["five", "six", "seven", "ñ\n\t", "nine"], [5, 6, 7, 8, 9]))
    index.save(GOLDEN)
    index.delete([6])
    index.add([[50.0, 51.0]], [6])
    index.name(Labels.of(["minus three", "NEUN"], [-3, 9]))
    index.save()
    (GOLDEN / storage.LOCK).unlink()


def test_the_golden_index_has_its_names() -> None:
    """An index with names that was saved once is read by all later versions."""
    index = l2route.load(GOLDEN)
    expected = {5: "five", 7: "seven", 8: "ñ\n\t", 9: "NEUN", -3: "minus three"}
    assert dict(index.names) == expected
    assert sorted(index) == [-3, 5, 6, 7, 8, 9]
    assert index.vectors([6]).tolist() == [[50.0, 51.0]]
