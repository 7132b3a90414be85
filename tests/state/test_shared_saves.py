"""Laws of an index that several hold: no save writes over what it has not seen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.data.labels import Labels
from l2route.files.storage import StaleError
from l2route.index import RoutingIndex, load
from living import check_structure

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(300, 8)).astype(np.float32)
NEW = RNG.normal(size=(20, 8)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The directory of a small index."""
    RoutingIndex.build(VECTORS, degree=8).save(tmp_path / "index")
    return tmp_path / "index"


def holds(index: RoutingIndex, ids: list[int], vectors: Any) -> bool:
    """Whether an index has these vectors under these ids, and is sound."""
    if len(index):
        index.add(NEW[:1], [99_999])
        index.delete([99_999])
        check_structure(index)
    return set(ids) <= set(index) and np.allclose(index.vectors(ids), vectors, atol=2e-3)


def test_changes_of_two_are_joined(path: Path) -> None:
    """Of two that loaded one index, the second to save keeps what the first has saved."""
    one, other = load(path), load(path)
    one.add(NEW[:2], [900, 901], names=["a", None])
    one.update([5], NEW[2:3])
    one.delete([6, 7])
    other.add(NEW[3:4], [950], names=["b"])
    other.delete([7, 8])
    other.update([9], NEW[4:5])
    one.save()
    other.save()
    for index in (other, load(path)):
        assert not {6, 7, 8} & set(index)
        assert index.names.names([900, 901, 950]) == ["a", None, "b"]
        assert holds(index, [900, 901, 5, 950, 9], NEW[[0, 1, 2, 3, 4]])
    assert one.is_behind
    assert one.refresh()
    assert sorted(one) == sorted(other)
    assert not one.is_behind
    assert not one.refresh()


REWORKS: dict[str, Callable[[RoutingIndex], object]] = {
    "compress": lambda index: index.compress("int8"),
    "half": lambda index: index.compress(None, vectors="float16"),
    "refine": lambda index: index.refine(),
    "renumber": lambda index: index.renumber(),
    "validate": lambda index: index.validate_with(VECTORS[:50] + 0.1),
}


@pytest.mark.parametrize("rework", REWORKS)
@pytest.mark.parametrize("by_journal", [False, True])
@pytest.mark.parametrize("reworked_first", [False, True])
def test_a_rework_keeps_changes(
    path: Path, rework: str, by_journal: bool, reworked_first: bool
) -> None:
    """An index that was reworked while others changed it has the rework and the changes."""
    slow, others = load(path), [load(path), load(path)]
    REWORKS[rework](slow)
    slow.add(NEW[9:10], [990])
    if reworked_first:
        slow.save()
    for at, other in enumerate(others):
        other.add(NEW[at : at + 1], [900 + at], names=[f"name {at}"])
        other.delete([20 + at])
        other.update([30 + at], NEW[5 + at : 6 + at])
        if by_journal:
            other.commit()
        else:
            other.save()
    if not reworked_first:
        slow.save()
    for index in (slow if not reworked_first else others[1], load(path, mmap=True)):
        assert index.space_names == slow.space_names
        assert not {20, 21} & set(index)
        assert index.names.names([900, 901]) == ["name 0", "name 1"]
        assert holds(index, [900, 901, 30, 31, 990], NEW[[0, 1, 5, 6, 9]])


def test_two_reworks_are_not_joined(path: Path) -> None:
    """Of two reworks the second is refused, with both versions named, and stays in memory."""
    one, other = load(path), load(path)
    first = other.saved_version
    one.compress("int8")
    one.save()
    other.renumber()
    other.add(NEW[:1], [900])
    with pytest.raises(
        StaleError, match=f"expected version {first[:16]}.*got {one.saved_version[:16]}"
    ):
        other.save()
    assert 900 in other
    assert load(path).saved_version == one.saved_version
    other.save(path.parent / "elsewhere")
    assert 900 in load(path.parent / "elsewhere")
    other.save(path, overwrite=True)
    assert 900 in load(path)


def test_relabelled_ids_are_not_joined(path: Path) -> None:
    """Vectors with other ids are not joined with changes by the ids before."""
    one, other = load(path), load(path)
    one.relabel(np.arange(1000, 1300))
    other.delete([5])
    other.save()
    with pytest.raises(StaleError, match="relabelled"):
        one.save()
    assert 6 in load(path)


def test_a_save_that_must_not_join_is_refused(path: Path) -> None:
    """With `merge=False` whatever others have saved is a StaleError, and nothing is written."""
    one, other = load(path), load(path)
    one.add(NEW[:1], [900])
    other.add(NEW[:1], [901])
    one.commit()
    for write in (other.save, other.commit):
        with pytest.raises(StaleError, match="got a newer one"):
            write(merge=False)
    one.save()
    for write in (other.save, other.commit):
        with pytest.raises(StaleError, match="got a newer one"):
            write(merge=False)
    assert sorted(load(path)) == [*range(300), 900]
    other.refresh()
    other.save(merge=False)
    assert sorted(load(path)) == [*range(300), 900, 901]


def test_ids_that_nobody_chose_do_not_meet(path: Path) -> None:
    """Two that hold one index add vectors without ids: all have ids of their own."""
    indexes = [load(path) for _ in range(3)]
    added = [int(i.add(NEW[at : at + 1])[0]) for at, i in enumerate([*indexes, *indexes])]
    for index in indexes:
        index.save()
    assert added == list(range(300, 306))
    assert holds(load(path), added, NEW[:6])


