"""Shared by benchmarks: timing, peak memory, and tables of rows measured in fresh processes."""

import multiprocessing
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def timed(call: Callable[[], T], clock: Callable[[], float] = time.perf_counter) -> tuple[float, T]:
    """Seconds of a call by a clock, and its result."""
    begin = clock()
    result = call()
    return clock() - begin, result


def peak_mb() -> float:
    """Peak memory of this process, in MB.

    Not by `getrusage`: a process inherits its maximum from the one that started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index] # there


def print_table(
    headings: Sequence[str],
    rows: Callable[..., Iterable[Sequence[str]]],
    calls: Iterable[tuple[Any, ...]],
) -> None:
    """Print a Markdown table as its rows are measured.

    Args:
        headings: names of the columns.
        rows: a function of the module's top level that measures one or more rows.
        calls: arguments of each call of `rows`; each runs in a fresh process.
    """
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}", flush=True)
    context = multiprocessing.get_context("spawn")
    for arguments in calls:
        with context.Pool(1) as pool:
            for cells in pool.apply(rows, arguments):
                print(f"| {' | '.join(cells)} |", flush=True)
