r"""Text files of names: a name per line, or an id and a name.

In a ``.txt`` the line with number i, counted from 0, holds the name of id i as it is. An empty line
means that the id has no name. In a ``.tsv`` a line holds an id, a tab and a name, in which tab,
line feed, carriage return and backslash are written as ``\t``, ``\n``, ``\r`` and ``\\``. Its first
line may be ``id<TAB>name``.

Both are UTF-8, with or without a byte order mark, and lines may end with CR LF. Files are not
trusted: any fault is a ``ValueError`` that names the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from l2route.files.atomic import open_regular, replacing
from l2route.files.formats import locate
from l2route.files.parquet import ENDINGS as TABLES
from l2route.files.parquet import read_texts

TEXTS = (".txt", ".tsv")
"""File name endings that `write_names` understands. `read_names` also reads columns of tables."""
MAX_NAME_BYTES = 1 << 16
"""Largest length of a name in UTF-8."""

_BOM = "\ufeff"
_HEADER = "id\tname"
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {escape: char for char, escape in _ESCAPES.items()}
_MAX_BLANK = 10  # lines of a .txt for each name: ids far apart belong into a .tsv
_LIMITS = np.iinfo(np.int64)


def read_names(path: str | Path) -> tuple[list[str | None], NDArray[np.int64] | None]:
    """Read a file of names.

    Args:
        path: A text file, .txt or .tsv; or a table (.parquet, .arrow, .feather), with ``:column``.

    Returns:
        The name in every line or row, None for none; and the ids of a .tsv, None for line numbers.
    """
    path, key = locate(path)
    is_table = _ending(path, (*TEXTS, *TABLES)) == ".tsv"
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    if path.suffix.lower() in TABLES:
        texts = enumerate(read_texts(path, key))
        return [_checked(path, row, text or "", "row") for row, text in texts], None
    lines = _lines(path)
    if not is_table:
        return [_checked(path, number, line) for number, line in lines], None
    ids: list[int] = []
    names: list[str | None] = []
    for number, line in lines:
        if not line or (number == 1 and line == _HEADER):
            continue
        id_, name = _parsed(path, number, line)
        ids.append(id_)
        names.append(name)
    return names, np.array(ids, dtype=np.int64)


def write_names(path: str | Path, ids: Sequence[int], names: Sequence[str]) -> None:
    """Write a file of names, replacing it as a whole.

    Args:
        path: A text file, .txt or .tsv.
        ids: distinct ids; in a .txt, numbers from 0 up with few gaps.
        names: the name of each id; in a .txt, without line breaks.
    """
    path = Path(path)
    rows = list(zip(ids, names, strict=True))
    if _ending(path) == ".tsv":
        lines: Iterable[str] = (f"{id_}\t{_escaped(name)}" for id_, name in rows)
    else:
        lines = _numbered(path, rows)
    with replacing(path) as temporary, temporary.open("wb") as file:
        for line in lines:
            file.write(line.encode() + b"\n")


def fault_of(name: str) -> str | None:
    """What is wrong with a name; None if nothing is."""
    if "\0" in name:
        return "a NUL"
    if name.isascii() and len(name) <= MAX_NAME_BYTES:  # the shortest way
        return None
    try:
        n_bytes = len(name.encode())
    except UnicodeEncodeError:
        return "half of a surrogate pair"
    return f"{n_bytes:,} bytes" if n_bytes > MAX_NAME_BYTES else None


def _ending(path: Path, known: Sequence[str] = TEXTS) -> str:
    ending = path.suffix.lower()
    if ending not in known:
        raise ValueError(f"{path}: expected one of {' '.join(known)}, got {ending or 'none'!r}")
    return ending


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbers from 1 and texts of the lines, without their ends."""
    longest = 2 * MAX_NAME_BYTES + 64  # every character escaped, an id before it
    with open_regular(path) as file:
        number = 0
        while raw := file.readline(longest):
            number += 1
            if len(raw) == longest:
                expected = f"lines of fewer than {longest:,} bytes"
                raise ValueError(f"{path}: expected {expected}, got a longer one in line {number}")
            try:
                line = raw.decode()
            except UnicodeDecodeError as error:
                got = f"{error.reason} in line {number}"
                raise ValueError(f"{path}: expected text in UTF-8, got {got}") from None
            if number == 1:
                line = line.removeprefix(_BOM)
            yield number, line.removesuffix("\n").removesuffix("\r")


def _checked(path: Path, number: int, name: str, place: str = "line") -> str | None:
    """A name in a line or row; None for an empty one."""
    if fault := fault_of(name):
        expected = f"names of at most {MAX_NAME_BYTES:,} bytes without NUL"
        raise ValueError(f"{path}: expected {expected}, got {fault} in {place} {number}")
    return name or None


def _parsed(path: Path, number: int, line: str) -> tuple[int, str | None]:
    """Id and name of a line of a table."""
    left, tab, right = line.partition("\t")
    expected = f"{path}: expected an id, a tab and a name"
    try:
        id_ = int(left) if left.isascii() and "_" not in left else None
    except ValueError:
        id_ = None
    if not tab or id_ is None:
        raise ValueError(f"{expected} per line, got {line[:40]!r} in line {number}")
    if not _LIMITS.min <= id_ <= _LIMITS.max or id_ == -1:
        raise ValueError(f"{path}: expected ids of int64 other than -1, got {id_} in line {number}")
    if "\t" in right:
        raise ValueError(f"{expected} per line, got another tab in line {number}")
    try:
        return id_, _checked(path, number, _unescaped(right))
    except KeyError as error:
        known = " ".join(_UNESCAPES)
        got = f"{error.args[0]!r} in line {number}"
        raise ValueError(f"{path}: expected backslashes in {known} only, got {got}") from None


def _escaped(name: str) -> str:
    return re.sub(r"[\\\t\n\r]", lambda match: _ESCAPES[match[0]], name)


def _unescaped(text: str) -> str:
    return re.sub(r"\\.?", lambda match: _UNESCAPES[match[0]], text, flags=re.DOTALL)


def _numbered(path: Path, rows: Sequence[tuple[int, str]]) -> list[str]:
    """The lines of a .txt."""
    instead = "write a .tsv for others"
    largest = max((id_ for id_, _ in rows), default=-1)
    smallest = min((id_ for id_, _ in rows), default=0)
    if smallest < 0 or largest >= _MAX_BLANK * (len(rows) + 100):
        got = f"{smallest} to {largest} for {len(rows):,} names"
        raise ValueError(f"{path}: expected ids that are line numbers, got {got}; {instead}")
    lines = [""] * (largest + 1)
    for id_, name in rows:
        if "\n" in name or name.endswith("\r") or name.startswith(_BOM):
            expected = "names without line breaks and byte order marks"
            raise ValueError(f"{path}: expected {expected}, got {name[:40]!r}; {instead}")
        lines[id_] = name
    return lines
