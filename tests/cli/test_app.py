import json
import sys
from pathlib import Path

import faiss
import hnswlib
import numpy as np
import pytest
from numpy.typing import NDArray

import l2route
from l2route import RoutingIndex, load
from l2route.cli.app import main
from l2route.data.truth import exact_neighbors
from l2route.data.vectors import METRICS


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with vectors and queries, to stand in."""
    rng = np.random.default_rng(0)
    arrays: dict[str, NDArray[np.float32]] = {
        "base": rng.normal(size=(400, 8)).astype(np.float32),
        "query": rng.normal(size=(20, 8)).astype(np.float32),
    }
    np.savez(tmp_path / "data.npz", **arrays)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Call the command line: exit code, output, errors."""

    def call(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["l2route", *line.split()])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return call


BUILD = "build data.npz:base -o words.l2r --degree 8 --ef-construction 40 --entry 0 --no-refine"


def test_build_evaluate_search_info(workdir: Path, run) -> None:
    """The stages follow one another, each readable by a machine."""
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


def test_learn(workdir: Path, run) -> None:
    """`learn` adds a space that `evaluate` uses unless told otherwise."""
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


def test_what_people_read(workdir: Path, run) -> None:
    """Without --json, tables and lines for people; a plot and Markdown when asked."""
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


def test_refine_gives_other_neighbours(workdir: Path, run) -> None:
    """`refine` over the index or beside it; answers keep their names, wrong numbers are told."""
    assert run(BUILD)[0] == 0
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


def test_calibrate_keeps_what_it_finds(workdir: Path, run) -> None:
    """`calibrate` measures on queries given or kept; `info` tells what it found."""
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


def test_evaluate_measures_what_is_served(workdir: Path, run) -> None:
    """Settings of recalls, found or kept, and slacks, beside beams; budgets if nothing is said."""
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
    assert [row["budget"] for row in rows] == [512, 1024, 2048]  # 160 are spent before a walk


def test_renumbering_leaves_names_alone(workdir: Path, run) -> None:
    """Under any metric; answers are called as before."""
    assert run(f"{BUILD} --metric ip")[0] == 0
    line = "search words.l2r --queries data.npz:query --ef 50"
    before = run(line)[1]
    assert run("renumber words.l2r")[0] == 0
    assert json.loads(run("info words.l2r --json")[1])["labelled"]
    assert run(line)[1] == before


def test_truth_is_of_labels(workdir: Path, run) -> None:
    """Truth that a user brings calls vectors as answers do, also once they are renumbered."""
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


def test_compress_and_ask_for_a_recall(workdir: Path, run) -> None:
    """`compress` says what it costs; `search --recall` finds its setting; `info` tells both."""
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
    said = run("info small.l2r")[1]
    assert "original-int8" in said
    assert "compression" in said
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


def test_truth_is_cached_beside_the_data(workdir: Path, run) -> None:
    """Ground truth is computed once, kept beside the data, and equals what a file may state."""
    assert run(BUILD)[0] == 0
    line = "evaluate words.l2r --queries data.npz:query --budget 64 --json"
    first = json.loads(run(line)[1])["rows"][0]["recall_at_1"]
    (cached,) = workdir.glob("truth-*.npz")
    again = json.loads(run(line)[1])["rows"][0]["recall_at_1"]
    stated = json.loads(run(f"{line} --truth {cached.name}:ids")[1])["rows"][0]["recall_at_1"]
    assert first == again == stated


def test_closed_directories_are_left_alone(workdir: Path, run) -> None:
    """Nothing is cached in a directory that nobody may write to, whoever asks."""
    assert run(BUILD)[0] == 0
    closed = workdir / "closed"
    closed.mkdir()
    (closed / "data.npz").write_bytes((workdir / "data.npz").read_bytes())
    closed.chmod(0o555)
    code, _, _ = run("evaluate words.l2r --queries closed/data.npz:query --budget 64 --json")
    assert code == 0
    assert [file.name for file in closed.iterdir()] == ["data.npz"]


def test_other_libraries_graphs(workdir: Path, run) -> None:
    """Indexes that faiss and hnswlib saved become ours, with or without their upper layers."""
    base = np.load(workdir / "data.npz")["base"]
    theirs = hnswlib.Index(space="l2", dim=8)
    theirs.init_index(len(base), M=4, ef_construction=40)
    theirs.add_items(base, num_threads=1)
    theirs.save_index(str(workdir / "hnswlib.bin"))
    faiss_index = faiss.IndexHNSWFlat(8, 4)
    faiss_index.add(base)
    faiss.write_index(faiss_index, str(workdir / "faiss.bin"))
    for library, metric in (("hnswlib", "--metric l2"), ("faiss", "")):
        source = f"{library}.bin --from {library} {metric}"
        code, out, _ = run(f"build {source} -o {library}.l2r --json")
        assert code == 0
        assert json.loads(out)["graph"]["n_layers"] > 0
        code, out, _ = run(f"build {source} -o flat.l2r --entry 7 --json")
        assert code == 0
        assert json.loads(out)["graph"]["entries"] == [7]


