"""Laws of concurrent saves."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fuzzing import EFFORT
from indexes import QUERIES, built, same_results, with_everything
from l2route.files import storage
from l2route.files.atomic import locked
from l2route.files.storage import LOCK, read_index
from l2route.index import load
from saved_content import assert_is_one_of, content, files_in, named_files, same, saved

WORKER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from saved_content import content
from l2route.files.storage import write_index
print("ready", flush=True)
for line in sys.stdin:
    path, seed, n = line.rstrip("\\n").split("|")
    try:
        write_index(Path(path), *content(int(seed), int(n)), overwrite=True)
        print("saved", flush=True)
    except Exception as error:
        print(repr(error), flush=True)
"""


@contextmanager
def workers(n_workers: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that save an index for each line of input, and reply with a line."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(n_workers)
    ]
    try:
        assert [answer_of(process) for process in started] == ["ready"] * n_workers
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def tell(process: subprocess.Popen[str], path: Path, seed: int, n: int = 20) -> None:
    """Request a save of `content(seed, n)` from a worker."""
    assert process.stdin is not None
    process.stdin.write(f"{path}|{seed}|{n}\n")
    process.stdin.flush()


def answer_of(process: subprocess.Popen[str]) -> str:
    """The next line of a worker's output."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def test_two_processes_that_save_to_one_path(tmp_path: Path) -> None:
    """Concurrent saves by two processes both succeed and leave one of the two indexes, intact."""
    with workers(2) as processes:
        for seed in range(0, 60 * EFFORT, 2):
            path = tmp_path / str(seed % 3)
            for i, process in enumerate(processes):
                tell(process, path, seed + i)
            assert [answer_of(process) for process in processes] == ["saved", "saved"]
            assert_is_one_of(path, (seed, seed + 1))


def test_two_threads_that_save_to_one_path(tmp_path: Path) -> None:
    """Concurrent saves by two threads leave one of the two indexes, intact."""
    with ThreadPoolExecutor(2) as pool:
        for seed in range(0, 60 * EFFORT, 2):
            path = tmp_path / str(seed % 3)
            together = threading.Barrier(2)

            def save(which: int, path: Path = path, together: threading.Barrier = together) -> None:
                together.wait()
                saved(path, which)

            list(pool.map(save, (seed, seed + 1)))
            assert_is_one_of(path, (seed, seed + 1))


def test_saves_without_locks_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Without file locks, concurrent saves give a warning and leave one of the indexes, intact."""
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with ThreadPoolExecutor(2) as pool:
        for seed in range(0, 40 * EFFORT, 2):
            together = threading.Barrier(2)

            def save(which: int, together: threading.Barrier = together) -> None:
                together.wait()
                saved(tmp_path, which)

            list(pool.map(save, (seed, seed + 1)))
            read = read_index(tmp_path)
            assert same(read, content(seed)) or same(read, content(seed + 1))
    assert "expected a file system with locks" in str(recwarn.pop(UserWarning).message)
    assert not list(tmp_path.glob("*.partial"))
    monkeypatch.undo()
    saved(tmp_path, 1)
    assert files_in(tmp_path) == named_files(
        tmp_path
    )  # the next save with locks removes files left over


def no_locks(descriptor: int, operation: int) -> None:
    """`flock` on a file system without locks."""
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_save_waits_for_another_until_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save waits for another; after LOCK_SECONDS it raises a TimeoutError and changes nothing."""
    saved(tmp_path, 1)
    monkeypatch.setattr(storage, "LOCK_SECONDS", 0.1)
    with locked(tmp_path / LOCK, 1) as is_alone:
        assert is_alone
        with pytest.raises(TimeoutError, match="expected other writers to finish, got one still"):
            saved(tmp_path, 2)
        assert same(read_index(tmp_path), content(1))
    saved(tmp_path, 2)
    monkeypatch.setattr(storage, "LOCK_SECONDS", 60)
    with ThreadPoolExecutor(1) as pool:
        with locked(tmp_path / LOCK, 1):
            waiting = pool.submit(saved, tmp_path, 3)
            time.sleep(0.1)
            assert not waiting.done()
        waiting.result()
    assert same(read_index(tmp_path), content(3))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child starts no thread
def test_a_lock_is_let_go_of_by_a_process_that_ends_or_forks(tmp_path: Path) -> None:
    """A lock ends when its holder is killed, and is not kept by a child forked meanwhile."""
    script = f"""
