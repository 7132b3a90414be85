"""Laws of labels: names of ids."""

from __future__ import annotations

import copy
import pickle
import random
import re
import string
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import l2route
from l2route.data.labels import Labels

IDS = st.integers(-(2**63), 2**63 - 1).filter(lambda id_: id_ != -1)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
WORDS = st.text("abAB ßé\n", max_size=4)


def found_slowly(names: dict[int, str], text: str) -> list[set[int]]:
    """Ids whose names equal a text, begin with it, and contain it, each without the ones before."""
    folded = {id_: name.casefold().replace("\n", " ") for id_, name in names.items()}
    wanted = text.casefold().replace("\n", " ")
    equal = {id_ for id_, name in folded.items() if name == wanted}
    begins = {id_ for id_, name in folded.items() if name.startswith(wanted)}
    holds = {id_ for id_, name in folded.items() if wanted in name}
    return [equal, begins - equal, holds - begins]


class LabelsMachine(RuleBasedStateMachine):
    """Labels under random changes are those of a dict."""

    @initialize()
    def begin(self) -> None:
        """Nothing is named; before the first call it is not known what has changed."""
        self.labels, self.twin = Labels(), dict[int, str]()
        self.changed: set[int] = set()
        assert self.labels.take_changes() is None

    @rule(pairs=st.dictionaries(st.integers(0, 9), WORDS, max_size=4))
    def add(self, pairs: dict[int, str]) -> None:
        """Names replace those that ids have."""
        self.labels.add(list(pairs.values()), list(pairs))
        after = {id_: name for id_, name in (self.twin | pairs).items() if name}
        self.changed |= {id_ for id_ in range(10) if after.get(id_) != self.twin.get(id_)}
        self.twin = after

    @rule(ids=st.lists(st.integers(0, 9), max_size=4))
    def remove(self, ids: list[int]) -> None:
        """Ids without a name are ignored."""
        self.labels.remove(ids)
        self.changed |= set(ids) & self.twin.keys()
        self.twin = {id_: name for id_, name in self.twin.items() if id_ not in ids}

    @rule()
    def take(self) -> None:
        """What has changed is told once."""
        assert self.labels.take_changes() == self.changed
        self.changed = set()

    @rule(ids=st.sets(st.integers(0, 9)))
    def give_back(self, ids: set[int]) -> None:
        """What could not be used is told again."""
        self.labels.note_changes(ids)
        self.changed |= ids

    @rule(text=WORDS, most=st.integers(0, 12))
    def search(self, text: str, most: int) -> None:
        """As many as were asked for are found, the best matches first."""
        found = self.labels.search(text, most)
        assert all(self.twin[id_] == name for id_, name in found)
        ids = [id_ for id_, _ in found]
        groups = found_slowly(self.twin, text)
        assert len(ids) == len(set(ids)) == min(most, sum(map(len, groups)))
        for group in groups:
            head, ids = ids[: len(group)], ids[len(group) :]
            assert set(head) <= group

    @rule(name=WORDS)
    def find(self, name: str) -> None:
        """A name is found if it is that of one id."""
        ids = [id_ for id_, each in self.twin.items() if each == name]
        assert (name in self.labels) == bool(ids)
        if len(ids) == 1:
            assert self.labels.ids([name]).tolist() == ids
        else:
            with pytest.raises(ValueError, match="expected names"):
                self.labels.ids([name])

    @invariant()
    def holds_the_same(self) -> None:
        """Names are those of the dict."""
        assert dict(self.labels) == self.twin
        assert len(self.labels) == len(self.twin)
        assert self.labels.names(range(10)) == [self.twin.get(id_) for id_ in range(10)]
        assert [id_ in self.labels for id_ in range(10)] == [id_ in self.twin for id_ in range(10)]


TestLabelsMachine = LabelsMachine.TestCase
TestLabelsMachine.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)


