"""meta.json of an index directory: what it says about the other files.

A meta.json lists the files of the arrays with their checksums, and the patches in the order in
which they were saved. It names the journal of later changes, and says what it descends from. It has
a checksum of itself: a patch that is left out, repeated or out of order is noticed.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from l2route.files.atomic import open_regular
from l2route.files.hashing import hash_arrays
from l2route.files.journal import NAME, Place
from l2route.files.patches import Layout

META = "meta.json"
FORMAT = "l2route-index"
SCHEMA = 3
"""Incremented when older versions would misread an index. Schema 2 has patches, schema 3 a journal
and what the index descends from."""
PATCHED_SCHEMA = 2
"""The first schema with patches and a checksum of meta.json."""
ORIGIN = "0" * 16
"""Epoch and structure of an index of an older schema."""
MAX_PATCHES = 64
"""Patches of an index before it should be saved whole."""
MAX_PATCH_SHARE = 0.5
"""Bytes of patches for each byte of the arrays before an index should be saved whole."""
_OWN_KEYS = {"format", "schema", "arrays", "patches", "checksum", "epoch", "structure", "journal"}
_TOKEN = r"[0-9a-f]{16}"

Entry = Mapping[str, Any]
"""The description of a file in meta.json."""


@dataclass(frozen=True, slots=True)
class Descent:
    """What an index in a directory comes from."""

    epoch: str = ORIGIN
    """Another one after the index was replaced or restored: what was before is not merged."""
    structure: str = ORIGIN
    """Another one after any change but those of vectors and names by their ids."""

    def after(self, text: bytes, seen: str, *, is_rebuilt: bool, is_replaced: bool) -> "Descent":
        """The descent of the next save.

        Args:
            text: what is saved.
            seen: the version that it replaces.
            is_rebuilt: whether more has changed than vectors and names by their ids.
            is_replaced: whether another index takes its place.
        """
        token = token_of(text, seen)
        return Descent(
            token if is_replaced else self.epoch,
            token if is_rebuilt or is_replaced else self.structure,
        )


@dataclass(frozen=True, slots=True)
class Saved:
    """The index in a directory, as a save wrote it or a load read it."""

    path: Path
    version: str
    """Hash of meta.json, which contains the hashes of all other files."""
    entries: Mapping[str, Entry]
    """The files of the arrays, without patches."""
    patches: tuple[Entry, ...]
    """The files of the patches, in the order in which they were saved."""
    layouts: Mapping[str, Layout]
    """The arrays with all patches."""
    descent: Descent
    """What it comes from."""
    journal: Place | None
    """How much of its journal is known; None if an older version saved it, without a journal."""

    @property
    def n_base_bytes(self) -> int:
        """Bytes of the arrays without patches."""
        kinds = ((np.dtype(entry["dtype"]), entry["shape"]) for entry in self.entries.values())
        return sum(Layout(dtype, tuple(shape)).n_bytes for dtype, shape in kinds)

    @property
    def n_patch_bytes(self) -> int:
        """Bytes of the patches."""
        return sum(int(entry["shape"][0]) for entry in self.patches)

    @property
    def n_patches(self) -> int:
        """Number of patches."""
        return len(self.patches)

    @property
    def should_fold(self) -> bool:
        """Whether the next save should be whole, because the patches are many or large."""
        too_large = self.n_patch_bytes > MAX_PATCH_SHARE * self.n_base_bytes
        return too_large or self.n_patches >= MAX_PATCHES

    def file_names(self) -> set[str]:
        """Names of all files but meta.json."""
        return file_names(self.entries, self.patches)


@dataclass(frozen=True, slots=True)
class Header:
    """The content of a meta.json."""

    meta: dict[str, Any]
    version: str
    identity: tuple[int, ...]
    """Of the file that was read: a save of an equal index makes another file."""


def text_of(
    meta: Mapping[str, Any],
    entries: Mapping[str, Entry],
    patches: Sequence[Entry],
    descent: Descent,
    journal: str,
) -> bytes:
    """The content of meta.json as text."""
    others = {key: value for key, value in meta.items() if key not in _OWN_KEYS}
    header = {"format": FORMAT, "schema": SCHEMA, **others}
    header |= {"epoch": descent.epoch, "structure": descent.structure, "journal": journal}
    return signed(header | {"arrays": entries, "patches": list(patches)})


def signed(header: Mapping[str, Any]) -> bytes:
    """The content of a meta.json as text, with a checksum of itself."""
    checksum = _checksum_of(json.loads(json.dumps(header)))
    return (json.dumps({**header, "checksum": checksum}, indent=2) + "\n").encode()


def token_of(text: bytes, seen: str) -> str:
    """A name for what follows a version: another one for each text and each version before it."""
    return hash_arrays(seen, np.frombuffer(text, np.uint8))[:16]


def _checksum_of(header: Mapping[str, Any]) -> str:
    """Hash of the content of a meta.json, as parsed, without its checksum."""
    content = {key: value for key, value in header.items() if key != "checksum"}
    return hash_arrays(json.dumps(content, sort_keys=True))


def version_of(text: bytes) -> str:
    """Hash of a meta.json as it is in its file."""
    return hash_arrays("", np.frombuffer(text, np.uint8))


def file_names(entries: Mapping[str, Entry], patches: Sequence[Entry]) -> set[str]:
    """Names of the files of arrays and patches."""
    return {str(entry["file"]) for entry in (*entries.values(), *patches)}


def read_bytes(path: Path) -> bytes:
    """The content of a regular file."""
    with open_regular(path) as stream:
        return stream.read()


def read_header(path: Path) -> Header:
    """Read and check a meta.json, all but the entries of its files."""
    try:
        with open_regular(path) as stream:
            status, text = os.fstat(stream.fileno()), stream.read()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"{path.parent}: expected an index directory, got no {META}"
        ) from None
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        got = meta.get("format") if isinstance(meta, dict) else type(meta).__name__
        raise ValueError(f"{path}: expected format {FORMAT}, got {got!r}")
    _check_schema(path, meta)
    if not isinstance(meta.get("arrays"), dict):
        raise ValueError(f"{path}: expected a table of arrays, got {meta.get('arrays')!r}")
    identity = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
    return Header(meta, version_of(text), identity)


def descent_of(meta: Mapping[str, Any]) -> Descent:
    """What the index of a meta.json comes from."""
    return Descent(meta.get("epoch", ORIGIN), meta.get("structure", ORIGIN))


def journal_of(meta: Mapping[str, Any]) -> Place | None:
    """The begin of the journal of a meta.json; None for an older schema."""
    return Place.first(meta["journal"]) if "journal" in meta else None


def _check_schema(path: Path, meta: Mapping[str, Any]) -> None:
    """Refuse an unknown schema, and content that does not fit it or is not that of the save."""
    schema, patches = meta.get("schema"), meta.get("patches")
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise ValueError(f"{path}: expected schema 1 to {SCHEMA}, got {schema!r}")
    if schema < SCHEMA and {"epoch", "structure", "journal"} & meta.keys():
        raise ValueError(f"{path}: expected no journal in schema {schema}, got one")
    if schema < PATCHED_SCHEMA:
        if "patches" in meta:
            raise ValueError(f"{path}: expected no patches in schema {schema}, got {patches!r}")
        return
    try:
        checksum = _checksum_of(meta)
    except RecursionError as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from None
    if checksum != meta.get("checksum"):
        got = f"{meta.get('checksum')!r} in it"
        raise ValueError(f"{path}: expected checksum {checksum}, got {got}")
    if not isinstance(patches, list) or not all(map(_has_parts, patches)):
        raise ValueError(f"{path}: expected a list of patches with parts, got {patches!r}")
    if schema == SCHEMA:
        for key, pattern in (("epoch", _TOKEN), ("structure", _TOKEN), ("journal", NAME)):
            if not isinstance(meta.get(key), str) or not re.fullmatch(pattern, meta[key]):
                raise ValueError(f"{path}: expected {key} as {pattern}, got {meta.get(key)!r}")


def _has_parts(patch: object) -> bool:
    return isinstance(patch, dict) and isinstance(patch.get("parts"), dict)