import time
from pathlib import Path
from l2route.files.atomic import locked
with locked(Path({str(tmp_path / LOCK)!r}), 1):
    print("locked", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(TimeoutError), locked(tmp_path / LOCK, 0):
            pass
        process.kill()
    with locked(tmp_path / LOCK, 0) as is_alone:
        assert is_alone
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(write_end)
            os.read(read_end, 1)  # blocks until the parent closes the pipe
            os._exit(0)
    with locked(tmp_path / LOCK, 0) as is_alone:
        assert is_alone
    os.close(write_end)
    os.close(read_end)
    assert os.waitpid(child, 0)[1] == 0


def test_a_lock_outlives_its_directory(tmp_path: Path) -> None:
    """If the lock file is replaced while a writer waits, the writer locks the new file."""
    path = tmp_path / LOCK
    with ThreadPoolExecutor(1) as pool:

        def inode() -> int:
            with locked(path, 60):
                return path.stat().st_ino

        with locked(path, 1):
            waiting = pool.submit(inode)
            time.sleep(0.1)
            path.rename(tmp_path / "gone")
            path.touch()
        assert waiting.result() == path.stat().st_ino


@pytest.mark.parametrize("kind", ["pipe", "directory", "link"])
def test_a_lock_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A lock file that is a pipe, a directory or a link is an error, and is not followed."""
    saved(tmp_path / "index", 1)
    lock = tmp_path / "index" / LOCK
    lock.unlink()
    make = {
        "pipe": lambda: os.mkfifo(lock),
        "directory": lock.mkdir,
        "link": lambda: lock.symlink_to(tmp_path / "elsewhere"),
    }
    make[kind]()
    with pytest.raises((OSError, ValueError), match=LOCK):
        saved(tmp_path / "index", 2)
    assert same(read_index(tmp_path / "index"), content(1))
    assert not (tmp_path / "elsewhere").exists()


def test_loading_while_another_saves(tmp_path: Path) -> None:
    """A load during saves returns one of the saved indexes, intact."""
    saved(tmp_path, 1)
    stop = threading.Event()

    def save_again() -> None:
        while not stop.is_set():
            saved(tmp_path, 2)
            saved(tmp_path, 1)

    with ThreadPoolExecutor(1) as pool:
        saver = pool.submit(save_again)
        try:
            for _ in range(100 * EFFORT):
                read = read_index(tmp_path)
                assert same(read, content(1)) or same(read, content(2))
        finally:
            stop.set()
        saver.result()


def test_loading_what_is_replaced_by_its_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load succeeds if its files disappear and come back with a save of the same index."""
    saved(tmp_path, 1)
    map_npy = storage.map_npy

    def gone_and_back(file: Path, **options: bool) -> Any:
        monkeypatch.setattr(storage, "map_npy", map_npy)
        saved(tmp_path, 2)
        try:
            return map_npy(file, **options)
        finally:
            saved(tmp_path, 1)

    monkeypatch.setattr(storage, "map_npy", gone_and_back)
    assert same(read_index(tmp_path), content(1))


def test_mapped_loads_while_another_saves(tmp_path: Path) -> None:
    """An index mapped during saves is one of the saved indexes, and answers like it."""
    indexes = with_everything(), built(graph="hnsw")
    expected = [index.search(QUERIES, k=5, ef=20) for index in indexes]
    indexes[0].save(tmp_path)
    stop = threading.Event()

    def save_again() -> None:
        while not stop.is_set():
            for index in reversed(indexes):
                index.save(tmp_path, overwrite=True)

    found = set()
    with ThreadPoolExecutor(1) as pool:
        saver = pool.submit(save_again)
        try:
            for trial in range(100 * EFFORT):
                mapped = load(tmp_path, mmap=True, verify=trial % 2 == 0)
                result = mapped.search(QUERIES, k=5, ef=20)
                same_as = [i for i, each in enumerate(expected) if same_results(each, result)]
                assert len(same_as) == 1
                found |= set(same_as)
        finally:
            stop.set()
        saver.result()
    assert found == {0, 1}
