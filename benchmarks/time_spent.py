"""Where a search by codes spends its time: shares of the parts of the core, one thread, by perf.

    make profile DATA="glove100.npz …"     # arrays `base`, `learn` and `query`

The core is built with debug information for it; perf samples the clock a thousand times a second
and tells the source file of each sample, inlined functions by their own. Time that is spent waiting
for the memory is with what waits for it. Nothing is learned.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

TARGET = 0.95
SECONDS = 10.0
CODES: tuple[Literal["int8", "int4"], ...] = ("int8", "int4")
PARTS = {
    "scoring codes": ("codes.hpp", "avx", "fma", "emmintrin", "smmintrin", "immintrin"),
    "asking the memory for codes": ("rows.hpp",),
    "adjacency": ("graph.hpp",),
    "visited set": ("visited.hpp",),
    "frontier": ("frontier.hpp", "memmove", "bit"),
    "walk": ("beam_search.hpp",),
    "query, rerank, answers": ("searcher.hpp", "distance.hpp", "stl_", "predefined_ops"),
}
"""Beginnings of the names of source files, by part; what no part has is the rest."""


def use(directory: Path) -> None:
    """Import the package from a directory, not the one that is installed."""
    sys.meta_path[:] = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
    sys.path.insert(0, str(directory))


def search(path: Path, index: Path) -> None:
    """Search over and over; this is what perf looks at."""
    import l2route
    from l2route.data import Dataset

    loaded, queries = l2route.load(index, verify=False), Dataset.read(path).query
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        loaded.search(queries, recall=TARGET, n_threads=1)


def shares(report: str) -> dict[str, float]:
    """Percent of the core's time by part, of what perf reports by source file."""
    found = dict.fromkeys([*PARTS, "rest"], 0.0)
    for line in report.splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        name = words[1] if len(words) > 1 else ""
        part = next((part for part, names in PARTS.items() if name.startswith(names)), "rest")
        found[part] += float(words[0].rstrip("%"))
    whole = sum(found.values())
    return {part: 100 * share / whole for part, share in found.items()}


def profile(directory: Path, path: Path, index: Path, scratch: Path) -> dict[str, float]:
    """Search an index in a process of its own, under perf."""
    record = scratch / "perf.data"
    searching = [sys.executable, __file__, str(directory), str(path), "--index", str(index)]
    sampling = ["perf", "record", "-q", "-F", "1000", "-e", "cpu-clock", "-o", str(record), "--"]
    subprocess.run([*sampling, *searching], check=True)
    (core,) = (directory / "l2route").glob("_core*.so")
    objects = f"{core.name},libc.so.6"
    asking = ["perf", "report", "--stdio", "--sort", "srcfile", "--dsos", objects]
    asking += ["-i", str(record)]
    return shares(subprocess.run(asking, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print a table for every file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="where the package is, built for this")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--index", type=Path, help="search this one with the queries of a file")
    options = parser.parse_args()
    directory = options.directory.resolve()
    use(directory)
    if options.index is not None:
        search(options.files[0], options.index)
        return
    from l2route.data import Dataset
    from l2route.evaluation.methods import Routed

    for path in options.files:
        data, columns = Dataset.read(path), []
        for codes in CODES:
            served = Routed(codes)
            served.build(data)
            served.set(round(1000 * TARGET))
            with TemporaryDirectory() as scratch:
                index = Path(scratch, "index")
                served.index.save(index)
                columns.append(profile(directory, path, index, Path(scratch)))
        print(f"\n| {path.stem}, recall@10 of {TARGET} | {' | '.join(CODES)} |\n|---|---|---|")
        for part in columns[0]:
            cells = (f"{column[part]:.0f}%" for column in columns)
            print(f"| {part} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
