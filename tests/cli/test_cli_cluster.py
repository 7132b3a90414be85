"""Laws of the commands `cluster …`, with shards in this process."""

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import Run
from l2route.cluster.manifest import MANIFEST
from sharding import LOG, QUERIES, VECTORS, K, exact

BUILD = f"cluster build x.npy -o small --shards 2 -k {K} --minutes 0 --queries log.npy --degree 12"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with vectors, a log and queries."""
    directory = tmp_path_factory.mktemp("shell")
    for name, array in (("x", VECTORS), ("log", LOG), ("q", QUERIES)):
        np.save(directory / f"{name}.npy", array)
    return directory


@pytest.fixture
def here(shared: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """The same as working directory, with an index that the first test builds."""
    monkeypatch.chdir(shared)
    if not (shared / "small" / MANIFEST).exists():
        code, out, err = run(f"{BUILD} --json")
        assert code == 0, err
        facts = json.loads(out)
        assert facts["n_vectors"] == len(VECTORS) == sum(facts["shards"])
        assert facts["points"][0]["target"] == 0.95
    return shared


def test_a_build_is_not_repeated(here: Path, run: Run) -> None:
    """The same command again prints what there is; another one is refused in one line."""
    code, out, _ = run(BUILD)
    assert code == 0
    assert "1,500 vectors in 2 shards" in out
    assert "shards asked" in out
    code, _, err = run(BUILD.replace("--shards 2", "--shards 3"))
    assert code == 2
    assert "expected a build of the same vectors" in err


def test_search_prints_ids(here: Path, run: Run) -> None:
    """Every query has a line of ids, nearest first."""
    code, out, _ = run(f"cluster search small --queries q.npy -k {K} --ef 1500 --replicas 0")
    assert code == 0
    found = np.array([line.split() for line in out.splitlines()], dtype=int)
    ids = {row: row for row in range(len(VECTORS))}
    rows = np.argsort(((QUERIES[:, None] - VECTORS) ** 2).sum(axis=2), axis=1)[:, :K]
    assert (found == rows).mean() > 0.98  # int8 and float16 round distances
    assert set(found.ravel().tolist()) <= set(ids)
    assert exact(QUERIES).shape == found.shape
    code, out, _ = run(
        f"cluster search small --queries q.npy -k {K} --recall 0.95 --replicas 0 --json"
    )
    answers = json.loads(out)
    assert answers["coverage"] == 1.0
    assert len(answers["n_asked"]) == len(answers["ids"]) == len(QUERIES)


def test_evaluate_compares_routers(here: Path, run: Run) -> None:
    """Every router reaches the recall, and asks no more than all shards."""
    code, out, err = run(f"cluster evaluate small --queries q.npy -k {K} --json")
    assert code == 0, err
    rows = {row["router"]: row for row in json.loads(out)}
    assert {"centroids", "all shards"} <= set(rows)
    assert rows["centroids"]["n_asked"] <= rows["all shards"]["n_asked"] == 2
    assert all(row["recall"] > 0.92 for row in rows.values())
    code, out, _ = run(f"cluster evaluate small --queries q.npy -k {K}")
    assert "all shards" in out


def test_info_lists_shards(here: Path, run: Run) -> None:
    """All shards, the router and the settings are listed; a damaged shard is one line of error."""
    code, out, _ = run("cluster info small --json")
    facts = json.loads(out)
    assert [shard["directory"] for shard in facts["shards"]] == ["shard-0000", "shard-0001"]
    code, out, _ = run("cluster info small")
    assert code == 0
    assert "shard-0001" in out
    assert "setting: " in out
    code, _, err = run("cluster info nowhere")
    assert code == 2
    assert "expected a sharded index" in err
