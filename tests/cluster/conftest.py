"""Fixtures: a small sharded index, as it was built and as a copy that may be changed."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from l2route.cluster.cluster import Cluster
from ray_nodes import Nodes, pid_of
from sharding import build_small


@pytest.fixture(scope="session")
def built_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sharded index that nobody changes."""
    path = tmp_path_factory.mktemp("sharded") / "small"
    build_small(path)
    return path


@pytest.fixture
def copied_path(built_path: Path, tmp_path: Path) -> Path:
    """A copy of the small sharded index."""
    return Path(shutil.copytree(built_path, tmp_path / "copy"))


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """A Ray cluster of three nodes on this machine."""
    made = Nodes()
    yield made
    made.close()


@pytest.fixture(scope="module")
def cluster(
    nodes: Nodes, built_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Two replicas of three shards on three nodes; a test leaves them as they were."""
    path = tmp_path_factory.mktemp("cluster") / "copy"
    shutil.copytree(built_path, path)
    with Cluster(path, replicas=2, cpus=0.1, n_bytes=0) as made:
        for member in (each for group in made.fleet.members for each in group):
            pid_of(member)
        yield made
