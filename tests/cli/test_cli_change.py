"""`add`, `delete`, `update`, and ids of `build` and `search`."""

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import BUILD, Run
from l2route.index import load


@pytest.fixture
def files(workdir: Path, run: Run) -> Path:
    """An index over 400 vectors, and files to change it by."""
    assert run(BUILD)[0] == 0
    rng = np.random.default_rng(1)
    np.save(workdir / "new.npy", rng.normal(size=(5, 8)).astype(np.float32))
    np.save(workdir / "short.npy", rng.normal(size=(5, 7)).astype(np.float32))
    lists = {
        "ids": [900, -7, 2**40, 401, 0],
        "five": [0, 3, 5, 399, 8],
        "three": [7, 8, 9],
        "twice": [1, 2, 1, 4, 5],
        "same": [6] * 400,
    }
    for name, ids in lists.items():
        (workdir / f"{name}.txt").write_text("".join(f"{each}\n" for each in ids))
        np.save(workdir / f"{name}.npy", np.array(ids))
    (workdir / "none.txt").write_text("")
    np.save(workdir / "floats.npy", np.arange(5.0))
    return workdir


def arrays_in(index: Path) -> dict[str, bytes]:
    """All files of an index but its lock."""
    return {file.name: file.read_bytes() for file in index.iterdir() if file.name != ".lock"}


def test_vectors_are_added(files: Path, run: Run) -> None:
    """`add` gives the vectors new ids or those of a file, and writes what changed only."""
    new, before = np.load(files / "new.npy"), arrays_in(files / "words.l2r")
    code, out, errors = run("add words.l2r new.npy")
    assert code == 0, errors
    assert out.startswith("added 5 vectors as 400 to 404 in ")
    assert out.endswith(" s; 405 vectors now\n")
    after = arrays_in(files / "words.l2r")
    assert {name: after[name] for name in before if name != "meta.json"}.items() <= before.items()
    assert any(name.startswith("patch") for name in after)
    assert load(files / "words.l2r").search(new, 1, ef=50).ids[:, 0].tolist() == [*range(400, 405)]

    (files / "own.txt").write_text("900\n-7\n1099511627776\n405\n406\n")
    code, out, errors = run("add words.l2r new.npy --ids own.txt --threads 1 --json")
    assert code == 0, errors
    facts = json.loads(out)
    assert facts["ids"] == [900, -7, 2**40, 405, 406]
    assert (facts["added"], facts["n_vectors"]) == (5, 410)
    assert facts["seconds"] > 0
    np.testing.assert_array_equal(load(files / "words.l2r").vectors(facts["ids"]), new)


@pytest.mark.parametrize("ending", ["txt", "npy"])
def test_vectors_are_deleted(ending: str, files: Path, run: Run) -> None:
    """`delete` removes the ids of a file, and no others."""
    code, out, errors = run(f"delete words.l2r five.{ending}")
    assert code == 0, errors
    assert out.startswith("deleted 5 vectors in ")
    assert out.endswith(" s; 395 vectors now\n")
    assert sorted(load(files / "words.l2r")) == sorted({*range(400)} - {0, 3, 5, 399, 8})
    code, out, _ = run("delete words.l2r none.txt --json")
    assert code == 0
    assert (json.loads(out)["deleted"], json.loads(out)["n_vectors"]) == (0, 395)


