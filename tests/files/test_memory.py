"""Laws of aligned arrays and of available memory."""

from pathlib import Path

import numpy as np
import pytest

from l2route.files import memory
from l2route.files.memory import CACHE_LINE, aligned, aligned_zeros, available_bytes
from l2route.search.layout import aligned_rows, pad_rows


@pytest.mark.parametrize("n", [1, 3, 1000, 1_000_003])
def test_arrays_start_on_a_cache_line(n: int) -> None:
    """`aligned_zeros` returns a writable array of zeros that starts on a cache line."""
    array = aligned_zeros((n, 3), np.int16)
    assert array.shape == (n, 3)
    assert array.ctypes.data % CACHE_LINE == 0
    assert array.flags.c_contiguous
    assert not array.any()
    array += 7
    assert (array == 7).all()


@pytest.mark.parametrize("n", [10, 40_000])
def test_copies_are_equal(n: int) -> None:
    """Padding, reordering and aligning rows keep their values."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(n, 20)).astype(np.float32)
    padded = pad_rows(vectors)
    np.testing.assert_array_equal(padded[:, :20], vectors)
    assert padded.shape == (n, 32)
    assert not padded[:, 20:].any()
    order = rng.permutation(n)
    np.testing.assert_array_equal(aligned_rows(padded, order), padded[order])
    shifted = np.zeros(n * 20 + 1, dtype=np.float32)[1:].reshape(n, 20)
    shifted[:] = vectors
    copy = aligned(shifted)
    assert copy.ctypes.data % CACHE_LINE == 0
    np.testing.assert_array_equal(copy, vectors)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 10 << 30),
        ({"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  2048 kB\n"}, 2 << 20),
        ({"memory.max": "max\n", "memory.current": "5000\n"}, 10 << 30),
        ({"memory.max": "9000\n", "memory.current": "5000\n"}, 4000),
        (
            {
                "memory.max": "9000\n",
                "memory.current": "8000\n",
                "memory.stat": "anon 1\ninactive_file 500\n",
            },
            1500,
        ),
        ({"memory.max": "9000\n", "memory.current": "9100\n"}, 0),
    ],
)
def test_available_memory_is_the_least_of_all_limits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    """It is the least of physical memory, the kernel's estimate and a container's limit."""
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 10 << 18, "SC_PAGE_SIZE": 4096}.get)

    class FakePath(type(tmp_path)):  # type: ignore[misc] # a Path of this system
        def read_text(self) -> str:
            for name, text in files.items():
                if str(self).endswith(name):
                    return text
            raise FileNotFoundError(self)

    monkeypatch.setattr(memory, "Path", FakePath)
    assert available_bytes() == expected


def test_some_memory_is_free() -> None:
    """Available memory of the machine that runs the tests is a plausible number."""
    assert 1 << 20 < available_bytes() < 1 << 50
