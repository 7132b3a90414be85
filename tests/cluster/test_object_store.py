"""Laws of sharded indexes in an object store: S3 by s3fs, against the server of moto.

Run by `make object-store`, in an environment of its own: botocore, which both need, wants older
packages than those that the other tests are run with.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from l2route.cluster.folder import Folder
from l2route.cluster.manifest import Manifest
from l2route.cluster.shard import Asked, OpenShard
from l2route.cluster.sharded import ShardedIndex
from l2route.search.limits import Limits
from sharding import QUERIES, K, build_small, exact, recall

s3fs = pytest.importorskip("s3fs", reason="run by make object-store")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """The file system of an empty store with a bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "any")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem.clear_instance_cache()
        files = s3fs.S3FileSystem()
        files.mkdir("bucket")
        yield files
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture(scope="module")
def url(store: Any) -> str:
    """A small sharded index in the store."""
    build_small("s3://bucket/small")
    return "s3://bucket/small"


def test_an_index_in_a_store_answers_as_one_on_disk(url: str) -> None:
    """Opened from the store, it finds the true neighbours, and a recall with fewer shards."""
    index = ShardedIndex(url)
    np.testing.assert_array_equal(index.search(QUERIES, K, ef=1500).ids, exact(QUERIES))
    assert recall(index.search(QUERIES, K, recall=0.95).ids, exact(QUERIES)) >= 0.93


def test_a_build_in_a_store_goes_on(store: Any, url: str) -> None:
    """A build whose last shard is not whole makes that one again, and no other."""
    store.rm("bucket/small/manifest.json")
    store.rm("bucket/small/shard-0002/shard.json")
    before = {path: store.info(path)["LastModified"] for path in store.find("bucket/small")}
    with pytest.raises(FileNotFoundError, match="manifest"):
        ShardedIndex(url)
    build_small(url)
    kept = "bucket/small/shard-0000/meta.json"
    store.invalidate_cache()
    assert store.info(kept)["LastModified"] == before[kept]
    index = ShardedIndex(url)
    np.testing.assert_array_equal(index.search(QUERIES, K, ef=1500).ids, exact(QUERIES))


def test_changes_in_a_store_are_there_for_others(url: str) -> None:
    """What one copy of a shard adds is saved in the store when it returns."""
    folder = Folder(url)
    first, second = (OpenShard(folder, Manifest.read(folder), 0) for _ in range(2))
    version = first.add(QUERIES[:1], np.array([10**12]))
    assert second.follow(version) == version
    asked = Asked(K, Limits(ef=1500))
    assert second.search(QUERIES[:1], asked, 1).ids[0, 0] == 10**12
    third = OpenShard(folder, Manifest.read(folder), 0)
    assert third.search(QUERIES[:1], asked, 1).ids[0, 0] == 10**12
    third.delete(np.array([10**12]))
    assert 10**12 not in OpenShard(folder, Manifest.read(folder), 0).index