def test_the_journal_is_part_of_the_index(path: Path) -> None:
    """What was committed is loaded, followed by others, and saved with the next save."""
    one, other = load(path), load(path)
    for at in range(5):
        one.add(NEW[at : at + 1], [900 + at], names=[f"name {at}"])
        one.delete([at])
        one.commit()
        assert not one.has_unsaved
        assert other.is_behind
        assert other.refresh()
        assert sorted(other) == sorted(one) == sorted(load(path))
    assert list(path.glob("journal.*.log"))
    other.add(NEW[7:8], [990])
    other.save()
    assert not list(path.glob("journal.*.log"))
    assert one.refresh()
    for index in (one, load(path)):
        assert holds(index, [*range(900, 905), 990], NEW[[0, 1, 2, 3, 4, 7]])
        assert index.names.names([903]) == ["name 3"]


def test_what_one_did_not_see_stays_in_the_journal(path: Path, monkeypatch: Any) -> None:
    """A commit between the last look of a save and its lock is neither lost nor written over."""
    one, other = load(path), load(path)
    one.add(NEW[:1], [900])
    other.add(NEW[1:2], [901])
    one.commit()
    one.add(NEW[2:3], [902])
    other.commit()
    one.save()
    assert sorted(load(path)) == [*range(300), 900, 901, 902]


def test_the_later_change_of_an_id_holds(path: Path) -> None:
    """An id that two have changed is what the one that saved last has made of it."""
    one, other = load(path), load(path)
    one.update([5], NEW[:1])
    one.delete([6])
    other.update([5], NEW[1:2])
    other.update([6], NEW[2:3])
    other.delete([7])
    one.commit()
    other.commit()
    for index in (load(path), other):
        assert holds(index, [5, 6], NEW[1:3])
        assert 7 not in index


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("routing", [None, "int8"])
def test_journals_keep_vectors_bit_for_bit(tmp_path: Path, metric: str, routing: Any) -> None:
    """Vectors that were journalled are those in memory, whatever the metric and element type."""
    index = RoutingIndex.build(VECTORS * 7, metric, degree=8)
    index.compress(routing, vectors="float16")
    index.save(tmp_path / "index")
    ids = index.add(NEW * 3)
    index.commit()
    assert np.array_equal(load(tmp_path / "index").vectors(ids), index.vectors(ids))


def test_another_index_is_not_written_over(path: Path) -> None:
    """A directory with an index that this one does not come from is kept, unless asked for."""
    another = RoutingIndex.build(VECTORS[:50])
    with pytest.raises(FileExistsError, match="expected a directory without an index"):
        another.save(path)
    assert len(load(path)) == 300
    old = load(path)
    another.save(path, overwrite=True)
    old.add(NEW[:1])
    with pytest.raises(StaleError, match="replaced or restored"):
        old.save()
    with pytest.raises(StaleError, match="replaced or restored"):
        old.refresh()
    assert old.refresh(discard=True)
    assert len(old) == 50


def test_a_directory_by_another_name_is_the_same(path: Path) -> None:
    """A save through a link or another spelling of the path goes to where the index comes from."""
    (path.parent / "link").symlink_to(path)
    index = load(path)
    for name in (path.parent / "link", Path(os.path.relpath(path))):
        index.add(NEW[:1])
        index.save(name)
    assert len(load(path)) == 302
    index.save(path.parent / "backup")
    index.add(NEW[:1])
    index.save(path)
    index.save(path.parent / "backup")
    assert len(load(path)) == len(load(path.parent / "backup")) == 303


def test_a_directory_that_is_gone_is_made_again(path: Path) -> None:
    """After its directory was removed, an index is saved or committed as a whole."""
    for write in ("save", "commit"):
        index = load(path)
        shutil.rmtree(path)
        index.delete([index.ids[0]])
        getattr(index, write)()
        assert sorted(load(path)) == sorted(index)


def test_names_alone_are_joined(path: Path) -> None:
    """Names that were given in two places are kept together."""
    one, other = load(path), load(path)
    one.name(Labels.of(["one"], [1]))
    other.name(Labels.of(["two"], [2]))
    one.commit()
    other.save()
    one.name(Labels.of(["three"], [3]))
    one.save()
    assert load(path).names.names([1, 2, 3]) == ["one", "two", "three"]


def test_settings_of_two_are_joined(path: Path) -> None:
    """What was measured while another process changed vectors is saved too."""
    first = load(path)
    first.validate_with(VECTORS[:60] + 0.05)
    first.save()
    one, other = load(path), load(path)
    other.setting(0.9, 5)
    one.add(NEW[:1])
    one.save()
    other.save()
    assert [(each.k, each.target) for each in load(path).settings] == [(5, 0.9)]


def test_an_index_of_an_older_version_is_shared(path: Path, tmp_path: Path) -> None:
    """Those who loaded an index of schema 1 or 2 join their changes like others."""
    golden = Path(__file__).parent.parent / "golden" / "schema2"
    shutil.copytree(golden, tmp_path / "old")
    one, other = load(tmp_path / "old"), load(tmp_path / "old")
    vectors = np.ones((2, one.dim), np.float32)
    one.add(vectors[:1], [5])
    other.add(vectors[1:] * 2, [6])
    one.commit()
    other.commit()
    assert {5, 6} <= set(load(tmp_path / "old"))
