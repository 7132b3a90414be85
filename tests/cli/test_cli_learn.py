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
    assert out.startswith("recall@5 of 0.8 reads ")
    both = "learn words.l2r --queries learn.npy --recall 0.8 --budget 100 --steps 2"
    assert run(both)[0] == 2
    evaluate = "evaluate learned.l2r --queries data.npz:query --budget 40 --json"
    (row,) = json.loads(run(evaluate)[1])["rows"]
    assert row["method"] == names[-1]
    (row,) = json.loads(run(f"{evaluate} --space original")[1])["rows"]
    assert row["method"] == "original"
    assert "validation" in run(f"{line} -o other.l2r")[1]
