"""Laws of the SIMD levels that the core finds."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from l2route import _core

AVX2 = {"avx2", "fma", "f16c"}
AVX512 = AVX2 | {"avx512f", "avx512dq"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/cpuinfo")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
def test_levels_are_those_that_the_kernel_lists() -> None:
    """The core finds the levels of the features that Linux lists for the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    (flags, *_) = [set(line.split(":")[1].split()) for line in lines if line.startswith("flags")]
    expected = [name for name, need in (("avx512", AVX512), ("avx2", AVX2)) if need <= flags]
    assert _core.simd_levels() == [*expected, "portable"]
