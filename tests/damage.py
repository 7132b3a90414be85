"""Damage to files of an index, extreme values, and the check of a damaged index."""

from __future__ import annotations

import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.index import RoutingIndex, load

SIZES = (6, 16, 17, 70, 400)
"""Dimensions and numbers of vertices of the damaged indexes, or close to them."""
Files = dict[str, bytes]
"""The content of files by name."""
WILD_FLOATS = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 0.0]
WILD_JSON: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 3, *SIZES, 10**9, 2**31, 2**63, 2**64, 10**40),
    *(0.5, -0.0, 1e308, float("inf"), float("nan"), "", "x", "l2", "ip", "cosine", "original"),
    *([], [1], {}, {"file": "x"}, [[]], "\0", "..", "\ud800", "int32", "float32", "int64", "void"),
    *([70, 16], [70], [-1], [70, 16, 1], [0, 16], [2**62, 4], "é" * 300),
]
KEYS = ["space0_bias", "labels", "layer0_vertices"]
LIMITS: tuple[dict[str, Any], ...] = (
    *({"ef": 9}, {"budget": 10**6}, {"budget": 40}, {"slack": 0.2}),
    *({"ef": 30, "budget": 200, "rerank": 5}, {"recall": 0.9}),
)


def wild_integers(n: int) -> list[int]:
    """Integers around 0 and n, and at the limits of their types."""
    return [-(2**31), -n, -2, -1, 0, 1, 2, n - 1, n, n + 1, 2**16, 2**31 - 1]


def containers(value: Any) -> list[Any]:
    """Every non-empty object and list of a JSON document."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    found = [value] if isinstance(value, dict | list) and value else []
    return found + [box for each in inner for box in containers(each)]


def edit_json(document: Any, rng: random.Random) -> None:
    """Change, remove, swap or copy one value anywhere in a JSON document."""
    box = rng.choice(containers(document) or [[None]])
    keys = sorted(box) if isinstance(box, dict) else list(range(len(box)))
    key, other = rng.choice(keys), rng.choice(keys)
    kind = rng.randrange(5)
    if kind == 0:
        del box[key]
    elif kind == 1:
        box[key], box[other] = box[other], box[key]
    elif kind == 2 and isinstance(box, list):
        box.append(deepcopy(box[key]))
    elif kind == 2:
        box[rng.choice([f"{other}0", *KEYS])] = deepcopy(box[key])
    elif kind == 3 and isinstance(box[key], int | float) and not isinstance(box[key], bool):
        changes = [box[key] + 1, box[key] - 1, box[key] + 16, -box[key], 2 * box[key], 10**6]
        box[key] = rng.choice(changes)
    else:
        box[key] = deepcopy(rng.choice(WILD_JSON))


def some_file(files: Files, rng: random.Random) -> str:
    """A random file that is not empty."""
    return rng.choice(sorted(name for name in files if files[name]))


def flip_bytes(files: Files, rng: random.Random) -> None:
    """Change some bytes of a file, often in the header."""
    name = some_file(files, rng)
    content = bytearray(files[name])
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        at = rng.randrange(rng.choice([len(content), min(128, len(content))]))
        content[at] = rng.choice([rng.randrange(256), 0, 255, content[at] ^ 1 << rng.randrange(8)])
    files[name] = bytes(content)


def cut(files: Files, rng: random.Random) -> None:
    """Shorten a file, sometimes to nothing."""
    name = some_file(files, rng)
    content = files[name]
    files[name] = content[: rng.choice([0, 5, 10, 64, 128, rng.randrange(len(content)), -1])]


def extend(files: Files, rng: random.Random) -> None:
    """Lengthen a file, at its end or inside."""
    name = some_file(files, rng)
    content = files[name]
    at = rng.choice([len(content), rng.randrange(len(content))])
    files[name] = content[:at] + rng.randbytes(rng.choice([1, 4, 64])) + content[at:]


def swap(files: Files, rng: random.Random) -> None:
    """Swap two files, or replace one by a copy of another."""
    a, b = rng.sample(sorted(files), 2)
    files[a], files[b] = files[b], rng.choice([files[a], files[b]])


def remove(files: Files, rng: random.Random) -> None:
    """Delete a file."""
    del files[rng.choice(sorted(files))]


def outcome_of(path: Path, *, mmap: bool, verify: bool) -> str:
    """Load an index and search all its spaces; return "no file", "refused" or "index"."""
    try:
        index = load(path, mmap=mmap, verify=verify)
    except FileNotFoundError as error:
        assert str(path) in str(error)  # noqa: PT017 # an error is allowed, not required
        return "no file"
    except ValueError as error:
        assert str(path) in str(error)  # noqa: PT017 # the same
        assert "expected" in str(error)  # noqa: PT017 # the same
        return "refused"
    labels = index.ids.tolist()
    queries = np.stack([np.ones(index.dim), np.linspace(-1, 1, index.dim)])
    for space in index._current.state.searchers:
        for limit in LIMITS:
            _search(index, queries, {-1, *labels}, space=space, **limit)
    index.info()
    return "index"


def _search(index: RoutingIndex, queries: NDArray[Any], known: set[int], **options: Any) -> None:
    """Search an index: answers are ids of the index, or a ValueError says what was expected."""
    try:
        found = index.search(queries, k=3, **options)
    except ValueError as error:
        assert "expected" in str(error)  # noqa: PT017 # a budget too small, nothing to measure on
        return
    assert set(found.ids.ravel().tolist()) <= known
    assert found.distances.shape == (len(queries), 3)
