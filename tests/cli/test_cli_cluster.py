"""Laws of the commands `cluster …`, with shards in this process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from command_line import Run
from l2route.cluster import building
from l2route.cluster.cluster import Cluster
from l2route.cluster.errors import PartialError, QueueFullError
from l2route.cluster.manifest import MANIFEST
from sharding import LOG, QUERIES, VECTORS, K, exact

BUILD = f"cluster build x.npy -o small --shards 2 -k {K} --minutes 0 --queries log.npy --degree 12"
MESSAGE = "expected all shards to answer, got shard 1 gave no answer in time"


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


def test_a_build_that_fails_is_one_line(
    here: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that fail every time are named in one line."""

    def fail(*_: object) -> NoReturn:
        raise OSError("disk full")

    monkeypatch.setattr(building, "build_shard", fail)
    code, out, err = run(BUILD.replace("-o small", "-o failed"))
    assert (code, out) == (2, "")
    lines = [line for line in err.splitlines() if line.startswith("l2route: ")]
    assert len(lines) == 1
    assert lines[0].startswith("l2route: expected all tasks to succeed, got errors of shard 0 (")
    assert "Traceback" not in err


@pytest.mark.parametrize("error", [PartialError, QueueFullError])
@pytest.mark.parametrize("command", ["search", "evaluate"])
def test_a_cluster_without_an_answer_is_one_line(
    here: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    error: type[RuntimeError],
    command: str,
) -> None:
    """Shards that give no answer, and a full queue, are one line; the actors are ended."""
    calls: list[str] = []

    def search(*_: object, **__: object) -> NoReturn:
        raise error(MESSAGE)

    monkeypatch.setattr("l2route.cluster.cluster.connected", lambda _: None)
    monkeypatch.setattr("l2route.cluster.cluster.Fleet", lambda *_: None)
    monkeypatch.setattr(Cluster, "_wait_for_shards", lambda *_: None)
    monkeypatch.setattr(Cluster, "search", search)
    monkeypatch.setattr(Cluster, "close", lambda *_: calls.append("close"))
    code, out, err = run(f"cluster {command} small --queries q.npy --replicas 1")
    assert (code, out, calls) == (2, "", ["close"])
    assert err == f"l2route: {MESSAGE}\n"


def test_a_damaged_shard_is_one_line(here: Path) -> None:
    """A search by actors, one of which cannot open its shard, ends with a line that names it."""
    shutil.copytree(here / "small", here / "damaged")
    array = next((here / "damaged" / "shard-0001").glob("vectors.*.npy"))
    array.write_bytes(array.read_bytes()[:-64])
    asked = f"cluster search damaged --queries q.npy -k {K} --replicas 1 --cpus 0.1 --address local"
    done = subprocess.run(
        [sys.executable, "-m", "l2route", *asked.split()],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=here,
        env=os.environ | {"RAY_memory_monitor_refresh_ms": "0"},
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("l2route: expected")]
    assert line.startswith("l2route: expected all shards to answer, got shard 1 cannot be opened: ")
    assert "Traceback" not in done.stderr


def test_other_commands_do_not_need_ray() -> None:
    """The command line starts without importing ray."""
    script = "import sys, l2route.cli.app; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
