"""Laws of interrupts during changes of an index."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

INTERRUPTED = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from l2route import RoutingIndex
from living import check_structure
rng = np.random.default_rng(0)
index = RoutingIndex.build(rng.normal(size=(500, 32)), degree=16)
before = index.ids.tolist()
print("begins", flush=True)
try:
    {call}
    print("was not interrupted", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert index.ids.tolist() == before, len(index)
check_structure(index)
old = index.vectors([0, 1])
assert index.search(old, 1, ef=50).ids.ravel().tolist() == [0, 1]
index.delete([0])
added = index.add(old[:1])
assert index.search(old[:1], 1, ef=50).ids[0, 0] == added[0]
"""


@pytest.mark.parametrize("seconds", [0.05, 0.3, 0.9])
@pytest.mark.parametrize(
    "call",
    [
        "index.add(rng.normal(size=(200_000, 32)), n_threads=1)",
        "index.add(np.tile(rng.normal(size=(20_000, 32)), (20, 1)), n_threads=2)",
        "[index.update(np.arange(500), -index.vectors(np.arange(500))) for _ in range(10_000)]",
    ],
)
def test_an_interrupted_change_changes_nothing(call: str, seconds: float) -> None:
    """After Ctrl-C during a change none of its vectors is in the index, which works on."""
    tests = str(Path(__file__).parent.parent)
    script = INTERRUPTED.format(tests=tests, call=call)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "interrupted\n"), errors
