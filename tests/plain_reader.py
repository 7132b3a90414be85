"""A reader of saved indexes in plain numpy, written from docs/format.md alone.

Nothing of l2route is imported here: what the reader gets wrong, the specification says wrong.
"""

import hashlib
import heapq
import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE = 64
"""Bytes to which the blocks of a patch are padded."""
Array = NDArray[Any]


@dataclass(frozen=True)
class PlainIndex:
    """A saved index: the content of meta.json, and the arrays with all patches applied."""

    meta: dict[str, Any]
    arrays: dict[str, Array]

    def search(
        self, query: Array, k: int, ef: int, space: int | None = None
    ) -> tuple[Array, Array]:
        """Ids and distances of the k nearest [k]; `space` is None for the original vectors."""
        dim = self.meta["dim"]
        if self.meta["metric"] == "cosine":
            query = query / np.linalg.norm(query)
        scores = self._scores(query, space)
        order = self._walk(scores, ef)
        labels = self.arrays.get("labels", np.arange(len(scores)))
        order = order[labels[order] != -1][:ef]
        rows = self.arrays["vectors"][order, :dim].astype(np.float64)
        distances = self._distances(rows, query)
        nearest = np.argsort(distances, kind="stable")[:k]
        return labels[order[nearest]], distances[nearest]

    def names(self) -> dict[int, str]:
        """The names of ids: the last of each, if it was not taken away."""
        if "names_ids" not in self.arrays:
            return {}
        rest, found = self.arrays["names_text"].tobytes(), {}
        ids, sizes = self.arrays["names_ids"].tolist(), self.arrays["names_sizes"].tolist()
        for id_, size in zip(ids, sizes, strict=True):
            found[id_] = rest[:size].decode() if size >= 0 else None
            rest = rest[max(size, 0) :]
        labels = set(self.arrays["labels"].tolist())
        return {id_: name for id_, name in found.items() if name is not None and id_ in labels}

    def _scores(self, query: Array, space: int | None) -> Array:
        """The score of every row; less is nearer. A walk looks at few of them."""
        if space is None:
            scorer = "l2" if self.meta["metric"] == "l2" else "ip"
            rows = self.arrays["vectors"][:, : self.meta["dim"]]
            return _scored(rows.astype(np.float64), query, scorer, 0.0)
        entry, arrays = self.meta["spaces"][space], self.arrays
        name = f"space{space}"
        mapped = arrays[f"{name}_matrix"] @ query if f"{name}_matrix" in arrays else query
        if f"{name}_signs" in arrays:
            assert len(query) == entry["n_rotated"]
            mapped = _rotated(query, arrays[f"{name}_signs"])
        mapped = mapped - arrays.get(f"{name}_centre", 0.0)
        rows = _decoded(arrays[f"{name}_rows"], entry, arrays, name)
        return _scored(rows, mapped, entry["scorer"], arrays.get(f"{name}_bias", 0.0))

    def _distances(self, rows: Array, query: Array) -> Array:
        if self.meta["metric"] == "l2":
            return np.asarray(((rows - query) ** 2).sum(axis=1))
        return np.asarray((1.0 if self.meta["metric"] == "cosine" else 0.0) - rows @ query)

    def _walk(self, scores: Array, ef: int) -> Array:
        """Rows scored, nearest first; those without vector do not count for the beam."""
        entries = self.arrays["entries"]
        seen = set(entries[entries >= 0].tolist())
        for i in range(self.meta["n_layers"]):
            self._descend(i, scores, seen)
        waiting = [(scores[v], v) for v in seen]
        heapq.heapify(waiting)
        labels = self.arrays.get("labels", np.zeros(len(scores)))
        beam = heapq.nsmallest(ef, ((scores[v], v) for v in seen if labels[v] != -1))
        while waiting:
            nearest = heapq.heappop(waiting)
            if len(beam) >= ef and nearest > beam[-1]:
                break
            new = [
                v for v in self.arrays["neighbors"][nearest[1]].tolist() if v >= 0 and v not in seen
            ]
            seen.update(new)
            for v in new:
                heapq.heappush(waiting, (scores[v], v))
            live = ((scores[v], v) for v in new if labels[v] != -1)
            beam = heapq.nsmallest(ef, [*beam, *live])
        visited = np.array(sorted(seen), dtype=np.int64)
        return visited[np.argsort(scores[visited], kind="stable")]

    def _descend(self, layer: int, scores: Array, seen: set[int]) -> None:
        vertices = self.arrays[f"layer{layer}_vertices"]
        lists = self.arrays[f"layer{layer}_neighbors"]
        while True:
            nearest = min(seen, key=lambda v: (scores[v], v))
            row = lists[np.searchsorted(vertices, nearest)]
            seen.update(row[row >= 0].tolist())
            if min(seen, key=lambda v: (scores[v], v)) == nearest:
                return


def _scored(rows: Array, query: Array, scorer: str, bias: Any) -> Array:
    if scorer == "l2":
        return np.asarray(((rows - query) ** 2).sum(axis=1) - bias)
    return np.asarray(-(rows @ query) - bias)


