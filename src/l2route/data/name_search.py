"""Names that contain a text, found by scans of the names joined into one string of bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SEPARATOR = b"\n"  # before the first name, between names and after the last


def folded(text: str) -> bytes:
    """A text without the difference of upper and lower case, and without line breaks."""
    return text.casefold().replace("\n", " ").encode()


@dataclass(frozen=True, slots=True)
class Segment:
    """Names joined in the order in which they were given."""

    joined: bytes
    """Folded names, with a separator before each and after the last."""
    starts: NDArray[np.int64]
    """Position of the separator before each name [n]."""
    ids: NDArray[np.int64]
    """Id of each name [n]."""

    @classmethod
    def of(cls, ids: Sequence[int], names: Sequence[str]) -> Segment:
        """Join names.

        Args:
            ids: the id of each name.
            names: the names.
        """
        joined = "\n".join(names)
        if joined.count("\n") == max(0, len(names) - 1):
            text = joined.casefold().encode()
        else:  # a name has a line break itself
            text = _SEPARATOR.join(map(folded, names))
        framed = _SEPARATOR + text + _SEPARATOR if names else b""
        marks = np.flatnonzero(np.frombuffer(framed, np.uint8) == _SEPARATOR[0])
        return cls(framed, marks[:-1].astype(np.int64), np.array(ids, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def joined_with(self, other: Segment) -> Segment:
        """The names of both, those of the other one last."""
        shift = len(self.joined) - 1  # the last separator of the one is the first of the other
        return Segment(
            self.joined[:shift] + other.joined,
            np.concatenate([self.starts, other.starts + shift]),
            np.concatenate([self.ids, other.ids]),
        )

    def matches(self, wanted: bytes) -> Iterator[tuple[int, bytes]]:
        """Ids and folded names that hold some bytes, in order, each once.

        Args:
            wanted: bytes of a folded name, or of several with the separators around them.
        """
        at, last = self.joined.find(wanted), len(self.joined) - 1
        while 0 <= at < last:  # after the last separator there is no name
            entry = int(np.searchsorted(self.starts, at, side="right")) - 1
            start = int(self.starts[entry]) + 1
            end = self.joined.index(_SEPARATOR, start)
            yield int(self.ids[entry]), self.joined[start:end]
            at = self.joined.find(wanted, end)


def find(
    segments: Sequence[Segment], names: Mapping[int, str], text: str, most: int
) -> list[tuple[int, str]]:
    """Names that equal a text, then those that begin with it, then those that contain it.

    Args:
        segments: all names, and some that were replaced or removed since.
        names: the present name of each id.
        text: what to look for; upper and lower case are the same.
        most: largest number of names.

    Returns:
        Ids and names, in the order of the segments among those that match equally well.
    """
    wanted = folded(text)
    begins = _first(segments, names, _SEPARATOR + wanted, most)
    equal = {id_: name for id_, name in begins.items() if folded(name) == wanted}
    if len(begins) >= most:  # names that equal the text may come later
        equal = _first(segments, names, _SEPARATOR + wanted + _SEPARATOR, most)
    found = equal | begins
    if len(found) < most and wanted:
        found |= _first(segments, names, wanted, most, besides=found)
    return list(found.items())[:most]


def _first(
    segments: Sequence[Segment],
    names: Mapping[int, str],
    wanted: bytes,
    most: int,
    besides: Collection[int] = (),
) -> dict[int, str]:
    """The first ids, besides some, whose present name holds some bytes, with their names."""
    found: dict[int, str] = {}
    for segment in segments:
        for id_, held in segment.matches(wanted):
            if len(found) >= most:
                return found
            name = names.get(id_)
            if name is not None and id_ not in besides and folded(name) == held:
                found[id_] = name
    return found
