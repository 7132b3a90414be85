"""Runs the paper's experiments, cell by cell; what is finished is not run again."""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from l2route.data import Dataset
from l2route.metrics import recall_at
from l2route.reproduce.jobs import Job, Source, Workshop
from l2route.reproduce.plan import Cell, cells_for, read_experiment
from l2route.reproduce.store import PlannedTable, Store, plan_table


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    n_done: int
    n_cells: int
    seconds_left: float
    """About what the rest takes."""
    last: str
    """What was finished last, and what it came to."""
    now: str
    """What is being made; nothing at the end."""


def run_experiments(
    names: Sequence[str],
    paths: Sequence[Path],
    directory: Path,
    *,
    minutes: float | None = None,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Run experiments on files of data, and keep raw results in a directory.

    Args:
        names: of plan.EXPERIMENTS.
        paths: datasets with base vectors, training and test queries.
        directory: the run's.
        minutes: time to learn for in each cell, in place of the experiments' own.
        seed: of every random choice.
        on_progress: told of every finished cell.
    """
    sources = {path: Source.of(Dataset.read(path)) for path in paths}
    _check_names(list(sources.values()))
    store = Store(directory)
    store.create()
    tables: list[PlannedTable] = []
    jobs: dict[str, tuple[Cell, Job, Source]] = {}
    for experiment in map(read_experiment, names):
        for path, source in sources.items():
            name, dim = source.data.name, source.data.base.shape[1]
            cells = [
                (cell, Job.of(cell, experiment.methods[cell.method], source, minutes, seed))
                for cell in cells_for(experiment, name, dim)
            ]
            command = _command(experiment.name, path, minutes, seed)
            tables.append(plan_table(experiment, name, cells, command))
            for cell, job in cells:
                jobs.setdefault(job.key, (cell, job, source))
    store.write_plan(tables)
    _run_jobs(list(jobs.values()), store, seed, on_progress or _ignore)


def _command(name: str, path: Path, minutes: float | None, seed: int) -> str:
    """What makes a table again, with the file's name alone: its folder is nobody's business."""
    words = ["l2route", "reproduce", name, "--data", path.name]
    words += [] if minutes is None else ["--minutes-per-run", f"{minutes:g}"]
    words += [] if seed == 0 else ["--seed", str(seed)]
    return shlex.join(words)


def _run_jobs(
    jobs: Sequence[tuple[Cell, Job, Source]],
    store: Store,
    seed: int,
    on_progress: Callable[[Progress], None],
) -> None:
    left = [(cell, job, source) for cell, job, source in jobs if not store.has(job.key)]
    expected = sum(job.expected_seconds for _, job, _ in left)
    spent = planned = 0.0
    last = "started"
    shops: dict[str, Workshop] = {}
    for i, (cell, job, source) in enumerate(left):
        n_done = len(jobs) - len(left) + i
        rest = (expected - planned) * (spent / planned if planned else 1.0)
        _tell(store, on_progress, Progress(n_done, len(jobs), rest, last, _named(cell)))
        begin = time.perf_counter()
        if source.digest not in shops:
            shops[source.digest] = Workshop(source, store.cache, seed)
            store.write_truth(source, shops[source.digest].truth(source.data.query))
        store.write(job, shops[source.digest].run(job))
        spent += time.perf_counter() - begin
        planned += job.expected_seconds
        last = _said(cell, job, store)
    _tell(store, on_progress, Progress(len(jobs), len(jobs), 0.0, last, ""))


def _named(cell: Cell) -> str:
    return f"{cell.dataset}, {cell.method} ×{cell.compression} at {cell.budget}"


def _said(cell: Cell, job: Job, store: Store) -> str:
    """What a finished cell came to, in a line."""
    name = _named(cell)
    result = store.read(job.key)
    assert result is not None  # it has just been written
    if "skipped" in result.facts:
        return f"{name}: skipped, {result.facts['skipped']}"
    recall = recall_at(result.arrays["distances"][:, None], store.nearest(job.digest)[:, None], 1)
    paper = "" if cell.recall is None else f" (paper {cell.recall:.3f})"
    return f"{name}: recall@1 {recall:.3f}{paper}"


def _tell(store: Store, on_progress: Callable[[Progress], None], progress: Progress) -> None:
    store.write_progress({**asdict(progress), "time": time.time()})
    on_progress(progress)


def _check_names(sources: Sequence[Source]) -> None:
    names = [source.data.name for source in sources]
    if len(set(names)) != len(names):
        raise ValueError(f"expected data of distinct names, got {', '.join(names)}")


def _ignore(progress: Progress) -> None:
    pass
