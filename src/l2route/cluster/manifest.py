"""The manifest of a sharded index: which shards there are, and how queries find them.

`manifest.json` is replaced whole, after everything that it names is on disk. Nothing in it is
believed before it is checked: it has a checksum of itself, arrays have theirs, and every shard has
a `shard.json` that says of which sharded index it is which shard.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from l2route.cluster.folder import Folder
from l2route.data.vectors import Metric, check_metric
from l2route.files.hashing import hash_arrays
from l2route.files.meta import META, version_of

MANIFEST = "manifest.json"
SHARD = "shard.json"
"""Beside the meta.json of a shard: of which sharded index it is which shard."""
FORMAT = "l2route-shards"
SCHEMA = 1
MAX_SHARDS = 65_536
ROOM = 1.5
"""Bytes in memory for each byte on disk of a shard that was changed, as its buffers have room;
measured with 600 to 13,600 vectors: 1.15 to 1.43."""
_HASH = r"[0-9a-f]{32}"
T = TypeVar("T", bound="Shard | Point")


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as it was built; additions and deletions are in its own directory."""

    directory: str
    """Name of its directory, which holds an ordinary index."""
    n_vectors: int
    """Vectors."""
    n_bytes: int
    """Bytes of all arrays in memory."""
    lowest_id: int
    """Smallest id."""
    highest_id: int
    """Largest id."""
    version: str
    """Checksum of its meta.json, which has those of all other files."""

    def __post_init__(self) -> None:
        _expect(re.fullmatch(r"shard-\d{4,5}", self.directory), "a directory of a shard", self)
        _expect(self.n_vectors >= 1 and self.n_bytes >= 1, "a shard with vectors", self)
        _expect(self.lowest_id <= self.highest_id, "a range of ids", self)
        _expect(re.fullmatch(_HASH, self.version), "a checksum of 32 digits", self)


@dataclass(frozen=True, slots=True)
class Point:
    """What reaches a recall on merged answers: shards to ask, and the recall within them."""

    k: int
    """Answers per query."""
    target: float
    """Requested recall@k."""
    router: str
    """Which scores of shards: `centroids` or `learned`."""
    threshold: float
    """Shards with at least this score are asked, and the best one in any case."""
    inner: float
    """Recall@k that each shard searches for."""
    recall: float
    """Recall@k measured on the validation queries."""
    n_asked: float
    """Mean number of shards asked per query."""
    n_computed: float
    """Mean distance computations per query, those of the router included."""

    def __post_init__(self) -> None:
        _expect(self.k >= 1 and 0 < self.target <= 1, "k of at least 1 and a recall", self)
        _expect(self.router in ("centroids", "learned"), "a router", self)
        numbers = (self.threshold, self.inner, self.recall, self.n_asked, self.n_computed)
        _expect(all(abs(each) < 1e30 for each in numbers), "finite numbers", self)
        _expect(0 < self.inner <= 1, "a recall within shards", self)


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that makes up a sharded index, but the arrays and the shards."""

    build: str
    """Name of the build, 32 hexadecimal digits; the same in every `shard.json`."""
    metric: Metric
    """l2, ip or cosine."""
    dim: int
    """Dimension of the vectors and of queries."""
    k: int
    """Answers per query that it was built for."""
    shards: tuple[Shard, ...]
    """The shards, by number."""
    arrays: Mapping[str, Mapping[str, Any]]
    """Entries of the arrays: partition, router, validation queries."""
    points: tuple[Point, ...] = ()
    """Settings that reach a recall."""
    replicas: int = 1
    """Copies of each shard that a cluster keeps by default."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Figures of the build, for `info`."""

    @property
    def n_vectors(self) -> int:
        """Vectors of all shards, as built."""
        return sum(shard.n_vectors for shard in self.shards)

    def with_point(self, point: Point) -> Manifest:
        """The manifest with a setting more, in place of one for the same recall and k."""
        others = [each for each in self.points if (each.k, each.target) != (point.k, point.target)]
        return replace(self, points=(*others, point))

    def write(self, folder: Folder) -> None:
        """Replace the manifest of a folder; all that it names has to be there."""
        content: dict[str, Any] = {"format": FORMAT, "schema": SCHEMA}
        content |= {each.name: getattr(self, each.name) for each in fields(self)}
        content["shards"] = [asdict(each) for each in self.shards]
        content["points"] = [asdict(each) for each in self.points]
        content["checksum"] = _checksum(json.loads(json.dumps(content)))
        folder.replace(MANIFEST, (json.dumps(content, indent=1) + "\n").encode())

    @classmethod
    def read(cls, folder: Folder) -> Manifest:
        """Read and check the manifest of a folder."""
        place = f"{folder}/{MANIFEST}"
        try:
            text = folder.read(MANIFEST)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(
                f"{folder}: expected a sharded index, got no {MANIFEST}"
            ) from None
        try:
            content = json.loads(text)
            _check_header(content)
            return cls._of(content)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise ValueError(f"{place}: expected a manifest, got a broken one: {error}") from None

    @classmethod
    def _of(cls, content: Mapping[str, Any]) -> Manifest:
        shards = tuple(_made(Shard, each) for each in content["shards"])
        names = [each.directory for each in shards]
        _expect(1 <= len(shards) <= MAX_SHARDS, "at least one shard", len(shards))
        _expect(len(set(names)) == len(names), "distinct directories", names)
        _expect(re.fullmatch(_HASH, content["build"]), "the name of a build", content["build"])
        numbers = {name: content[name] for name in ("dim", "k", "replicas")}
        _expect(all(type(n) is int and n >= 1 for n in numbers.values()), "counts", numbers)
        for name in ("arrays", "facts"):
            _expect(isinstance(content[name], dict), f"a table of {name}", content[name])
        return cls(
            build=content["build"],
            metric=check_metric(content["metric"]),
            shards=shards,
            arrays=content["arrays"],
            points=tuple(_made(Point, each) for each in content["points"]),
            facts=content["facts"],
            **numbers,
        )


