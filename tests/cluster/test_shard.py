"""Laws of one opened shard: changes are saved before they return, newer saves are followed."""

import time
from pathlib import Path

import numpy as np
import pytest

import l2route
from l2route.cluster.errors import LateError
from l2route.cluster.folder import Folder
from l2route.cluster.manifest import Manifest
from l2route.cluster.replica import LOOK_SECONDS, REMOTE_LOOK_SECONDS, Replica
from l2route.cluster.shard import Asked, OpenShard
from l2route.search.limits import Limits
from sharding import QUERIES, K

WIDE = Asked(K, Limits(ef=1000))


def opened(path: Path | str, number: int = 0) -> OpenShard:
    """A shard of the small index."""
    folder = Folder(path)
    return OpenShard(folder, Manifest.read(folder), number)


@pytest.mark.parametrize("url", ["{}", "file://{}"])
def test_changes_are_saved_before_they_return(copied_path: Path, url: str) -> None:
    """What was added or deleted is so for whoever loads the shard next."""
    shard = opened(url.format(copied_path))
    new = np.array([10**12, 10**12 + 1])
    shard.add(QUERIES[:2], new)
    assert (
        l2route.load(copied_path / "shard-0000").search(QUERIES[:2], 1, ef=100).ids[:, 0] == new
    ).all()
    shard.delete(new[:1])
    again = l2route.load(copied_path / "shard-0000")
    assert new[0] not in again
    assert new[1] in again


def test_a_replica_follows_the_saves_of_another(copied_path: Path) -> None:
    """Asked for the version of a change, another replica loads it before it answers."""
    first, second = opened(copied_path), opened(copied_path)
    version = first.add(QUERIES[:1], np.array([5 * 10**9]))
    assert second.search(QUERIES[:1], WIDE).ids[0, 0] != 5 * 10**9
    assert second.follow(version) == version
    assert second.search(QUERIES[:1], WIDE).ids[0, 0] == 5 * 10**9


def test_changes_of_two_replicas_are_both_kept(copied_path: Path) -> None:
    """A replica that changes a shard sees the changes of others first."""
    first, second = opened(copied_path), opened(copied_path)
    first.add(QUERIES[:1], np.array([5 * 10**9]))
    second.add(QUERIES[1:2], np.array([6 * 10**9]))
    ids = l2route.load(copied_path / "shard-0000").ids
    assert {5 * 10**9, 6 * 10**9} <= set(ids.tolist())


def test_what_another_replica_deleted_stays_deleted(copied_path: Path) -> None:
    """A replica that added vectors does not bring them back after another one deleted them."""
    first, second = opened(copied_path), opened(copied_path)
    new = np.array([7 * 10**9, 7 * 10**9 + 1])
    first.add(QUERIES[:2], new)
    version = second.delete(new[:1])
    assert first.follow(version) == version
    assert first.holds(new).tolist() == [False, True]
    first.add(QUERIES[2:3], new[:1] + 5)
    assert opened(copied_path).holds(new).tolist() == [False, True]


def test_a_change_that_is_repeated_is_made_once(copied_path: Path) -> None:
    """The same vectors under the same ids may be added again; others under a known id may not."""
    shard = opened(copied_path)
    ids = np.array([5 * 10**9])
    version = shard.add(QUERIES[:1], ids)
    assert shard.add(QUERIES[:1], ids) == version
    with pytest.raises(ValueError, match="does not have"):
        shard.add(QUERIES[1:2] + 5, ids)
    gone = shard.delete(ids)
    assert shard.delete(ids) == gone


