"""Processes that change one index directory: plain ones, servers and commands.

They are forked from a process that has imported the package, so that one starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from threading import Lock
from typing import Any

import httpx

from crash import STEPS
from histories import vectors_of
from l2route.cli.app import main
from l2route.data.labels import Labels
from l2route.files.storage import StaleError
from l2route.index import RoutingIndex, load
from l2route.serve.options import API_KEY

SECONDS = 60.0
"""Seconds in which a process has to answer, on a machine that does other things too."""
PRELOADED = ["httpx", "l2route.cli.app", "l2route.serve.run", "l2route.serve.served", "pytest"]


class RefusedError(Exception):
    """A process has refused what it was asked for."""


class DeadError(Exception):
    """A process has ended before it answered."""


def context() -> ForkServerContext:
    """The process that others are forked from."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(PRELOADED)
    return made


class Forked:
    """A process that runs a function of this module; any number of threads may wait for its end.

    It ends with the process that started it.
    """

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        self._process = context().Process(target=target, args=arguments, daemon=True)
        self._process.start()
        self.pid = self._process.pid or 0
        self._handle: int | None = os.pidfd_open(self.pid)  # another process may get its number
        self._lock = Lock()

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        with self._lock:
            return self._process.exitcode

    def send(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        with self._lock, suppress(ProcessLookupError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, number)

    def join(self) -> int:
        """Wait for the end; the exit code."""
        end = time.monotonic() + SECONDS
        while (code := self.code) is None:
            assert time.monotonic() < end, "expected the end of a process in time"
            time.sleep(0.005)
        return code

    def close(self) -> None:
        """Kill it if it runs."""
        self.send(signal.SIGKILL)
        self.join()
        with self._lock:
            if self._handle is not None:
                os.close(self._handle)
            self._handle = None


class Worker:
    """A process that holds an index in memory, and does with it what it is asked for.

    Args:
        path: directory of the index.
    """

    def __init__(self, path: Path) -> None:
        self._pipe, theirs = context().Pipe()
        self.process = Forked(_work, path, theirs)
        theirs.close()

    def ask(self, name: str, *arguments: object) -> None:
        """Begin a method of `_Desk`."""
        with suppress(BrokenPipeError):  # the answer will be missing
            self._pipe.send((name, arguments))

    def answer(self) -> Any:
        """The result of what was asked for last."""
        try:
            assert self._pipe.poll(SECONDS), "expected an answer in time"
            is_done, result = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            raise DeadError from None
        if not is_done:
            raise RefusedError(result)
        return result

    def call(self, name: str, *arguments: object) -> Any:
        """The result of a method of `_Desk`."""
        self.ask(name, *arguments)
        return self.answer()

    def close(self) -> None:
        """End the process, and give back what belongs to it."""
        self.process.close()
        self._pipe.close()


class _Desk:
    """What a plain process does with an index."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._index: RoutingIndex = load(path)

    def load(self, mmap: bool = False) -> None:
        self._index = load(self._path, mmap=mmap)

    def replace(self, numbers: list[int], overwrite: bool) -> None:
        index = RoutingIndex.build(vectors_of(numbers), degree=8, ef_construction=40)
        index.save(self._path, overwrite=overwrite)

    def add(self, ids: list[int] | None, numbers: list[int], names: list[str | None]) -> list[int]:
        added: list[int] = self._index.add(vectors_of(numbers), ids, names=names).tolist()
        return added

    def update(self, ids: list[int], numbers: list[int]) -> list[int]:
        self._index.update(ids, vectors_of(numbers))
        return ids

    def name(self, ids: list[int], names: list[str | None]) -> list[int]:
        self._index.name(Labels.of(names, ids))
        return ids

    def delete(self, ids: list[int]) -> list[int]:
        self._index.delete(ids)
        return ids

    def rework(self, kind: str) -> None:
        index = self._index
        if kind in ("int8", "float16"):
            if f"original-{kind}" not in index.space_names:
                index.compress(kind, space="original")  # type: ignore[arg-type]
        else:
            getattr(index, kind)()

    def save(self) -> None:
        self._index.save()

    def commit(self) -> None:
        self._index.commit()

    def refresh(self) -> None:
        self._index.refresh()

    def snapshot(self, name: str) -> None:
        self._index.snapshot(name)

    def restore(self, name: str) -> None:
        self._index.restore(name)

    def versions(self) -> object:
        return self._index.versions()

    def die_at(self, n_steps: int, is_done: bool) -> None:
        kill_at(n_steps, is_done)


def _work(path: Path, pipe: Connection) -> None:
    """Answer until the other end is closed."""
    _end_with_parent()
    desk = None
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            name, arguments = pipe.recv()
            try:
                desk = desk or _Desk(path)
                answer = (True, getattr(desk, name)(*arguments))
            except StaleError as error:
                answer = (False, f"StaleError: {error}")
            except Exception as error:
                answer = (False, f"{type(error).__name__}: {error}")
            pipe.send(answer)


def kill_at(n_steps: int, is_done: bool) -> None:
    """Kill this process at a call that changes the disk.

    Args:
        n_steps: calls before that one.
        is_done: whether the call is made before; otherwise half of what it writes is written.
    """
    n_left = n_steps

    def counted(step: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal n_left
            n_left -= 1
            if n_left < 0 and not is_done:
                if step is pwrite:
                    file, content, at = args
                    pwrite(file, content[: len(content) // 2], at)
                os.kill(os.getpid(), signal.SIGKILL)
            result = step(*args, **kwargs)
            if n_left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return called

    pwrite = os.pwrite
    for owner, name in (*STEPS, (os, "pwrite"), (os, "ftruncate")):
        setattr(owner, name, counted(getattr(owner, name)))


class WebServer:
    """`l2route serve` in a process of its own, on a free port of loopback.

    Args:
        path: directory of an index.
        arguments: further options of the command.
        folder: directory for what it prints.
        die_at: see `kill_at`; None for a server that is not killed so.
    """

    def __init__(
        self, path: Path, *arguments: str, folder: Path, die_at: tuple[int, bool] | None = None
    ) -> None:
        self.output = folder / f"server-{time.monotonic_ns()}.txt"
        command = ["serve", str(path), "--port", "0", *arguments]
        self.process = Forked(_run, command, self.output, die_at)
        self._client: httpx.Client | None = None

    @property
    def client(self) -> httpx.Client:
        """A client of the server, once that takes connections."""
        if self._client is None:
            self._client = httpx.Client(base_url=self._address(), timeout=SECONDS)
        return self._client

    def _address(self) -> str:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            found = re.search(r"at (http://\S+)\n", self.said())
            if found:
                return found[1]
            if self.process.code is not None:
                raise DeadError(self.said())
            time.sleep(0.005)
        raise AssertionError(f"expected an address, got {self.said()!r}")

    def said(self) -> str:
        """What the server has printed, and logged."""
        return self.output.read_text() if self.output.exists() else ""

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        """The answer to a request; a DeadError if the server has ended before."""
        try:
            return self.client.post(path, json=body)
        except (httpx.TransportError, RuntimeError):  # the client may have been closed
            self.process.join()
            raise DeadError(self.said()) from None

    def close(self) -> None:
        """End the server, and give back what belongs to it."""
        self.process.close()
        if self._client is not None:
            self._client.close()


class Command:
    """A command of l2route in a process of its own.

    Args:
        folder: directory for what it prints.
        arguments: of the command.
        die_at: see `kill_at`; None for a command that is not killed so.
    """

    def __init__(
        self, folder: Path, *arguments: str, die_at: tuple[int, bool] | None = None
    ) -> None:
        self._output = folder / f"command-{time.monotonic_ns()}.txt"
        self.process = Forked(_run, list(arguments), self._output, die_at)

    def join(self) -> tuple[int, str]:
        """Wait for the end; the exit code, and what was printed."""
        code = self.process.join()
        self.process.close()
        said = self._output.read_text() if self._output.exists() else ""
        self._output.unlink(missing_ok=True)
        return code, said


def _run(arguments: Sequence[str], output: Path, die_at: tuple[int, bool] | None) -> None:
    """Run a command of l2route in this process, which prints into a file."""
    _end_with_parent()
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.pop(API_KEY, None)
    if die_at is not None:
        kill_at(*die_at)
    sys.argv = ["l2route", *arguments]
    main()


def _end_with_parent() -> None:
    """Let this process be killed when the one that it was forked from has ended."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        os._exit(1)
