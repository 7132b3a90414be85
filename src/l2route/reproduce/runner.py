"""Runs the paper's experiments cell by cell; finished cells are not run again."""

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_at
from l2route.reproduce.jobs import Job, JobRunner, Outcome, Source
from l2route.reproduce.plan import Cell, Experiment, cells_for, read_experiment
from l2route.reproduce.store import PlannedCell, PlannedTable, Store
from l2route.training.log import Event


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Progress of a run."""

    n_done: int
    n_cells: int
    seconds_left: float
    """Estimate for the remaining cells."""
    last: str
    """The last finished cell and its recall."""
    now: str
    """The cell that is being computed; empty at the end."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all cells of a run."""

    directory: Path
    minutes: float | None
    """Time limit of learning, in place of the experiments' own."""
    seed: int


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A job, the first cell that needs it, and what runs it."""

    cell: Cell
    job: Job
    runner: JobRunner


def run_experiments(
    names: Sequence[str],
    paths: Sequence[Path],
    directory: Path,
    *,
    minutes: float | None = None,
    seed: int = 0,
    on_status: Callable[[RunStatus], None] | None = None,
) -> None:
    """Run experiments on files of data, and keep raw results in a directory.

    Args:
        names: of plan.EXPERIMENTS.
        paths: datasets with base vectors, training and test queries.
        directory: the run's directory.
        minutes: time limit of learning in each cell, in place of the experiments' own.
        seed: seed of every random choice.
        on_status: called before the first cell and after every finished cell.
    """
    sources = {path: Source.of(Dataset.read(path)) for path in paths}
    _check_names(list(sources.values()))
    settings = Settings(directory, minutes, seed)
    store = Store(directory)
    store.create()
    with store.locked():
        tables: list[PlannedTable] = []
        pending: dict[str, PendingJob] = {}
        runners = {path: JobRunner(source, store.cache, seed) for path, source in sources.items()}
        for runner in runners.values():
            store.write_source(runner.source, runner.truth(runner.source.data.query))
        for experiment in map(read_experiment, names):
            for path, runner in runners.items():
                cells = list(_jobs(experiment, runner.source, settings))
                command = _command(experiment.name, path, settings)
                tables.append(plan_table(experiment, runner.source, cells, command))
                for cell, job in cells:
                    pending.setdefault(job.key, PendingJob(cell, job, runner))
        store.write_plan(tables)
        _run_all(list(pending.values()), store, on_status or _ignore)


def _jobs(experiment: Experiment, source: Source, settings: Settings) -> Iterator[tuple[Cell, Job]]:
    """Cells of an experiment on some data, each with its job."""
    n_base, dim = source.data.base.shape
    for cell in cells_for(experiment, source.data.name, n_base, dim):
        method = experiment.methods[cell.method]
        yield cell, Job.of(cell, method, source, settings.minutes, settings.seed)


def plan_table(
    experiment: Experiment, source: Source, cells: Sequence[tuple[Cell, Job]], command: str
) -> PlannedTable:
    """The table of an experiment on some data.

    A cell's gain is measured against the first of its method's rivals that has a cell of the
    same budget and compression.

    Args:
        experiment: names the methods and their rivals.
        source: the data.
        cells: cells on this data with their jobs.
        command: prints the table again.
    """
    places = {cell.place for cell, _ in cells}
    planned = []
    for cell, job in cells:
        method = experiment.methods[cell.method]
        rivals = (name for name in method.against if replace(cell, method=name).place in places)
        planned.append(PlannedCell(cell, method.label, job.key, next(rivals, None)))
    return PlannedTable(
        name=experiment.name,
        dataset=source.data.name,
        digest=source.digest,
        title=experiment.title,
        source=experiment.source,
        about=experiment.about,
        command=command,
        cells=tuple(planned),
    )


def _command(name: str, path: Path, settings: Settings) -> str:
    """The command that makes a table again, with file names only: directories are private."""
    words = ["l2route", "reproduce", name, "--data", path.name, "--out", settings.directory.name]
    words += [] if settings.minutes is None else ["--minutes-per-run", f"{settings.minutes:g}"]
    words += [] if settings.seed == 0 else ["--seed", str(settings.seed)]
    return shlex.join(words)


def _run_all(
    every: Sequence[PendingJob], store: Store, on_status: Callable[[RunStatus], None]
) -> None:
    left = [pending for pending in every if not store.is_finished(pending.job.key)]
    expected = sum(pending.job.expected_seconds for pending in left)
    spent = planned = 0.0
    last = "started"
    for i, pending in enumerate(left):
        n_done = len(every) - len(left) + i
        rest = (expected - planned) * (spent / planned if planned else 1.0)
        status = RunStatus(n_done, len(every), rest, last, _name(pending.cell))
        _keep(store, status)
        on_status(status)
        begin = time.perf_counter()
        outcome = _outcome(pending, store, status)
        store.write(pending.job, outcome)
        spent += time.perf_counter() - begin
        planned += pending.job.expected_seconds
        last = _describe(pending, outcome, store)
    done = RunStatus(len(every), len(every), 0.0, last, "")
    _keep(store, done)
    on_status(done)


def _outcome(pending: PendingJob, store: Store, status: RunStatus) -> Outcome:
    """A job's result; a cell that fails is skipped, so that the others are still run."""
    begin = time.perf_counter()

    def on_event(event: Event) -> None:
        left = max(0.0, status.seconds_left - (time.perf_counter() - begin))
        words = f"step {event.step:,} of about {event.n_steps:,}, validation {event.recall:.3f}"
        _keep(store, replace(status, seconds_left=left, now=f"{status.now}: {words}"))

    try:
        return pending.runner.run(pending.job, on_event)
    except (ValueError, RuntimeError) as error:
        return Outcome({}, {"skipped": str(error)})


def _name(cell: Cell) -> str:
    return f"{cell.dataset}, {cell.method} ×{cell.compression} at {cell.budget}"


def _describe(pending: PendingJob, outcome: Outcome, store: Store) -> str:
    """A finished cell and its recall, in a line."""
    if "skipped" in outcome.facts:
        return f"{_name(pending.cell)}: skipped, {outcome.facts['skipped']}"
    nearest = store.nearest(pending.job.digest)
    recall = recall_at(outcome.arrays["distances"][:, None], nearest[:, None], 1)
    paper = "" if pending.cell.recall is None else f" (paper {pending.cell.recall:.3f})"
    return f"{_name(pending.cell)}: recall@1 {recall:.3f}{paper}"


def _keep(store: Store, status: RunStatus) -> None:
    store.write_status({**asdict(status), "time": time.time()})


def _check_names(sources: Sequence[Source]) -> None:
    names = [source.data.name for source in sources]
    if len(set(names)) != len(names):
        raise ValueError(f"expected data of distinct names, got {', '.join(names)}")


def _ignore(status: RunStatus) -> None:
    pass
