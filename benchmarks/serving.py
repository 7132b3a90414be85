"""Queries per second and latency over HTTP on loopback, beside calls in the process.

    python benchmarks/serving.py                    # 50,000 synthetic vectors of 64 dimensions
    python benchmarks/serving.py FILE.npz           # arrays `base`, `learn` and `query`

int8 codes, at the setting that reaches a recall@10 of --recall on training queries. Two servers
run: one searches queries that arrive together as one batch, the other (--max-batch 1) each request
alone. The client is a process of its own with plain sockets, which shares the cores with the
servers. All rows take turns; of each the round with the most queries per second is shown. "CPU" is
the time of the processor that the server took per query, on all threads, in the round in which it
took least: other processes disturb it less than the rest.
"""

import argparse
import asyncio
import io
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray

from growth import synthetic
from l2route import RoutingIndex, load
from l2route.data.dataset import Dataset
from l2route.search.limits import Limits
from l2route.search.validation import N_KEPT
from l2route.serve.batcher import Ask, Batcher
from l2route.serve.served import Served

K = 10
N_BODIES = 1000
"""Different requests of a client."""
N_SYNTHETIC = 50_000
DIM = 64
NPY = "application/x-npy"
Rows = NDArray[np.float32]


@dataclass(slots=True)
class Row:
    """A way to ask, and the best round of it."""

    name: str
    ask: Callable[[float], tuple[int, list[float]]]
    """Asks for some seconds: queries answered in all, and the seconds of each call."""
    cpu: Callable[[], float]
    """Seconds of the processor that were used so far by the process that searches."""
    speed: float = 0.0
    latencies: list[float] = field(default_factory=list)
    seconds: float = np.inf
    """Of the processor per query."""

    def measure(self, seconds: float) -> None:
        """Ask for some seconds, and keep the round if it is the fastest."""
        start, used = time.perf_counter(), self.cpu()
        n_queries, latencies = self.ask(seconds)
        speed = n_queries / (time.perf_counter() - start)
        self.seconds = min(self.seconds, (self.cpu() - used) / n_queries)
        if speed > self.speed:
            self.speed, self.latencies = speed, latencies

    def cells(self) -> str:
        """The row of the table."""
        p50, p99 = 1000 * np.percentile(self.latencies, [50, 99])
        used = f"{1e6 * self.seconds:.0f}"
        return f"| {self.name} | {self.speed:,.0f} | {p50:.2f} | {p99:.2f} | {used} |"


def calls(search: Callable[[Rows], object], rows: Rows, size: int) -> Callable[..., object]:
    """A way to ask by calls in this process, with some queries each."""

    def ask(seconds: float) -> tuple[int, list[float]]:
        latencies: list[float] = []
        begin = end = time.perf_counter()
        at = 0
        while end - begin < seconds:
            search(rows[at] if size == 1 else rows[at : at + size])
            now = time.perf_counter()
            latencies.append(now - end)
            end, at = now, (at + size) % (len(rows) - size + 1)
        return size * len(latencies), latencies

    return ask


def queued(path: Path, rows: Rows, recall: float, max_batch: int, n: int) -> Callable[..., object]:
    """A way to ask the worker threads of a server without HTTP, some requests at a time."""
    served = Served(path)
    ask_for = Ask(K, Limits(), recall)

    async def run(seconds: float) -> tuple[int, list[float]]:
        latencies: list[float] = []
        batcher = Batcher(
            served, n_workers=1, max_queue=n, max_batch=max_batch, on_searched=lambda *_: None
        )
        batcher.start()
        begin = end = time.perf_counter()
        at = 0
        while end - begin < seconds:
            every = [batcher.search(rows[at + i : at + i + 1], ask_for) for i in range(n)]
            await asyncio.gather(*every)
            now = time.perf_counter()
            latencies.append(now - end)
            end, at = now, (at + n) % (len(rows) - n)
        await asyncio.to_thread(batcher.close)
        return n * len(latencies), latencies

    return lambda seconds: asyncio.run(run(seconds))


def json_body(rows: Rows, recall: float) -> tuple[str, bytes]:
    """Path with its parameters and head of the body, and the body, as JSON."""
    body = {"queries": rows.astype(float).round(4).tolist(), "k": K, "recall": recall}
    return "/search", json.dumps(body).encode()


def npy_body(rows: Rows, recall: float) -> tuple[str, bytes]:
    """Path with its parameters, and the body, as npy."""
    stream = io.BytesIO()
    np.save(stream, rows)
    return f"/search?k={K}&recall={recall}", stream.getvalue()


