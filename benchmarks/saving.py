"""Saving a change of an index: bytes written and time, as a patch and whole, in turns.

    python benchmarks/saving.py                        # 100,000 vectors of 100 dimensions
    python benchmarks/saving.py --vectors 1000000 --dim 64

Arrays are random. An insertion changes its own rows and the neighbour lists of 32 other vertices.
Times are medians of ten saves; what a disk takes to flush is part of them.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from l2route.files.patches import Patch
from l2route.files.storage import append_patch, read_index, write_index
from measuring import timed

DEGREE = 32
N_ROUNDS = 10
INSERTIONS = (1, 100, 1000)
T = TypeVar("T")
Arrays = dict[str, NDArray[np.generic]]


def random_arrays(n: int, dim: int, seed: int) -> Arrays:
    """The arrays of an index with labels."""
    rng = np.random.default_rng(seed)
    return {
        "vectors": rng.normal(size=(n, dim)).astype(np.float32),
        "neighbors": rng.integers(n, size=(n, DEGREE), dtype=np.int32),
        "labels": np.arange(n, dtype=np.int64),
    }


def replace_vectors(arrays: Arrays, n_inserted: int, rng: np.random.Generator) -> Patch:
    """Replace vectors in place, each with the lists of other vertices; return what changed."""
    n = len(arrays["vectors"])
    own = np.sort(rng.choice(n, n_inserted, replace=False))
    listed = np.union1d(own, rng.integers(n, size=n_inserted * DEGREE))
    rows = {"vectors": own, "neighbors": listed, "labels": own}
    arrays["vectors"][own] = rng.normal(size=arrays["vectors"][own].shape)
    arrays["neighbors"][listed] = rng.integers(n, size=(len(listed), DEGREE))
    arrays["labels"][own] += n
    return Patch({name: (numbers, arrays[name][numbers]) for name, numbers in rows.items()})


def save_in_turns(path: Path, arrays: Arrays, n_inserted: int) -> str:
    """Save changes as patches and whole; return a line of the table."""
    rng = np.random.default_rng(n_inserted)
    times: dict[str, list[float]] = {"patch": [], "whole": [], "load": [], "load whole": []}

    def clock(name: str, call: Callable[[], T]) -> T:
        seconds, result = timed(call)
        times[name].append(1000 * seconds)
        return result

    for _ in range(N_ROUNDS):
        before = write_index(path, {}, arrays)
        patch = replace_vectors(arrays, n_inserted, rng)
        saved = clock("patch", partial(append_patch, before, {}, patch))
        clock("load", partial(read_index, path))
        clock("whole", partial(write_index, path, {}, arrays))
        clock("load whole", partial(read_index, path))
    ms = {name: median(each) for name, each in times.items()}
    sizes = f"{saved.n_patch_bytes / 1e6:10.3f} {saved.n_base_bytes / 1e6:10.1f}"
    ratios = f"{ms['whole'] / ms['patch']:7.1f} {ms['load'] / ms['load whole']:21.2f}"
    return f"{n_inserted:10d} {sizes} {ms['patch']:10.1f} {ms['whole']:10.1f} {ratios}"


def main() -> None:
    """Save changes of several sizes, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=100)
    options = parser.parse_args()
    arrays = random_arrays(options.vectors, options.dim, seed=0)
    print("insertions   patch MB   whole MB   patch ms   whole ms   ratio   load, patched/whole")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        for n_inserted in INSERTIONS:
            print(save_in_turns(Path(directory) / "index", arrays, n_inserted), flush=True)


if __name__ == "__main__":
    main()
