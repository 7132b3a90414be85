"""`build`: plain, imported and ready to serve."""

import json
from pathlib import Path

import faiss
import hnswlib
import numpy as np
import pytest

from command_line import BUILD, Run
from l2route import RoutingIndex, load
from l2route.data.vectors import METRICS


def test_other_libraries_graphs(workdir: Path, run: Run) -> None:
    """Indexes saved by faiss and hnswlib are imported, with or without their upper layers."""
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
        code, out, _ = run(f"build {source} -o flat.l2r --entry 7 --json --force")
        assert code == 0
        assert json.loads(out)["graph"]["entries"] == [7]


def test_build_has_the_defaults_of_python(workdir: Path, run: Run) -> None:
    """With default options the command line and Python build the same graph, for each metric."""
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


def test_copies_and_unreachable_vectors_are_reported(workdir: Path, run: Run) -> None:
    """Copies and unreachable vectors are reported on stderr; our own graphs reach every vector."""
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


def test_pca_baseline(workdir: Path, run: Run) -> None:
    """With --pca-dim searches route by principal components, count the projection and rerank."""
    assert run(f"{BUILD} --pca-dim 4")[0] == 0
    line = "evaluate words.l2r --queries data.npz:query --budget 100 --json"
    (row,) = json.loads(run(line)[1])["rows"]
    assert (row["method"], row["n_computed"]) == ("pca4", 100)
    (row,) = json.loads(run(f"{line} --space original")[1])["rows"]
    assert (row["method"], row["n_computed"]) == ("original", 100)


SERVED = "build data.npz:base -o served.l2r --degree 8 --ef-construction 40 --threads 1"


def test_build_with_queries_is_ready_to_serve(workdir: Path, run: Run) -> None:
    """`build --queries` prints a report, and `search --recall` uses the setting that it kept."""
    np.save(workdir / "log.npy", np.random.default_rng(1).normal(size=(250, 8)))
    line = f"{SERVED} --queries log.npy --recall 0.9 -k 5 --minutes 0.02"
    code, out, _ = run(f"{line} --json")
    assert code == 0
    facts = json.loads(out)
    assert [step["name"] for step in facts["steps"]][-1] == "stop"
    assert facts["index"]["n_vertices"] == 400
    assert facts["learned"]["reached"][0]["goal"]["k"] == 5
    (kept,) = json.loads(run("info served.l2r --json")[1])["settings"]
    assert kept == facts["setting"]
    code, _, err = run("search served.l2r --queries data.npz:query -k 5 --recall 0.9")
    assert (code, err) == (0, "")
    code, _, err = run(line)
    assert (code, "expected a directory without an index" in err) == (2, True)
    code, out, _ = run(f"{line} --force")
    assert code == 0
    assert "recall@5 of 0.9" in out
    assert "bytes/vector" in out


def test_build_for_a_recall_needs_no_queries(workdir: Path, run: Run) -> None:
    """Vectors are held out to measure on, and the report says so."""
    code, out, _ = run(f"{SERVED} --recall 0.9 --routing float16")
    assert code == 0
    assert "on 40 held-out vectors" in out
    code, _, err = run("search served.l2r --queries data.npz:query --recall 0.9")
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--queries log.npy --recall 2", "recall"),
        ("--queries log.npy --routing int3", "int3"),
        ("--queries log.npy --minutes -1", "minutes"),
        ("--queries log.npy -k 0", "-k"),
        ("--queries log.npy -k 101", "k in [1, 100]"),
        ("--queries log.npy --entry 3", "neither --queries nor --recall with --entry"),
        ("--queries log.npy --no-refine", "--refine"),
        ("--recall 0.9 --pca-dim 4", "--pca-dim"),
        ("--queries log.npy --from faiss", "--from"),
        ("-k 5", "--queries or --recall with -k"),
        ("--routing int8", "--routing"),
    ],
)
def test_options_that_do_not_go_together(run: Run, options: str, message: str) -> None:
    """Options that exclude each other are refused in one line, before files are read."""
    code, out, err = run(f"build nothing.npy -o x {options}")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err
