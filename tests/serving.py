"""Servers for tests: in this process, and as processes of their own on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi.testclient import TestClient

from l2route.data.labels import Labels
from l2route.index import RoutingIndex
from l2route.serve.app import create_app
from l2route.serve.options import API_KEY, ServeOptions
from l2route.serve.served import Served

DIM = 8
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(300, DIM)).astype(np.float32)
QUERIES = RNG.normal(size=(40, DIM)).astype(np.float32)
START_SECONDS = 30.0
"""Seconds in which a server has to start, on a machine that does other things too."""


def saved_index(path: Path, **options: Any) -> Path:
    """Build and save a small index with validation queries, and return its directory."""
    index = RoutingIndex.build(VECTORS, **{"ef_construction": 40, "degree": 8} | options)
    index.validate_with(QUERIES)
    index.save(path)
    return path


@contextmanager
def client_of(
    path: Path, options: ServeOptions | None = None, labels: Labels | None = None, **more: Any
) -> Iterator[TestClient]:
    """A client of a server in this process; `client.served` is what is served."""
    served = Served(path, labels, **more)
    app = create_app(served, options or ServeOptions())
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        client.served = served  # type: ignore[attr-defined]
        yield client


@dataclass(frozen=True)
class Server:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    client: httpx.Client

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.url.rpartition(":")[2])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait until the process has ended, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(START_SECONDS)


@contextmanager
def server_of(path: Path, *arguments: str, key: str | None = None) -> Iterator[Server]:
    """Run `l2route serve` on a free port; it is killed at the end if it still runs.

    Args:
        path: directory of an index.
        arguments: further options of the command.
        key: API key; None for none.
    """
    environment = {name: value for name, value in os.environ.items() if name != API_KEY}
    if key is not None:
        environment[API_KEY] = key
    command = [sys.executable, "-m", "l2route", "serve", str(path), "--port", "0", *arguments]
    errors = path.parent / "server.err"
    with (
        errors.open("a") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, f"expected an address, got {line!r} and {errors.read_text()}"
            with httpx.Client(base_url=found[0], timeout=START_SECONDS) as client:
                yield Server(process, found[0], client)
        finally:
            process.kill()