def requests(
    make: Callable[[Rows, float], tuple[str, bytes]],
    media: str,
    queries: Rows,
    size: int,
    recall: float,
) -> list[bytes]:
    """Whole requests, with some queries each."""
    made = []
    for i in range(min(N_BODIES, len(queries) // size)):
        path, body = make(queries[i * size : (i + 1) * size], recall)
        head = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


async def _connection(
    port: int, made: Sequence[bytes], first: int, end: float, latencies: list[float]
) -> None:
    """Send requests one after another on a connection, until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    at = first
    while (start := time.perf_counter()) < end:
        writer.write(made[at % len(made)])
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"expected 200, got {head[:200]!r}")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        latencies.append(time.perf_counter() - start)
        at += 1
    writer.close()


def _client(port: int, made: Sequence[bytes], n_connections: int, seconds: float) -> list[float]:
    """Latencies of all requests of a number of connections."""

    async def run() -> list[float]:
        latencies: list[float] = []
        end = time.perf_counter() + seconds
        firsts = range(0, len(made), max(1, len(made) // n_connections))
        every = [
            _connection(port, made, firsts[i % len(firsts)], end, latencies)
            for i in range(n_connections)
        ]
        await asyncio.gather(*every)
        return latencies

    return asyncio.run(run())


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    pid: int
    port: int

    def cpu(self) -> float:
        """Seconds of the processor that it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def batch_size(self) -> float:
        """Mean number of queries that it searched as one batch."""
        page = urlopen(f"http://127.0.0.1:{self.port}/metrics").read().decode()
        values = [
            float(re.search(rf"^l2route_batch_queries_{name} (\S+)$", page, re.MULTILINE)[1])  # type: ignore[index]
            for name in ("sum", "count")
        ]
        return values[0] / max(1.0, values[1])


@contextmanager
def serving(path: Path, *options: str) -> Iterator["Server"]:
    """A server in a process of its own."""
    command = [sys.executable, "-m", "l2route", "serve", str(path), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+)$", process.stdout.readline().strip())
            assert found is not None
            yield Server(process.pid, int(found[1]))
        finally:
            process.terminate()


def served_index(data: Dataset, recall: float, path: Path) -> None:
    """Build, compress and calibrate an index, and save it."""
    index = RoutingIndex.build(data.base, data.metric)
    index.validate_with(data.training[:N_KEPT])
    index.renumber()
    index.compress("int8", vectors="float16")
    print(f"{index}, {index.setting(recall, K)}\n")
    index.save(path)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--recall", type=float, default=0.95)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", type=int, default=32)
    options = parser.parse_args()
    if options.file is not None:
        data = Dataset.read(options.file)
    else:
        parts = (synthetic(n, DIM, i) for i, n in enumerate((N_SYNTHETIC, 5000, 5000), start=1))
        base, learn, query = parts
        data = Dataset("synthetic", base, query, learn)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "served.l2r"
        served_index(data, options.recall, path)
        measure(path, data, options)


def measure(path: Path, data: Dataset, options: argparse.Namespace) -> None:
    """Measure all rows in turns, and print them."""
    context = multiprocessing.get_context("spawn")
    with (
        serving(path) as merging,
        serving(path, "--max-batch", "1") as alone,
        context.Pool(1) as pool,
    ):
        rows = [
            *rows_in_process(path, data.query, options),
            *rows_over_http(data.query, options, merging, alone, pool),
        ]
        for _ in range(options.rounds):
            for row in rows:
                row.measure(options.seconds)
        print("| | queries/s | 50% ms | 99% ms | CPU µs |\n|---|---|---|---|---|")
        for row in rows:
            print(row.cells())
        sizes = f"{merging.batch_size():.1f} and {alone.batch_size():.1f}"
        print(f"\nqueries per search, over all rows: {sizes}")


def rows_in_process(path: Path, queries: Rows, options: argparse.Namespace) -> list[Row]:
    """Rows without HTTP."""
    recall, n = options.recall, options.connections
    plan = load(path).plan(K, recall=recall)
    ways = {
        "in the process, one by one": calls(plan, queries, 1),
        "in the process, batches of 100": calls(plan, queries, 100),
        f"worker thread, {n} requests at a time": queued(path, queries, recall, 256, n),
        "the same, each request alone": queued(path, queries, recall, 1, n),
    }
    return [Row(name, ask, time.process_time) for name, ask in ways.items()]


def rows_over_http(
    queries: Rows, options: argparse.Namespace, merging: Server, alone: Server, pool: Any
) -> list[Row]:
    """Rows over HTTP."""
    recall = options.recall

    def http(name: str, server: Server, made: list[bytes], size: int, n: int) -> Row:
        def ask(seconds: float) -> tuple[int, list[float]]:
            latencies = pool.apply(_client, (server.port, made, n, seconds))
            return size * len(latencies), latencies

        return Row(name, ask, server.cpu)

    rows = []
    for kind, make, media in (("JSON", json_body, "application/json"), ("npy", npy_body, NPY)):
        made = requests(make, media, queries, 1, recall)
        rows.append(http(f"{kind}, 1 connection", merging, made, 1, 1))
        for n in (4, options.connections):
            rows.append(http(f"{kind}, {n} connections", merging, made, 1, n))
            rows.append(http("the same, each request alone", alone, made, 1, n))
    for size in (100, 1000):
        made = requests(npy_body, NPY, queries, size, recall)
        rows.append(http(f"npy, batches of {size}, 2 connections", merging, made, size, 2))
    return rows


if __name__ == "__main__":
    main()
