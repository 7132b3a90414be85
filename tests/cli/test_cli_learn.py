"""The command `learn`."""

import json
from pathlib import Path

import numpy as np

from command_line import BUILD, Run
from l2route.data.truth import exact_neighbors


def test_learn(workdir: Path, run: Run) -> None:
    """`learn` adds a space that `evaluate` uses by default."""
    rng = np.random.default_rng(1)
    np.save(workdir / "learn.npy", rng.normal(size=(300, 8)).astype(np.float32))
    assert run(BUILD)[0] == 0
    line = "learn words.l2r --queries learn.npy --budget 40 --rerank 4 --steps 10"
    code, out, _ = run(f"{line} -o learned.l2r --log log.jsonl --json")
    assert code == 0
    report = json.loads(out)
    assert report["n_steps"] == 10
    base, queries = np.load(workdir / "data.npz")["base"], np.load(workdir / "learn.npy")
    np.save(workdir / "near.npy", exact_neighbors(base, queries, 3).ids)
    code, out, _ = run(f"{line} -o known.l2r --neighbors near.npy --json")
    assert code == 0
    assert json.loads(out)["learned"] == report["learned"]
    assert run(f"{line} -o known.l2r --neighbors data.npz:query")[0] == 2
    assert len((workdir / "log.jsonl").read_text().splitlines()) == 10
    names = [space["name"] for space in json.loads(run("info learned.l2r --json")[1])["spaces"]]
    assert names == (["original", "learned"] if report["is_better"] else ["original"])
    code, out, _ = run(
        "learn words.l2r --queries learn.npy -k 5 --recall 0.8 --steps 2 -o served.l2r"
    )
    assert code == 0
    assert out.startswith("recall@5 of 0.8 takes ")
    both = "learn words.l2r --queries learn.npy --recall 0.8 --budget 100 --steps 2"
    assert run(both)[0] == 2
    evaluate = "evaluate learned.l2r --queries data.npz:query --budget 40 --json"
    (row,) = json.loads(run(evaluate)[1])["rows"]
    assert row["method"] == names[-1]
    (row,) = json.loads(run(f"{evaluate} --space original")[1])["rows"]
    assert row["method"] == "original"
    assert "validation" in run(f"{line} -o other.l2r")[1]


def test_learn_for_several_budgets(workdir: Path, run: Run) -> None:
    """Budgets and k are separated by commas; the report has the recall of each of them."""
    rng = np.random.default_rng(1)
    np.save(workdir / "learn.npy", rng.normal(size=(300, 8)).astype(np.float32))
    assert run(BUILD)[0] == 0
    line = "learn words.l2r --queries learn.npy --steps 2 -o learned.l2r"
    code, out, _ = run(f"{line} --budget 40,20,80 -k 1,5 --json")
    assert code == 0
    reached = json.loads(out)["reached"]
    goals = [(each["goal"]["budget"], each["goal"]["k"]) for each in reached]
    assert goals == [(20, 1), (20, 5), (40, 1), (40, 5), (80, 1), (80, 5)]
    assert [each["goal"]["rerank"] for each in reached] == [8] * 6
    code, out, _ = run(f"{line} --force")
    assert code == 0
    assert out.startswith("recall@1 of ")
    assert all(f"at {budget}" in out for budget in (128, 256, 512))
    code, _, err = run(f"{line} --budget 40,some")
    assert code == 2
    assert "expected whole numbers separated by commas, got '40,some'" in " ".join(err.split())
