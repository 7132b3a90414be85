"""Archives of documents: saves, crashes and damaged files."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from l2route.index import RoutingIndex, load
from l2route.interop import archive
from l2route.interop.archive import DOCUMENTS
from l2route.interop.documents import Documents

DIM = 6
KIND = "test"


def draw(n: int, seed: int = 0) -> NDArray[np.float32]:
    """Normal vectors [n, DIM]."""
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def filled(n: int) -> Documents:
    """Documents d0, d1, … with their numbers as records."""
    documents = Documents("l2")
    documents.put(names(n), draw(n), [{"n": i} for i in range(n)])
    return documents


def names(n: int) -> list[str]:
    """The ids d0, d1, …."""
    return [f"d{i}" for i in range(n)]


def content(documents: Documents) -> dict[str, Any]:
    """All records by name."""
    return {each.name: each.record for each in documents.entries()}


def test_saved_documents_are_read_again(tmp_path: Path) -> None:
    """A save and a load keep all; later saves write the index's changes as patches."""
    path = tmp_path / "store"
    documents = Documents("cosine")
    documents.save(path, KIND)
    assert len(Documents.load(path, KIND)) == 0
    records = [{"text": "ü\u2028\n\ud800", "list": [1, 2.5, None, True, {"a": float("inf")}]}]
    documents.put(["näme\n"], draw(1), records)
    documents.put(names(200), draw(200, seed=1), [{"n": i} for i in range(200)])
    documents.save(path, KIND)
    documents.put(["d3"], draw(1, seed=2), [{"n": 33}])
    documents.remove(["d4"])
    documents.save(path, KIND)
    (index,) = path.glob("index-*")
    assert list(index.glob("*patch*")), list(index.iterdir())
    again = Documents.load(path, KIND)
    assert content(again) == content(documents)
    assert again.metric == "cosine"
    for query in draw(5, seed=3):
        expected = [each[:3] for each in documents.search(query, 10)]
        assert [each[:3] for each in again.search(query, 10)] == expected
    again.put(["new"], draw(1, seed=7), [{}])  # gets an id that no other process has given
    again.save(path, KIND)
    assert len(Documents.load(path, KIND)) == 201


def test_cleared_documents_are_saved(tmp_path: Path) -> None:
    """A store that was cleared is empty after a load, and may have another dimension then."""
    documents = filled(5)
    documents.save(tmp_path, KIND)
    documents.clear()
    documents.save(tmp_path, KIND)
    assert list(tmp_path.glob("index-*")) == []
    assert content(Documents.load(tmp_path, KIND)) == {}
    documents.put(["a"], [[1.0, 2.0]], [{}])
    documents.save(tmp_path, KIND)
    assert Documents.load(tmp_path, KIND).dim == 2


def test_two_that_save_to_one_directory_are_not_mixed(tmp_path: Path) -> None:
    """The last to save wins, with its own index."""
    filled(5).save(tmp_path, KIND)
    one, two = Documents.load(tmp_path, KIND), Documents.load(tmp_path, KIND)
    one.put(["one"], draw(1, seed=1), [{"by": 1}])
    two.put(["two"], draw(1, seed=2), [{"by": 2}])
    assert one.index is not None
    assert two.index is not None
    assert len(set(one.index.ids.tolist()) | set(two.index.ids.tolist())) == 7
    for writer, other in ((one, two), (two, one), (one, two)):
        writer.save(tmp_path, KIND)
        loaded = Documents.load(tmp_path, KIND)
        assert content(loaded) == content(writer) != content(other)
        assert (
            loaded.search(draw(1, seed=1)[0], 9)[0][:2]
            == writer.search(draw(1, seed=1)[0], 9)[0][:2]
        )
    assert len(list(tmp_path.glob("index-*"))) == 1


@pytest.mark.parametrize("has_changed", [True, False])
@pytest.mark.parametrize("is_loaded", [True, False])
@pytest.mark.parametrize("step", ["documents", "index"])
def test_a_save_that_ends_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, is_loaded: bool, has_changed: bool
) -> None:
    """Whichever file was written last, the directory has the old documents or the new ones.

    The writer has saved to the directory, or loaded from it; another has saved since, or not.
    """
    writer = filled(5)
    writer.save(tmp_path, KIND)
    old = content(writer)
    if is_loaded:
        writer = Documents.load(tmp_path, KIND)
    if has_changed:
        filled(5).save(tmp_path, KIND)
    writer.put(["d1", "new"], draw(2, seed=1), [{"n": -1}, {"n": -2}])
    writer.remove(["d2"])
    with monkeypatch.context() as patch:
        if step == "documents":
            patch.setattr(archive, "_write", _fail)
        else:
            patch.setattr(RoutingIndex, "save", _fail)
        with pytest.raises(OSError, match="disk"):
            writer.save(tmp_path, KIND)
    loaded = Documents.load(tmp_path, KIND)
    assert content(loaded) == old
    assert len(loaded.search(draw(1)[0], 9)) == 5
    writer.save(tmp_path, KIND)
    assert content(Documents.load(tmp_path, KIND)) == content(writer)


def _fail(*_: object) -> None:
    raise OSError("disk full")