def test_labels_are_public() -> None:
    """Ids are row numbers by default; None and empty names leave an id without a name."""
    labels = l2route.Labels.of(["apple", None, "", "Apple pie", "apple"])
    assert list(labels) == [(0, "apple"), (3, "Apple pie"), (4, "apple")]
    assert labels.names([4, 1, -1, 99]) == ["apple", None, None, None]
    assert labels.ids(["Apple pie"]).tolist() == [3]
    assert labels.search("PIE") == [(3, "Apple pie")]
    assert repr(labels) == "<Labels: 3 names>"
    assert (3 in labels, 1 in labels, "apple" in labels, "pie" in labels) == (
        True,
        False,
        True,
        False,
    )
    assert 3.5 not in labels


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda labels: labels.ids(["b", "x", "y"]), "expected names that there are, got 'x', 'y'"),
        (lambda labels: labels.ids(["b", None]), "expected names that there are, got ''"),
        (lambda labels: labels.ids(["a"]), "expected names of one id each, got 'a' of ids 0, 2"),
        (lambda labels: labels.ids("b"), "expected a list of names, got 'b'"),
        (lambda labels: labels.add(["a"], [1, 2]), "expected a name for each of 2 ids, got 1"),
        (lambda labels: labels.add(["a", "b"], [7, 7]), "expected distinct ids, got 7 repeated"),
        (lambda labels: labels.add(["a"], [-1]), "expected ids other than -1"),
        (lambda labels: labels.add(["a"], [1.0]), "expected integer ids [n], got float64 [1]"),
        (lambda labels: labels.add(["a"], [[1]]), "expected integer ids [n], got int64 [1, 1]"),
        (lambda labels: labels.add(["a"], [2**63]), "expected ids that fit in int64"),
        (lambda labels: labels.add(["x", 5], [7, 8]), "texts or None, got 5 at 1"),
        (lambda labels: labels.add(["x", b"y"], [7, 8]), "texts or None, got b'y' at 1"),
        (lambda labels: labels.add(["x", "y\0"], [7, 8]), "without NUL, got a NUL at 1"),
        (lambda labels: labels.add(["x", "\ud800"], [7, 8]), "got half of a surrogate pair at 1"),
        (lambda labels: labels.add(["é" * 40_000], [7]), "65,536 bytes without NUL, got 80,000"),
        (lambda labels: labels.search(5), "expected a text to search for, got 5"),
        (lambda labels: labels.search("a", -1), "expected at least 0 names, got most=-1"),
    ],
)
def test_bad_labels_are_refused(call: Any, message: str) -> None:
    """The error says what was expected and what came, and nothing is changed."""
    labels = Labels.of(["a", "b", "a"])
    with pytest.raises(ValueError, match=re.escape(message)):
        call(labels)
    assert list(labels) == [(0, "a"), (1, "b"), (2, "a")]