def test_vectors_are_replaced(files: Path, run: Run) -> None:
    """`update` gives ids new vectors; with --out the index itself stays as it was."""
    before = arrays_in(files / "words.l2r")
    code, out, errors = run("update words.l2r five.txt new.npy -o other.l2r --json")
    assert code == 0, errors
    facts = json.loads(out)
    assert (facts["updated"], facts["n_vectors"]) == (5, 400)
    assert arrays_in(files / "words.l2r") == before
    new, other = np.load(files / "new.npy"), load(files / "other.l2r")
    assert sorted(other) == list(range(400))
    assert other.search(new, 1, ef=50).ids[:, 0].tolist() == [0, 3, 5, 399, 8]
    code, out, _ = run("update words.l2r five.npy new.npy")
    assert code == 0
    assert out.startswith("updated 5 vectors in ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("add words.l2r new.npy --ids ids.txt", "ids that the index does not have, got 0"),
        ("add words.l2r new.npy --ids twice.txt", "expected distinct ids, got 1 repeated"),
        ("add words.l2r new.npy --ids three.txt", "expected 5 ids, one per vector, got 3"),
        ("add words.l2r new.npy --ids floats.npy", "floats.npy: expected integers"),
        ("add words.l2r new.npy --ids missing.txt", "no such file: missing.txt"),
        ("add words.l2r short.npy", "expected vectors [*, 8], got [*, 7]"),
        ("add words.l2r missing.npy", "no such file: missing.npy"),
        ("add words.l2r ids.npy", "ids.npy: expected an array [n, d], got shape [5]"),
        ("add nowhere.l2r new.npy", "nowhere.l2r"),
        ("delete words.l2r ids.npy", "ids of the index, got 900, -7, 1099511627776, 401"),
        ("delete words.l2r twice.txt", "expected distinct ids, got 1 repeated"),
        ("delete words.l2r floats.npy", "floats.npy: expected integers"),
        ("delete words.l2r missing.npy", "no such file: missing.npy"),
        ("delete words.l2r new.npy", "new.npy: expected an array [n], got shape [5, 8]"),
        ("update words.l2r ids.txt new.npy", "ids of the index, got 900"),
        ("update words.l2r twice.txt new.npy", "expected distinct ids, got 1 repeated"),
        ("update words.l2r three.txt new.npy", "expected 5 ids, one per vector, got 3"),
        ("update words.l2r five.txt short.npy", "expected vectors [*, 8], got [*, 7]"),
        ("update words.l2r five.txt", "vectors"),
        ("search words.l2r --queries data.npz:query --where ids.txt", "ids of the index"),
        ("search words.l2r --queries data.npz:query --where floats.npy", "expected integers"),
        ("build data.npz:base -o x --ids five.txt", "expected 400 ids, one per vector, got 5"),
        ("build data.npz:base -o x --ids same.npy", "expected distinct ids, got 6 repeated"),
        ("build data.npz:base -o x --ids five.txt --recall 0.9", "expected 400 ids, one per"),
        ("build data.npz -o x --from faiss --ids five.txt", "expected --from vectors with --ids"),
    ],
)
def test_bad_input_changes_nothing(line: str, message: str, files: Path, run: Run) -> None:
    """An error is one line and exit code 2, and the index is as it was."""
    before = arrays_in(files / "words.l2r")
    code, out, errors = run(line)
    assert (code, out) == (2, "")
    assert message in errors
    assert errors.startswith("l2route: ")
    assert errors.count("\n") == 1
    assert arrays_in(files / "words.l2r") == before
    assert not (files / "x").exists()


@pytest.mark.parametrize("more", ["", "--recall 0.9 --graph nsw"])
def test_an_index_is_built_with_ids(more: str, files: Path, run: Run) -> None:
    """`build --ids` names the vectors, plain or by the recipe."""
    ids = np.arange(400) * 3 + 10**12
    np.savez(files / "ids.npz", ids=ids)
    code, _, errors = run(f"build data.npz:base -o named.l2r --ids ids.npz:ids {more}")
    assert code == 0, errors
    base, index = np.load(files / "data.npz")["base"], load(files / "named.l2r")
    assert index.search(base, 1, ef=100).ids[:, 0].tolist() == ids.tolist()


def test_answers_are_filtered(files: Path, run: Run) -> None:
    """`search --where` answers with the ids of a file, or with what a mask admits."""
    line = "search words.l2r --queries data.npz:query -k 3 --ef 50 --json"
    mask = np.zeros(400, dtype=bool)
    mask[[0, 3, 5, 399, 8]] = True
    np.save(files / "mask.npy", mask)
    by_ids, by_mask = (run(f"{line} --where {name}") for name in ("five.txt", "mask.npy"))
    assert by_ids == by_mask
    assert by_ids[0] == 0, by_ids[2]
    queries = np.load(files / "data.npz")["query"]
    wanted = load(files / "words.l2r").search(queries, 3, ef=50, where=[0, 3, 5, 399, 8])
    assert [each["ids"] for each in json.loads(by_ids[1])["answers"]] == wanted.ids.tolist()
