"""`refine`, `renumber`, `compress` and `calibrate`."""

import json
from pathlib import Path

import numpy as np

from command_line import BUILD, Run


def test_refine_changes_neighbours(workdir: Path, run: Run) -> None:
    """`refine` overwrites the index or writes another; ids stay, bad options are refused."""
    assert run(f"{BUILD} --graph nsw")[0] == 0
    line = "search {} --queries data.npz:query -k 1 --ef 300"
    answers = run(line.format("words.l2r"))[1]
    code, out, _ = run("refine words.l2r -o better.l2r --candidates 20 --threads 1 --json")
    assert code == 0
    before, after = json.loads(out)["before"], json.loads(out)["after"]
    assert after["mean_degree"] > before["mean_degree"]
    assert after["n_unreachable"] == 0
    assert json.loads(run("info words.l2r --json")[1])["graph"] == before
    assert json.loads(run("info better.l2r --json")[1])["graph"] == after
    assert run(line.format("better.l2r"))[1] == answers
    code, out, _ = run("refine words.l2r --degree 4")
    assert code == 0
    assert "max degree: " in out
    assert json.loads(run("info words.l2r --json")[1])["graph"]["max_degree"] == 4
    code, _, err = run("refine words.l2r --alpha 0.5")
    assert code == 2
    assert "alpha" in err


def test_calibrate_keeps_its_setting(workdir: Path, run: Run) -> None:
    """`calibrate` measures on given or kept queries; `info` shows the setting."""
    assert run(BUILD)[0] == 0
    assert run("calibrate words.l2r --recall 0.9")[0] == 2  # nothing to measure on
    code, out, _ = run("calibrate words.l2r --recall 0.9 -k 5 --queries data.npz:query --json")
    assert code == 0
    setting = json.loads(out)
    assert setting["recall"] >= 0.9
    assert json.loads(run("info words.l2r --json")[1])["settings"] == [setting]
    code, out, _ = run("calibrate words.l2r --recall 0.95 -k 5")
    assert code == 0
    assert "recall@5 of 0.95 takes" in out
    kept = json.loads(run("info words.l2r --json")[1])["settings"]
    assert [each["target"] for each in kept] == [0.9, 0.95]


def test_a_stopping_rule_is_learned_and_used(workdir: Path, run: Run) -> None:
    """`calibrate` learns from other queries and takes a guarantee; `search` and `evaluate` too."""
    rng = np.random.default_rng(1)
    np.savez("log.npz", learn=rng.normal(size=(600, 8)), validation=rng.normal(size=(100, 8)))
    assert run(BUILD)[0] == 0
    asked = "--recall 0.8 --guarantee p95"
    learned = f"calibrate words.l2r {asked} --queries log.npz:validation --learn-from log.npz:learn"
    code, out, err = run(f"{learned} --json")
    assert code == 0, err
    setting = json.loads(out)
    assert setting["guarantee"] == "p95"
    facts = json.loads(run("info words.l2r --json")[1])
    assert facts["settings"] == [setting]
    assert facts["rules"] == [{"space": "original", "k": 10}]
    assert "stopping rules" in run("info words.l2r")[1]
    line = f"words.l2r --queries data.npz:query {asked}"
    code, _, err = run(f"search {line}")
    assert (code, err) == (0, "")  # nothing is measured again
    rows = json.loads(run(f"evaluate {line} --json")[1])["rows"]
    assert 0 < rows[0]["worst_recall_at_10"] <= rows[0]["recall_at_10"]
    for bad in ("--guarantee p95", "--recall 0.9 --guarantee p99"):
        assert run(f"evaluate words.l2r --queries data.npz:query {bad}")[0] == 2
        assert run(f"search words.l2r --queries data.npz:query {bad}")[0] == 2


def test_renumbering_keeps_ids(workdir: Path, run: Run) -> None:
    """After `renumber` answers have the same ids, for every metric."""
    assert run(f"{BUILD} --metric ip")[0] == 0
    line = "search words.l2r --queries data.npz:query --ef 50"
    before = run(line)[1]
    assert run("renumber words.l2r")[0] == 0
    assert json.loads(run("info words.l2r --json")[1])["labelled"]
    assert run(line)[1] == before


def test_compress_and_search_at_a_recall(workdir: Path, run: Run) -> None:
    """`compress` prints the loss; `search --recall` finds a setting; `info` shows both."""
    assert run(BUILD)[0] == 0
    code, out, _ = run("compress words.l2r --vectors float16 --queries data.npz:query -o small.l2r")
    assert code == 0
    assert "bytes per vector" in out
    assert "original-int8: recall@10" in out
    line = "search small.l2r --queries data.npz:query -k 5 --recall 0.9"
    assert run(line)[1].startswith("0: ")
    facts = json.loads(run("info small.l2r --json")[1])
    assert facts["vectors"] == "float16"
    assert [space["dtype"] for space in facts["spaces"]] == ["float16", "uint8"]
    assert facts["losses"][0]["space"] == "original-int8"
    printed = run("info small.l2r")[1]
    assert "original-int8" in printed
    assert "compression" in printed
    code, out, _ = run("compress words.l2r --routing float16 --json")
    assert code == 0
    assert json.loads(out)["losses"] == []
    code, out, _ = run("compress words.l2r --routing none --vectors float16")
    assert code == 0
    assert "original-int8" not in out
    assert run("compress words.l2r --routing int4")[0] == 2
    assert (
        "call learn or validate_with first"
        in run("search words.l2r --recall 0.9 --queries data.npz:query")[2]
    )


def test_refine_for_a_query_log(workdir: Path, run: Run) -> None:
    """`refine --queries` says what the log brought, and keeps queries to measure on."""
    log = np.random.default_rng(1).normal(size=(300, 8)).astype(np.float32)
    log[:, 0] -= 6
    np.save("log.npy", log)
    assert run(BUILD)[0] == 0
    code, out, _ = run("refine words.l2r -o better.l2r --queries log.npy -k 5 --recall 0.9 --json")
    assert code == 0
    found = json.loads(out)["log"]
    assert [step["name"] for step in found["steps"]] == ["edges", "entries"]
    assert (found["k"], found["recall"]) == (5, 0.9)
    kept = found["steps"][0]["is_kept"]
    assert (json.loads(out)["after"]["n_edges"] > json.loads(out)["before"]["n_edges"]) == kept
    assert run("calibrate better.l2r --recall 0.9 -k 5")[0] == 0
    code, out, _ = run("refine words.l2r --queries log.npy")
    assert code == 0
    assert "queries, measured on" in out
    assert "edges: " in out
    code, _, err = run("refine words.l2r --queries log.npy --degree 1")
    assert code == 2
    assert "degree" in err