def _rotated(query: Array, signs: Array) -> Array:
    """Rounds of signs and Walsh–Hadamard transforms of the first or the last elements."""
    n = signs.shape[1]
    rotated = np.zeros(n)
    rotated[: len(query)] = query
    block = 2 ** (n.bit_length() - 1)
    ones = np.array([[(i & j).bit_count() for j in range(block)] for i in range(block)])
    for i, each in enumerate(signs):
        rotated = rotated * each
        at = 0 if i % 2 == 0 else n - block
        rotated[at : at + block] = (-1.0) ** ones @ rotated[at : at + block] / np.sqrt(block)
    return rotated


def _decoded(rows: Array, entry: dict[str, Any], arrays: dict[str, Array], name: str) -> Array:
    """Routing vectors as floats [n, dim]."""
    if rows.dtype == np.uint8 and entry["code_bits"] < 8:
        bits = entry["code_bits"]
        blocks = rows.reshape(len(rows), -1, LINE)
        parts = [(blocks >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
        rows = np.concatenate(parts, axis=2).reshape(len(rows), -1)
    values = rows[:, : entry["dim"]].astype(np.float64)
    if f"{name}_steps" not in arrays:
        return values
    return np.asarray(arrays[f"{name}_lowest"] + arrays[f"{name}_steps"] * values)


def read(directory: Path) -> PlainIndex:
    """Read an index by the specification."""
    meta = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
    assert meta["format"] == "l2route-index"
    assert meta["schema"] in (1, 2, 3)
    assert ("patches" in meta) == (meta["schema"] > 1)
    if meta["schema"] > 1:
        content = {key: value for key, value in meta.items() if key != "checksum"}
        assert _digest(json.dumps(content, sort_keys=True).encode()) == meta["checksum"]
    arrays = {name: _array(directory, entry) for name, entry in meta["arrays"].items()}
    for patch in meta.get("patches", ()):
        _apply(_array(directory, patch), patch["parts"], arrays)
    return PlainIndex(meta, arrays)


def journalled(directory: Path) -> dict[int, tuple[Array, str | None] | None]:
    """Vector and name of each id of the journal, None for an id that is gone."""
    name = json.loads((directory / "meta.json").read_text(encoding="utf-8"))["journal"]
    if not (directory / name).exists():
        return {}
    rest, digest = (directory / name).read_bytes(), _blake(name.encode(), 16)
    found: dict[int, tuple[Array, str | None] | None] = {}
    while rest:
        header, size = rest[:40], int.from_bytes(rest[8:16], "little")
        content, rest = rest[40 : 40 + size], rest[40 + size :]
        digest = _blake(digest + content, 16)
        assert header[:8] == b"l2route\x01"
        assert header[16:32] == digest
        assert header[32:] == _blake(header[:32], 8)
        line, _, arrays = content.partition(b"\n")
        said = json.loads(line)
        n, dim, m = said["shape"]
        ids = np.frombuffer(arrays, "<i8", n).tolist()
        vectors = np.frombuffer(arrays, "<f4", n * dim, 8 * n).reshape(n, dim)
        gone = np.frombuffer(arrays, "<i8", m, 8 * n + 4 * n * dim).tolist()
        names = said["names"] or [None] * n
        pairs = zip(vectors, names, strict=True)
        found |= dict(zip(ids, pairs, strict=True)) | dict.fromkeys(gone)
    return found


def _blake(content: bytes, size: int) -> bytes:
    return hashlib.blake2b(content, digest_size=size).digest()


def _array(directory: Path, entry: dict[str, Any]) -> Array:
    assert Path(entry["file"]).name == entry["file"]
    array: Array = np.load(directory / entry["file"], allow_pickle=False)
    assert array.dtype.name == entry["dtype"]
    assert list(array.shape) == entry["shape"]
    text = f"{array.dtype.str} {array.shape}".encode()
    assert _digest(text + array.tobytes()) == entry["checksum"]
    assert entry["file"].split(".")[1] == entry["checksum"][:16]
    return array


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _apply(packed: Array, parts: dict[str, dict[str, int]], arrays: dict[str, Array]) -> None:
    """Apply a patch to arrays."""
    at = 0
    for name in sorted(parts):
        old, n_rows, length = arrays[name], parts[name]["rows"], parts[name]["length"]
        numbers = packed[at : at + 8 * n_rows].view("<i8")
        at += _padded(8 * n_rows)
        n_bytes = n_rows * prod(old.shape[1:]) * old.dtype.itemsize
        contents = packed[at : at + n_bytes].view(old.dtype).reshape(n_rows, *old.shape[1:])
        at += _padded(n_bytes)
        assert (np.diff(numbers) > 0).all()
        new = np.zeros((length, *old.shape[1:]), dtype=old.dtype)
        new[: len(old)] = old
        new[numbers] = contents
        arrays[name] = new
    assert at == len(packed)


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // LINE) * LINE
