"""Laws of snapshots: what an index was is kept, and comes back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from l2route.files import snapshots
from l2route.files.meta import META
from l2route.files.storage import StaleError
from l2route.index import RoutingIndex, load

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(300, 8)).astype(np.float32)


@pytest.fixture
def index(tmp_path: Path) -> RoutingIndex:
    """A small index that was saved in `tmp_path / "index"`."""
    made = RoutingIndex.build(VECTORS, degree=8)
    made.save(tmp_path / "index")
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Its directory."""
    return tmp_path / "index"


def content(index: RoutingIndex) -> dict[int, bytes]:
    """The vectors of an index by their ids."""
    return {id_: index.vectors([id_]).tobytes() for id_ in index}


def change(index: RoutingIndex, at: int) -> None:
    """Change an index in one of several ways, and save or commit that."""
    index.add(VECTORS[:2] + at + 1)
    index.delete(index.ids[:3])
    if at % 3 == 2:
        index.compress("int8", space="original")
    if at % 2:
        index.save()
    else:
        index.commit()


def test_any_snapshot_comes_back(index: RoutingIndex, path: Path) -> None:
    """Every snapshot is loaded and restored as it was, in any order, whatever came after it."""
    expected = {}
    for at in range(6):
        change(index, at)
        expected[f"s{at}"] = content(index)
        taken = index.snapshot(f"s{at}")
        assert (taken.name, taken.path) == (f"s{at}", path / "snapshots" / f"s{at}")
    assert [each.name for each in index.versions()] == list(expected)
    for name in ("s3", "s0", "s5", "s0"):
        index.restore(name)
        for each in (index, load(path), load(path / "snapshots" / name, mmap=True)):
            assert content(each) == expected[name]
        change(index, 1)
        assert content(load(path)) == content(index)
    for name, then in expected.items():
        assert content(load(path / "snapshots" / name)) == then


def test_a_snapshot_takes_no_room(index: RoutingIndex, path: Path) -> None:
    """A snapshot shares its files with the index, and can be copied by any tool."""
    index.snapshot("one")
    for file in (path / "snapshots" / "one").glob("*.npy"):
        assert file.samefile(path / file.name)
    shutil.copytree(path / "snapshots" / "one", path.parent / "backup")
    assert content(load(path.parent / "backup")) == content(index)


def test_what_was_changed_before_a_restore_is_not_made_again(
    index: RoutingIndex, path: Path
) -> None:
    """Another process cannot save changes of what the index was; it follows if it is told to."""
    other = load(path)
    index.snapshot("one")
    before = content(index)
    other.refresh()
    other.add(VECTORS[:1], [900])
    other.commit()
    other.add(VECTORS[:1], [901])
    index.restore("one")
    assert content(index) == content(load(path)) == before
    for write in (other.save, other.commit, other.refresh):
        with pytest.raises(StaleError, match="replaced or restored"):
            write()
    assert other.refresh(discard=True)
    assert content(other) == before
    other.add(VECTORS[:1], [902])
    other.save()
    assert 902 in load(path)


def test_the_oldest_are_removed(index: RoutingIndex, path: Path) -> None:
    """With `keep` the newest snapshots stay; names by default are in the order of time."""
    names = []
    for n in range(5):
        index.add(VECTORS[:1] + n)
        names.append(index.snapshot(keep=3).name)
        assert [each.name for each in index.versions()] == names[-3:]
    assert names == sorted(names)
    assert sorted(os.listdir(path / "snapshots")) == names[-3:]


def test_names_that_are_none(index: RoutingIndex, path: Path) -> None:
    """Names that lead elsewhere or are taken, and snapshots that there are not, are refused."""
    for name in ("", ".", "..", "a/b", "../x", ".hidden", "a" * 200, "é", "a\n"):
        with pytest.raises(ValueError, match="expected a name of letters"):
            index.snapshot(name)
    index.snapshot("one")
    with pytest.raises(FileExistsError, match="expected a name that no snapshot has"):
        index.snapshot("one")
    with pytest.raises(FileNotFoundError, match="expected a snapshot among one, got two"):
        index.restore("two")
    with pytest.raises(ValueError, match="expected at least 1 snapshot"):
        index.snapshot(keep=0)
    with pytest.raises(FileNotFoundError, match="expected an index directory"):
        snapshots.take_snapshot(path.parent / "none")
    with pytest.raises(ValueError, match="that was saved or loaded"):
        RoutingIndex.build(VECTORS).versions()


def test_a_damaged_snapshot_does_not_take_its_place(index: RoutingIndex, path: Path) -> None:
    """A snapshot with a damaged file is refused, and the index stays."""
    index.snapshot("one")
    index.add(VECTORS[:1])
    index.save()
    file = next((path / "snapshots" / "one").glob("neighbors.*.npy"))
    content_ = bytearray(file.read_bytes())
    content_[-1] ^= 1
    file.unlink()
    file.write_bytes(content_)
    with pytest.raises(ValueError, match="expected checksum"):
        index.restore("one")
    assert len(load(path)) == 301


def test_without_hard_links_files_are_copied(
    index: RoutingIndex, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without hard links a snapshot has files of its own."""

    def no_links(source: Path, target: Path) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    before = content(index)
    index.snapshot("one")
    change(index, 2)
    index.restore("one")
    assert content(load(path)) == before


def test_a_snapshot_that_fails_leaves_nothing(
    index: RoutingIndex, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full, or the process killed, no snapshot is there; the next one works."""

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        with pytest.raises(OSError, match="No space"):
            snapshots.take_snapshot(path, "one")
    assert os.listdir(path / "snapshots") == []
    script = (
        "import os, sys; from pathlib import Path; from l2route.files import snapshots;"
        "os.replace = lambda *_: os._exit(7); snapshots.take_snapshot(Path(sys.argv[1]), 'one')"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)]).returncode == 7
    assert index.versions() == []
    index.snapshot("one")
    assert os.listdir(path / "snapshots") == ["one"]
    assert (path / "snapshots" / "one" / META).is_file()


def test_snapshots_while_others_change(index: RoutingIndex, path: Path) -> None:
    """Snapshots taken while others commit and save are whole, and none is older than the last."""
    n_taken = 15

    def go_on(seed: int) -> None:
        other = load(path)
        for at in range(12):
            other.add(VECTORS[at : at + 1], [1000 * seed + at])
            if at % 4:
                other.commit()
            else:
                other.save()

    with ThreadPoolExecutor(2) as pool:
        changing = [pool.submit(go_on, seed) for seed in (1, 2)]
        taken = [snapshots.take_snapshot(path, f"s{at:02}") for at in range(n_taken)]
        for each in changing:
            each.result()
    known: set[int] = set()
    for each in taken:
        held = set(load(each.path))
        assert known <= held
        known = held
    assert len(load(path)) == 324
