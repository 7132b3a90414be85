"""Laws of the memory that learning is expected to take, and of the clock."""

import logging
import subprocess
import sys

import numpy as np
import pytest

from l2route import RoutingIndex
from l2route.models.features import vertex_features
from l2route.training import footprint
from l2route.training.clock import Clock
from l2route.training.footprint import (
    N_FEATURES,
    N_PRODUCTS,
    expected_bytes,
    max_hop_blocks,
)
from l2route.training.oracle import BLOCK_TARGETS


def test_memory_for_hops_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hops take half of the free memory, at most 6 GiB, or `memory_gb`; at least one block."""
    block = 1000 * BLOCK_TARGETS // 2
    monkeypatch.setattr(footprint, "available_bytes", lambda: 10 * block)
    assert max_hop_blocks(1000, None) == 5
    assert max_hop_blocks(1000, 7.5 * block / 1e9) == 7
    assert max_hop_blocks(1000, 1e-9) == 1
    monkeypatch.setattr(footprint, "available_bytes", lambda: 1 << 50)
    assert max_hop_blocks(1000, None) == (6 << 30) // block


def test_features_are_as_wide_as_expected() -> None:
    """The expected memory assumes the number of features that a vertex has."""
    vectors = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    graph = RoutingIndex.build(vectors, degree=4, ef_construction=20, entry=0, refine=False).graph
    for with_products in (False, True):
        features = vertex_features(graph, vectors, with_products=with_products)
        n_wide = features.n_groups + features.n_products
        assert n_wide == N_FEATURES + N_PRODUCTS * with_products


def test_the_expected_peak_is_about_the_peak() -> None:
    """The peak memory of a learning process is within half of the expected one."""
    script = """
import re, numpy as np
import torch
from l2route import RoutingIndex
from l2route.training.footprint import expected_bytes
rng = np.random.default_rng(0)
base, queries = (rng.normal(size=(n, 64)).astype("f4") for n in (40_000, 20_000))
index = RoutingIndex.build(base, degree=8, ef_construction=20, entry=0, refine=False)
index.search(queries[:10], budget=100)
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = peak()
index.learn(queries, budget=64, steps=3, memory_gb=0.5)
print(expected_bytes(40_000, 64, 40_000, memory_gb=0.5), peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    expected, taken = (int(each) for each in done.stdout.split())
    assert 0.5 * expected < taken < 1.5 * expected
    assert expected == expected_bytes(40_000, 64, 40_000, memory_gb=0.5)


def test_the_expected_memory_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """`learn` logs the memory that it is expected to take."""
    rng = np.random.default_rng(0)
    base, queries = (rng.normal(size=(n, 8)).astype(np.float32) for n in (500, 400))
    with caplog.at_level(logging.INFO, logger="l2route"):
        RoutingIndex.build(base).learn(queries, steps=1, budget=32)
    assert "learning takes about 0.0 GB of memory beside the index" in caplog.text


def test_a_clock_counts_from_its_start() -> None:
    """Charged seconds count as spent; without a limit, time left and allowances are None."""
    clock = Clock(1.0)
    clock.charge(45.0)
    left = clock.left()
    assert left is not None
    assert 14 < left < 15.01
    assert clock.allowance(0.1) == 6.0
    allowance = clock.allowance(0.9)
    assert allowance is not None
    assert allowance <= left
    clock.charge(100.0)
    assert clock.allowance(0.1) == 0.0
    free = Clock(None)
    assert free.left() is free.allowance(0.5) is None
    assert free.spent() < 1
