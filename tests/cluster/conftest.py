"""Fixtures: a small sharded index, as it was built and as a copy that may be changed."""

import shutil
from pathlib import Path

import pytest

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
