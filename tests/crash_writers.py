"""Writers for `crash.kill_repeatedly`, and the states that they make."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from l2route.files.patches import Patch
from l2route.files.storage import append_patch, read_index, write_index
from saved_content import Content, change_of, content, patch_of

CYCLE = 8
"""Every eighth state has new arrays; those between have more and more changed rows."""
FOLDED = 5
"""Place in the cycle of the state that is saved whole with its changed rows."""
N = 500
"""Rows of new arrays: several pages of a file."""


def patch_at(number: int) -> Patch:
    """The patch between the state before and the state with this number."""
    return patch_of(number, N, 4 * (number % CYCLE))


def state_at(number: int) -> Content:
    """The state with a number, from 1 on."""
    first = max(1, number - number % CYCLE)
    arrays = content(first, N)[1]
    for each in range(first + 1, number + 1):
        arrays = change_of(arrays, patch_at(each))
    return {"made_by": number}, arrays


def save_arrays(path: Path, at: int) -> Iterator[None]:
    """Save states one after another: whole, as patches, and folded."""
    saved = read_index(path, mmap=at % 2 == 0)[2] if at else None
    for number in count(at + 1):
        if saved is None or number % CYCLE in (0, FOLDED):
            saved = write_index(path, *state_at(number), saved)
        else:
            saved = append_patch(saved, {"made_by": number}, patch_at(number))
        yield


def remove_and_rename(path: Path, at: int) -> Iterator[None]:
    """Remove a file before a new one is renamed to it: a writer that is not safe."""
    for number in count(at + 1):
        (path / "new").write_text(str(number))
        (path / "file").unlink(missing_ok=True)
        os.replace(path / "new", path / "file")
        yield


def fail(path: Path, at: int) -> Iterator[None]:
    """Save nothing, and fail."""
    raise RuntimeError(f"expected no failure, got one at {path} after {at}")
    yield