WRITER = """
import sys
from pathlib import Path
import numpy as np
from l2route.interop.documents import Documents

path, n, step = Path(sys.argv[1]), 40, int(sys.argv[2])
documents = Documents.load(path, "test") if path.exists() else Documents("l2")
while True:
    step += 1
    rows = np.random.default_rng(step).normal(size=(n, 6)).astype(np.float32)
    if step % 7 == 0:
        documents.clear()
    names = [f"d{i}" for i in range(n) if (i + step) % 3]
    documents.remove(f"d{i}" for i in range(n))
    rows = rows[: len(names)]
    documents.put(names, rows, [{"step": step, "row": row.tolist()} for row in rows])
    documents.save(path, "test")
    print(step, flush=True)
"""


def test_a_writer_that_is_killed_leaves_a_whole_store(tmp_path: Path) -> None:
    """Killed at any moment: all documents are of one step, the last that was saved or the next.

    Each has the vector that it was put with.
    """
    rng, path, last = random.Random(0), tmp_path / "store", 0
    for _ in range(8):
        command = [sys.executable, "-c", WRITER, str(path), str(last)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert int(writer.stdout.readline()) == last + 1
            time.sleep(rng.uniform(0, 0.1))
            writer.send_signal(signal.SIGKILL)
            last = max([last + 1, *map(int, writer.stdout.read().split())])
        loaded = Documents.load(path, KIND)
        steps = {each.record["step"] for each in loaded.entries()}
        assert steps in ({last}, {last + 1})
        (last,) = steps
        assert sorted(content(loaded)) == sorted(f"d{i}" for i in range(40) if (i + last) % 3)
        for each in loaded.entries():
            assert loaded.search(each.record["row"], 1)[0][:3] == (*each, 0.0)


def test_an_index_of_another_save_is_refused(tmp_path: Path) -> None:
    """A vector without a document is an error that says so."""
    documents = filled(5)
    documents.save(tmp_path, KIND)
    (directory,) = tmp_path.glob("index-*")
    index = load(directory)
    index.add(draw(2, seed=1))
    index.save()
    with pytest.raises(ValueError, match=r"expected a document for each vector .* for 2 of 7"):
        Documents.load(tmp_path, KIND)


def test_versions_that_were_left_behind_are_deleted(tmp_path: Path) -> None:
    """Of two documents with one name the newer is loaded."""
    documents = filled(5)
    documents._ids["d1"], documents._ids["d9"] = documents._ids["d4"], documents._ids["d1"]
    documents._entries[documents._ids["d9"]] = documents._entries[documents._ids["d4"]]
    documents.save(tmp_path, KIND)
    loaded = Documents.load(tmp_path, KIND)
    assert sorted(content(loaded)) == ["d0", "d2", "d3", "d4"]
    assert loaded.index is not None
    assert len(loaded.index) == 4


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (date(2026, 1, 2), "got a datetime.date in document 'd0'"),
        ({"a": [{1: 2}]}, "got the key 1 in document 'd0'"),
        (np.float64(1), "got a numpy.float64 in document 'd0'"),
        ({1, 2}, "got a set in document 'd0'"),
        (b"text", "got a bytes in document 'd0'"),
    ],
)
def test_what_json_does_not_keep_is_refused(tmp_path: Path, value: object, message: str) -> None:
    """Before anything is written; the store that is saved stays."""
    documents = filled(3)
    documents.save(tmp_path, KIND)
    documents.put(["d0"], draw(1), [{"value": value}])
    with pytest.raises(ValueError, match=message):
        documents.save(tmp_path, KIND)
    assert content(Documents.load(tmp_path, KIND)) == {f"d{i}": {"n": i} for i in range(3)}


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """A changed, cut or foreign file is an error that names it, not other documents."""
    filled(20).save(tmp_path, KIND)
    file = tmp_path / DOCUMENTS
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole.replace(b'"n": 7', b'"n": 8'), whole + b"[]\n"):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"documents\.jsonl: expected the content of its"):
            Documents.load(tmp_path, KIND)
    for foreign in (b"", b"[]\n", b"\xff\xfe", b'{"format": "other", "schema": 1}\n'):
        file.write_bytes(foreign)
        with pytest.raises(ValueError, match=r"documents\.jsonl: expected"):
            Documents.load(tmp_path, KIND)
    header, _, body = whole.partition(b"\n")
    for change in ({"index": "../other"}, {"index": 3}, {"metric": "hamming"}, {"schema": 2}):
        file.write_bytes(json.dumps(json.loads(header) | change).encode() + b"\n" + body)
        with pytest.raises(ValueError, match=r"documents\.jsonl: expected"):
            Documents.load(tmp_path, KIND)
    for lines in (b"[1, 2]\n", b"3\n", b'[1, "a", []]\n[2, "b", 7]\n', b"[1, \n"):
        change = {"checksum": archive._hash(lines)}
        file.write_bytes(json.dumps(json.loads(header) | change).encode() + b"\n" + lines)
        with pytest.raises(ValueError, match=r"documents\.jsonl: expected \[id, name, record\]"):
            Documents.load(tmp_path, KIND)
    file.write_bytes(whole)
    with pytest.raises(ValueError, match="expected documents of other, got those of test"):
        Documents.load(tmp_path, "other")
    assert len(Documents.load(tmp_path, KIND)) == 20


def test_a_directory_without_documents_is_refused(tmp_path: Path) -> None:
    """The error names the file that is missing."""
    with pytest.raises(FileNotFoundError, match=r"documents\.jsonl"):
        Documents.load(tmp_path, KIND)
