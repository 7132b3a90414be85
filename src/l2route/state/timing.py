"""Which of two searches is faster: in turns, the fastest pass of each, by time of the processor.

Where others use the same cores, time of the wall says how often a search was interrupted.
"""

import time
from collections.abc import Callable

N_TIMED = 7
"""Timed passes over the held-out queries, before and after in turns; the fastest counts."""
LEAST_SPEEDUP = 0.99
"""Speed, as a multiple of that before, below which a change is not kept where time is measured."""

SHORTEST = 1e-9
"""Seconds of what a clock is too coarse to see."""

Clock = Callable[[], float]
"""Seconds from some moment on."""


def speedup(
    before: Callable[[], object],
    after: Callable[[], object],
    *,
    n_passes: int = N_TIMED,
    clock: Clock = time.thread_time,
) -> float:
    """Speed of the second search as a multiple of that of the first, both on one thread.

    They take turns, so that what else the machine does meanwhile slows down both.

    Args:
        before: searches for the same queries whenever it is called.
        after: the same in another way.
        n_passes: calls of each.
        clock: tells the time; by default that of the processor on the calling thread.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(n_passes):
        for search, taken in zip((before, after), seconds, strict=True):
            begin = clock()
            search()
            taken.append(clock() - begin)
    return max(min(seconds[0]), SHORTEST) / max(min(seconds[1]), SHORTEST)
