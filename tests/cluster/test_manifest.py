"""Laws of the manifest: what is written is read, and nothing else is believed."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import l2route
from l2route.cluster.folder import Folder, checked_name
from l2route.cluster.manifest import MANIFEST, SHARD, Manifest, Point, _checksum, size_now
from l2route.cluster.sharded import Sharded, ShardedIndex
from sharding import IDS, QUERIES, VECTORS, K


def changed(path: Path, **values: Any) -> None:
    """Forge a manifest with a right checksum."""
    content = json.loads((path / MANIFEST).read_text()) | values
    content["checksum"] = _checksum(content)
    (path / MANIFEST).write_text(json.dumps(content))


def test_what_is_written_is_read(copied_path: Path) -> None:
    """A manifest is read as it was written."""
    folder = Folder(copied_path)
    manifest = Manifest.read(folder)
    more = manifest.with_point(Point(3, 0.5, "centroids", 0.0, 0.9, 0.6, 1.0, 10.0))
    more.write(folder)
    assert Manifest.read(folder) == more != manifest


def test_a_point_replaces_the_one_for_the_same_recall(built_path: Path) -> None:
    """There is one setting for a recall and k."""
    manifest = Manifest.read(Folder(built_path))
    twice = manifest.with_point(Point(3, 0.5, "learned", 0.1, 0.9, 0.6, 1.0, 10.0)).with_point(
        Point(3, 0.5, "centroids", 0.0, 0.9, 0.6, 1.0, 10.0)
    )
    assert [each.router for each in twice.points if each.k == 3] == ["centroids"]


def test_a_shard_alone_is_an_index(built_path: Path) -> None:
    """`l2route.load` opens one shard, which answers for its own vectors."""
    manifest = Manifest.read(Folder(built_path))
    for shard in manifest.shards:
        index = l2route.load(built_path / shard.directory)
        assert len(index) == shard.n_vectors
        found = index.search(QUERIES[:3], K, ef=500)
        assert set(found.ids.ravel().tolist()) <= set(IDS.tolist())
    assert manifest.n_vectors == len(VECTORS)


def test_any_damage_of_the_manifest_is_refused(copied_path: Path) -> None:
    """A byte changed anywhere, or an end cut off, is a ValueError that names the file."""
    path = copied_path / MANIFEST
    text = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(text) - 1, 60):
        damaged = bytearray(text)
        damaged[at] ^= 1 << int(rng.integers(0, 7))
        path.write_bytes(bytes(damaged))
        if json_or_none(bytes(damaged)) == json.loads(text):
            continue  # white space
        with pytest.raises(ValueError, match=MANIFEST):
            Manifest.read(Folder(copied_path))
    path.write_bytes(text[: len(text) // 2])
    with pytest.raises(ValueError, match=MANIFEST):
        Manifest.read(Folder(copied_path))


def json_or_none(text: bytes) -> Any:
    """Parsed JSON; None if it is not."""
    try:
        return json.loads(text)
    except ValueError:
        return None


@pytest.mark.parametrize(
    "values",
    [
        {"schema": 2},
        {"format": "l2route-index"},
        {"dim": 0},
        {"dim": 2.0},
        {"metric": "l3"},
        {"shards": []},
        {"shards": [{"directory": "../x"}]},
        {"shards": 3},
        {"points": [{"k": 1}]},
        {"arrays": []},
        {"build": "x"},
        {"replicas": -1},
    ],
    ids=str,
)
def test_forged_values_are_refused(copied_path: Path, values: dict[str, Any]) -> None:
    """Values out of range are refused, also with a right checksum."""
    changed(copied_path, **values)
    with pytest.raises(ValueError, match="broken"):
        Manifest.read(Folder(copied_path))


def test_forged_directories_lead_nowhere(copied_path: Path) -> None:
    """A directory of a shard that leads out of the folder, or is named twice, is refused."""
    shards = json.loads((copied_path / MANIFEST).read_text())["shards"]
    for name in ("../shard-0000", "/etc", "shard-0000/../x", ""):
        changed(copied_path, shards=[{**shards[0], "directory": name}, *shards[1:]])
        with pytest.raises(ValueError, match="directory"):
            Manifest.read(Folder(copied_path))
    changed(copied_path, shards=[shards[0], shards[0], shards[2]])
    with pytest.raises(ValueError, match="distinct"):
        Manifest.read(Folder(copied_path))


def test_arrays_are_compared_with_their_checksums(copied_path: Path) -> None:
    """A changed array of the router is refused."""
    entry = Manifest.read(Folder(copied_path)).arrays["centroids"]
    path = copied_path / str(entry["file"])
    content = bytearray(path.read_bytes())
    content[-3] ^= 64
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="checksum"):
        Sharded(copied_path)


def test_swapped_shards_are_refused(copied_path: Path) -> None:
    """Shards that changed places, or are of another build, are not opened."""
    first, second = copied_path / "shard-0000", copied_path / "shard-0001"
    first.rename(copied_path / "x")
    second.rename(first)
    (copied_path / "x").rename(second)
    with pytest.raises(ValueError, match="expected shard 0"):
        ShardedIndex(copied_path)
    shutil.rmtree(first)
    with pytest.raises((ValueError, FileNotFoundError)):
        ShardedIndex(copied_path)


def test_a_shard_without_its_mark_is_refused(copied_path: Path) -> None:
    """An index without `shard.json` is half written, and not opened."""
    (copied_path / "shard-0002" / SHARD).unlink()
    with pytest.raises(ValueError, match="expected shard 2"):
        ShardedIndex(copied_path)


def test_a_directory_without_a_manifest_is_none(tmp_path: Path) -> None:
    """The error says what was expected."""
    with pytest.raises(FileNotFoundError, match="expected a sharded index"):
        Sharded(tmp_path)


@pytest.mark.parametrize("name", ["..", "a/b", "/a", "", "a\0b", ".hidden/../x"])
def test_names_lead_nowhere(name: str) -> None:
    """Names of files cannot lead out of their folder."""
    with pytest.raises(ValueError, match="plain file name"):
        checked_name(name)


@pytest.mark.parametrize("url", ["{}", "file://{}"])
def test_the_size_of_a_shard_follows_its_changes(copied_path: Path, url: str) -> None:
    """A shard that is not opened has the size of its files; if they are damaged, that as built."""
    index = ShardedIndex(url.format(copied_path))
    shard = index.manifest.shards[1]
    assert size_now(index.folder, shard) == (shard.n_vectors, shard.n_bytes)
    for first in (0, 1000):
        rows = VECTORS[:1000] + 9
        index.shards[1].add(rows, np.arange(1000) + 10**9 + first)
        loaded = l2route.load(copied_path / shard.directory)
        n_vectors, n_bytes = size_now(index.folder, shard)
        assert n_vectors == len(loaded) == shard.n_vectors + first + 1000
        assert loaded.n_bytes <= n_bytes <= 1.5 * loaded.n_bytes
    meta = copied_path / shard.directory / "meta.json"
    for content in (b"{", b"{}", b"[1]"):
        meta.write_bytes(content)
        assert size_now(index.folder, shard) == (shard.n_vectors, shard.n_bytes)
    meta.unlink()
    assert size_now(index.folder, shard) == (shard.n_vectors, shard.n_bytes)
