"""A program that an installed package has to pass: it needs nothing but the package itself.

    python smoke.py [--levels avx2,portable]    # the SIMD levels that the core has to find

It prints the interpreter, the core's file and the levels. `make wheel-test` runs it in clean
environments and on emulated processors, cibuildwheel on every system that there are wheels for.
"""

import argparse
import io
import platform
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import l2route
from l2route import _core
from l2route.search.limits import Limits
from l2route.search.searcher import Searcher

N, DIM, K, EF = 800, 24, 10, 64
MIN_RECALL = 0.98
"""Measured: 0.999 at every level, with every kind of routing vectors."""


def nearest(vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> NDArray[np.int64]:
    """Row numbers of the K nearest vectors, by brute force [n_queries, K]."""
    differences = queries[:, None, :].astype(np.float64) - vectors[None, :, :]
    return np.argsort((differences**2).sum(axis=2), axis=1)[:, :K]


def check_recall(found: NDArray[np.int64], true: NDArray[np.int64], what: str) -> None:
    """Fail if fewer true neighbours than MIN_RECALL were found."""
    hits = [len(set(a) & set(b)) for a, b in zip(found.tolist(), true.tolist(), strict=True)]
    recall = sum(hits) / true.size
    assert recall >= MIN_RECALL, f"{what}: expected a recall of {MIN_RECALL}, got {recall:.3f}"


def check_levels(index: l2route.RoutingIndex, queries: NDArray[np.float32]) -> None:
    """Every level of this machine finds the neighbours, with floats, half floats and codes."""
    true = nearest(index.vectors(index.ids), queries)
    for kind in (None, "float16", "int8", "int4", "int2"):
        copy = l2route.RoutingIndex(index.base, index.graph)
        if kind is not None:
            copy.compress(kind)
        for level in _core.simd_levels():
            searcher = Searcher(copy.graph, copy.spaces[-1], copy.base, simd=level)
            found = searcher.search(queries, K, limits=Limits(ef=EF))
            check_recall(found.ids, true, f"{level}, {kind or 'float32'}")


def check_changes(index: l2route.RoutingIndex, vectors: NDArray[np.float32]) -> None:
    """Vectors are added, replaced, deleted, filtered, saved and loaded."""
    added = index.add(vectors[:50] + 0.5)
    assert (index.search(vectors[:50] + 0.5, k=1, ef=EF).ids[:, 0] == added).all()
    index.update(added[:5], vectors[:5] - 0.5)
    assert (index.search(vectors[:5] - 0.5, k=1, ef=EF).ids[:, 0] == added[:5]).all()
    index.delete(added[5:10])
    assert not np.isin(index.search(vectors[:50] + 0.5, k=K, ef=EF).ids, added[5:10]).any()
    few = index.search(vectors[:20], k=K, ef=EF, where=added[10:30])
    assert np.isin(few.ids, added[10:30]).all()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "index.l2r"
        index.save(path)
        index.add(vectors[:1] + 0.25)
        index.save()
        for is_mapped in (False, True):
            copy = l2route.load(path, mmap=is_mapped)
            assert len(copy) == len(index)
            ours, theirs = (each.search(vectors[:20], k=K, ef=EF) for each in (index, copy))
            assert (ours.ids == theirs.ids).all()


def check_threads(index: l2route.RoutingIndex, vectors: NDArray[np.float32]) -> None:
    """Answers do not depend on the number of threads."""
    one, all_cores = (index.search(vectors, k=K, ef=EF, n_threads=n) for n in (1, 0))
    assert (one.ids == all_cores.ids).all()
    assert (one.distances == all_cores.distances).all()


def check_command_line(vectors: NDArray[np.float32]) -> None:
    """The command builds and searches an index, in this process, which may be emulated."""
    from l2route.cli.app import main

    def run(*words: str | Path) -> str:
        sys.argv, output = ["l2route", *map(str, words)], io.StringIO()
        code: object = None
        with redirect_stdout(output):
            try:
                main()
            except SystemExit as end:
                code = end.code
        assert code in (0, None), f"{words}: got exit code {code}"
        return output.getvalue()

    with tempfile.TemporaryDirectory() as directory:
        data, index, answers = (Path(directory) / name for name in ("a.npy", "a.l2r", "found.npz"))
        np.save(data, vectors)
        run("build", data, "-o", index)
        run("search", index, "--queries", data, "-k", "3", "--ef", str(EF), "-o", answers)
        with np.load(answers) as found:
            assert (found["ids"][:, 0] == np.arange(len(vectors))).all()
    assert run("--version") == f"l2route {l2route.__version__}\n"


def check_entry_point() -> None:
    """The `l2route` command is installed beside the interpreter."""
    command = Path(sys.executable).with_name("l2route")
    answer = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout == f"l2route {l2route.__version__}\n"


def main() -> None:
    """Check everything, and print what was checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", help="the SIMD levels expected, fastest first")
    parser.add_argument("--emulated", action="store_true", help="start no other processes")
    given = parser.parse_args()
    levels = ",".join(_core.simd_levels())
    print(f"Python {platform.python_version()}, l2route {l2route.__version__}, levels {levels}")
    print(_core.__file__, flush=True)
    assert given.levels in (None, levels), f"expected levels {given.levels}, got {levels}"
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(N, DIM)).astype(np.float32)
    index = l2route.RoutingIndex.build(vectors)
    check_levels(index, rng.normal(size=(100, DIM)).astype(np.float32))
    check_threads(index, vectors)
    check_changes(index, vectors)
    check_command_line(vectors[:200])
    if not given.emulated:
        check_entry_point()
    print("all checks passed")


if __name__ == "__main__":
    main()
