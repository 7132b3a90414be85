"""Runs the paper's experiments, cell by cell; what is finished is not run again."""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_at
from l2route.reproduce.jobs import Job, Outcome, Source, Workshop
from l2route.reproduce.plan import Cell, cells_for, read_experiment
from l2route.reproduce.store import PlannedTable, Store, plan_table
from l2route.training.log import Event


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


@dataclass(frozen=True, slots=True)
class Todo:
    """A job, the first cell that asks for it, and who makes it."""

    cell: Cell
    job: Job
    shop: Workshop


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
    with store.locked():
        tables: list[PlannedTable] = []
        todo: dict[str, Todo] = {}
        shops = {path: Workshop(source, store.cache, seed) for path, source in sources.items()}
        for path, source in sources.items():
            store.write_source(source, shops[path].truth(source.data.query))
        for experiment in map(read_experiment, names):
            for path, source in sources.items():
                cells = [
                    (cell, Job.of(cell, experiment.methods[cell.method], source, minutes, seed))
                    for cell in cells_for(experiment, source.data.name, *source.data.base.shape)
                ]
                command = _command(experiment.name, path, directory, minutes, seed)
                tables.append(plan_table(experiment, source, cells, command))
                for cell, job in cells:
                    todo.setdefault(job.key, Todo(cell, job, shops[path]))
        store.write_plan(tables)
        _run_all(list(todo.values()), store, on_progress or _ignore)


def _command(name: str, path: Path, directory: Path, minutes: float | None, seed: int) -> str:
    """What makes a table again, with names alone: folders are nobody's business."""
    words = ["l2route", "reproduce", name, "--data", path.name, "--out", directory.name]
    words += [] if minutes is None else ["--minutes-per-run", f"{minutes:g}"]
    words += [] if seed == 0 else ["--seed", str(seed)]
    return shlex.join(words)


def _run_all(every: Sequence[Todo], store: Store, on_progress: Callable[[Progress], None]) -> None:
    left = [todo for todo in every if not store.is_finished(todo.job.key)]
    expected = sum(todo.job.expected_seconds for todo in left)
    spent = planned = 0.0
    last = "started"
    for i, todo in enumerate(left):
        n_done = len(every) - len(left) + i
        rest = (expected - planned) * (spent / planned if planned else 1.0)
        progress = Progress(n_done, len(every), rest, last, _named(todo.cell))
        _keep(store, progress)
        on_progress(progress)
        begin = time.perf_counter()
        outcome = _outcome(todo, store, progress)
        store.write(todo.job, outcome)
        spent += time.perf_counter() - begin
        planned += todo.job.expected_seconds
        last = _said(todo, outcome, store)
    done = Progress(len(every), len(every), 0.0, last, "")
    _keep(store, done)
    on_progress(done)


def _outcome(todo: Todo, store: Store, progress: Progress) -> Outcome:
    """A job's result; a cell that cannot be made is skipped, for the sake of the others."""
    begin = time.perf_counter()

    def on_event(event: Event) -> None:
        left = max(0.0, progress.seconds_left - (time.perf_counter() - begin))
        words = f"step {event.step:,} of about {event.n_steps:,}, validation {event.recall:.3f}"
        _keep(store, replace(progress, seconds_left=left, now=f"{progress.now}: {words}"))

    try:
        return todo.shop.run(todo.job, on_event)
    except (ValueError, RuntimeError) as error:
        return Outcome({}, {"skipped": str(error)})


def _named(cell: Cell) -> str:
    return f"{cell.dataset}, {cell.method} ×{cell.compression} at {cell.budget}"


def _said(todo: Todo, outcome: Outcome, store: Store) -> str:
    """What a finished cell came to, in a line."""
    if "skipped" in outcome.facts:
        return f"{_named(todo.cell)}: skipped, {outcome.facts['skipped']}"
    nearest = store.nearest(todo.job.digest)
    recall = recall_at(outcome.arrays["distances"][:, None], nearest[:, None], 1)
    paper = "" if todo.cell.recall is None else f" (paper {todo.cell.recall:.3f})"
    return f"{_named(todo.cell)}: recall@1 {recall:.3f}{paper}"


def _keep(store: Store, progress: Progress) -> None:
    store.write_progress({**asdict(progress), "time": time.time()})


def _check_names(sources: Sequence[Source]) -> None:
    names = [source.data.name for source in sources]
    if len(set(names)) != len(names):
        raise ValueError(f"expected data of distinct names, got {', '.join(names)}")


def _ignore(progress: Progress) -> None:
    pass
