"""What happens to the processes of a soak: signals, a full disk, snapshots, restores, checks."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress

import numpy as np

from changers import Command, DeadError, Forked
from histories import Value, content_of
from l2route.index import load
from sharing import Serving
from soak.clients import Changer, CommandWork, PlainWork
from soak.stage import NO_SPACE, Stage

DECK = {
    "kill_server": 4,
    "end_server": 2,
    "stop_server": 3,
    "kill_plain": 3,
    "stop_plain": 1,
    "kill_command": 2,
    "stop_command": 1,
    "snapshot": 3,
    "restore": 2,
    "fill": 2,
    "check": 3,
}
"""Methods of `Troubles`, and how often each is called until all of them were."""
MODES = ("follows", "saves soon and follows")
"""Of the servers."""
LONGEST_PAUSE = 1.5
"""Seconds between two troubles, at the most."""
LONGEST_STOP = 1.5
LONGEST_FULL = 2.0
TRACEBACK = re.compile(r"Traceback .*\n(?:[ \t].*\n)*(\S.*)")
"""In the log of a server; the group is the error."""
N_KEPT = 3
"""Snapshots that are kept."""


class Troubles:
    """Does one of them after the other.

    The first server is left alone until half of the time is over, so that its memory can be
    watched; the second one after that.

    Args:
        stage: what is shared.
        changers: clients that have to know when the index is restored.
        plain: the plain process.
        compressing: the command.
        seconds: how long the soak takes.
        seed: of what happens when.
    """

    def __init__(
        self,
        stage: Stage,
        changers: list[Changer],
        plain: PlainWork,
        compressing: CommandWork,
        seconds: float,
        seed: int,
    ) -> None:
        self._stage, self._rng = stage, np.random.default_rng(seed)
        self._changers, self._plain, self._compressing = changers, plain, compressing
        self._half = time.monotonic() + seconds / 2
        self._deck: list[str] = []
        self.snapshots: dict[str, tuple[dict[int, Value], set[str]]] = {}
        for mode in MODES:
            stage.servers.append(self._started(mode))

    def work(self) -> None:
        """Do the next thing, after a pause."""
        self._stage.is_over.wait(LONGEST_PAUSE * self._rng.random())
        if not self._deck:
            self._deck = [name for name, n in DECK.items() for _ in range(n)]
            self._rng.shuffle(self._deck)
        name = self._deck.pop()
        self._stage.figures.note(name)
        getattr(self, name)()

    # servers

    def _started(self, mode: str) -> Serving:
        stage = self._stage
        server = Serving(stage.path, stage.history, mode, stage.folder)
        assert server.server.client  # it takes connections
        stage.figures.note(f"{server} serves")
        return server

    def _victim(self) -> int:
        """Number of the server that may be ended."""
        return 1 if time.monotonic() < self._half else 0

    def _end(self, end: Callable[[Serving], None], what: str) -> None:
        """End a server, and start another one in its place."""
        stage, place = self._stage, self._victim()
        old = stage.servers[place]
        end(old)
        stage.figures.count(what)
        self._check_log(old)
        stage.servers[place] = self._started(old.mode)

    def kill_server(self) -> None:
        """Kill a server."""
        self._end(Serving.close, "servers killed (SIGKILL)")

    def end_server(self) -> None:
        """End a server in order."""
        self._end(Serving.end, "servers ended (SIGTERM)")

    def _check_log(self, server: Serving) -> None:
        """A server may have met a full disk, and no other error that it did not expect."""
        for found in TRACEBACK.finditer(server.server.said()):
            if not any(each in found[1] for each in NO_SPACE):
                self._stage.blame(f"{server}: {found[0]}")

    def _stop(self, process: Forked) -> None:
        """Stop a process for some time."""
        process.send(signal.SIGSTOP)
        self._stage.is_over.wait(LONGEST_STOP * self._rng.random())
        process.send(signal.SIGCONT)
        self._stage.figures.count("processes stopped (SIGSTOP)")

    def stop_server(self) -> None:
        """Stop a server for some time."""
        self._stop(self._stage.one_server(self._rng).server.process)

    # other processes

    def kill_plain(self) -> None:
        """Kill the plain process."""
        if (plain := self._plain.plain) is not None:
            plain.worker.process.send(signal.SIGKILL)

    def stop_plain(self) -> None:
        """Stop the plain process for some time."""
        if (plain := self._plain.plain) is not None:
            self._stop(plain.worker.process)

    def kill_command(self) -> None:
        """Kill the command, or end it."""
        if (command := self._compressing.command) is not None:
            number = signal.SIGKILL if self._rng.random() < 0.5 else signal.SIGTERM
            command.process.send(number)

    def stop_command(self) -> None:
        """Stop the command for some time."""
        if (command := self._compressing.command) is not None:
            self._stop(command.process)

    # the disk

    def fill(self) -> None:
        """Let the disk be full for some time, in which a server may be killed."""
        if not self._stage.disk.exists:
            return
        with self._stage.disk.full():
            self._stage.is_over.wait(LONGEST_FULL * self._rng.random())
            if self._rng.random() < 0.3:
                self.kill_server()
                self._stage.is_over.wait(LONGEST_FULL * self._rng.random())
        self._stage.figures.count("disk full")

    # snapshots

    def _run(self, *arguments: str) -> None:
        """Run a command, which has to work."""
        code, said = Command(self._stage.folder, *arguments).join()
        assert code == 0, f"{arguments} ended with {code}: {said}"

    def snapshot(self) -> None:
        """Keep the index as it is, while it changes; only the newest snapshots are kept."""
        stage, begin = self._stage, time.monotonic()
        name = f"s{stage.figures.counts['snapshots']:04}"
        with stage.figures.timing("snapshots"):
            self._run("snapshot", str(stage.path), name, "--keep", str(N_KEPT))
        content, spaces = self._read(name)
        stage.check_content(content, begin)
        self.snapshots[name] = (content, spaces)
        for old in sorted(self.snapshots)[:-N_KEPT]:
            del self.snapshots[old]
        stage.figures.count("snapshots")

    def _read(self, name: str) -> tuple[dict[int, Value], set[str]]:
        """What a snapshot holds, and its spaces."""
        index = load(self._stage.path / "snapshots" / name)
        return content_of(index, self._stage.wishes.number_of), set(index.space_names)

    def restore(self) -> None:
        """Make the index what it was; others wait meanwhile, or go on."""
        if not self.snapshots:
            return
        stage = self._stage
        name = sorted(self.snapshots)[self._rng.integers(len(self.snapshots))]
        content, spaces = self.snapshots[name]
        waits = stage.gate.closed() if self._rng.random() < 0.5 else nullcontext()
        with waits, stage.restoring():
            begin = time.monotonic()
            with stage.figures.timing("restores"):
                self._run("restore", str(stage.path), name)
            stage.history.restore(content, begin)
            stage.spaces = set(spaces)
            for owner in (*(each.owner for each in self._changers), self._plain.owner):
                owner.restored(content)
            stage.check()
        stage.figures.count("restores")

    # checks

    def check(self) -> None:
        """What the index holds is possible, while it changes."""
        with self._stage.figures.timing("loads"):
            self._stage.check()

    def finish(self) -> None:
        """When nothing changes any more: all servers serve what is saved, and end in order."""
        stage = self._stage
        for server in stage.servers:
            server.server.process.send(signal.SIGCONT)
        for server in stage.servers:
            with suppress(DeadError):
                server.save()
        content = stage.check()
        for server in stage.servers:
            server.reload()
            if server.n_vectors() != len(content):
                stage.blame(f"{server}: expected {len(content)}, got {server.n_vectors()}")
        for server in stage.servers:
            server.end()
            self._check_log(server)
        stage.check()
        for name, expected in self.snapshots.items():
            if self._read(name) != expected:
                stage.blame(f"undone: expected snapshot {name} as it was, got another")
