"""Laws of several builds of one directory: one goes on, and a late one changes nothing."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from l2route.cluster import building
from l2route.cluster import tasks as tasks_of_shards
from l2route.cluster.folder import Folder
from l2route.cluster.manifest import MANIFEST
from l2route.cluster.partition import Partition
from l2route.cluster.runners import BuildError, Task
from l2route.cluster.sharded import ShardedIndex
from l2route.cluster.sources import source_of
from l2route.cluster.tasks import build_shard, neighbors_in_shard
from l2route.cluster.workspace import WORK, Workspace, divide_part
from sharding import IDS, N_SHARDS, QUERIES, VECTORS, build_small

N = 300
SMALL: dict[str, Any] = {"queries": None, "source": VECTORS[:N], "ids": IDS[:N]}
KILLED = """
import os, signal, sys
sys.path[:0] = {tests!r}
from l2route.cluster import building
from test_attempts import SMALL, build_small

build_shard = building.build_shard
def kill(workspace, number, *others):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return build_shard(workspace, number, *others)
building.build_shard = kill
build_small({path!r}, **SMALL)
"""


def changed(path: Path | str) -> dict[str, list[int]]:
    """Add and delete vectors in every shard of a finished index; the ids of each since then."""
    index = ShardedIndex(path)
    for number, shard in enumerate(index.shards):
        shard.add(QUERIES[number : number + 1] + 5, np.array([10**9 + number]))
        shard.delete(shard.index.ids[:3].copy())
    return ids_of(path)


def ids_of(path: Path | str) -> dict[str, list[int]]:
    """The ids of each shard."""
    shards = ShardedIndex(path).shards
    return {str(each.number): sorted(each.index.ids.tolist()) for each in shards}


def files_of(path: Path) -> dict[str, int]:
    """Every file, and when it was written."""
    return {str(each): each.stat().st_mtime_ns for each in path.rglob("*") if each.is_file()}


def test_a_second_build_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a build runs, another one of the same directory is an error, and changes nothing."""
    began, go, ended = Event(), Event(), list[ShardedIndex]()

    def wait(*arguments: Any) -> dict[str, Any]:
        began.set()
        go.wait(30)
        return build_shard(*arguments)

    monkeypatch.setattr(building, "build_shard", wait)
    thread = Thread(target=lambda: ended.append(build_small(tmp_path / "x", **SMALL)))
    thread.start()
    began.wait(30)
    with pytest.raises(BuildError, match="expected no other build of it, got one that runs"):
        build_small(tmp_path / "x", **SMALL)
    go.set()
    thread.join()
    assert len(ended[0]) == N
    assert len(build_small(tmp_path / "x", **SMALL)) == N


def test_a_build_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    """The next build goes on at once where the killed one was."""
    tests = [str(each) for each in Path(__file__).parents[:2]]
    script = KILLED.format(tests=tests, path=str(tmp_path / "x"))
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    index = build_small(tmp_path / "x", **SMALL)
    assert index.manifest.facts["n_shards_resumed"] == 1
    assert len(index) == N


def overtaken_at(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, path: str, n_before: int = 0
) -> list[Any]:
    """Let another build be made, and the index be changed, when a build calls a function."""
    call: Callable[..., Any] = getattr(module, name)
    state: list[Any] = []
    n_calls = [0]

    def overtaken(*arguments: Any, **options: Any) -> Any:
        n_calls[0] += 1
        if n_calls[0] <= n_before:
            return call(*arguments, **options)
        with monkeypatch.context() as patched:
            patched.setattr(module, name, call)
            build_small(path, **SMALL)
        if not state:
            state.append(changed(path))
        return call(*arguments, **options)

    monkeypatch.setattr(module, name, overtaken)
    return state


