"""Laws of the core on ARM, tested on any machine."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import nanobind
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from arm import KERNELS, ROOT, Processor, compile_for_arm, link_for_arm
from l2route import _core
from l2route.search.codes import LARGEST_CODES
from l2route.search.layout import pad_rows
from scores_twin import packed_rows, padded_to, scores_of

FUSED = [level for level in _core.simd_levels() if level != "portable"]
"""Levels of this machine that round as NEON does."""


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Processor:
    """An emulated processor with the core's kernels."""
    directory = tmp_path_factory.mktemp("arm")
    compile_for_arm(ROOT / "tests" / "arm_kernels.cpp", directory / "kernels.o", "-O3")
    link_for_arm(directory / "kernels.o", directory / "kernels", entry="score")
    return Processor((directory / "kernels").read_bytes())


def emulated(
    processor: Processor, kernel: str, query: NDArray[Any], rows: NDArray[Any]
) -> NDArray[np.float32]:
    """Scores of all rows, computed by an ARM kernel."""
    ids = np.arange(len(rows), dtype=np.int32)
    scores = np.zeros(len(rows), dtype=np.float32)
    processor.call(KERNELS.index(kernel), query, rows, len(query), ids, len(rows), scores)
    return scores


def test_the_core_compiles_for_arm(tmp_path: Path) -> None:
    """All bindings compile for ARM with another compiler, without warnings."""
    headers = (nanobind.include_dir(), sysconfig.get_paths()["include"])
    options = [word for path in headers for word in ("-isystem", path)]
    sources = list((ROOT / "cpp" / "bindings").glob("*.cpp"))
    assert len(sources) == 8
    for source in sources:
        target = tmp_path / f"{source.stem}.o"
        compile_for_arm(source, target, "-O0", *options)
        assert target.stat().st_size > 0


@pytest.mark.parametrize("scorer", ["l2", "ip"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@given(dim=st.integers(1, 300), n=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_floats_are_scored_on_arm_as_here(
    processor: Processor, scorer: str, dtype: type, dim: int, n: int, seed: int
) -> None:
    """ARM scores of floats equal those of the fused kernels bit by bit, and numpy nearly."""
    rng = np.random.default_rng(seed)
    rows = pad_rows(rng.normal(size=(n, dim)).astype(dtype))
    query = padded_to(rng.normal(size=dim), rows.shape[1])
    scores = emulated(processor, f"{scorer} {np.dtype(dtype)}", query, rows)
    np.testing.assert_allclose(scores, scores_of(rows, query, scorer), rtol=1e-5, atol=1e-4)
    for simd in FUSED:
        np.testing.assert_array_equal(scores, _core.Rows(rows, scorer, simd=simd).scores(query))


def test_every_half_float_is_read_on_arm(processor: Processor) -> None:
    """All 65,536 half floats, with subnormals and infinities, are read correctly; NaN stays NaN."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    rows = pad_rows(halves[:, None])
    one = padded_to(np.ones(1), rows.shape[1])
    with np.errstate(invalid="ignore"):
        expected = 0 - halves.astype(np.float32)
    np.testing.assert_array_equal(emulated(processor, "ip float16", one, rows), expected)


@pytest.mark.parametrize("bits", [2, 4, 8])
@given(dim=st.integers(1, 300), seed=st.integers(0, 2**32 - 1), extreme=st.booleans())
def test_codes_are_scored_on_arm(
    processor: Processor, bits: int, dim: int, seed: int, extreme: bool
) -> None:
    """ARM scores of codes are exact sums of integer products, also for the largest values."""
    rng = np.random.default_rng(seed)
    largest = LARGEST_CODES[bits]
    codes = rng.integers(largest if extreme else 0, largest + 1, (5, dim), dtype=np.uint8)
    rows, width = packed_rows(codes, bits)
    query = rng.integers(-127, 128, width, dtype=np.int8)
    if extreme:
        query[:] = rng.choice([-127, 127])
    kernel = {2: "ip quarter codes", 4: "ip half codes", 8: "ip codes"}[bits]
    expected = -(codes.astype(np.int64) @ query[:dim].astype(np.int64))
    np.testing.assert_array_equal(emulated(processor, kernel, query, rows), expected)
