"""`search` and `evaluate`."""

import json
from pathlib import Path

import numpy as np

from command_line import BUILD, Run
from l2route.data.truth import exact_neighbors


def test_evaluate_measures_every_setting(workdir: Path, run: Run) -> None:
    """`evaluate` measures target recalls, slacks and beams; without options, three budgets."""
    assert run(BUILD)[0] == 0
    assert run("compress words.l2r --routing int8 --queries data.npz:query")[0] == 0
    line = "evaluate words.l2r --queries data.npz:query"
    rows = json.loads(run(f"{line} --recall 0.8,0.95 --slack 0.2 --ef 30 --json")[1])["rows"]
    assert rows[0]["ef"] == 30
    assert [row["slack"] for row in rows][:2] == [None, 0.2]
    assert rows[2]["recall_at_10"] >= 0.8
    assert rows[3]["recall_at_10"] >= 0.95
    code, out, _ = run(f"{line} --slack 0.2")
    assert code == 0
    assert "slack" in out
    assert run(f"{line} --recall 0.8 --rerank 20")[0] == 2
    assert run(f"{line} --recall much")[0] == 2
    assert run("compress words.l2r --routing int4 --space original")[0] == 0
    rows = json.loads(run(f"{line} --json")[1])["rows"]
    assert [row["budget"] for row in rows] == [
        1024,
        2048,
        4096,
    ]


def test_truth_is_of_labels(workdir: Path, run: Run) -> None:
    """A file of true neighbours has ids as in answers, also after renumbering."""
    assert run(BUILD)[0] == 0
    assert run("refine words.l2r")[0] == 0
    base, query = np.load(workdir / "data.npz")["base"], np.load(workdir / "data.npz")["query"]
    np.savez(workdir / "truth.npz", neighbors=exact_neighbors(base, query, 10).ids)
    line = "evaluate words.l2r --queries data.npz:query --budget 40 --json"
    own, brought = (json.loads(run(line + more)[1])["rows"] for more in ("", " --truth truth.npz"))
    for name in ("recall_at_1", "recall_at_10"):
        assert own[0][name] == brought[0][name]
        assert own[0][name] < 1
    np.savez(workdir / "wrong.npz", neighbors=np.full((len(query), 10), len(base)))
    assert run(line + " --truth wrong.npz")[0] == 2


def test_truth_is_cached_beside_the_data(workdir: Path, run: Run) -> None:
    """True neighbours are computed once, cached beside the data, and equal those of a file."""
    assert run(BUILD)[0] == 0
    line = "evaluate words.l2r --queries data.npz:query --budget 64 --json"
    first = json.loads(run(line)[1])["rows"][0]["recall_at_1"]
    (cached,) = workdir.glob("truth-*.npz")
    again = json.loads(run(line)[1])["rows"][0]["recall_at_1"]
    stated = json.loads(run(f"{line} --truth {cached.name}:ids")[1])["rows"][0]["recall_at_1"]
    assert first == again == stated


def test_nothing_is_cached_in_a_read_only_directory(workdir: Path, run: Run) -> None:
    """A directory without write permission gets no cache, even from the superuser."""
    assert run(BUILD)[0] == 0
    closed = workdir / "closed"
    closed.mkdir()
    (closed / "data.npz").write_bytes((workdir / "data.npz").read_bytes())
    closed.chmod(0o555)
    code, _, _ = run("evaluate words.l2r --queries closed/data.npz:query --budget 64 --json")
    assert code == 0
    assert [file.name for file in closed.iterdir()] == ["data.npz"]


def test_calibrating_during_a_search_is_announced(workdir: Path, run: Run) -> None:
    """`search --recall` says that it measures a setting and how to keep it, unless it is kept."""
    assert run(BUILD)[0] == 0
    assert run("compress words.l2r --routing int8 --queries data.npz:query")[0] == 0
    line = "search words.l2r --queries data.npz:query -k 5 --recall 0.9"
    code, measured, err = run(line)
    assert code == 0
    assert "to keep it: l2route calibrate words.l2r --recall 0.9 -k 5" in err
    assert run(err.split("l2route ")[-1].strip())[0] == 0
    code, kept, err = run(line)
    assert (code, kept, err) == (0, measured, "")
    evaluate = "evaluate words.l2r --queries data.npz:query --recall 0.8 --json"
    assert "l2route calibrate words.l2r --recall 0.8 -k 10" in run(evaluate)[2]
