"""Laws of the lease of a shard: who hangs is overtaken, and then changes nothing."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import l2route
from l2route.cluster import lease
from l2route.cluster.errors import LateError
from l2route.cluster.folder import Folder
from l2route.cluster.lease import LEASE, leased
from l2route.cluster.manifest import Manifest
from l2route.cluster.shard import OpenShard
from l2route.files.atomic import locked
from l2route.files.storage import LOCK, StaleError
from sharding import QUERIES

SECONDS = 0.4
"""Of a lease in these tests."""
CHILD = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import numpy as np
from l2route.cluster import lease
from l2route.cluster.errors import LateError
from test_lease import opened
from sharding import QUERIES

lease.LEASE_SECONDS = {seconds}
shard = opened({path!r})
save = shard.{where}
def hang(*given, **how):
    os.kill(os.getpid(), signal.{signal})
    shard.{where} = save
    return save(*given, **how)
shard.{where} = hang
print("ready", flush=True)
try:
    print("made", shard.add(QUERIES[:1], np.array([10**9])))
except LateError as error:
    print("late", error)
print(shard.holds(np.array([10**9, 10**9 + 1])).tolist())
"""


def opened(path: Path | str, number: int = 0) -> OpenShard:
    """A shard of the small index."""
    folder = Folder(path)
    return OpenShard(folder, Manifest.read(folder), number)


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that expire soon."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", SECONDS)


@contextmanager
def hanging(path: Path, where: str, how: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that adds a vector, and stops itself, or is killed, before it saves it."""
    tests = str(Path(__file__).parent)
    script = CHILD.format(tests=tests, path=str(path), seconds=SECONDS, where=where, signal=how)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        try:
            yield child
        finally:
            child.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(("where", "adds"), [("index.save", False), ("_follow", True)])
def test_who_hangs_is_overtaken_and_saves_nothing(
    copied_path: Path, where: str, adds: bool
) -> None:
    """Who hangs for seconds is overtaken, by a change or by who waits for it, and is then late."""
    with hanging(copied_path, where, "SIGSTOP") as child:
        shard = opened(copied_path)
        if adds:
            shard.add(QUERIES[1:2], np.array([10**9 + 1]), time.time() + 30)
        else:
            shard.settle(time.time() + 30)
        child.send_signal(signal.SIGCONT)
        assert child.stdout is not None
        told, held = child.stdout.readlines()
    assert re.match(r"late .*shard-0000: expected ", told), told
    assert held == f"[False, {adds}]\n"
    ids = l2route.load(copied_path / "shard-0000").ids
    assert np.isin([10**9, 10**9 + 1], ids).tolist() == [False, adds]


def test_who_is_killed_is_overtaken(copied_path: Path) -> None:
    """The lease of a process that is gone expires."""
    with hanging(copied_path, "index.save", "SIGKILL"):
        pass
    shard = opened(copied_path)
    with pytest.raises(LateError, match=r"shard 0: .*: expected other "):
        shard.add(QUERIES[:1], np.array([10**9]), time.time())
    shard.add(QUERIES[:1], np.array([10**9]), time.time() + 30)


def test_who_works_keeps_the_lease(tmp_path: Path) -> None:
    """A lease lasts as long as its holder works, and is given back with its end."""
    with leased(tmp_path, time.time()) as held:
        assert not held.overtakes
        with (
            pytest.raises(TimeoutError, match="expected other"),
            leased(tmp_path, time.time() + 3 * SECONDS),
        ):
            pass
        with held.kept():
            pass
    with leased(tmp_path, time.time()) as held:
        assert not held.overtakes


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    """Of many threads one has the lease at a time, and all have it some time."""
    inside, most = list[int](), list[int]()

    def work(number: int) -> None:
        with leased(tmp_path, time.time() + 30):
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)

    threads = [Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8


@pytest.mark.parametrize(
    "content", ["{", "[1]", '{"holder": "x", "until": 1.0}', '{"holder": "x", "until": 1e12}']
)
def test_a_lease_that_says_nothing_is_overtaken(tmp_path: Path, content: str) -> None:
    """What is damaged, has expired, or is of a clock far ahead stops nobody."""
    (tmp_path / LEASE).write_text(content)
    with leased(tmp_path, time.time()):
        pass  # it was not made sure that the earlier holder cannot save
    with leased(tmp_path, time.time()) as held:
        assert held.overtakes
        held.overtakes = False
    with leased(tmp_path, time.time()) as held:
        assert not held.overtakes
        (tmp_path / LEASE).write_text(content)
        with pytest.raises(LateError, match="expected no other writer"), held.kept():
            pass


def test_who_hangs_while_it_saves_stops_one_shard_only(copied_path: Path) -> None:
    """Until it ends, changes of the shard are late in time; the next one then fences it."""
    place, new = copied_path / "shard-0000", np.array([10**9])
    (place / LEASE).write_text('{"holder": "x", "until": 1.0}')
    with locked(place / LOCK, 1):
        for _ in range(2):
            with pytest.raises(LateError, match=r"shard 0: .*: expected other writers to finish"):
                opened(copied_path).add(QUERIES[:1], new, time.time() + SECONDS)
        opened(copied_path, 1).add(QUERIES[:1], new, time.time() + SECONDS)
    hung = l2route.load(place)
    opened(copied_path).add(QUERIES[:1], new + 1, time.time() + 30)
    hung.add(QUERIES[:1], new)
    with pytest.raises(StaleError):
        hung.save(merge=False)