@pytest.mark.parametrize(
    ("module", "name", "n_before"),
    [
        (building, "make_partition", 0),
        (building, "divide_part", 0),
        (building, "finished_shard", 1),
        (tasks_of_shards, "build", 1),
        (tasks_of_shards, "facts_of", 0),
        (building, "Manifest", 0),
    ],
    ids=lambda each: each if isinstance(each, str) else None,
)
def test_a_late_build_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, n_before: int
) -> None:
    """A build in a store that another one has overtaken is an error; what was added since stays."""
    url = f"file://{tmp_path}/x"
    state = overtaken_at(monkeypatch, module, name, url, n_before)
    with pytest.raises(BuildError, match=r"attempt \w+ builds it, got a finished build"):
        build_small(url, **SMALL | {"tries": 1})
    assert ids_of(url) == state[0]


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[Task]]:
    """A directory whose build was cut off, and the tasks that it has left in other processes."""
    tasks: list[Task] = []

    def keep(*arguments: Any) -> Any:
        tasks.append(Task("shard", pickle.loads(pickle.dumps(arguments))))
        raise OSError("the node is gone")

    with monkeypatch.context() as patched:
        patched.setattr(building, "build_shard", keep)
        with pytest.raises(BuildError, match="the node is gone"):
            build_small(tmp_path / "x", tries=1, **SMALL)
    return tmp_path / "x", tasks


def test_a_task_that_is_left_is_refused(late: tuple[Path, list[Task]]) -> None:
    """A task whose attempt was replaced writes nothing, before and after the build is finished."""
    path, tasks = late
    shard = tasks[0].arguments
    old: Workspace = shard[0]
    part = next(iter(source_of(VECTORS[:N], ids=IDS[:N]).parts(100)))
    partition = Partition(VECTORS[:3], np.arange(3, dtype=np.int32), "l2")
    calls: list[Callable[[], Any]] = [
        lambda: build_shard(*shard),
        lambda: neighbors_in_shard(old, 0, QUERIES, 3, "l2"),
        lambda: divide_part(old, partition, 0, part),
        lambda: old.keep("truth", {}),
    ]
    Workspace(Folder(path), old.build, "another").begin({})
    for finished, expected in (
        (False, f"attempt {old.attempt} .* got another"),
        (True, "finished"),
    ):
        if finished:
            build_small(path, **SMALL)
        before = files_of(path)
        for call in calls:
            with pytest.raises(BuildError, match=expected):
                call()
        assert files_of(path) == before
    assert not (path / WORK / "shard-0000").exists()


def test_a_finished_shard_is_not_replaced(
    late: tuple[Path, list[Task]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that wakes up between its last look and its end leaves the shard as it is."""
    path, tasks = late
    monkeypatch.setattr(Workspace, "check", lambda _: None)  # it has looked before
    arguments, built = tasks[1].arguments, tasks_of_shards.build

    def overtaken(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(tasks_of_shards, "build", built)
        build_small(path, **SMALL)
        state.update(changed(path))
        (path / WORK).mkdir()
        workspace.keep_rows(arguments[1], 0, IDS[:9], VECTORS[:9])
        return built(*given, **options)

    state: dict[str, list[int]] = {}
    workspace: Workspace = arguments[0]
    monkeypatch.setattr(tasks_of_shards, "build", overtaken)
    facts = build_shard(*arguments)
    manifest = ShardedIndex(path).manifest
    assert facts["version"] == manifest.shards[arguments[1]].version
    assert ids_of(path) == state


def test_a_shard_is_built_once(late: tuple[Path, list[Task]]) -> None:
    """A task that is run again, as after the loss of its answer, leaves what it has made."""
    path, tasks = late
    first = build_shard(*tasks[0].arguments)
    before = files_of(path)
    again = build_shard(*tasks[0].arguments)
    assert files_of(path) == before
    assert {key: first[key] for key in again} == again
    index = build_small(path, **SMALL)
    assert index.manifest.facts["n_shards_resumed"] == 1
    assert (path / MANIFEST).exists()
    assert len(index.shards) == N_SHARDS
