"""Where searches by codes spend their time: share of each part of the core, one thread, by perf.

    make profile DATA="glove100.npz …"     # arrays `base`, `learn` and `query`

The core is built with debug information; perf takes a thousand samples a second and reports the
source file of each, also of inlined functions. Time spent waiting for memory counts for the code
that waits.
Nothing is learned.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from l2route import RoutingIndex, _core, load
from l2route.data.dataset import Dataset
from l2route.data.metrics import N_ANSWERS
from l2route.evaluation.compare.methods import served_graph
from l2route.search.validation import N_KEPT

RUN_AGAINST = Path(__file__).parents[1] / "tests/run_against.py"
TARGET = 0.95
SECONDS = 10.0
CODES: tuple[Literal["int8", "int4"], ...] = ("int8", "int4")
PARTS = {
    "scoring codes": ("codes.hpp", "avx", "fma", "emmintrin", "smmintrin", "immintrin"),
    "prefetching codes": ("rows.hpp",),
    "adjacency": ("graph.hpp",),
    "visited set": ("visited.hpp",),
    "frontier": ("frontier.hpp", "memmove", "bit"),
    "walk": ("beam_search.hpp",),
    "query, rerank, answers": ("searcher.hpp", "distance.hpp", "stl_", "predefined_ops"),
}
"""Prefixes of the names of source files by part; all other files are the rest."""


def served(data: Dataset) -> Iterator[RoutingIndex]:
    """Calibrated indexes with each kind of codes over one graph."""
    built = served_graph(data)
    built.validate_with(data.training[-N_KEPT:])
    built.renumber()
    for codes in CODES:
        index = RoutingIndex(built.base, built.graph, (), built.labels, built.validation)
        index.compress(codes, vectors="float16")
        index.setting(TARGET, N_ANSWERS)
        yield index


def search(path: Path, index: Path) -> None:
    """Search repeatedly; perf samples this."""
    loaded, queries = load(index, verify=False), Dataset.read(path).query
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        loaded.search(queries, N_ANSWERS, recall=TARGET, n_threads=1)


def shares(report: str) -> dict[str, float]:
    """Percentage of the core's time by part, from perf's report by source file."""
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


def profile(path: Path, index: Path, scratch: Path) -> dict[str, float]:
    """Search an index in a process of its own, under perf."""
    record, core = scratch / "perf.data", Path(_core.__file__)
    against = [sys.executable, str(RUN_AGAINST), str(core.parent.parent)]
    searching = [*against, __file__, str(path), "--index", str(index)]
    sampling = ["perf", "record", "-q", "-F", "1000", "-e", "cpu-clock", "-o", str(record), "--"]
    subprocess.run([*sampling, *searching], check=True)
    objects = f"{core.name},libc.so.6"
    asking = ["perf", "report", "--stdio", "--sort", "srcfile", "--dsos", objects]
    asking += ["-i", str(record)]
    return shares(subprocess.run(asking, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print a table for every file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument(
        "--index",
        type=Path,
        help="an index to search with the queries of the first file; used under perf",
    )
    options = parser.parse_args()
    if options.index is not None:
        search(options.files[0], options.index)
        return
    for path in options.files:
        columns = []
        for index in served(Dataset.read(path)):
            with TemporaryDirectory() as scratch:
                saved = Path(scratch, "index")
                index.save(saved)
                columns.append(profile(path, saved, Path(scratch)))
        print(f"\n| {path.stem}, recall@10 of {TARGET} | {' | '.join(CODES)} |\n|---|---|---|")
        for part in columns[0]:
            cells = (f"{column[part]:.0f}%" for column in columns)
            print(f"| {part} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
