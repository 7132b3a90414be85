"""Laws of steps: no fork is in the middle of one."""

import sys
import threading
from collections.abc import Iterator

import pytest

from l2route.state import forks


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns after nearly every instruction."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_no_step_goes_on_during_a_fork() -> None:
    """From the preparation of a fork to its end no step goes on, not even one made meanwhile."""
    done, inside = threading.Event(), set[int]()

    def take_steps() -> None:
        while not done.is_set():
            with forks.Step():
                inside.add(threading.get_ident())
                done.wait(1e-5)
                inside.remove(threading.get_ident())

    threads = [threading.Thread(target=take_steps) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            forks._hold()
            try:
                seen = [inside.copy() for _ in range(100)]
            finally:
                forks._release()
            assert not any(seen)
    finally:
        done.set()
        for thread in threads:
            thread.join()
