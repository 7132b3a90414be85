"""The time limit of a run, set-up and final measurements included."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class Clock:
    """Measures the seconds of a run against a limit.

    Args:
        minutes: the limit; None for no limit.
    """

    def __init__(self, minutes: float | None) -> None:
        self.limit = None if minutes is None else 60 * minutes
        self._begin = time.perf_counter()
        self._charged = 0.0

    def charge(self, seconds: float) -> None:
        """Add seconds that an earlier process spent on the same run."""
        self._charged += seconds

    def spent(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self._begin + self._charged

    def left(self) -> float | None:
        """Seconds until the limit, negative beyond it; None if there is no limit."""
        return None if self.limit is None else self.limit - self.spent()

    def allowance(self, share: float) -> float | None:
        """A fraction of the limit in seconds, or the time left if less; None for no limit."""
        left = self.left()
        return (
            None if left is None or self.limit is None else max(0.0, min(left, share * self.limit))
        )


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """A function's result, and the seconds that it took."""
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin
