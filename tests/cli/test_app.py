"""The command line as a whole: stages, help, errors."""

import json
from pathlib import Path

import numpy as np
import pytest

import l2route
from command_line import BUILD, Run


def test_build_evaluate_search_info(workdir: Path, run: Run) -> None:
    """build, evaluate, search and info follow one another and print JSON."""
    code, out, _ = run(f"{BUILD} --metric l2 --graph nsw --json")
    assert code == 0
    assert json.loads(out)["graph"]["entries"] == [0]

    code, out, _ = run("evaluate words.l2r --queries data.npz:query --budget 16,64,400 --json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert [row["budget"] for row in rows] == [16, 64, 400]
    assert {
        "budget",
        "recall_at_1",
        "recall_at_10",
        "n_computed",
        "n_hops",
        "microseconds_per_query",
    } <= rows[0].keys()
    assert rows[0]["recall_at_1"] < rows[1]["recall_at_1"] <= rows[2]["recall_at_1"]
    assert rows[0]["n_computed"] == 16
    assert rows[2]["recall_at_1"] >= 0.95
    assert all(row["microseconds_per_query"] > 0 for row in rows)

    code, out, _ = run("search words.l2r --queries data.npz:query -k 3 --budget 400 --json")
    answers = json.loads(out)["answers"]
    assert code == 0
    assert [len(answer["ids"]) for answer in answers] == [3] * 20

    code, _, _ = run("search words.l2r --queries data.npz:query -k 3 --ef 50 -o found.npz")
    assert code == 0
    assert np.load(workdir / "found.npz")["ids"].shape == (20, 3)

    code, out, _ = run("info words.l2r --json")
    assert code == 0
    assert json.loads(out)["n_vertices"] == 400


def test_output_without_json(workdir: Path, run: Run) -> None:
    """Without --json, commands print tables and lines; plots and Markdown are optional."""
    assert run(BUILD)[0] == 0
    code, out, _ = run("evaluate words.l2r --queries data.npz:query --ef 8,16 --plot recall.png")
    assert code == 0
    assert "recall@1" in out
    assert (workdir / "recall.png").read_bytes().startswith(b"\x89PNG")
    assert "| recall@1" in run("evaluate words.l2r --queries data.npz:query --markdown")[1]
    assert "reachable" in run("info words.l2r")[1]
    assert run("search words.l2r --queries data.npz:query")[1].startswith("0: ")
    assert "sift1m" in run("datasets")[1]
    assert "sift1m" in {entry["name"] for entry in json.loads(run("datasets --json")[1])}


def test_version(run: Run) -> None:
    """`--version` prints the version of the package."""
    assert run("--version") == (0, f"l2route {l2route.__version__}\n", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("build nothing.npy -o x", "nothing.npy"),
        ("build data.npz:nothing -o x", "nothing"),
        ("build data.npz -o x", "base"),
        ("build data.npz:base", "--out"),
        ("build data.npz:base -o x --degree 1", "degree"),
        ("build data.npz:base -o x --degree many", "degree"),
        ("build data.npz:base -o x --metric taxi", "taxi"),
        ("build data.npz:base -o x --graph tree", "tree"),
        ("build data.npz:base -o x --entry 400", "400"),
        ("build data.npz:base -o x --entry home", "home"),
        ("build data.npz:base -o x --pca-dim 8", "PCA"),
        ("build data.npz:base -o x --from memory", "memory"),
        ("build data.npz -o x --from hnswlib", "expected a metric of l2, ip, cosine"),
        ("build data.npz -o x --from hnswlib --metric l2", "hnswlib"),
        ("build data.npz -o x --from faiss", "data.npz"),
        ("build data.npz:base -o data.npz", "data.npz"),
        ("info nowhere", "nowhere"),
        ("search words.l2r --queries data.npz:query --budget 0", "0"),
        ("search words.l2r --queries data.npz:query -k 0", "0"),
        ("evaluate words.l2r --queries data.npz:query --budget some", "some"),
        ("evaluate words.l2r --queries data.npz:query --space learned", "learned"),
        ("evaluate words.l2r --queries wide.npy", "[*, 8]"),
        ("learn words.l2r --queries data.npz:query --steps 5 --model oracle", "oracle"),
        ("learn words.l2r --queries data.npz:query --steps 5 --rerank 300", "300"),
        ("learn words.l2r --queries data.npz:query --minutes 0", "minutes"),
        ("datasets unheard-of", "unheard-of"),
        ("reproduce dance", "all), got 'dance'"),
        ("sing", "sing"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    workdir: Path, run: Run, line: str, message: str
) -> None:
    """Bad input exits with 2 and one line that names what is wrong."""
    np.save(workdir / "wide.npy", np.ones((3, 9)))
    if "words.l2r" in line:
        assert run(BUILD)[0] == 0
    code, out, err = run(line)
    lines = [text for text in err.splitlines() if text.startswith("l2route: ")]
    assert (code, out, len(lines)) == (2, "", 1)
    assert message in lines[0]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("build nothing.npy -o x --degree 1", "degree"),
        ("build nothing.npy -o x --ef-construction 0", "ef_construction"),
        ("build nothing.npy -o x --metric taxi", "taxi"),
        ("build nothing.npy -o x --graph tree", "tree"),
        ("build nothing.npy -o x --graph nsg --metric ip", "nsg"),
        ("build nothing.npy -o x --graph hnsw --entry 3", "hnsw"),
        ("build nothing.npy -o x --entry home", "home"),
        ("build nothing.npy -o x --threads -1", "n_threads"),
        ("build nothing.npy -o x --pca-dim 0", "pca-dim"),
        ("build nothing.npy -o x --from memory", "memory"),
        ("learn nowhere --queries nothing.npy --model oracle", "oracle"),
        ("learn nowhere --queries nothing.npy --objective fame", "fame"),
        ("learn nowhere --queries nothing.npy --minutes 0", "minutes"),
        ("learn nowhere --queries nothing.npy --steps 0", "steps"),
        ("learn nowhere --queries nothing.npy --budget 0", "budget"),
        ("learn nowhere --queries nothing.npy -k 9 --rerank 8", "rerank"),
        ("learn nowhere --queries nothing.npy --recall 1.5", "recall"),
        ("learn nowhere --queries nothing.npy --recall 0.9 --budget 100", "a recall"),
        ("search nowhere --queries nothing.npy -k 0", "-k"),
        ("search nowhere --queries nothing.npy --ef 0", "ef"),
        ("search nowhere --queries nothing.npy --budget 0", "budget"),
        ("search nowhere --queries nothing.npy --slack -1", "slack"),
        ("search nowhere --queries nothing.npy --recall 0", "recall"),
        ("search nowhere --queries nothing.npy --recall 0.9 --ef 10", "recall=0.9 with ef=10"),
        ("search nowhere --queries nothing.npy --threads -1", "threads"),
        ("evaluate nowhere --queries nothing.npy --budget some", "some"),
        ("evaluate nowhere --queries nothing.npy --budget 100,0", "--budget"),
        ("evaluate nowhere --queries nothing.npy --recall 0.9,2", "--recall"),
        ("evaluate nowhere --queries nothing.npy --slack nan", "--slack"),
        ("evaluate nowhere --queries nothing.npy --recall 0.9 --rerank 5", "with rerank=5"),
        ("refine nowhere --degree 1", "degree"),
        ("refine nowhere --alpha 0.5", "alpha"),
        ("refine nowhere --candidates 0", "candidate"),
        ("compress nowhere --routing int3", "int3"),
        ("compress nowhere --vectors float8", "float8"),
        ("calibrate nowhere --recall 2", "recall"),
        ("calibrate nowhere --recall 0.9 -k 0", "-k"),
        ("compare --data nothing.npz --methods abacus", "abacus"),
        ("compare --data nothing.npz --metric taxi", "taxi"),
        ("compare --data nothing.npz --minutes 0", "minutes"),
        ("compare --data nothing.npz --rounds 0", "rounds"),
    ],
)
def test_bad_options_are_refused_before_files_are_read(
    workdir: Path, run: Run, line: str, message: str
) -> None:
    """A bad option is one line on the error stream, without a bar, even if files are missing."""
    code, out, err = run(line)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err
    assert "nothing.np" not in err
    assert "nowhere" not in err


@pytest.mark.parametrize("line", ["--entry 400", "--pca-dim 8", "--graph nsg --metric cosine"])
def test_options_that_do_not_fit_the_data_are_refused_without_a_bar(
    workdir: Path, run: Run, line: str
) -> None:
    """The error is the only line: a bar is shown only after the first progress."""
    np.save(workdir / "few.npy", np.load(workdir / "data.npz")["base"][:9])
    source = "few.npy" if "nsg" in line else "data.npz:base"
    code, _, err = run(f"build {source} -o x {line}")
    assert (code, len(err.splitlines())) == (2, 1)


def test_without_arguments_help_is_printed(run: Run) -> None:
    """`l2route` without arguments lists its commands."""
    code, out, _ = run("")
    assert code == 0
    assert "evaluate" in out