def test_build_has_the_defaults_of_python(workdir: Path, run) -> None:
    """The same graph from the command line and from Python, for each metric, both told nothing."""
    base = np.load(workdir / "data.npz")["base"]
    for metric in METRICS:
        assert run(f"build data.npz:base -o {metric}.l2r --metric {metric}")[0] == 0
        ours, expected = (
            load(workdir / f"{metric}.l2r").graph,
            RoutingIndex.build(base, metric).graph,
        )
        np.testing.assert_array_equal(ours.neighbors, expected.neighbors)
        np.testing.assert_array_equal(ours.entries, expected.entries)
        assert expected.neighbors.shape[1] == 32


def test_copies_and_lost_vectors_are_told(workdir: Path, run) -> None:
    """In plain words, on the error stream; a graph of our own loses nobody."""
    base = np.load(workdir / "data.npz")["base"]
    crowded = np.concatenate([base, np.repeat(base[:1], 600, axis=0)])
    np.save(workdir / "crowded.npy", crowded)
    theirs = faiss.IndexHNSWFlat(8, 4)
    theirs.add(crowded)
    faiss.write_index(theirs, str(workdir / "faiss.bin"))
    code, out, err = run("build crowded.npy -o ours.l2r --json")
    assert code == 0
    assert json.loads(out)["graph"]["n_unreachable"] == 0
    assert "600 of 1,000 vectors are copies of others" in err
    assert "no search finds" not in err
    code, out, err = run("build faiss.bin --from faiss -o theirs.l2r --json")
    assert code == 0
    n_lost = json.loads(out)["graph"]["n_unreachable"]
    assert n_lost > 0
    assert f"no search finds {n_lost} of 1,000 vectors" in err
    assert "l2route refine theirs.l2r" in err
    assert run("refine theirs.l2r")[0] == 0
    assert json.loads(run("info theirs.l2r --json")[1])["graph"]["n_unreachable"] == 0
    assert "copies" not in run("build data.npz:base -o plain.l2r")[2]


def test_measuring_a_setting_is_told(workdir: Path, run) -> None:
    """`search --recall` says that it measures, and how to keep what it finds; kept, it does not."""
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


def test_version(run) -> None:
    """`--version` is that of the package."""
    assert run("--version") == (0, f"l2route {l2route.__version__}\n", "")


def test_pca_baseline(workdir: Path, run) -> None:
    """--pca-dim routes by principal components, charges the projection, reranks."""
    assert run(f"{BUILD} --pca-dim 4")[0] == 0
    line = "evaluate words.l2r --queries data.npz:query --budget 100 --json"
    (row,) = json.loads(run(line)[1])["rows"]
    assert (row["method"], row["n_computed"]) == ("pca4", 100)
    (row,) = json.loads(run(f"{line} --space original")[1])["rows"]
    assert (row["method"], row["n_computed"]) == ("original", 100)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("build nothing.npy -o x", "nothing.npy"),
        ("build data.npz:nothing -o x", "nothing"),
        ("build data.npz -o x", "base"),
        ("build data.npz:base", "--out"),
        ("build data.npz:base -o x --degree 3", "degree"),
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
def test_bad_input_is_one_line_and_exit_code_2(workdir: Path, run, line: str, says: str) -> None:
    """Bad input exits with 2 and one line that names what is wrong."""
    np.save(workdir / "wide.npy", np.ones((3, 9)))
    if "words.l2r" in line:
        assert run(BUILD)[0] == 0
    code, out, err = run(line)
    lines = [text for text in err.splitlines() if text.startswith("l2route: ")]
    assert (code, out, len(lines)) == (2, "", 1)
    assert says in lines[0]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("build nothing.npy -o x --degree 3", "degree"),
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
        ("learn nowhere --queries nothing.npy --recall 0.9 --budget 100", "--recall"),
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
def test_bad_options_are_told_before_anything_is_read(
    workdir: Path, run, line: str, says: str
) -> None:
    """One line about the option, though the files are missing too, and no bar."""
    code, out, err = run(line)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err
    assert "nothing.np" not in err
    assert "nowhere" not in err


@pytest.mark.parametrize("line", ["--entry 400", "--pca-dim 8", "--graph nsg --metric cosine"])
def test_what_does_not_fit_the_data_is_told_without_a_bar(workdir: Path, run, line: str) -> None:
    """One line alone: bars show from the first progress on."""
    np.save(workdir / "few.npy", np.load(workdir / "data.npz")["base"][:9])
    source = "few.npy" if "nsg" in line else "data.npz:base"
    code, _, err = run(f"build {source} -o x {line}")
    assert (code, len(err.splitlines())) == (2, 1)


def test_without_arguments_it_helps(run) -> None:
    """`l2route` alone shows its commands."""
    code, out, _ = run("")
    assert code == 0
    assert "evaluate" in out
