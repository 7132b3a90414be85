"""Measured latencies, and when a second replica is asked."""

from __future__ import annotations

from collections import deque
from threading import Lock

N_KEPT = 256
"""Latencies that are remembered for each size of batch."""
N_NEEDED = 16
"""With fewer the first delay is used."""
SHARE = 0.95
"""Share of the calls that are faster than what counts as late."""
HEDGED_SHARE = 0.05
"""Share of the calls that may be sent to a second replica because the first is late."""
MOST_HEDGES = 32
"""Second calls that may be saved up."""
MARGIN = 1.5
"""How many times that latency a call may take before another replica is asked."""


class Latencies:
    """Latencies of calls to shards, by the size of their batches.

    Args:
        first: seconds before a second replica is asked while little is known.
        least: least seconds before a second replica is asked.
    """

    def __init__(self, first: float = 1.0, least: float = 0.005) -> None:
        self._first, self._least = first, least
        self._lock = Lock()
        self._seen: dict[int, deque[float]] = {}

    def note(self, n_queries: int, seconds: float) -> None:
        """Remember how long a call took."""
        with self._lock:
            seen = self._seen.setdefault(n_queries.bit_length(), deque(maxlen=N_KEPT))
            seen.append(seconds)

    def delay(self, n_queries: int) -> float:
        """Seconds after which a call of so many queries is late."""
        with self._lock:
            seen = sorted(self._seen.get(n_queries.bit_length(), ()))
        if len(seen) < N_NEEDED:
            return self._first
        return max(self._least, MARGIN * seen[min(len(seen) - 1, int(SHARE * len(seen)))])


class Hedges:
    """The right to ask second replicas: a small share of all calls, saved up to a number.

    Without a bound, a busy cluster makes itself busier: calls that wait are late, and are sent
    again.
    """

    def __init__(self) -> None:
        self._lock, self._saved = Lock(), float(MOST_HEDGES)

    def note_calls(self, n: int) -> None:
        """Count calls that were sent."""
        with self._lock:
            self._saved = min(self._saved + HEDGED_SHARE * n, MOST_HEDGES)

    def take(self) -> bool:
        """Whether one more call may be sent twice."""
        with self._lock:
            if self._saved < 1:
                return False
            self._saved -= 1
            return True