def test_a_change_that_is_not_saved_is_not_searched(
    copied_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a save fails, the shard answers from its last save."""
    shard = opened(copied_path)

    def fail(**_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(shard._copy, "push", fail)
    monkeypatch.setattr(shard.index, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        shard.add(QUERIES[:1], np.array([5 * 10**9]))
    assert not shard.holds(np.array([5 * 10**9])).any()


def test_only_ids_of_the_filter_are_answers(copied_path: Path) -> None:
    """`where` leaves only its ids, those that the shard lacks are ignored."""
    shard = opened(copied_path)
    own = shard.index.ids[:3]
    found = shard.search(QUERIES, Asked(K, Limits(ef=1000), None, np.append(own, 10**15)))
    assert set(found.ids.ravel().tolist()) == {*own.tolist(), -1}


@pytest.mark.parametrize("url", ["{}", "file://{}"])
def test_callers_that_changed_nothing_see_changes_soon(copied_path: Path, url: str) -> None:
    """Asked without a version, a replica knows ids exactly, and searches the new save soon."""
    first, second = (Replica(url.format(copied_path), 0) for _ in range(2))
    old, new = first._opened().index.ids[:1].copy(), np.array([5 * 10**9])
    second.search(QUERIES[:1], WIDE)
    first.add(QUERIES[:1], new)
    version = first.delete(old, None).version
    assert second.holds(np.append(old, new)).mask.tolist() == [False, True]
    assert second.facts()["highest_id"] == new[0]
    first.delete(new, None)
    time.sleep(LOOK_SECONDS if "://" not in url else REMOTE_LOOK_SECONDS)
    assert second.search(QUERIES[:1], WIDE).ids[0, 0] != new[0]
    assert second._shard is not None
    assert second._shard.version == first._shard.version  # type: ignore[union-attr]
    assert second.search(QUERIES[:1], WIDE, version).ids[0, 0] != new[0]


def test_a_search_looks_for_saves_seldom(
    copied_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches do not look into the directory each time, also if they name an older version."""
    first, second = (Replica(str(copied_path), 0) for _ in range(2))
    older = first.add(QUERIES[:1], np.array([5 * 10**9])).version
    first.add(QUERIES[1:2], np.array([6 * 10**9]))
    looks: list[int] = []
    pull = second._opened()._copy.pull
    monkeypatch.setattr(second._shard._copy, "pull", lambda: (looks.append(1), pull()))  # type: ignore[union-attr]
    began = time.monotonic()
    for _ in range(50):
        second.search(QUERIES[:1], WIDE, older)
    assert len(looks) <= 2 + (time.monotonic() - began) / LOOK_SECONDS


def test_a_change_that_fails_halfway_is_not_made(
    copied_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the second part of a change is refused, memory is as the last save."""
    shard = opened(copied_path)
    kept = np.array([5 * 10**9])
    version = shard.add(QUERIES[:1], kept)

    def refuse(*_: object) -> None:
        raise ValueError("no room")

    monkeypatch.setattr(shard.index, "add", refuse)
    with pytest.raises(ValueError, match="no room"):
        shard.put(QUERIES[1:3] + 9, np.array([kept[0], 6 * 10**9]))
    np.testing.assert_allclose(shard.index.vectors(kept), QUERIES[:1])
    assert shard.version == version
    assert shard.holds(np.array([kept[0], 6 * 10**9])).tolist() == [True, False]


def test_a_save_that_does_not_reach_the_store_is_taken_back(
    copied_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a change is saved in the copy only, the copy goes back to what the store has."""
    shard, new = opened(f"file://{copied_path}"), np.array([5 * 10**9])

    def fail() -> None:
        raise OSError("no network")

    with monkeypatch.context() as patch:
        patch.setattr(shard._copy, "push", fail)
        with pytest.raises(OSError, match="no network"):
            shard.add(QUERIES[:1], new)
    assert not shard.holds(new).any()
    shard.add(QUERIES[1:2], new + 1)
    assert opened(f"file://{copied_path}").holds(np.append(new, new + 1)).tolist() == [False, True]


def test_a_save_of_another_writer_is_not_replaced(
    copied_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two writers that change a shard of a store at once, the later one changes nothing."""
    first, second = (opened(f"file://{copied_path}") for _ in range(2))
    save = first.index.save

    def save_late(**how: bool) -> None:
        save(**how)
        second.add(QUERIES[:1], np.array([6 * 10**9]))

    with monkeypatch.context() as patch:
        patch.setattr(first.index, "save", save_late)
        with pytest.raises(LateError, match="got a newer one"):
            first.add(QUERIES[1:2], np.array([5 * 10**9]))
    ids = np.array([5, 6]) * 10**9
    assert first.holds(ids).tolist() == [False, True]
    first.add(QUERIES[1:2], ids[:1])
    assert opened(f"file://{copied_path}").holds(ids).all()


def test_a_change_that_cannot_begin_leaves_the_lock(
    copied_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the newest save cannot be read, nobody has to wait for the lock of changes."""
    first, second = opened(copied_path), opened(copied_path)

    def fail() -> None:
        raise OSError("gone")

    monkeypatch.setattr("l2route.cluster.shard.LEASE_WAIT", 0.5)
    monkeypatch.setattr(first._copy, "pull", fail)
    try:
        first.delete(np.array([1]))
    except OSError as error:
        failed = error  # and with it the frames of the call
    assert str(failed) == "gone"
    second.add(QUERIES[:1], np.array([5 * 10**9]))


def test_copies_do_not_grow(copied_path: Path) -> None:
    """A copy of a store has the files of its save, and none of earlier ones."""
    first, second = (opened(f"file://{copied_path}") for _ in range(2))
    for n in range(3):
        second.follow(first.put(QUERIES[n : n + 1], np.array([5 * 10**9])))
    names = {each.name for each in (copied_path / "shard-0000").glob("*.npy")}
    assert {each.name for each in second._copy.path.glob("*.npy")} == names


@pytest.mark.parametrize("url", ["{}", "file://{}"])
def test_the_journal_of_a_shard_is_part_of_it(copied_path: Path, url: str) -> None:
    """What another program has written into the journal of a shard is there, and stays."""
    single, new = l2route.load(copied_path / "shard-0000"), np.array([5, 6]) * 10**9
    single.add(QUERIES[:1], new[:1])
    single.commit()
    shard = opened(url.format(copied_path))
    shard.add(QUERIES[1:2], new[1:])
    assert shard.holds(new).all()
    assert np.isin(new, l2route.load(copied_path / "shard-0000").ids).all()
    assert not [*copied_path.glob("shard-0000/journal.*")]
