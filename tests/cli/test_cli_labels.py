"""Names on the command line: kept by `build`, `add` and `label`, printed by `search`."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import BUILD, Run
from l2route.index import load

SEARCH = "search words.l2r --queries data.npz:query -k 3 --ef 50"


@pytest.fixture
def words(workdir: Path) -> Path:
    """Files of vectors and names."""
    (workdir / "words.txt").write_text("".join(f"word {i}\n" for i in range(400)))
    (workdir / "some.tsv").write_text("id\tname\n3\tthree\n7\tse\\nven\n")
    base = np.load(workdir / "data.npz")["base"]
    columns = {"name": [f"row {i}" for i in range(400)], "id": range(1000, 1400)}
    pq.write_table(pa.table({**columns, "vector": list(base)}), workdir / "words.parquet")
    np.save(workdir / "new.npy", base[:2] + 5)
    return workdir


def test_names_are_kept_and_printed(words: Path, run: Run) -> None:
    """`search` prints names and ids of an index that was built with names."""
    code, _, errors = run(f"{BUILD} --labels words.txt")
    assert code == 0, errors
    code, out, errors = run(SEARCH)
    assert code == 0, errors
    found = load(words / "words.l2r").search(np.load("data.npz")["query"], 3, ef=50).ids
    expected = [", ".join(f"word {i} ({i})" for i in row) for row in found.tolist()]
    assert out.splitlines() == [f"{row}: {line}" for row, line in enumerate(expected)]
    answers = json.loads(run(f"{SEARCH} --json")[1])["answers"]
    assert [answer["names"] for answer in answers] == [
        [f"word {i}" for i in row] for row in found.tolist()
    ]
    assert json.loads(run("info words.l2r --json")[1])["n_names"] == 400


def test_tables_bring_vectors_ids_and_names(words: Path, run: Run) -> None:
    """Vectors, ids and names come from columns of one file; names are for ids, row by row."""
    table = "words.parquet"
    line = f"build {table}:vector --ids {table}:id --labels {table}:name -o words.l2r --degree 8"
    assert run(line)[0] == 0
    index = load(words / "words.l2r")
    assert sorted(index.names) == [(1000 + i, f"row {i}") for i in range(400)]
    code, out, errors = run(f"search words.l2r --queries {table}:vector -k 1 --ef 50")
    assert code == 0, errors
    assert out.splitlines()[:2] == ["0: row 0 (1000)", "1: row 1 (1001)"]


def test_a_served_index_has_names(words: Path, run: Run) -> None:
    """Names are for the rows of the file, although a recipe renumbers vertices."""
    code, _, errors = run(
        "build data.npz:base -o words.l2r --recall 0.9 -k 5 --degree 8 --labels words.txt"
    )
    assert code == 0, errors
    base = np.load("data.npz")["base"]
    index = load(words / "words.l2r")
    found = index.search(base[:5], 1, ef=50).ids[:, 0]
    assert index.names.names(found) == [f"word {i}" for i in range(5)]


def test_names_come_and_go_with_vectors(words: Path, run: Run) -> None:
    """`add` gives new vectors names, `delete` takes them, also by name; `label` names the rest."""
    assert run(BUILD)[0] == 0
    (words / "two.txt").write_text("new one\nnew two\n")
    code, _, errors = run("add words.l2r new.npy --labels two.txt")
    assert code == 0, errors
    assert dict(load(words / "words.l2r").names) == {400: "new one", 401: "new two"}
    code, out, errors = run("label words.l2r some.tsv")
    assert code == 0, errors
    assert out.startswith("4 names in ")
    (words / "some.txt").write_text("3\n7\n400\n")
    out = run(f"{SEARCH} --where some.txt")[1]
    assert out.startswith("0: ")
    assert r"se\nven (7)" in out
    (words / "gone.txt").write_text("new two\n\nthree\n")
    code, out, errors = run("delete words.l2r --labels gone.txt")
    assert code == 0, errors
    assert out.startswith("deleted 2 vectors in ")
    index = load(words / "words.l2r")
    assert dict(index.names) == {400: "new one", 7: "se\nven"}
    assert 401 not in index
    (words / "ids.txt").write_text("401\n402\n")
    (words / "ids.tsv").write_text("402\tagain\n")
    assert run("add words.l2r new.npy --ids ids.txt --labels ids.tsv")[0] == 0
    assert load(words / "words.l2r").names.names([401, 402]) == [None, "again"]


def test_negative_ids_are_printed(words: Path, run: Run) -> None:
    """Every id but −1 is an answer."""
    np.save(words / "ids.npy", -2 - np.arange(400))
    assert run(f"{BUILD} --ids ids.npy")[0] == 0
    assert all(len(line.split()) == 4 for line in run(SEARCH)[1].splitlines())
    answers = json.loads(run(f"{SEARCH} --json")[1])["answers"]
    assert all(len(answer["ids"]) == len(answer["distances"]) == 3 for answer in answers)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{BUILD} --labels short.txt", "short.txt: expected 400 names, one per vector, got 1"),
        (f"{BUILD} --labels far.tsv", "far.tsv: expected ids of the vectors, got 4000"),
        (f"{BUILD} --labels none.txt", "no such file: none.txt"),
        (f"{BUILD} --labels words.csv", "words.csv: expected one of .txt .tsv .parquet"),
        (f"{BUILD} --labels words.parquet:id", "expected a column of texts, got int64"),
        ("add old.l2r new.npy --labels short.txt", "short.txt: expected 2 names, one per vector"),
        ("add old.l2r new.npy --labels far.tsv", "far.tsv: expected a name per line for vectors"),
        ("add old.l2r new.npy --ids two.txt --labels far.tsv", "ids of the vectors, got 4000"),
        ("delete old.l2r --labels short.txt", "expected names that there are, got 'one'"),
        ("delete old.l2r", "expected either IDS or --labels, got neither"),
        ("delete old.l2r two.txt --labels short.txt", "expected either IDS or --labels, got both"),
        ("label old.l2r far.tsv", "far.tsv: expected ids of the vectors, got 4000"),
        ("label old.l2r short.txt", "short.txt: expected 400 names, one per vector, got 1"),
    ],
)
def test_bad_names_change_nothing(line: str, message: str, words: Path, run: Run) -> None:
    """A fault is one line that names the file, and the index stays as it was."""
    assert run(BUILD.replace("words.l2r", "old.l2r"))[0] == 0
    (words / "short.txt").write_text("one\n")
    (words / "two.txt").write_text("900\n901\n")
    (words / "far.tsv").write_text("4000\tfar\n")
    (words / "words.csv").write_text("far\n")
    before = (words / "old.l2r" / "meta.json").read_bytes()
    code, out, errors = run(line)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert message in errors
    assert (words / "old.l2r" / "meta.json").read_bytes() == before
    assert not (words / "words.l2r").exists()
