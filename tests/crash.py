"""Writers that are killed at random moments, and what has to be on the disk afterwards.

A writer is a generator function `write(path, at)` in a module beside this one. It opens the
directory `path`, which holds the state number `at`, and makes the states at + 1, at + 2, …: each
`yield` follows a save that has returned. States are numbered from 0, for a directory that does not
exist. It never ends by itself.

A server imports the writer once and forks a process for each kill, so that a kill costs
milliseconds. The server has no thread of its own, and exits when its standard input is closed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

LONGEST_RUN = 0.03
"""Seconds after which a writer is killed at the latest, if it is killed by time."""
MOST_SECONDS = 30
"""Seconds after which a writer that was not killed ends, which is an error."""
MOST_STEPS = 40
"""Steps after which a writer is killed at the latest, if it is killed at a step."""
STEPS = (
    (os, "replace"),
    (os, "fsync"),
    (os, "unlink"),
    (os, "mkdir"),
    (np.lib.format, "write_array"),
)
"""Calls that change the disk."""
Check = Callable[[int], int]
"""Given the number of the last state whose save returned: the number of the state on the disk.

It raises an AssertionError unless that is this state or the next one, whole.
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a writer is killed."""

    kind: str
    """By "time", at a "step" (a call that changes the disk), or at a "rename"."""
    seconds: float = 0.0
    """After the writer has started, by time."""
    n_steps: int = 0
    """Number of steps, or of renames, before the kill."""
    is_done: bool = False
    """Whether the step is done when the writer is killed."""

    @classmethod
    def by_chance(cls, rng: random.Random) -> Moment:
        """A random moment; a third of each kind."""
        kind = rng.choice(["time", "step", "rename"])
        n_steps = rng.randrange(MOST_STEPS if kind == "step" else MOST_STEPS // 4)
        return cls(kind, rng.uniform(0, LONGEST_RUN), n_steps, rng.random() < 0.5)


def kill_repeatedly(writer: str, path: Path, check: Check, n_kills: int, seed: int = 0) -> int:
    """Start a writer and kill it, again and again, in one directory.

    Args:
        writer: module and name of a writer, as "module:function".
        path: the directory.
        check: called after each kill.
        n_kills: how many times.
        seed: of the moments.

    Returns:
        The number of the last state on the disk.
    """
    rng = random.Random(seed)
    kinds: Counter[str] = Counter()
    at = 0
    with _server(writer) as server:
        for kill in range(n_kills):
            moment = Moment.by_chance(rng)
            n_returned = _killed(server, path, at, moment)
            try:
                at = check(at + n_returned)
            except Exception as error:
                error.add_note(f"kill {kill}, {moment}, {n_returned} saves returned after {at}")
                raise
            kinds[moment.kind] += 1
    assert n_kills < 30 or len(kinds) == 3
    return at


@contextmanager
def _server(writer: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, __file__, writer]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, bufsize=1) as server:
        try:
            yield server
        finally:
            server.stdin.close()  # it exits


def _killed(server: subprocess.Popen[str], path: Path, at: int, moment: Moment) -> int:
    """Run a writer until it is killed; return how many of its saves returned."""
    server.stdin.write(json.dumps({"path": str(path), "at": at, "moment": asdict(moment)}) + "\n")
    word, pid = _line(server.stdout)
    assert word == "started"
    if moment.kind == "time":
        time.sleep(moment.seconds)
        os.kill(pid, signal.SIGKILL)
    counts: Counter[str] = Counter()
    while True:
        word, status = _line(server.stdout)
        if word == "ended":
            assert status == signal.SIGKILL, f"expected a writer killed at {moment}, got {status}"
            return counts["saved"]
        counts[word] += 1
        if word == "rename" and counts[word] == moment.n_steps + 1:
            os.kill(pid, signal.SIGKILL)


def _line(stream: IO[str]) -> tuple[str, int]:
    """A word and a number from the server."""
    line = stream.readline().split()
    assert line, "expected a word from the server of writers, got its end"
    return line[0], int(line[1])


def _serve(writer: str) -> None:
    """Fork a writer for each line of input, and wait for its end.

    A process that has ended keeps its pid until the next line, so that no other process can be
    killed in its place.
    """
    module, name = writer.split(":")
    write = getattr(import_module(module), name)
    ended_pid = None
    for line in sys.stdin:
        request = json.loads(line)
        if ended_pid is not None:
            os.waitpid(ended_pid, 0)
        pid = os.fork()
        if pid == 0:
            try:
                _run(write, Path(request["path"]), request["at"], Moment(**request["moment"]))
            finally:
                os._exit(1)  # not reached unless the writer fails or ends
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        _say("ended", ended.si_status if ended.si_code == os.CLD_KILLED else 0)
        ended_pid = pid


def _run(write: Callable[[Path, int], Iterator[None]], path: Path, at: int, moment: Moment) -> None:
    """Write until killed."""
    try:
        signal.alarm(MOST_SECONDS)
        _say("started", os.getpid())
        if moment.kind == "step":
            _kill_at(moment)
        elif moment.kind == "rename":
            _announce_renames()
        for _ in write(path, at):
            _say("saved", 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        raise


def _say(word: str, number: int) -> None:
    """Write a line at once and whole."""
    os.write(1, f"{word} {number}\n".encode())


def _announce_renames() -> None:
    """Say so before each rename: the kill comes in the middle of it, or near it."""
    replace = os.replace

    def announced(*args: Any, **kwargs: Any) -> None:
        _say("rename", 0)
        replace(*args, **kwargs)

    os.replace = announced


def _kill_at(moment: Moment) -> None:
    """Kill this process before or after a step."""
    n_left = moment.n_steps

    def wrapped(step: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal n_left
            n_left -= 1
            if n_left < 0 and not moment.is_done:
                os.kill(os.getpid(), signal.SIGKILL)
            result = step(*args, **kwargs)
            if n_left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return called

    for owner, name in STEPS:
        setattr(owner, name, wrapped(getattr(owner, name)))


if __name__ == "__main__":
    _serve(sys.argv[1])
