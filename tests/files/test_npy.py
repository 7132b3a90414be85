"""Laws of npy headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from l2route.files.npy import MAX_PARSES, map_npy


@pytest.mark.parametrize("n_failures", [1, MAX_PARSES - 1, MAX_PARSES])
def test_a_header_is_parsed_again_after_other_threads_parsed(
    n_failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SystemError that Python 3.11 raises if two threads parse at once is not the file's."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    read, failures = np.lib.format.read_array_header_1_0, iter(range(n_failures))

    def fails_at_first(stream: Any) -> Any:
        found = read(stream)
        if next(failures, None) is not None:
            raise SystemError("AST constructor recursion depth mismatch")
        return found

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", fails_at_first)
    if n_failures < MAX_PARSES:
        np.testing.assert_array_equal(map_npy(tmp_path / "a.npy"), array)
    else:
        with pytest.raises(ValueError, match=r"a\.npy: expected a npy file, got a broken one"):
            map_npy(tmp_path / "a.npy")