@given(pairs=st.dictionaries(IDS, NAMES.filter(bool)))
def test_a_table_that_was_written_is_read(
    pairs: dict[int, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A .tsv keeps any ids and names, tabs and line breaks included; so do copies and pickles."""
    path = tmp_path_factory.mktemp("names") / "names.tsv"
    labels = Labels.of(pairs.values(), list(pairs))
    labels.write(path)
    assert list(Labels.read(path)) == list(pairs.items())
    path.write_bytes(b"\xef\xbb\xbfid\tname\r\n" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert list(Labels.read(path)) == list(pairs.items())
    assert list(copy.deepcopy(labels)) == list(pickle.loads(pickle.dumps(labels))) == list(labels)


LINES = NAMES.filter(lambda name: "\n" not in name and not name.endswith("\r"))


@given(names=st.lists(LINES.filter(lambda name: name[:1] != "\ufeff")))
def test_lines_that_were_written_are_read(
    names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A .txt has the name of id i in line i, from 0; an empty line is no name."""
    path = tmp_path_factory.mktemp("names") / "names.TXT"
    path.write_bytes("".join(f"{name}\n" for name in names).encode())
    expected = [(id_, name) for id_, name in enumerate(names) if name]
    assert list(Labels.read(path)) == expected
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(names).encode())
    assert list(Labels.read(path)) == expected
    Labels.read(path).write(path)
    assert list(Labels.read(path)) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"a\n\xff\n", "expected text in UTF-8, got invalid start byte in line 2"),
        ("a.txt", b"a\nb\0c\n", "without NUL, got a NUL in line 2"),
        ("a.txt", b"a\n" + b"x" * 70_000, "65,536 bytes without NUL, got 70,000 bytes in line 2"),
        ("a.txt", b"a\n" + b"x" * 200_000, "fewer than 131,136 bytes, got a longer one in line 2"),
        ("a.tsv", b"1\ta\nb\n", "an id, a tab and a name per line, got 'b' in line 2"),
        ("a.tsv", b"1\ta\n\n1_0\tb\n", r"per line, got '1_0\tb' in line 3"),
        ("a.tsv", b"1\ta\tb\n", "per line, got another tab in line 1"),
        ("a.tsv", b"-1\ta\n", "expected ids of int64 other than -1, got -1 in line 1"),
        ("a.tsv", f"{2**63}\ta\n".encode(), "got 9223372036854775808 in line 1"),
        ("a.tsv", b"1\tAC\\DC\n", r"expected backslashes in \\ \t \n \r only, got '\\D' in line 1"),
        ("a.tsv", b"1\tAC\\\n", r"got '\\' in line 1"),
        ("a.tsv", b"1\ta\n1\tb\n", "expected distinct ids, got 1 repeated"),
        ("a.csv", b"a\n", "expected one of .txt .tsv .parquet .arrow .feather, got '.csv'"),
    ],
)
def test_bad_files_are_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    """The error names the file and the line."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / name}: ")) as caught:
        Labels.read(tmp_path / name)
    assert message in str(caught.value)


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    """A missing file and a directory are named."""
    with pytest.raises(FileNotFoundError, match=r"no such file: .*none\.txt"):
        Labels.read(tmp_path / "none.txt")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(ValueError, match=r"folder\.txt: expected a regular file, got a directory"):
        Labels.read(tmp_path / "folder.txt")


@pytest.mark.parametrize(
    ("names", "ids", "message"),
    [
        (["a\nb"], [0], r"expected names without line breaks and byte order marks, got 'a\nb'"),
        (["a\r"], [0], "expected names without line breaks"),
        (["\ufeffa"], [0], "expected names without line breaks and byte order marks"),
        (["a"], [-5], "expected ids that are line numbers, got -5 to -5 for 1 names; write a .tsv"),
        (["a"], [10**12], "expected ids that are line numbers"),
    ],
)
def test_lines_cannot_hold_everything(
    names: list[str], ids: list[int], message: str, tmp_path: Path
) -> None:
    """What a .txt would not give back is refused, and the old file stays."""
    path = tmp_path / "names.txt"
    path.write_text("old\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        Labels.of(names, ids).write(path)
    assert path.read_text() == "old\n"


@settings(deadline=None)
@given(content=st.binary(max_size=60), ending=st.sampled_from([".txt", ".tsv"]))
def test_any_file_is_read_or_refused(
    content: bytes, ending: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever a file holds, it gives labels or an error that names it."""
    path = tmp_path_factory.mktemp("names") / f"names{ending}"
    path.write_bytes(content)
    labels, fault = None, f"{path}: "
    try:
        labels = Labels.read(path)
    except ValueError as error:
        fault = str(error)
    assert fault.startswith(f"{path}: ")
    if labels is not None:
        labels.write(path.with_suffix(".tsv"))
        assert dict(Labels.read(path.with_suffix(".tsv"))) == dict(labels)


def test_many_names_are_searched() -> None:
    """Names that were joined, replaced and removed in many steps are found, and no others."""
    rng = random.Random(0)
    names = ["".join(rng.choices(string.ascii_letters, k=3)) for _ in range(5_000)]
    labels, twin = Labels(), dict[int, str]()
    for begin in range(0, 5_000, 50):
        ids = rng.sample(range(3_000), 50)
        labels.add(names[begin : begin + 50], ids)
        twin |= dict(zip(ids, names[begin : begin + 50], strict=True))
        gone = rng.sample(range(3_000), 10)
        labels.remove(gone)
        twin = {id_: name for id_, name in twin.items() if id_ not in gone}
        text = rng.choice(names)[: rng.randint(1, 3)]
        expected = set().union(*found_slowly(twin, text))
        assert {id_ for id_, _ in labels.search(text, 5_000)} == expected


def test_readers_go_on_while_names_are_added() -> None:
    """Readers in other threads see every name before or after a change, and meet no error."""
    labels, is_over = Labels.of([f"name {i}" for i in range(500)]), Event()

    def read() -> int:
        n_reads = 0
        while not is_over.is_set() or n_reads < 3:
            assert labels.names(range(500)) == [f"name {i}" for i in range(500)]
            assert labels.ids(["name 7"]).tolist() == [7]
            assert labels.search("NAME 499") == [(499, "name 499")]
            assert all(name.endswith(f" {id_}") for id_, name in labels)
            n_reads += 1
        return n_reads

    with ThreadPoolExecutor(3) as pool:
        reads = [pool.submit(read) for _ in range(3)]
        for i in range(500, 3_000):
            labels.add([f"other {i}"], [i])
            if i % 3 == 0:
                labels.remove(np.array([i]))
        is_over.set()
        assert all(each.result() >= 3 for each in reads)
