"""Laws of the command line on an index that has lived."""

import json
from pathlib import Path

import numpy as np

from command_line import Run
from l2route.index import RoutingIndex, load


def lived(path: Path) -> RoutingIndex:
    """An index that was saved, changed and saved again, over the vectors of `workdir`."""
    vectors = np.load(path / "data.npz")["base"]
    index = RoutingIndex.build(vectors[:300], degree=8)
    index.save(path / "words.l2r")
    index.add(vectors[300:])
    index.delete(np.arange(0, 400, 4))
    index.save()
    return index


def test_an_index_that_has_lived_is_described_and_searched(workdir: Path, run: Run) -> None:
    """`info` counts what is there, and `search` answers like the index."""
    index = lived(workdir)
    code, out, errors = run("info words.l2r --json")
    assert code == 0, errors
    assert json.loads(out)["n_vertices"] == 300
    code, _, errors = run("search words.l2r --queries data.npz:query -k 5 --ef 64 -o found.npz")
    assert code == 0, errors
    queries = np.load(workdir / "data.npz")["query"]
    found = np.load(workdir / "found.npz")["ids"]
    assert found.tolist() == index.search(queries, 5, ef=64).ids.tolist()


def test_an_index_that_has_lived_is_reworked(workdir: Path, run: Run) -> None:
    """`refine`, `renumber`, `compress` and `calibrate` keep the ids and what is there."""
    index = lived(workdir)
    for line in (
        "refine words.l2r",
        "renumber words.l2r",
        "compress words.l2r --routing int8",
        "calibrate words.l2r --queries data.npz:query --recall 0.9",
    ):
        code, _, errors = run(line)
        assert code == 0, errors
        reworked = load(workdir / "words.l2r")
        assert sorted(reworked) == sorted(index)
        np.testing.assert_array_equal(reworked.vectors(index.ids), index.vectors(index.ids))


def test_an_empty_index_is_described_and_searched(workdir: Path, run: Run) -> None:
    """An index without vectors is described, and answers with nothing."""
    RoutingIndex.empty(8).save(workdir / "none.l2r")
    code, out, errors = run("info none.l2r --json")
    assert code == 0, errors
    assert json.loads(out)["n_vertices"] == 0
    code, _, errors = run("search none.l2r --queries data.npz:query -k 5 --ef 64 -o found.npz")
    assert code == 0, errors
    assert (np.load(workdir / "found.npz")["ids"] == -1).all()
