"""A run's directory: its plan, raw results and status."""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
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
from l2route.reproduce.plan import EXPERIMENTS, Cell


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell of a table and the job whose result it shows."""

    cell: Cell
    label: str
    """Name of its method in tables."""
    key: str
    """Key of its job."""
    against: str | None
    """Method of the cell that its gain is measured against, if there is one."""


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """An experiment on one dataset."""

    name: str
    dataset: str
    digest: str
    """Hash of the data."""
    title: str
    source: str
    about: str
    command: str
    """Command that prints the table again."""
    cells: tuple[PlannedCell, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A job's result as read from the directory."""

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]
    job: Mapping[str, Any]
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    finished: str
    """Time in UTC."""


class Store:
    """Reads and writes a run's directory.

    A result is two files named by its job's key: arrays, and JSON that is written last, so that
    a result with its JSON is complete. True neighbours are stored under the hash of their data.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cache = directory / "cache"
        """Graphs and true neighbours, which can be computed again."""

    def create(self) -> None:
        """Make the directories."""
        for name in ("results", "data", "cache"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory's lock: a second run is refused."""
        with (self.directory / ".lock").open("wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"expected one run at a time in {self.directory}, got a second"
                ) from None
            yield

    def is_locked(self) -> bool:
        """Whether a run holds the lock."""
        try:
            with self.locked():
                return False
        except ValueError:
            return True

    def is_finished(self, key: str) -> bool:
        """Whether a job has a result; a skipped one does not count, so that it is tried again."""
        result = self.read(key)
        return result is not None and "skipped" not in result.facts

    def write(self, job: Job, outcome: Outcome) -> None:
        """Write a job's result."""
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
        """A job's result; None if it is missing or incomplete."""
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
        """Write a description of the data and the nearest neighbours of its test queries."""
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
        """Distances of the true nearest neighbours of the test queries [n_queries]."""
        return read_npz(self.directory / "data" / f"{digest}.npz")["distances"]

    def describe(self, digest: str) -> str:
        """The data with this hash, described in a sentence."""
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

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Write the status of the run."""
        _write_json(self.directory / "progress.json", status)

    def status(self) -> dict[str, Any] | None:
        """Status of the run; None if none was written."""
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


def _identity(table: PlannedTable) -> tuple[str, str]:
    return table.name, table.dataset


def _table(entry: Mapping[str, Any]) -> PlannedTable:
    cells = tuple(
        PlannedCell(**{**planned, "cell": Cell(**planned["cell"])}) for planned in entry["cells"]
    )
    return PlannedTable(**{**entry, "cells": cells})


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    replace_text(path, json.dumps(content, indent=1, ensure_ascii=False))
