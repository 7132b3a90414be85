"""A run's directory: raw results, the plan they belong to, and how far the run has come."""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2route.data.truth import Truth
from l2route.evaluation.context import context
from l2route.files.atomic import replace_text
from l2route.files.formats import read_npz, write_npz
from l2route.reproduce.jobs import Job, Outcome, Source
from l2route.reproduce.plan import EXPERIMENTS, Cell, Experiment


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell of a table and the result that it shows."""

    cell: Cell
    label: str
    """What its method is called."""
    key: str
    """Of its job."""
    against: str | None
    """Method of the cell that its gain is over, if there is one."""


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """An experiment on one dataset."""

    name: str
    dataset: str
    digest: str
    """Of the data."""
    title: str
    source: str
    about: str
    command: str
    """Prints it again."""
    cells: tuple[PlannedCell, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A job's result as it was kept."""

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]
    job: Mapping[str, Any]
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    finished: str
    """When, in UTC."""


class Store:
    """Reads and writes a run's directory.

    A result is two files named by its job's key: arrays, and beside them JSON, written last, so
    that one that has its JSON is whole. True neighbours are kept by the hash of their data.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cache = directory / "cache"
        """Graphs and true neighbours, which can be made again."""

    def create(self) -> None:
        """Make the directories."""
        for name in ("results", "data", "cache"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the directory for the length of a block."""
        with (self.directory / ".lock").open("wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"expected one run at a time in {self.directory}") from None
            yield

    def is_locked(self) -> bool:
        """Whether a run is going on."""
        try:
            with self.locked():
                return False
        except ValueError:
            return True

    def is_finished(self, key: str) -> bool:
        """Whether a job has a result; one that was skipped may be possible by now."""
        result = self.read(key)
        return result is not None and "skipped" not in result.facts

    def write(self, job: Job, outcome: Outcome) -> None:
        """Keep what a job came to."""
        write_npz(self._arrays(job.key), outcome.arrays or {"ids": np.zeros(0, dtype=np.int64)})
        _write_json(
            self._facts(job.key),
            {
                "job": asdict(job),
                "facts": outcome.facts,
                **context(),
                "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            },
        )

    def read(self, key: str) -> Result | None:
        """A job's result; None if there is none, or none that is whole."""
        try:
            facts = json.loads(self._facts(key).read_text(encoding="utf-8"))
            return Result(
                read_npz(self._arrays(key)),
                facts["facts"],
                facts["job"],
                facts["versions"],
                facts["machine"],
                facts["finished"],
            )
        except (OSError, ValueError, KeyError):
            return None

    def write_source(self, source: Source, truth: Truth) -> None:
        """Keep what data is, and the nearest neighbours of its test queries."""
        arrays: dict[str, NDArray[Any]] = {
            "ids": truth.ids[:, 0],
            "distances": truth.distances[:, 0],
        }
        write_npz(self.directory / "data" / f"{source.digest}.npz", arrays)
        data = source.data
        facts = {
            "name": data.name,
            "metric": data.metric,
            "dim": data.base.shape[1],
            "n_base": len(data.base),
            "n_learn": len(source.learn),
            "n_query": len(data.query),
        }
        _write_json(self.directory / "data" / f"{source.digest}.json", facts)

    def nearest(self, digest: str) -> NDArray[np.float32]:
        """True nearest distances of the test queries of some data [n_queries]."""
        return read_npz(self.directory / "data" / f"{digest}.npz")["distances"]

    def describe(self, digest: str) -> str:
        """What some data is, in a sentence."""
        path = self.directory / "data" / f"{digest}.json"
        facts = json.loads(path.read_text(encoding="utf-8"))
        return (
            f"{facts['n_base']:,} vectors of {facts['dim']} dimensions by {facts['metric']}, "
            f"{facts['n_learn']:,} training and {facts['n_query']:,} test queries "
            f"(data {digest})."
        )

    def write_plan(self, tables: Sequence[PlannedTable]) -> None:
        """Add tables to the plan, in place of those of the same name on the same data."""
        kept = [] if not self._plan().exists() else self.tables()
        replaced = {_identity(table) for table in tables}
        every = [table for table in kept if _identity(table) not in replaced] + list(tables)
        every.sort(key=lambda table: EXPERIMENTS.index(table.name))
        _write_json(self._plan(), {"tables": [asdict(table) for table in every]})

    def tables(self) -> list[PlannedTable]:
        """All tables of the plan, each of one experiment on one dataset."""
        if not self._plan().exists():
            raise ValueError(f"expected a run in {self.directory}, got no plan.json there")
        content = json.loads(self._plan().read_text(encoding="utf-8"))
        return [_table(entry) for entry in content["tables"]]

    def write_progress(self, progress: Mapping[str, Any]) -> None:
        """Keep how far the run has come."""
        _write_json(self.directory / "progress.json", progress)

    def progress(self) -> dict[str, Any] | None:
        """How far the run has come; None before its first word."""
        path = self.directory / "progress.json"
        content: dict[str, Any] | None = None
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
        return content

    def _plan(self) -> Path:
        return self.directory / "plan.json"

    def _arrays(self, key: str) -> Path:
        return self.directory / "results" / f"{key}.npz"

    def _facts(self, key: str) -> Path:
        return self.directory / "results" / f"{key}.json"


def plan_table(
    experiment: Experiment, source: Source, cells: Sequence[tuple[Cell, Job]], command: str
) -> PlannedTable:
    """An experiment's table on some data, of these cells and their jobs."""
    dataset, digest = source.data.name, source.digest
    there = {cell.place for cell, _ in cells}
    planned = []
    for cell, job in cells:
        method = experiment.methods[cell.method]
        rivals = (name for name in method.against if replace(cell, method=name).place in there)
        planned.append(PlannedCell(cell, method.label, job.key, next(rivals, None)))
    return PlannedTable(
        experiment.name,
        dataset,
        digest,
        experiment.title,
        experiment.source,
        experiment.about,
        command,
        tuple(planned),
    )


def _identity(table: PlannedTable) -> tuple[str, str]:
    return table.name, table.dataset


def _table(entry: Mapping[str, Any]) -> PlannedTable:
    cells = tuple(
        PlannedCell(**{**planned, "cell": Cell(**planned["cell"])}) for planned in entry["cells"]
    )
    return PlannedTable(**{**entry, "cells": cells})


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    replace_text(path, json.dumps(content, indent=1, ensure_ascii=False))