def write_mark(folder: Folder, build: str, number: int, facts: Mapping[str, Any]) -> None:
    """Say in the folder of a shard of which sharded index it is which shard; it is then whole."""
    content = {"format": f"{FORMAT}-part", "build": build, "number": number, "facts": facts}
    folder.replace(SHARD, (json.dumps(content) + "\n").encode())


def read_mark(folder: Folder, build: str, number: int) -> dict[str, Any]:
    """Refuse a shard that belongs to another sharded index, or is another shard of this one.

    Returns:
        What was known when it was built.
    """
    try:
        content = json.loads(folder.read(SHARD))
        got = content["format"], content["build"], content["number"]
        facts: dict[str, Any] = dict(content["facts"])
    except FileNotFoundError:
        raise ValueError(f"{folder}: expected shard {number} of {build}, got no {SHARD}") from None
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"{folder}/{SHARD}: expected shard {number}, got {error}") from None
    if got != (f"{FORMAT}-part", build, number):
        expected = f"shard {number} of build {build}"
        raise ValueError(f"{folder}: expected {expected}, got {got[2]!r} of {got[1]!r}")
    return facts


def size_now(folder: Folder, shard: Shard) -> tuple[int, int]:
    """Vectors and bytes in memory of a shard, by its files: deleted vectors may count too.

    As built, if it was not changed or its files cannot be read.
    """
    built = shard.n_vectors, shard.n_bytes
    try:
        text = folder.sub(shard.directory).read(META)
        if version_of(text) == shard.version:
            return built
        meta = json.loads(text)
        shapes = {name: each["shape"] for name, each in meta["arrays"].items()}
        for patch in meta.get("patches", ()):
            for name, part in patch["parts"].items():
                shapes[name] = [part["length"], *shapes[name][1:]]
        sizes = [np.dtype(each["dtype"]).itemsize for each in meta["arrays"].values()]
        n_bytes = [math.prod(shape) for shape in shapes.values()]
        return int(shapes["vectors"][0]), int(ROOM * np.dot(sizes, n_bytes))
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return built


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    """A record from the table of its fields, each of its own type."""
    types: dict[str, Any] = {"int": int, "str": str, "float": (int, float)}
    known = {}
    for each in fields(kind):
        value = values[each.name]
        is_right = isinstance(value, types[str(each.type)]) and not isinstance(value, bool)
        _expect(is_right, f"{each.name} of type {each.type}", value)
        known[each.name] = value
    return kind(**known)


def _check_header(content: Any) -> None:
    _expect(isinstance(content, dict), "an object", type(content).__name__)
    _expect(content.get("format") == FORMAT, f"format {FORMAT}", content.get("format"))
    _expect(content.get("schema") == SCHEMA, f"schema {SCHEMA}", content.get("schema"))
    checksum = _checksum(content)
    _expect(content.get("checksum") == checksum, f"checksum {checksum}", content.get("checksum"))


def _checksum(content: Mapping[str, Any]) -> str:
    """Hash of a manifest as parsed, without its checksum."""
    others = {key: value for key, value in content.items() if key != "checksum"}
    return hash_arrays(json.dumps(others, sort_keys=True))


def _expect(is_right: object, expected: str, got: object) -> None:
    if not is_right:
        raise ValueError(f"expected {expected}, got {got!r:.200}")
