"""Laws of interrupts, exit and fork during long calls."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

PRELUDE = """
import atexit, os, signal, sys, threading, time
early = []  # hooks at exit that run after the core's
atexit.register(lambda: [hook() for hook in early])
import numpy as np
from l2route import RoutingIndex, _core
from l2route.search.layout import pad_rows
rng = np.random.default_rng(0)
vectors = rng.normal(size=(3000, 16)).astype(np.float32)
index = RoutingIndex.build(vectors, degree=16, ef_construction=40)
graph = index.graph
wide = rng.integers(0, 3000, (3000, 1000)).astype(np.int32)
def search(n=60_000, **options):
    return index.search(np.tile(vectors, (n // 3000, 1)), ef=1000, **options)
def rollout():
    n = 200_000
    hops = _core.hops_to_targets(graph.core, np.arange(512, dtype=np.int32))
    zeros = np.zeros(n, dtype=np.int32)
    options = _core.RolloutOptions(budget=1500, k=1, temperature=1.0, routing_weight=1.0,
        topk_weight=1.0, topk_sharpness=1.0, teacher_forcing=False, seed=0)
    _core.rollout(graph.core, _core.Rows(pad_rows(vectors), "ip"),
        pad_rows(np.tile(vectors, (n // 3000 + 1, 1))[:n]), _core.Targets([hops], zeros, zeros),
        options, query_ids=np.arange(n), hidden=zeros - 1, with_query_gradient=False, n_threads=2)
def prune():
    many = np.tile(vectors, (10, 1))
    rows = _core.Rows(pad_rows(many), "l2")
    _core.pruned_lists(rows=rows, candidates=np.tile(wide, (10, 1)), degree=500,
        alpha=1e6, n_threads=2)
def hops():
    n = 1 << 17  # a ring: as many levels as vertices, and each a pass over all
    ring = ((np.arange(n) + 1) % n).astype(np.int32)[:, None].copy()
    one = np.zeros(1, dtype=np.int32)
    _core.hops_to_targets(_core.Graph(ring, one, []), one)
def report(*words):
    print(*words, flush=True)
"""
LONG_CALLS = {
    "search": "search(n_threads=1)",
    "search by two": "search(n_threads=2)",
    "one query at a time": "[search(3000) for _ in range(20)]",
    "plan": "index.plan(ef=1000)(np.tile(vectors, (20, 1)))",
    "trace": "search(trace=True)",
    "rollout": "rollout()",
    "pruned_lists": "prune()",
    "hops_to_targets": "hops()",
}


def start(script: str) -> subprocess.Popen[str]:
    """Run a script in another process."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("call", LONG_CALLS)
def test_ctrl_c_ends_a_long_call(call: str) -> None:
    """Ctrl-C soon ends a long call with KeyboardInterrupt, and later searches work."""
    with start(f"""
begin = time.perf_counter()
try:
    report("begins")
    {LONG_CALLS[call]}
    report("was not interrupted in", time.perf_counter() - begin)
except KeyboardInterrupt:
    report(time.perf_counter() - begin)
assert index.search(vectors[:5], ef=20).ids[:, 0].tolist() == [0, 1, 2, 3, 4]
""") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(0.4)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert 0.2 < float(out) < 2.5, out  # an uninterrupted call takes longer


def test_a_handler_that_raises_nothing_lets_a_call_go_on() -> None:
    """A signal handler that does not raise runs during a call, which then completes."""
    with start("""
signals = []
signal.signal(signal.SIGUSR1, lambda *_: signals.append(time.perf_counter()))
report("begins")
found = search(9000)
end = time.perf_counter()
report(len(found.ids), len(signals), end - signals[0] > 0.1)
""") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGUSR1)
        out, errors = process.communicate(timeout=60)
    assert out == "9000 1 True\n", errors


AT_EXIT = {
    "a long batch": "search()",
    "one query after another": "while True: index.search(vectors[0], ef=100)",
    "a plan": "p = index.plan(ef=100)\n    while True: p(vectors[:2])",
}


@pytest.mark.parametrize("work", AT_EXIT)
def test_a_process_ends_while_daemon_threads_search(work: str) -> None:
    """A process with searching daemon threads exits soon, without a crash or output."""
    for _ in range(3):
        with start(f"""
def work():
    {AT_EXIT[work]}
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
report("ends")
""") as process:
            out, errors = process.communicate(timeout=30)
        assert (process.returncode, out, errors) == (0, "ends\n", "")


def test_hooks_at_exit_may_search() -> None:
    """Hooks that run after the core's exit hook may search and join a searching thread."""
    with start("""
def hook():
    thread.join()
    report(index.search(vectors[:1], ef=20).ids[0, 0])
def work():
    try:
        while True: index.search(vectors[:100], ef=100)
    finally:
        report("left")
early.append(hook)
thread = threading.Thread(target=work, daemon=True)
thread.start()
time.sleep(0.2)
""") as process:
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert out.split() == ["left", "0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_process_that_was_forked_off_ends() -> None:
    """A process forked during its parent's searches can search and exits."""
    with start("""
threading.Thread(target=search, daemon=True).start()
time.sleep(0.2)
child = os.fork()
if child == 0:
    report(index.search(vectors[:1], ef=20, n_threads=1).ids[0, 0])
    sys.exit(3)
report(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""") as process:
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert out.split() == ["0", "3"]
