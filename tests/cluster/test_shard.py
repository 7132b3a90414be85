"""Laws of one opened shard: changes are saved before they return, newer saves are followed."""

from pathlib import Path

import numpy as np
import pytest

import l2route
from l2route.cluster.folder import Folder
from l2route.cluster.manifest import Manifest
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

    def fail() -> None:
        raise OSError("disk full")

    monkeypatch.setattr(shard._copy, "push", fail)
    monkeypatch.setattr(shard._served, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        shard.add(QUERIES[:1], np.array([5 * 10**9]))
    assert not shard.holds(np.array([5 * 10**9])).any()


def test_only_ids_of_the_filter_are_answers(copied_path: Path) -> None:
    """`where` leaves only its ids, those that the shard lacks are ignored."""
    shard = opened(copied_path)
    own = shard.index.ids[:3]
    found = shard.search(QUERIES, Asked(K, Limits(ef=1000), None, np.append(own, 10**15)))
    assert set(found.ids.ravel().tolist()) == {*own.tolist(), -1}
