"""What a soak counts and measures, and the table of it."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np

LEAST_GROWTH, MOST_GROWTH = 0.9, 1.15
"""Memory in the last quarter of a server's time by that in the second, where it is flat."""
N_EVENTS = 60
"""Last events that are shown with a fault."""
PAGE = os.sysconf("SC_PAGE_SIZE")


class Figures:
    """Counts, seconds, sizes and faults; any number of threads may add some."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._sizes: defaultdict[int, list[int]] = defaultdict(list)  # by server
        self._events: list[str] = []
        self._lock, self._start = Lock(), time.monotonic()

    def count(self, what: str, n: int = 1) -> None:
        """Count something."""
        with self._lock:
            self.counts[what] += n

    def note(self, event: object) -> None:
        """Keep an event, to be shown with a fault."""
        with self._lock:
            self._events.append(f"{time.monotonic() - self._start:8.3f} {event}")
            del self._events[:-N_EVENTS]

    def blame(self, fault: object) -> None:
        """Note that a law does not hold."""
        self.note(f"FAULT {fault}")
        with self._lock:
            self.faults.append(str(fault))

    @contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Measure how long an answer takes."""
        begin = time.perf_counter()
        yield
        with self._lock:
            self._seconds[what].append(time.perf_counter() - begin)

    def weigh(self, server: int, pid: int) -> None:
        """Measure the resident memory of a server."""
        try:
            with open(f"/proc/{pid}/statm") as file:
                pages = int(file.read().split()[1])
        except OSError:
            return  # it has just ended
        if pages:
            with self._lock:
                self._sizes[server].append(pages * PAGE)

    def check_memory(self) -> None:
        """The memory of the server that has run longest is flat."""
        _, warm, _, end = self._memory()
        if not LEAST_GROWTH <= end / warm <= MOST_GROWTH:
            expected = f"memory that grows {LEAST_GROWTH} to {MOST_GROWTH} times"
            self.blame(f"expected {expected}, got {warm:.0f} and {end:.0f} MB")

    def _memory(self) -> list[float]:
        """Megabytes of the server that has run longest, in each quarter of its time."""
        sizes = max(self._sizes.values(), key=len, default=[])
        parts = np.array_split(sizes, 4)
        return [float(np.median(part)) / 1e6 if len(part) else math.nan for part in parts]

    def quantile(self, what: str, share: float) -> float:
        """Seconds in which that share of answers came."""
        return float(np.quantile(self._seconds[what], share))

    def table(self) -> str:
        """All figures, and what happened before the first faults."""
        lines = [f"{'answers':<28}{'number':>9}{'p50 ms':>9}{'p99 ms':>9}{'slowest':>9}"]
        for what, seconds in sorted(self._seconds.items()):
            ms = 1e3 * np.array(seconds)
            p50, p99 = np.quantile(ms, [0.5, 0.99])
            lines.append(f"{what:<28}{len(ms):>9,}{p50:>9.1f}{p99:>9.1f}{ms.max():>9.0f}")
        lines += [f"{what:<28}{n:>9,}" for what, n in sorted(self.counts.items())]
        quarters = ", ".join(f"{size:.1f}" for size in self._memory())
        lines.append(f"memory of a server, in each quarter of its time: {quarters} MB")
        if self.faults:
            lines += ["", "last events:", *self._events, "", "faults:", *self.faults[:20]]
        return "\n".join(lines)
