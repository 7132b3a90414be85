"""Laws of journals: what was appended is read, whatever cut off the last write."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from l2route.files.journal import (
    Changes,
    Place,
    ReplacedError,
    append_record,
    copy_rest,
    read_journal,
)

NAME = "journal.0123456789abcdef.log"
FIRST = Place.first(NAME)


def changes_of(seed: int, dim: int = 3) -> Changes:
    """Some changes."""
    rng = np.random.default_rng(seed)
    n, n_gone = rng.integers(0, 4, 2)
    ids = rng.choice(1000, n + n_gone, replace=False).astype(np.int64)
    names = [rng.choice([None, "a", "bé\n"]) for _ in range(n)]
    vectors = rng.normal(size=(n, dim)).astype(np.float32)
    return Changes(ids[:n], vectors, names, ids[n:])


def same(found: list[Changes], expected: list[Changes]) -> bool:
    """Whether two lists of changes are the same."""
    return len(found) == len(expected) and all(
        np.array_equal(a.ids, b.ids)
        and np.array_equal(a.vectors, b.vectors)
        and a.names == b.names
        and np.array_equal(a.gone, b.gone)
        for a, b in zip(found, expected, strict=True)
    )


def written(directory: Path, n: int) -> tuple[list[Changes], list[Place]]:
    """A journal of n records, and the places behind each, the first included."""
    every, places = [changes_of(seed) for seed in range(n)], [FIRST]
    for each in every:
        places.append(append_record(directory, places[-1], each))
    return every, places


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    """From every place the records behind it are read, and then no more."""
    assert read_journal(tmp_path, FIRST) == ([], FIRST)
    every, places = written(tmp_path, 6)
    for at, place in enumerate(places):
        found, end = read_journal(tmp_path, place)
        assert same(found, every[at:])
        assert end == places[-1]


def test_a_write_that_was_cut_off_is_ignored_and_removed(tmp_path: Path) -> None:
    """Cut at any byte, a journal has the whole records before; the next one follows them."""
    every, places = written(tmp_path, 3)
    whole = (tmp_path / NAME).read_bytes()
    for size in range(len(whole)):
        (tmp_path / NAME).write_bytes(whole[:size])
        n_whole = sum(place.end <= size for place in places) - 1
        found, end = read_journal(tmp_path, FIRST)
        assert same(found, every[:n_whole])
        assert end == places[n_whole]
        append_record(tmp_path, end, every[0])
        assert same(read_journal(tmp_path, FIRST)[0], [*every[:n_whole], every[0]])
        (tmp_path / NAME).write_bytes(whole[:size] + bytes(40))  # sizes before contents
        found, _ = read_journal(tmp_path, FIRST)  # the zeros may be those that were missing
        assert same(found, every[: max(n_whole, len(found))])


def test_damage_is_refused_or_a_write_cut_off(tmp_path: Path) -> None:
    """With any bit changed, a journal is refused unless it is in the last record."""
    every, places = written(tmp_path, 3)
    whole = bytearray((tmp_path / NAME).read_bytes())
    for at in range(len(whole)):
        whole[at] ^= 1 << at % 8
        (tmp_path / NAME).write_bytes(whole)
        whole[at] ^= 1 << at % 8
        if at >= places[-2].end:
            assert same(read_journal(tmp_path, FIRST)[0], every[:-1])
        else:
            with pytest.raises(ReplacedError, match=r"expected an intact journal, got another rec"):
                read_journal(tmp_path, FIRST)


def test_another_journal_in_its_place_is_noticed(tmp_path: Path) -> None:
    """A journal that is shorter, gone or of other records does not go on from a place."""
    _, places = written(tmp_path, 3)
    whole = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(whole[: places[2].end])
    with pytest.raises(ReplacedError, match="expected at least"):
        read_journal(tmp_path, places[3])
    with pytest.raises(ReplacedError, match="expected a journal of"):
        append_record(tmp_path, places[3], changes_of(9))
    (tmp_path / NAME).unlink()
    with pytest.raises(ReplacedError, match="expected a journal, got no file"):
        read_journal(tmp_path, places[1])


def test_a_journal_that_went_on_is_not_written_over(tmp_path: Path) -> None:
    """Only who knows all records appends another one."""
    every, places = written(tmp_path, 2)
    with pytest.raises(ReplacedError, match=f"expected a journal of {places[1].end} bytes"):
        append_record(tmp_path, places[1], changes_of(9))
    assert same(read_journal(tmp_path, FIRST)[0], every)


def test_a_full_disk_leaves_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write or flush that fails leaves what was there, and the next append works."""
    every, places = written(tmp_path, 2)
    pwrite = os.pwrite

    def half(file: int, content: bytes, at: int) -> int:
        pwrite(file, content[:7], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    def unflushed(_: object) -> None:
        raise OSError(errno.EIO, "I/O error")

    for name, step in (("pwrite", half), ("fsync", unflushed)):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, step)
            with pytest.raises(OSError, match=r"No space|I/O error"):
                append_record(tmp_path, places[-1], changes_of(9))
        assert (tmp_path / NAME).stat().st_size == places[-1].end
    append_record(tmp_path, places[-1], changes_of(9))
    assert same(read_journal(tmp_path, FIRST)[0], [*every, changes_of(9)])


def test_the_rest_of_a_journal_is_copied(tmp_path: Path) -> None:
    """A copy has the records behind a place, and is a journal of its own."""
    every, places = written(tmp_path, 4)
    other = "journal.00000000000000aa.log"
    copy_rest(tmp_path, places[4], tmp_path / other)
    assert not (tmp_path / other).exists()
    copy_rest(tmp_path, places[1], tmp_path / other)
    found, end = read_journal(tmp_path, Place.first(other))
    assert same(found, every[1:])
    append_record(tmp_path, end, every[0])
    assert same(read_journal(tmp_path, Place.first(other))[0], [*every[1:], every[0]])


@settings(max_examples=200)
@given(data=st.data())
def test_wild_journals_are_no_danger(
    tmp_path_factory: pytest.TempPathFactory, data: object
) -> None:
    """Any bytes in place of some are refused or read as whole records."""
    assert isinstance(data, st.DataObject)
    directory = tmp_path_factory.mktemp("wild")
    every, _ = written(directory, 3)
    whole = (directory / NAME).read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    content = (
        whole[:at] + data.draw(st.binary(max_size=60)) + whole[at + data.draw(st.integers(0, 60)) :]
    )
    (directory / NAME).write_bytes(content)
    try:
        found, _ = read_journal(directory, FIRST)
    except ValueError as error:
        assert str(directory / NAME) in str(error)  # noqa: PT017 # no error is right too
    else:
        assert same(found, every[: len(found)])
